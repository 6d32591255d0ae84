"""Weights of each weighter against the exact answer: four small rooms, with and without slipping, five seeds.

    python experiments/tabular/measure.py [--seeds N] [--out FILE]

writes results/tabular/scores.csv, one raw row for each grid, form and seed, and prints the means. Each seed has its own
dataset. Every learned form has tables for its networks, 2,600 updates on batches of 2,048 rows, and a learning rate
that falls from 0.03. It takes a few minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from winnow.errors import run_script
from winnow.samplers import AW, PF
from winnow.tabular.exact import divergence, exact_dual, linear_program
from winnow.tabular.small_rooms import collect, edge_log_weights, judge, small_rooms, train
from winnow.weighters import Density, Dual

OUT = Path(__file__).parents[2] / "results" / "tabular" / "scores.csv"
SEEDS = 5
GRIDS = {"deterministic": 0.0, "slippery": 0.1}
TABLE: dict[str, Any] = {"hidden": (), "learning_rate": 0.03}
LEARNED: dict[str, Any] = {
    f"density {form} λK={lambda_k} λF={lambda_f}": Density(form=form, lambda_k=lambda_k, lambda_f=lambda_f, **TABLE)
    for form in ("paper", "code")
    for lambda_k, lambda_f in ((1.0, 1.0), (0.2, 0.1), (0.01, 1.0))
} | {
    "dual λ=0.1": Dual(control="temperature", temperature=0.1, **TABLE),
    "dual λ=0.01": Dual(control="temperature", temperature=0.01, **TABLE),
    "dual ε=0.5": Dual(budget=0.5, temperature_rate=0.1, **TABLE),
    "dual ε=2": Dual(budget=2.0, temperature_rate=0.1, **TABLE),
}
JUDGED = ("reported", "flow", "distance", "value")
KNOWN = ("best", "best_by_row", "possible", "behaviour")
MEASURES = (*JUDGED, *KNOWN, "kl", "temperature", "phi")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="datasets for each grid")
    parser.add_argument("--out", type=Path, default=OUT, help="the table of raw rows (CSV)")
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {args.seeds}")
    rows = [row for grid, slip in GRIDS.items() for seed in range(args.seeds) for row in measure(grid, slip, seed)]
    with args.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["grid", "form", "seed", *MEASURES], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    show(rows)


def measure(grid: str, slip: float, seed: int) -> Iterator[dict[str, Any]]:
    """One row for each form.

    reported, flow, distance, value: see `winnow.tabular.judge.Judged`
    best, best_by_row: the linear program's optimum over pairs (s, a), and over single rows (s, a, s')
    possible: the best policy's average reward in the true grid; behaviour: the behaviour data's own policy's
    kl: of the weights from the dataset; temperature: λ where a budget is given; phi: mean of φ over the dataset
    """
    data = collect(small_rooms(slip), seed)
    nothing = np.zeros(len(data.dataset))
    known = {
        "best": linear_program(data)[0],
        "best_by_row": linear_program(data, "edge")[0],
        "possible": data.grid.best,
        "behaviour": judge(data, nothing).value,
    }

    def row(form: str, log_weight: np.ndarray, sampler: Any = None, **learnt: float) -> dict[str, Any]:
        numbers = judge(data, log_weight, sampler)._asdict() | known | learnt
        if sampler is None:
            numbers["kl"] = divergence(data, edge_log_weights(data, log_weight))
        return {"grid": grid, "form": form, "seed": seed} | {name: f"{value:.6g}" for name, value in numbers.items()}

    yield row("behaviour", nothing)
    yield row("aw", nothing, AW())
    yield row("pf", nothing, PF())
    for temperature in (0.1, 0.01):
        yield row(f"exact λ={temperature}", exact_dual(data, temperature)[data.edge])
    for form, weighter in LEARNED.items():
        pack = train([(data, weighter, seed)])
        yield row(form, pack.log_weights(0), **learnt_numbers(pack.lane(0)[1].weighter.params))


def learnt_numbers(params: dict[str, Any]) -> dict[str, float]:
    """λ of `Dual` with a budget; mean φ of `Density`: its bias, since standardised observations have mean 0."""
    if "phi" in params:
        return {"phi": float(params["phi"][-1]["b"][0])}
    return {"temperature": float(np.exp(params["log_temperature"]))} if "log_temperature" in params else {}


def show(rows: list[dict[str, Any]]) -> None:
    """Means over seeds, and the least and greatest, as the table in docs/weighters.md."""
    for grid in GRIDS:
        here = [row for row in rows if row["grid"] == grid]
        for name in KNOWN:
            print(f"{grid}: {name} {spread(here, name)}")
        print(f"| form | {' | '.join(JUDGED)} |\n|---|{'---|' * len(JUDGED)}")
        for form in dict.fromkeys(row["form"] for row in here):
            mine = [row for row in here if row["form"] == form]
            print(f"| {form} | {' | '.join(spread(mine, name) for name in JUDGED)} |")


def spread(rows: list[dict[str, Any]], name: str) -> str:
    values = [max(float(row[name]), 0.0) for row in rows]
    return f"{np.mean(values):.4f} ({min(values):.4f}–{max(values):.4f})"


if __name__ == "__main__":
    run_script(main)
