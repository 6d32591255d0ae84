"""The page about a dataset: figures, tables and text in one self-contained file."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from winnow import __version__
from winnow.data.advice import advise, degree, verdict
from winnow.data.columns import shown
from winnow.data.dataset import Dataset
from winnow.data.imbalance import Imbalance
from winnow.inspection import coverage, episodes, pictures, weightings, words
from winnow.inspection.coverage import Map
from winnow.inspection.weightings import Weighting
from winnow.render import figures, pages

Say = Callable[[str], None]


def write(
    path: Path,
    data: Dataset,
    measured: Imbalance,
    runs: Sequence[Path] = (),
    asked: Sequence[str] = (),
    say: Say = lambda what: None,
    recommended: Weighting | None = None,
) -> None:
    """Write the page of a dataset. `runs` are files of finished runs, `asked` the command's arguments, and `say` gets
    a line about each stage."""
    from markupsafe import Markup

    script = (resources.files("winnow.render") / "templates" / "inspect.js").read_text(encoding="utf-8")
    advice = advise(data, measured)
    recommended = recommended or weightings.recommended(data, advice)
    compared = weightings.plain(data)
    if recommended and recommended.name not in [weighting.name for weighting in compared]:
        compared.append(recommended)
    compared += weightings.of_runs(data, runs, say)
    say("laying out the states")
    state_map = coverage.project(data)
    say("drawing")
    strips = _strips(data, compared)
    pages.write(
        path,
        "inspect.html",
        title=data.meta.name,
        script=Markup(script),
        script_sum=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        facts={
            "map": state_map and _map(data, state_map, compared),
            "sources": _sources(data),
            "weightings": [{"name": weighting.name, "octaves": weighting.octaves} for weighting in compared],
            "strips": [strip["drawn"] for group in strips for strip in group["strips"]],
        },
        about=_about(data),
        notes=data.meta.notes,
        degree=degree(measured),
        verdict=verdict(measured),
        method=advice.method,
        why=advice.why,
        unshown=words.unshown(data, compared, len(runs)),
        numbers=words.numbers(measured),
        of=measured.of,
        has_episodes=data.has_episodes,
        by_source=measured.sources if len(data.meta.sources) > 1 else (),
        spread=pages.picture(pictures.spread(data, measured), _spread_words(data, measured)),
        place=state_map,
        drawn=state_map and {"points": len(state_map.drawn), "rows": len(data)},
        weightings=[_weighting(data, weighting, state_map) for weighting in compared],
        sources=data.meta.sources,
        comparison=pages.picture(pictures.comparison(data, compared), _comparison_words(data, compared)),
        strips=strips,
        ends=_ends(data),
        extremes=[_extremes(data, weighting) for weighting in compared if not weighting.is_even],
        asked=shlex.join(asked),
        version=__version__,
    )


def number(value: float) -> str:
    """Four digits that matter, and a true minus."""
    text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return text.replace("-", "−")


def _percent(part: float) -> str:
    """With one digit behind the point, or with two that matter where there is little."""
    return f"{100 * part:.1f} %" if part >= 0.01 or part == 0 else f"{100 * part:.2g} %"


def _named(names: tuple[str, ...]) -> str:
    return f": {shown(names)}" if names else ""


def _about(data: Dataset) -> dict[str, str]:
    table = data.episodes
    count = len(table)
    facts = {"rows": f"{len(data):,}"}
    if data.has_episodes:
        ended = int(table.terminated.sum())
        facts["episodes"] = f"{count:,}, of {number(table.length.min())} to {number(table.length.max())} steps"
        facts["ends"] = f"{ended:,} terminal, {count - ended:,} timed out or cut"
    facts |= {
        "kind": data.meta.kind,
        "observation": f"{data.obs_dim} number{'s' if data.obs_dim > 1 else ''}{_named(data.meta.obs_names)}",
        "action": f"{_action(data)}{_named(data.meta.action_names)}",
        "rewards": f"{number(float(data.reward.min()))} to {number(float(data.reward.max()))}",
        "environment": data.meta.environment or "not known",
    }
    return facts


def _sources(data: Dataset) -> list[dict[str, str]]:
    return [{"name": label, "colour": colour} for label, colour in figures.colours(data.meta.sources).items()]


def _packed(values: np.ndarray, kind: str) -> str:
    """Numbers as the page's script unpacks them: little-endian, in base64."""
    return base64.b64encode(np.ascontiguousarray(values, np.dtype(kind)).tobytes()).decode()


# ----------------------------------------------------------------------------------------------------------- figures


def _spread_words(data: Dataset, measured: Imbalance) -> str:
    things = "episodes" if data.has_episodes else "rows"
    least, middle, greatest = (number(measured.quantiles[q]) for q in ("0", "0.5", "1"))
    each = "; ".join(f"{source.label} has a mean of {number(source.mean)}" for source in measured.sources)
    return (
        f"Histogram of the {measured.of}s of {measured.count:,} {things}, counts on a logarithmic scale: from {least} "
        f"to {greatest}, half of them at most {middle}. {each}."
    )


def _comparison_words(data: Dataset, compared: Sequence[Weighting]) -> str:
    part, lines = weightings.on_the_best(weightings.scores(data), [weighting.weight for weighting in compared])
    tenth = int(np.searchsorted(part, 0.1))
    shares = "; ".join(
        f"{weighting.name} {_percent(float(line[tenth]))}" for weighting, line in zip(compared, lines, strict=True)
    )
    of = "return" if data.has_episodes else "reward"
    return (
        f"Lines of how each weighting spreads. Share of its weight on the tenth of the rows of highest {of}: {shares}."
    )


# --------------------------------------------------------------------------------------------------- the map of states


def _map(data: Dataset, state_map: Map, compared: Sequence[Weighting]) -> dict[str, Any]:
    rows = state_map.drawn
    source = data.source[rows]
    reward = data.reward[rows]
    colourings: list[dict[str, Any]] = []
    if data.has_episodes and np.ptp(data.returns) > 0:
        got = data.returns[data.episode[rows]]
        colourings.append(_scale("return", "return of the episode", got, data.returns))
    if np.ptp(data.reward) > 0:
        colourings.append(_scale("reward", "reward of the step", reward, data.reward))
    if len(data.meta.sources) > 1:
        text = "Coloured by source: " + ", ".join(
            f"{label} {_percent(float(np.mean(source == i)))}" for i, label in enumerate(data.meta.sources)
        )
        colourings.append({"name": "source", "kind": "source", "said": f"{text} of the points."})
    for weighting in compared:
        if not weighting.is_even:
            text = f"Coloured by the weight of {weighting.name}: {words.heaviness(weighting)}."
            drawn = {"kind": "weight", "values": _packed(weighting.weight[rows], "<f4"), "octaves": weighting.octaves}
            colourings.append({"name": f"weight: {weighting.name}", "said": text} | drawn)
    if not colourings:
        colourings = [{"name": "nothing", "kind": "plain", "said": "Nothing in this data tells points apart."}]
    labels = {"episode": data.episode[rows], "step": data.step[rows]} if data.has_episodes else {}
    return {
        "x": _packed(np.round(state_map.position[rows, 0] * 65535), "<u2"),
        "y": _packed(np.round(state_map.position[rows, 1] * 65535), "<u2"),
        "source": _packed(source, "<u2"),
        "labels": [[name, _packed(values, "<u4")] for name, values in ({"row": rows} | labels).items()],
        "colourings": colourings,
    }


def _scale(name: str, what: str, values: np.ndarray, every: np.ndarray) -> dict[str, Any]:
    low = float(every.min())
    high = float(every.max())
    middle = float(np.median(every))
    text = f"Coloured by the {what}: from {number(low)} to {number(high)}, half of them at most {number(middle)}."
    drawn = {"values": _packed(values, "<f4"), "low": low, "high": high, "ends": [number(low), number(high)]}
    return {"name": name, "kind": "scale", "said": text} | drawn


# ------------------------------------------------------------------------------------------- weights, strips and rows


def _weighting(data: Dataset, weighting: Weighting, state_map: Map | None) -> dict[str, Any]:
    got = weightings.summary(data, weighting.weight)
    reach = state_map.reach(weighting.weight) / state_map.reach(np.ones(len(data))) if state_map else None
    return {
        "name": weighting.name,
        "description": weighting.description,
        "effective": _percent(got.effective_share),
        "effective_rows": f"{got.effective_share * len(data):,.0f}",
        "mean_return": None if got.mean_return is None else number(got.mean_return),
        "mean_reward": number(got.mean_reward),
        "largest": None if got.largest is None else _percent(got.largest),
        "shares": [_percent(share) for share in got.shares],
        "reach": None if reach is None else _percent(reach),
        "spread": words.heaviness(weighting),
    }


def _strips(data: Dataset, compared: Sequence[Weighting]) -> list[dict[str, Any]]:
    """Groups of episodes, each with its text and its drawing."""
    if not data.has_episodes:
        return []
    return [
        {"title": title, "strips": [_strip(data, int(episode), compared) for episode in numbers]}
        for title, numbers in episodes.groups(data.returns).items()
    ]


def _ends(data: Dataset) -> list[dict[str, Any]]:
    """The best and the worst episodes by return, with their own ids."""
    if not data.has_episodes:
        return []
    groups = {title: episodes_of for title, episodes_of in episodes.groups(data.returns).items() if title != "typical"}
    return [
        {
            "title": title,
            "rows": [
                {
                    "episode": str(data.episodes.id[episode]),
                    "steps": f"{data.episodes.length[episode]:,}",
                    "return": number(float(data.returns[episode])),
                }
                for episode in episodes_of
            ],
        }
        for title, episodes_of in groups.items()
    ]


def _strip(data: Dataset, episode: int, compared: Sequence[Weighting]) -> dict[str, Any]:
    table = data.episodes
    drawn = episodes.strip(data, episode, compared)
    start = int(table.start[episode])
    length = int(table.length[episode])
    mean = [number(float(weighting.weight[start : start + length].mean())) for weighting in compared]
    return {
        "episode": str(table.id[episode]),
        "source": data.meta.sources[table.source[episode]],
        "steps": f"{length:,}",
        "end": "terminal" if table.terminated[episode] else "timeout",
        "return": number(float(data.returns[episode])),
        "mean": mean[0],
        "drawn": {
            "steps": length,
            "reward": _packed(drawn.reward, "<f4"),
            "weights": [_packed(weight, "<f4") for weight in drawn.weights],
            "means": mean,
        },
    }


def _extremes(data: Dataset, weighting: Weighting) -> dict[str, Any]:
    sides = {"heaviest": episodes.heaviest(weighting.weight), "lightest": episodes.lightest(weighting.weight)}
    return {
        "name": weighting.name,
        "sides": [
            {
                "side": side,
                "alike": f"{extreme.alike:,}" if extreme.alike > 1 else "",
                "rows": _rows(data, extreme.rows, weighting),
            }
            for side, extreme in sides.items()
        ],
    }


def _rows(data: Dataset, rows: np.ndarray, weighting: Weighting) -> list[dict[str, str]]:
    episode = data.episode[rows]
    step = data.step[rows]
    return [
        {
            "row": f"{row:,}",
            "episode": f"{episode[i]:,}",
            "step": f"{step[i]:,}",
            "source": data.meta.sources[data.episodes.source[episode[i]]],
            "reward": number(float(data.reward[row])),
            "return": number(float(data.returns[episode[i]])) if data.has_episodes else "",
            "weight": number(float(weighting.weight[row])),
        }
        for i, row in enumerate(rows)
    ]


def _action(data: Dataset) -> str:
    if data.action_kind == "discrete":
        return f"one of {data.action_dim} choices"
    return f"{data.action_dim} number{'s' if data.action_dim > 1 else ''}"
