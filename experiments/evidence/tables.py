"""The tables of README.md, docs/index.md, docs/evidence.md, docs/paper.md and docs/ope.md, computed from `results/`.

    python -m experiments.evidence              prints all tables
    python -m experiments.evidence claims       prints one

The docs site calls the same functions while it is built, and `python tools/readme.py` writes them into README.md.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.as_published import tables as as_published
from experiments.as_published.tables import METHODS, difference, interval, markdown, of, percent
from winnow.report import published
from winnow.report.runs import Run
from winnow.stats import Estimate

RESULTS = Path(__file__).resolve().parents[2] / "results"
SUITE_NAMES = {"mixed": "whole episodes", "diverse": "fragments"}
"""The paper's names for the two kinds of sets, and ours in prose."""
GRID = "`results/as_published`"
SHARES = (1, 5, 10, 50)
LEVELS = ("expert", "medium")
ENVIRONMENTS = ("hopper", "halfcheetah", "walker2d", "ant")
WHEN = (
    ("Episodes are whole and their returns differ", "aw", "mixed", "samplers.md#aw"),
    ("Episodes are cut into fragments", "dw-aw", "diverse", "weighters/density.md"),
    ("There are no episodes, only rows", "dw-uniform", None, "weighters/density.md"),
    ("You know which rows are good", "best-source", None, "samplers.md#source"),
)
"""What the data is like, the method, the suite on which its gain is measured (None: both), and its page."""
SAME_UPDATE = 1e-6
"""The largest relative difference of parameters after 100 updates in 64-bit floats that rounding explains."""
NEARLY_ALL = 0.99
NEARLY_NOTHING = 0.01
"""Parts of the best policy's reward."""


# ------------------------------------------------------------------------------------------------- the paper's numbers


def suite_sets(suite: str) -> list[str]:
    """The 32 sets of a suite, by the names that the published table has."""
    middle = "-diverse" if suite == "diverse" else ""
    return [
        f"{environment}-random-{level}{middle}-{share}%"
        for environment in ENVIRONMENTS
        for level in LEVELS
        for share in SHARES
    ]


def published_lead(suite: str, first: str, second: str) -> float:
    """How far the published IQM of one method with IQL is above that of another, over a whole suite."""
    lead = published.gain(suite_sets(suite), "iql", first, second)
    assert lead is not None, "every set of a suite has its published score"
    return lead


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


# --------------------------------------------------------------------------------------------------------- the claims


def claims() -> str:
    """What the project claims today: the number with its interval, what it rests on, the verdict, the raw values."""
    iql = "IQL, 200,000 updates, five seeds"
    command = "`python -m experiments.as_published leads`"
    fragments, whole = (lead(suite, "dw-aw", "aw") for suite in ("diverse", "mixed"))
    both = [lead(None, name, "uniform") for name in ("aw", "dw-aw")]
    exact, published_form, behaviour = map(rooms, ("DW dual λ=0.003", "DW code (1, 1)", "behaviour"))
    rows = [
        [
            "On fragments DW-AW is ahead of AW",
            f"{interval(fragments)} points",
            f"{iql}, 3 sets",
            as_published.verdict(fragments, "ahead"),
            f"{GRID}, {command}",
        ],
        [
            "On whole episodes DW-AW and AW are level",
            f"{interval(whole)} points",
            f"{iql}, 3 sets",
            as_published.verdict(whole, "level"),
            f"{GRID}, {command}",
        ],
        [
            "AW and DW-AW gain over uniform sampling",
            f"{interval(both[0])} and {interval(both[1])} points",
            f"{iql}, 6 sets",
            "holds" if all(as_published.verdict(gain, "ahead") == "holds" for gain in both) else "refuted",
            f"{GRID}, {command}",
        ],
        [
            "winnow's updates are those of the authors' code",
            f"after 100 updates parameters differ by at most {power_of_ten(largest_difference())}, relative",
            "IQL, CQL, TD3+BC, each with and without DW; 64-bit floats",
            "holds" if largest_difference() < SAME_UPDATE else "refuted",
            "`results/conformance/exact.json`, `python benchmarks/exact.py`",
        ],
        [
            "The exact dual solves the paper's problem; the published penalty does not",
            f"{percent(exact, 1)} of the best policy's reward against"
            f" {percent(published_form, 1)} (behaviour: {percent(behaviour, 1)})",
            "four rooms, tables instead of networks, 10 datasets",
            "holds" if exact > NEARLY_ALL and published_form < behaviour + NEARLY_NOTHING else "refuted",
            "`results/fourrooms/deterministic`, `winnow fourrooms --out rooms`",
        ],
    ]
    return markdown(["claim", "result [95 %]", "rests on", "verdict", "raw values and command"], rows)


def lead(suite: str | None, first: str, second: str) -> Estimate:
    return difference(of(first, suite), of(second, suite))


def largest_difference() -> float:
    """The relative difference of the array of parameters that differs most from the authors' after 100 updates."""
    sides = json.loads((RESULTS / "conformance" / "exact.json").read_text(encoding="utf-8"))
    return max(run["parameters"]["100"] for algorithms in sides.values() for run in algorithms.values())


def power_of_ten(value: float) -> str:
    exponent = int(np.ceil(np.log10(value)))
    digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{digits}"


def rooms(form: str, folder: str = "deterministic") -> float:
    """The reward of a form's policy as a part of the best policy's."""
    with (RESULTS / "fourrooms" / folder / "table.csv").open(encoding="utf-8", newline="") as file:
        return next(float(line["optimum"]) for line in csv.DictReader(file) if line["form"] == form)


# ----------------------------------------------------------------------------------------------- which method, and when


def when(docs: str = "") -> str:
    """Four kinds of data: the method for each, and its gain over uniform sampling. docs: where links begin."""
    rows = []
    for data, name, suite, page in WHEN:
        gain = lead(suite, name, "uniform")
        oracle = " (oracle)" if name == "best-source" else ""
        rows.append([data, f"[`{name}`]({docs}{page}){oracle}", f"{interval(gain)} ({sets_of(suite)})"])
    return markdown(["your data", "method", "gain over uniform sampling [95 %]"], rows)


def sets_of(suite: str | None) -> str:
    count = len({run.dataset for run in of("aw", suite)})
    return f"{count} sets of {SUITE_NAMES[suite]}" if suite else f"all {count} sets"


def gains() -> str:
    """Each method's gain over uniform sampling on whole episodes and on fragments."""
    rows = []
    for name, label in METHODS.items():
        if name != "uniform":
            rows.append([label, *(interval(lead(suite, name, "uniform")) for suite in SUITE_NAMES)])
    return markdown(["gain over uniform sampling [95 %]", *SUITE_NAMES.values()], rows)


def headline() -> str:
    """The README's one sentence of results, and the homepage's."""
    fragments, whole = (interval(lead(suite, "dw-aw", "aw")) for suite in ("diverse", "mixed"))
    return (
        f"**On fragments of episodes, learned weights (DW-AW) score {fragments} points above AW alone;"
        f" on whole episodes the two are level, {whole}**, as in the paper."
    )


def reproduce() -> str:
    """Commands, how many runs they make, and minutes on one H200: measured for our grid, estimated for the paper's."""
    with gzip.open(RESULTS / "as_published" / "iql-200k.jsonl.gz", "rt", encoding="utf-8") as file:
        seconds = [json.loads(line)["seconds"] for line in file]
    hours = json.loads((RESULTS / "paper" / "hours.json").read_text(encoding="utf-8"))
    ours = f"{sum(seconds) / 60:.0f}"
    rows = [["the grid above", "`experiments/as_published/streams.sh start grid`", str(len(seconds)), ours]]
    for suite, text in (("mixed", "whole episodes"), ("diverse", "fragments"), ("small", "small sets")):
        runs = hours[suite]["runs"]
        minutes = 60 * hours[suite]["hours"]
        rows.append([f"the paper's {text}", f"`winnow bench run {suite} --out grid`", f"{runs:,}", f"{minutes:.0f}"])
    return markdown(["what", "command", "runs", "minutes on one H200"], rows)


def seeds() -> str:
    """Every run of AW and DW-AW on the sets of fragments: its score, and a mark where its critic raised the alarm."""
    rows = []
    for dataset in sorted({run.dataset for run in of("aw", "diverse")}):
        for name in ("aw", "dw-aw"):
            here = sorted((run for run in of(name, "diverse") if run.dataset == dataset), key=lambda run: run.seed)
            scores = [f"{run.score:.0f}{' †' if alarmed(run) else ''}".replace("-", "−") for run in here]
            rows.append([f"`{dataset}`", METHODS[name], ", ".join(scores)])
    return markdown(
        ["set", "method", "score of each seed (†: Q above what any policy can earn, at least in single rows)"], rows
    )


def alarmed(run: Run) -> bool:
    return any("critic" in warning for warning in run.warnings)


def paper_leads() -> str:
    """The lead of DW-AW over AW, beside the paper's over its 32 sets of each kind."""
    rows = []
    for suite, name in SUITE_NAMES.items():
        ours = f"{interval(lead(suite, 'dw-aw', 'aw'))} ({sets_of(suite).split()[0]} sets)"
        theirs = f"{signed(published_lead(suite, 'dw-aw', 'aw'))} ({len(suite_sets(suite))} sets)"
        rows.append([name, ours, theirs])
    return markdown(["DW-AW − AW, IQL", "winnow [95 %]", "the paper"], rows)


# ---------------------------------------------------------------------------------------- estimates without a simulator


def ope() -> str:
    """How well estimates rank policies, by set."""
    sets = json.loads((RESULTS / "ope" / "rank.json").read_text(encoding="utf-8"))["sets"]
    rows = []
    for name, sheet in sets.items():
        variants: dict[str, Any] = sheet["variants"]
        usual = variants["usual"]
        rank = usual["correlation"]["value"]
        promised = usual["correlation"]["promised"]
        methods = usual["methods"]
        earned = {method: f"{method} ({methods[method]['earned']:.0f})" for method in methods}
        others = [number(variants.get(key), "value") for key in ("training rows", "pessimism")]
        rows.append(
            [
                name if len(variants) > 1 else f"{name} (fresh)",
                decimal(rank["spearman"]),
                decimal(rank["kendall"]),
                *others,
                decimal(promised["spearman"]),
                minus(earned[usual["chosen"]]),
                minus(earned[usual["best"]]),
                f"{usual['held_by_interval']} of {len(usual['runs'])}",
            ]
        )
    head = ["set", "ρ FQE", "τ FQE", "ρ, Q fitted to training rows", "ρ, pessimism 1", "ρ J(D_w)"]
    return markdown([*head, "chosen by FQE (true return)", "truly best", "truth in interval"], rows)


def number(variant: dict[str, Any] | None, kind: str) -> str:
    return decimal(variant["correlation"][kind]["spearman"]) if variant else ""


def decimal(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def minus(text: str) -> str:
    """A method's name keeps its hyphen; a negative return gets a minus sign."""
    return text.replace("(-", "(−")


# ------------------------------------------------------------------------------------------ where the answer is known


def tabular(grid: str) -> str:
    """What each form of the weights does on a small grid: means over seeds, with the smallest and the largest."""
    by_form: dict[str, list[dict[str, str]]] = {}
    with (RESULTS / "tabular" / "scores.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["grid"] == grid:
                by_form.setdefault(line["form"], []).append(line)
    columns = ("reported", "flow", "distance", "value")
    rows = [
        [form, *(spread([float(line[column]) for line in lines]) for column in columns)]
        for form, lines in by_form.items()
    ]
    return markdown(["form", *columns], rows)


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f} ({min(values):.4f}–{max(values):.4f})"


def four_rooms(folder: str) -> str:
    """The table of `winnow fourrooms`, as it was written."""
    lines = (RESULTS / "fourrooms" / folder / "table.md").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


# --------------------------------------------------------------------------------------------------------- statistics


def coverage() -> str:
    """How many of 2,000 bootstrap intervals held the true mean, by the numbers of datasets and seeds."""
    shares = json.loads((RESULTS / "statistics" / "coverage.json").read_text(encoding="utf-8"))
    seeds = sorted({int(name.split(", ")[1].split()[0]) for name in shares})
    datasets = sorted({int(name.split()[0]) for name in shares})
    rows = [[str(count), *(percent(shares[f"{count} datasets, {seed} seeds"]) for seed in seeds)] for count in datasets]
    return markdown(["datasets", *(f"{seed} seeds" for seed in seeds)], rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "headline": headline,
    "claims": claims,
    "when": when,
    "gains": gains,
    "reproduce": reproduce,
    "seeds": seeds,
    "paper": paper_leads,
    "ope": ope,
    "coverage": coverage,
    "tabular-deterministic": lambda: tabular("deterministic"),
    "tabular-slippery": lambda: tabular("slippery"),
    "rooms-deterministic": lambda: four_rooms("deterministic"),
    "rooms-slippery": lambda: four_rooms("slippery"),
}
