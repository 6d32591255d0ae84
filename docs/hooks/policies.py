"""The acceptance test of the shipped behaviour policies: a table from results/policies/check.json."""

from __future__ import annotations

import json
from typing import Any

from conformance import markdown
from source import ROOT


def acceptance(_: str) -> str:
    """A row for each policy: what the test measured, and which criteria it fails."""
    records: list[dict[str, Any]] = json.loads((ROOT / "results/policies/check.json").read_text(encoding="utf-8"))
    rows = [[f"`{record['policy']}`", *_measured(record), _verdict(record)] for record in records]
    noise = [f"noise {amount}" for amount in records[0]["noise"]]
    return markdown(["policy", "score", "collapsed episodes", "clones", *noise, "verdict"], rows)


def _measured(record: dict[str, Any]) -> list[str]:
    summary = record["summary"]
    shares = [summary["collapses"], summary["clone"], *summary["noise"].values()]
    return [f"{summary['score']:.1f}", *(f"{share:.0%}" for share in shares)]


def _verdict(record: dict[str, Any]) -> str:
    from winnow.collect.check import Report, Settings

    names = ("policy", "environment", "level", "physics", "sampled", "mean_action", "noise", "clones")
    report = Report(settings=Settings(**record["settings"]), **{name: record[name] for name in names})
    failed = [f"{criterion.name} must be {criterion.wanted}" for criterion in report.criteria if not criterion.passed]
    return "; ".join(failed) or "passes"
