"""A finished run: its file, its policy, the weights of its rows, and its evaluation during training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from winnow import __version__
from winnow.algorithms import ALGORITHMS
from winnow.data.dataset import Dataset
from winnow.data.meta import DEPLOYED
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.evaluation.records import Round, score_of
from winnow.packs.pack import log_weights
from winnow.packs.run import Run, probabilities
from winnow.plugins import from_record, record
from winnow.policy import Policy
from winnow.samplers import SAMPLERS
from winnow.system import checkpoint
from winnow.system.metrics import read_metrics
from winnow.training.row_weights import RowWeights
from winnow.types import Spec
from winnow.weighters import WEIGHTERS


@dataclass(frozen=True)
class Trained:
    """A finished run: its policy, its weights, its evaluation, and why it failed if it did."""

    run: Run
    steps: int
    failure: str | None
    policy: Policy
    weighter_state: Any
    rounds: tuple[Round, ...] = ()
    """The rounds of its evaluation during training, in order."""
    precision: str = "default"
    """The precision of its matrix products (`winnow.packs.precision.Precision`)."""
    warnings: tuple[str, ...] = ()
    """The alarms raised during training (`winnow.training.alarms`)."""

    @property
    def score(self) -> float | None:
        """The mean normalised score of the last rounds. None without reference returns."""
        return score_of(self.rounds)

    def weights(self) -> RowWeights:
        """The sampling probability and the weight of each row of the dataset."""
        drawn = probabilities([self.run])
        probability = drawn[self.run.drawing]
        return RowWeights.of(probability, log_weights(self.run, self.weighter_state, drawn))

    def save(self, path: str | Path) -> None:
        facts = run_record(self.run) | {"spec": list(self.run.spec), "steps": self.steps, "failure": self.failure}
        facts |= {"precision": self.precision, "warnings": list(self.warnings), "method": self.run.method}
        facts["resolved_method"] = self.run.resolved
        checkpoint.save(path, self.policy.tree() | {"weighter": self.weighter_state}, facts | {"winnow": __version__})

    @classmethod
    def load(cls, path: str | Path, dataset: Dataset | None = None) -> Trained:
        """Load a finished run from its file. The dataset is opened from its old path, unless it is given."""
        saved = checkpoint.read_record(path)
        try:
            source = saved["dataset"]
            spec = Spec(*saved["spec"])
            weighter = from_record(saved["weighter"], WEIGHTERS)
            sampler = from_record(saved["sampler"], SAMPLERS)
            algorithm = from_record(saved["algorithm"], ALGORITHMS)
        except (KeyError, TypeError) as error:
            raise BadInput(f"{path}: is not a finished run ({error}); give a file that `winnow train` wrote") from error
        if dataset is None:
            if not source["path"]:
                raise BadInput(f"{path}: its dataset {source['name']!r} was never in a file; give it with --dataset")
            dataset = open_dataset(source["path"])
        if dataset.fingerprint != source["fingerprint"]:
            raise BadInput(f"{path}: was trained on other rows than {dataset.meta.name!r} holds; give that dataset")
        state = jax.eval_shape(lambda key: weighter.init(key, spec), jax.random.key(0))
        asked = str(saved.get("method", ""))
        methods = asked, str(saved.get("resolved_method", asked))
        run = Run(dataset, algorithm, sampler, weighter, saved["seed"], saved["name"], *methods)
        kept = checkpoint.load(path, {"weighter": state})
        lines = read_metrics(Path(path).with_name("returns.jsonl"))
        rounds = sorted((Round(**line) for line in lines if line["run"] == run.name), key=lambda played: played.step)
        return cls(
            run,
            saved["steps"],
            saved["failure"],
            Policy.load(path),
            kept["weighter"],
            tuple(rounds),
            saved.get("precision", "default"),
            tuple(saved.get("warnings", ())),
        )


def run_record(run: Run) -> dict[str, Any]:
    """A run as plain JSON."""
    data = run.dataset
    return {
        "name": run.name,
        "seed": run.seed,
        "dataset": {
            "name": data.meta.name,
            "fingerprint": data.fingerprint,
            "path": data.path,
            "environment": data.meta.environment,
            **{name: list(names) for name in DEPLOYED if (names := getattr(data.meta, name))},
        },
        "algorithm": record(run.algorithm),
        "sampler": record(run.sampler),
        "weighter": record(run.weighter),
    }
