"""The page itself: what the data holds, in figures, tables and words, in one file that needs no other."""

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

Told = Callable[[str], None]


def write(
    path: Path,
    data: Dataset,
    measured: Imbalance,
    runs: Sequence[Path] = (),
    asked: Sequence[str] = (),
    told: Told = lambda what: None,
) -> None:
    """Write the page of a dataset. `runs` are files of finished runs, `asked` the words that asked for the page, and
    `told` hears what is being done."""
    from markupsafe import Markup

    script = (resources.files("winnow.render") / "templates" / "inspect.js").read_text(encoding="utf-8")
    found = weightings.plain(data) + weightings.of_runs(data, runs, told)
    told("laying out the states")
    place = coverage.project(data)
    told("drawing")
    advice = advise(data, measured)
    strips = _strips(data, found)
    pages.write(
        path,
        "inspect.html",
        title=data.meta.name,
        script=Markup(script),
        script_sum=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        facts={
            "map": place and _map(data, place, found),
            "sources": _sources(data),
            "weightings": [{"name": one.name, "octaves": one.octaves} for one in found],
            "strips": [one["drawn"] for group in strips for one in group["strips"]],
        },
        about=_about(data),
        notes=data.meta.notes,
        degree=degree(measured),
        verdict=verdict(measured),
        method=advice.method,
        why=advice.why,
        unshown=words.unshown(data, found, len(runs)),
        numbers=words.numbers(measured),
        of=measured.of,
        has_episodes=data.has_episodes,
        by_source=measured.sources if len(data.meta.sources) > 1 else (),
        spread=pages.picture(pictures.spread(data, measured), _spread_words(data, measured)),
        place=place,
        drawn=place and {"points": len(place.drawn), "rows": len(data)},
        weightings=[_weighting(data, one, place) for one in found],
        sources=data.meta.sources,
        comparison=pages.picture(pictures.comparison(data, found), _comparison_words(data, found)),
        strips=strips,
        extremes=[_extremes(data, one) for one in found if not one.is_even],
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
    table, count = data.episodes, len(data.episodes)
    said = {"rows": f"{len(data):,}"}
    if data.has_episodes:
        ended = int(table.terminated.sum())
        said["episodes"] = f"{count:,}, of {number(table.length.min())} to {number(table.length.max())} steps"
        said["ends"] = f"{ended:,} terminal, {count - ended:,} timed out or cut"
    said |= {
        "kind": data.meta.kind,
        "observation": f"{data.obs_dim} number{'s' if data.obs_dim > 1 else ''}{_named(data.meta.obs_names)}",
        "action": f"{_action(data)}{_named(data.meta.action_names)}",
        "rewards": f"{number(float(data.reward.min()))} to {number(float(data.reward.max()))}",
        "environment": data.meta.environment or "not known",
    }
    return said


def _sources(data: Dataset) -> list[dict[str, str]]:
    return [{"name": label, "colour": colour} for label, colour in figures.colours(data.meta.sources).items()]


def _packed(values: np.ndarray, kind: str) -> str:
    """Numbers as the page's script unpacks them: little-endian, in base64."""
    return base64.b64encode(np.ascontiguousarray(values, np.dtype(kind)).tobytes()).decode()


# ----------------------------------------------------------------------------------------------------------- figures


def _spread_words(data: Dataset, measured: Imbalance) -> str:
    things = "episodes" if data.has_episodes else "rows"
    least, middle, greatest = (number(measured.quantiles[q]) for q in ("0", "0.5", "1"))
    each = "; ".join(f"{one.label} has a mean of {number(one.mean)}" for one in measured.sources)
    return (
        f"Histogram of the {measured.of}s of {measured.count:,} {things}, counts on a logarithmic scale: from {least} "
        f"to {greatest}, half of them at most {middle}. {each}."
    )


def _comparison_words(data: Dataset, found: Sequence[Weighting]) -> str:
    part, lines = weightings.on_the_best(weightings.scores(data), [one.weight for one in found])
    tenth = int(np.searchsorted(part, 0.1))
    said = "; ".join(f"{one.name} {_percent(float(line[tenth]))}" for one, line in zip(found, lines, strict=True))
    of = "return" if data.has_episodes else "reward"
    return f"Lines of how each weighting spreads. Share of its weight on the tenth of the rows of highest {of}: {said}."


# --------------------------------------------------------------------------------------------------- the map of states


def _map(data: Dataset, place: Map, found: Sequence[Weighting]) -> dict[str, Any]:
    rows = place.drawn
    source, reward = data.source[rows], data.reward[rows]
    colourings: list[dict[str, Any]] = []
    if data.has_episodes and np.ptp(data.returns) > 0:
        got = data.returns[data.episode[rows]]
        colourings.append(_scale("return", "return of the episode", got, data.returns))
    if np.ptp(data.reward) > 0:
        colourings.append(_scale("reward", "reward of the step", reward, data.reward))
    if len(data.meta.sources) > 1:
        said = "Coloured by source: " + ", ".join(
            f"{label} {_percent(float(np.mean(source == i)))}" for i, label in enumerate(data.meta.sources)
        )
        colourings.append({"name": "source", "kind": "source", "said": f"{said} of the points."})
    for one in found:
        if not one.is_even:
            said = f"Coloured by the weight of {one.name}: {words.heaviness(one)}."
            drawn = {"kind": "weight", "values": _packed(one.weight[rows], "<f4"), "octaves": one.octaves}
            colourings.append({"name": f"weight: {one.name}", "said": said} | drawn)
    if not colourings:
        colourings = [{"name": "nothing", "kind": "plain", "said": "Nothing in this data tells points apart."}]
    labels = {"episode": data.episode[rows], "step": data.step[rows]} if data.has_episodes else {}
    return {
        "x": _packed(np.round(place.place[rows, 0] * 65535), "<u2"),
        "y": _packed(np.round(place.place[rows, 1] * 65535), "<u2"),
        "source": _packed(source, "<u2"),
        "labels": [[name, _packed(values, "<u4")] for name, values in ({"row": rows} | labels).items()],
        "colourings": colourings,
    }


def _scale(name: str, what: str, values: np.ndarray, every: np.ndarray) -> dict[str, Any]:
    low, high = float(every.min()), float(every.max())
    middle = float(np.median(every))
    said = f"Coloured by the {what}: from {number(low)} to {number(high)}, half of them at most {number(middle)}."
    drawn = {"values": _packed(values, "<f4"), "low": low, "high": high, "ends": [number(low), number(high)]}
    return {"name": name, "kind": "scale", "said": said} | drawn


# ------------------------------------------------------------------------------------------- weights, strips and rows


def _weighting(data: Dataset, one: Weighting, place: Map | None) -> dict[str, Any]:
    got = weightings.summary(data, one.weight)
    reach = place.reach(one.weight) / place.reach(np.ones(len(data))) if place else None
    return {
        "name": one.name,
        "words": one.words,
        "effective": _percent(got.effective_share),
        "effective_rows": f"{got.effective_share * len(data):,.0f}",
        "mean_return": None if got.mean_return is None else number(got.mean_return),
        "mean_reward": number(got.mean_reward),
        "shares": [_percent(share) for share in got.shares],
        "reach": None if reach is None else _percent(reach),
        "spread": words.heaviness(one),
    }


def _strips(data: Dataset, found: Sequence[Weighting]) -> list[dict[str, Any]]:
    """Groups of episodes, each with what is told of it and what is drawn of it."""
    if not data.has_episodes:
        return []
    return [
        {"title": title, "strips": [_strip(data, int(episode), found) for episode in some]}
        for title, some in episodes.groups(data.returns).items()
    ]


def _strip(data: Dataset, episode: int, found: Sequence[Weighting]) -> dict[str, Any]:
    table, drawn = data.episodes, episodes.strip(data, episode, found)
    start, length = int(table.start[episode]), int(table.length[episode])
    mean = [number(float(one.weight[start : start + length].mean())) for one in found]
    return {
        "episode": f"{episode:,}",
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


def _extremes(data: Dataset, one: Weighting) -> dict[str, Any]:
    sides = {"heaviest": episodes.heaviest(one.weight), "lightest": episodes.lightest(one.weight)}
    return {
        "name": one.name,
        "sides": [
            {"side": side, "alike": f"{some.alike:,}" if some.alike > 1 else "", "rows": _rows(data, some.rows, one)}
            for side, some in sides.items()
        ],
    }


def _rows(data: Dataset, rows: np.ndarray, one: Weighting) -> list[dict[str, str]]:
    episode, step = data.episode[rows], data.step[rows]
    return [
        {
            "row": f"{row:,}",
            "episode": f"{episode[i]:,}",
            "step": f"{step[i]:,}",
            "source": data.meta.sources[data.episodes.source[episode[i]]],
            "reward": number(float(data.reward[row])),
            "return": number(float(data.returns[episode[i]])) if data.has_episodes else "",
            "weight": number(float(one.weight[row])),
        }
        for i, row in enumerate(rows)
    ]


def _action(data: Dataset) -> str:
    if data.action_kind == "discrete":
        return f"one of {data.action_dim} choices"
    return f"{data.action_dim} number{'s' if data.action_dim > 1 else ''}"
