"""What samplers and `--method auto` do on known sets: tables from results/collapse and results/as_published."""

from __future__ import annotations

import json
from typing import Any

from conformance import markdown
from source import ROOT

SHOWN = ("largest episode", "its rank by return", "good episodes", "effective rows", "mean return", "uniform")
PERCENT = ("largest episode", "good episodes", "effective rows")


def collapse(_: str) -> str:
    """The fits of `continued` and `followed` on the log of a plant, seed by seed."""
    lines: list[dict[str, Any]] = json.loads((ROOT / "results/collapse/seeds.json").read_text(encoding="utf-8"))
    rows = []
    for line in sorted(lines, key=lambda line: (line["sampler"], line["seed"])):
        cells = [f"{line[name]:.1%}" if name in PERCENT else f"{line[name]:g}".replace("-", "−") for name in SHOWN]
        rows.append([f"`{line['sampler']}`", str(line["seed"]), *cells])
    head = ["sampler", "seed", "share of the largest episode", "its rank by return", "share of the good episodes"]
    return markdown([*head, "effective rows", "mean return of the samples", "of uniform samples"], rows)
