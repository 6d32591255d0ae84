"""Winnow an offline RL dataset: learn which transitions are worth staying close to.

The public names, nothing else. Each is imported when it is first used, so `import winnow` does not import jax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from winnow.algorithms import BC, CQL, FQL, IQL, TD3BC, ReBRAC
    from winnow.data.arrays import from_arrays
    from winnow.data.dataset import Dataset
    from winnow.data.holdout import split
    from winnow.data.imbalance import imbalance
    from winnow.data.recipes import diverse, mixed, small
    from winnow.data.sources import open_dataset
    from winnow.data.store import save
    from winnow.errors import BadInput
    from winnow.evaluation.play import evaluate
    from winnow.evaluation.records import Round
    from winnow.evaluation.settings import Evaluation
    from winnow.methods import method
    from winnow.ope.estimate import judge
    from winnow.ope.fqe import FQE
    from winnow.packs.run import Run
    from winnow.policy import Policy
    from winnow.samplers import AW, PF, RW, Continued, Followed, Uniform
    from winnow.training import train, train_runs
    from winnow.training.trained import Trained
    from winnow.types import Batch, Spec, Weights, expect, plugin
    from winnow.weighters import Density, Dual, Fixed, NoWeights, OptiDICE

_HOME = {
    "winnow.algorithms": ("BC", "CQL", "FQL", "IQL", "TD3BC", "ReBRAC"),
    "winnow.data.arrays": ("from_arrays",),
    "winnow.data.dataset": ("Dataset",),
    "winnow.data.holdout": ("split",),
    "winnow.data.imbalance": ("imbalance",),
    "winnow.data.recipes": ("diverse", "mixed", "small"),
    "winnow.data.sources": ("open_dataset",),
    "winnow.data.store": ("save",),
    "winnow.errors": ("BadInput",),
    "winnow.evaluation": ("Evaluation", "Round", "evaluate"),
    "winnow.ope.fqe": ("FQE",),
    "winnow.methods": ("method",),
    "winnow.ope.estimate": ("judge",),
    "winnow.policy": ("Policy",),
    "winnow.packs.run": ("Run",),
    "winnow.samplers": ("AW", "PF", "RW", "Continued", "Followed", "Uniform"),
    "winnow.training.trained": ("Trained",),
    "winnow.training": ("train", "train_runs"),
    "winnow.types": ("Batch", "Spec", "Weights", "expect", "plugin"),
    "winnow.weighters": ("Density", "Dual", "Fixed", "NoWeights", "OptiDICE"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'winnow' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return sorted(_MODULE)
