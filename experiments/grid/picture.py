"""The README's figure and tables: gains over uniform sampling in the grids of results/grid with 95 % intervals,
learning curves, leads of one method over another, and whether gains grow with imbalance (appendix A.1 of the paper).

python experiments/grid/picture.py [--out docs/images]    writes grid.png, expert.png, medium.png, shares.png,
                                                          curves.png and million.png
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from winnow.errors import run_script
from winnow.render import figures
from winnow.report.gain_vs_imbalance import agreement, gains, imbalance
from winnow.report.runs import Run, read
from winnow.report.statistics import Line, lines, rows
from winnow.stats import Estimate, compare

RESULTS = Path(__file__).parents[2] / "results" / "grid"
BOTH = {
    "IQL": ("iql-long-200k", "iql-medium-200k", "iql-small-200k", "iql-paths-200k"),
    "TD3+BC": ("td3bc-expert-100k", "td3bc-medium-100k"),
    "CQL": ("cql-expert-60k", "cql-medium-60k"),
}
"""Grids of datasets with 5 and 10 % of the expert and of the medium policy."""
EXPERT, MEDIUM = ([f"{name}, {level}" for name in BOTH] for level in ("expert", "medium"))
SHORTER = {"IQL, 100,000 updates": ("iql-expert-100k", "iql-shares-100k")}
"""Grids of more datasets with the expert, with fewer updates."""
REST = {"IQL, 1 and 50 %": ("iql-rest-200k",), "TD3+BC, 1 and 50 %": ("td3bc-rest-100k",)}
WHOLE = {f"{name}, 1 to 50 %": (*BOTH[name][:2], *REST[f"{name}, 1 and 50 %"]) for name in ("IQL", "TD3+BC")}
"""All shares of both policies: the paper's mixed and diverse suites (for TD3+BC the part that was trained)."""
HEAD = ("IQL, 1 to 50 %", "TD3+BC", "CQL")
"""The README's figure and table."""
LONGER = {"IQL, a million updates": ("iql-million-1m",)}
"""Four datasets of fragments, with as many updates as in the paper."""
SUITES = ("mixed", "diverse")
METHODS = {
    "dw-uniform": "DW-Uniform",
    "dw-aw": "DW-AW",
    "aw": "AW",
    "continued": "continued",
    "followed": "followed",
    "best-source": "good rows, by label",
}
COLOURS = dict(zip(METHODS, ["#b9b9b9", "#8a8a8a", "#7fa8d6", "#e3a0a8", "#d1495b", "#cfc7a0"], strict=True))
COLD = "aw sampler.temperature=0.1"
"""AW on small datasets with its η for large ones."""
COLDER = tuple(f"{name} sampler.temperature=0.1" for name in ("dw-aw", "dual-aw"))
OTHERS = ("pf", "odpr-a", "dual-uniform", "dual-aw", "dual-paths-aw", COLD, *COLDER)
LEADS = (
    ("followed", "continued"),
    ("followed", "aw"),
    ("followed", "dw-aw"),
    ("followed", "best-source"),
    ("continued", "aw"),
    ("continued", "dw-aw"),
    ("continued", "best-source"),
    ("dual-aw", "dw-aw"),
    ("dual-paths-aw", "dw-aw"),
    ("dual-paths-aw", "aw"),
    ("followed", "dual-paths-aw"),
    ("dual-uniform", "uniform"),
    ("dw-aw", "aw"),
    ("aw", "best-source"),
    (COLD, "aw"),
    (COLD, "dual-aw"),
    (COLD, "followed"),
    (COLD, "best-source"),
    *((label, COLD) for label in COLDER),
)
PLACES = tuple(itertools.product(SUITES, ("hopper", "walker2d", "ant")))
"""Suites and environments that have a plot of curves."""
LEARNERS = ("uniform", "aw", "dw-aw", "continued", "followed", "best-source")
"""Methods that have a curve."""


def runs_of(folders: tuple[str, ...]) -> list[Run]:
    return [run for folder in folders for run in read_once(folder)]


@functools.cache
def read_once(folder: str) -> list[Run]:
    return read(RESULTS / folder, print)


def by_suite(runs: list[Run]) -> dict[str, dict[str, Line]]:
    """Summary lines by suite and method."""
    by_name: dict[str, dict[str, Line]] = {}
    for line in lines([run for run in runs if run.label in ("uniform", *METHODS, *OTHERS)]):
        by_name.setdefault(line.suite, {})[line.label] = line
    return {suite: by_name[suite] for suite in (*SUITES, "small") if suite in by_name}


def with_interval(number: Estimate) -> str:
    return f"{number.value:+.1f} [{number.low:.1f}, {number.high:.1f}]".replace("-", "−")


def drawn(grids: dict[str, dict[str, dict[str, Line]]], low: float, high: float) -> Any:
    """A row for each suite with a plot for each algorithm: bars for methods, dotted lines for the paper's gains."""
    plots = [
        (f"{name.split(',')[0]}, {suite} ({len(by_name[suite]['uniform'].scores)} sets)", by_name[suite])
        for suite in SUITES
        for name, by_name in grids.items()
    ]
    figure, axes = figures.panels(3.1 * len(grids), 6.2, len(grids), len(SUITES))
    for axis, (title, by_method) in zip(axes, plots, strict=True):
        for x, label in enumerate(METHODS):
            line = by_method[label]
            assert line.gain is not None
            gain = line.gain.iqm
            axis.bar(x, gain.value, 0.7, color=COLOURS[label])
            axis.vlines(x, gain.low, gain.high, color="black", lw=1.2)
            if line.published_gain is not None:
                axis.hlines(line.published_gain, x - 0.42, x + 0.42, color="#303030", lw=2, ls=":")
        axis.axhline(0, color="black", lw=0.8)
        axis.set_title(title, fontsize=10)
        axis.set_ylim(low, high)
        axis.set_xticks(range(len(METHODS)), list(METHODS.values()), rotation=30, ha="right", fontsize=8)
    for axis in axes[:: len(grids)]:
        axis.set_ylabel("gain in IQM over uniform", fontsize=9)
    axes[0].hlines([], 0, 1, color="#303030", lw=2, ls=":", label="the paper's gain (D4RL data, 1M updates)")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", frameon=False, fontsize=8)
    return figure


def by_share(runs: list[Run]) -> Any:
    """A plot for each suite and policy: gains over uniform sampling against the share of good rows."""
    figure, axes = figures.panels(9.3, 6.4, 2, 2)
    for axis, (suite, level) in zip(axes, itertools.product(SUITES, ("expert", "medium")), strict=True):
        runs_of_plot = [run for run in runs if (run.suite, run.level) == (suite, level)]
        shares = sorted({run.share for run in runs_of_plot if run.share})
        by_share_of_good = [by_suite([run for run in runs_of_plot if run.share == share])[suite] for share in shares]
        for number, label in enumerate(METHODS):
            gained = [gain.iqm for at_share in by_share_of_good if (gain := at_share[label].gain)]
            where = np.arange(len(by_share_of_good)) + 0.06 * (number - len(METHODS) / 2)
            axis.plot(where, [gain.value for gain in gained], "o-", color=COLOURS[label], ms=4, label=METHODS[label])
            axis.vlines(where, [gain.low for gain in gained], [gain.high for gain in gained], color=COLOURS[label])
        axis.axhline(0, color="black", lw=0.8)
        axis.set_title(f"{suite}, {level}", fontsize=10)
        axis.set_xticks(range(len(shares)), [f"{share:g} %" for share in shares])
    for axis in axes[::2]:
        axis.set_ylabel("gain in IQM over uniform", fontsize=9)
    drawn_lines, names = axes[0].get_legend_handles_labels()
    figure.legend(drawn_lines, names, loc="outside lower center", ncol=len(names), frameon=False, fontsize=8)
    return figure


def curves(runs: list[Run], places: Sequence[tuple[str, str]] = PLACES, labels: Sequence[str] = LEARNERS) -> Any:
    """A plot for each suite and environment, in two rows: means over datasets and seeds, and runs as thin lines."""
    figure, axes = figures.panels(9.3, 5.6, len(places) // 2, 2)
    colour = figures.colours(["uniform", *METHODS])
    for axis, (suite, environment) in zip(axes, places, strict=True):
        for label in labels:
            key = (suite, environment, label)
            curves_of_method = [run.curve for run in runs if (run.suite, run.environment, run.label) == key]
            steps = [step / 1000 for step, _ in curves_of_method[0]]
            each = np.array([[score for _, score in curve] for curve in curves_of_method])
            axis.plot(steps, each.T, color=colour[label], lw=0.5, alpha=0.3)
            axis.plot(steps, each.mean(axis=0), color=colour[label], lw=1.8, label=METHODS.get(label, label))
        axis.set_title(f"{environment}, {suite}", fontsize=10)
        axis.set_ylim(-5, 132)
    for axis in axes[len(places) // 2 :]:
        axis.set_xlabel("thousand updates", fontsize=8)
    for axis in axes[:: len(places) // 2]:
        axis.set_ylabel("score", fontsize=9)
    lines_drawn, names = axes[0].get_legend_handles_labels()
    figure.legend(lines_drawn, names, loc="outside lower center", ncol=len(names), frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS.parents[1] / "docs" / "images")
    args = parser.parse_args()
    runs = {name: runs_of(folders) for name, folders in (BOTH | SHORTER | REST | WHOLE | LONGER).items()}
    far = {run.dataset for run in runs["IQL, a million updates"]}
    for name, level in itertools.product((*BOTH, *REST), ("expert", "medium")):
        runs[f"{name}, {level}"] = [run for run in runs[name] if run.level == level]
    for share in (1, 50):
        runs[f"IQL, {share} %"] = [run for run in runs["IQL, 1 and 50 %"] if run.share == share]
    runs["IQL, 200,000 updates, the same sets"] = [run for run in runs["IQL, expert"] if run.dataset in far]
    grids = {name: by_suite(chosen) for name, chosen in runs.items()}
    for name, chosen, low, high in (("grid", HEAD, -20, 70), ("expert", EXPERT, -8, 95), ("medium", MEDIUM, -20, 42)):
        figures.save(drawn({title: grids[title] for title in chosen}, low, high), args.out / f"{name}.png")
    figures.save(by_share(runs["IQL, 1 to 50 %"]), args.out / "shares.png")
    figures.save(curves(runs["IQL, expert"]), args.out / "curves.png")
    places = [("diverse", environment) for environment in ("hopper", "halfcheetah", "walker2d", "ant")]
    labels = ("uniform", *(label for label in METHODS if label != "continued"))
    figures.save(curves(runs["IQL, a million updates"], places, labels), args.out / "million.png")
    columns = [(name, suite) for name in grids for suite in grids[name]]
    print("| gain in IQM over uniform |", " | ".join(f"{name}, {suite}" for name, suite in columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for label in (*METHODS, *OTHERS):
        each = [grids[name][suite].get(label) for name, suite in columns]
        cells = [with_interval(line.gain.iqm) + f" ({len(line.scores)})" if line and line.gain else "" for line in each]
        print(f"| {label} |", " | ".join(cells), "|")
        published = [line.published_gain if line else None for line in each]
        if any(gain is not None for gain in published):
            print("| the paper's |", " | ".join("" if gain is None else f"{gain:+.1f}" for gain in published), "|")
    for name, suite in columns:
        by_method = grids[name][suite]
        for method, other in LEADS:
            if method not in by_method or other not in by_method:
                continue
            sets = [name for name in by_method[method].scores if name in by_method[other].scores]
            first, second = ({name: by_method[label].scores[name] for name in sets} for label in (method, other))
            lead = compare(first, second)
            wins = f"{lead.wins} of {len(sets)} sets, p = {lead.p_value:.3f}"
            print(f"{name}, {suite}: {method} ahead of {other} by {with_interval(lead.iqm)}; {wins}")
    rare = [run for run in runs["IQL, 1 %"] if run.suite == "mixed"]
    for label in ("uniform", "aw", "dw-aw", "best-source"):
        each = [run.curve for run in rare if run.label == label]
        means = np.array([[score for _, score in curve] for curve in each]).mean(axis=0)
        told_so = ", ".join(f"{mean:.1f} ({step:,})" for (step, _), mean in zip(each[0], means, strict=True))
        print(f"IQL, 1 %, mixed: mean score of {label} after so many updates: {told_so}")
    for name, chosen in runs.items():
        points = gains(rows(chosen), imbalance(chosen))
        for label in METHODS:
            pairs = [(point.rpsv, point.gain) for point in points if point.label == label]
            print(f"{name}: rank correlation of RPSV and the gain of {label}: {agreement(pairs)} ({len(pairs)} sets)")


if __name__ == "__main__":
    run_script(main)
