"""Tables of docs/discrete.md, written by the experiments themselves from results/discrete."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

from source import ROOT


def _experiment(name: str) -> Any:
    """A script of experiments/discrete as a module."""
    spec = importlib.util.spec_from_file_location(f"discrete_{name}", ROOT / f"experiments/discrete/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def mixtures(_: str) -> str:
    """Scores on the mixtures of CartPole and Acrobot."""
    script = _experiment("mixtures")
    return script.tables(json.loads(script.FILE.read_text(encoding="utf-8")))


def tabular(_: str) -> str:
    """J on the tabular process, beside the exact optimum."""
    script = _experiment("tabular")
    return script.table(json.loads(script.FILE.read_text(encoding="utf-8")))
