"""Choosing a method and its settings without an environment, with a bounded number of runs.

Candidates are an excerpt of the published grids. Every candidate is trained once. The best third, by fitted Q
evaluation on episodes that none of them saw, is trained again with other seeds, and so on until all runs are used. So
most runs go to candidates that are hard to tell apart. All runs have full length: a policy's learning rate schedule
depends on the length of its run, so a shortened run says little about the full one. The runs of a round are packed into
one program for each shape. A sequential sampler of trials (such as Optuna's) would wait for each trial before the next,
and two dozen runs are too few for its model.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.holdout import join, split
from winnow.errors import BadInput
from winnow.methods import make_algorithm, resized
from winnow.ope import estimate, fqe, ranking
from winnow.ope.candidates import GRID, Candidate
from winnow.ope.estimate import Fit
from winnow.ope.fqe import FQE, USUAL
from winnow.ope.ranking import MethodEstimate
from winnow.packs.run import Run
from winnow.plugins import record
from winnow.system import checkpoint
from winnow.system.files import claim, write_text
from winnow.system.progress import Progress
from winnow.training import check, train_runs
from winnow.training.trained import Trained
from winnow.types import Algorithm

FORMAT = "winnow-tune-1"


@dataclass(frozen=True)
class Tuning:
    """How candidates are trained and evaluated."""

    algorithm: str = "iql"
    """The algorithm that every candidate is trained with."""
    runs: int = 24
    """Maximum number of runs in all."""
    steps: int = 100_000
    """Updates of each run."""
    batch_size: int = 256
    """Rows sampled for each update."""
    hidden: tuple[int, ...] | None = None
    """Widths of all hidden layers; default: those of the algorithm and the weighter."""
    learning_rate: float | None = None
    """The algorithm's learning rate; default: its own."""
    share: float = 0.2
    """Fraction of the dataset's episodes that is held out to choose by."""
    fit: Fit = "held-out"
    """The rows that Q is fitted to."""
    fqe: FQE = USUAL

    def learner(self, dataset: Dataset) -> Algorithm:
        made: Any = make_algorithm(self.algorithm, dataset)
        made = resized(made, self.hidden) if self.hidden else made
        return dataclasses.replace(made, learning_rate=self.learning_rate) if self.learning_rate else made

    def train_options(self, chosen: Candidate, dataset: str) -> list[str]:
        """The arguments of `winnow train` that train a candidate as it was trained here."""
        options = [dataset, "--algorithm", self.algorithm, *chosen.options]
        options += ["--steps", str(self.steps), "--batch-size", str(self.batch_size)]
        if self.learning_rate:
            options += ["--algorithm.learning-rate", f"{self.learning_rate:g}"]
        for part in ("algorithm", *(["weighter"] if self.hidden and chosen.has_layers else [])):
            options += [f"--{part}.hidden", *map(str, self.hidden)] if self.hidden else []
        return options


AS_USUAL = Tuning()


@dataclass(frozen=True)
class Choice:
    """The chosen candidate, and how certain the choice is."""

    chosen: Candidate
    probability: float
    """The probability that its value is the highest of all candidates', given the same uncertainty as the intervals."""
    runner_up: str
    """The candidate with the next best value."""
    ahead: float
    """The probability that the chosen one's value is above the runner-up's."""
    tied: list[str]
    """Candidates whose 95 % interval overlaps that of the best value: the data can't tell them apart. The simplest of
    them is chosen. One candidate alone where there is a winner."""
    table: list[MethodEstimate]
    """All candidates, best first. Those that stayed longer have more runs."""
    train_options: list[str]
    """The arguments of `winnow train` that train the chosen candidate."""
    notes: list[str]

    def record(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        table = [dataclasses.asdict(line) | {"value": line.value._asdict()} for line in self.table]
        options = fields.pop("train_options")
        return fields | {"chosen": self.chosen.label, "words": options, "table": table}


def schedule(candidates: int, runs: int) -> list[tuple[int, int]]:
    """For every round: how many candidates stay, and how many runs each of them gets, within the number of runs."""
    if candidates < 2 or runs < 2:
        raise BadInput(f"there must be at least 2 candidates and 2 runs, got {candidates} and {runs}; give more")
    stay = min(candidates, max(2, runs // 2))
    rounds = [(stay, 1)]
    left = runs - stay
    while left >= 2:
        stay = min(max(2, -(-stay // 3)), left)
        each = max(1, left // stay if stay == 2 else left // (2 * stay))
        rounds.append((stay, each))
        left -= stay * each
    return rounds


def tune(
    dataset: Dataset,
    out: str | Path,
    tuning: Tuning = AS_USUAL,
    candidates: Sequence[Candidate] = GRID,
    *,
    held_out: Dataset | None = None,
    resume: bool = False,
    progress: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Choice:
    """Choose a candidate for a dataset.

    out: folder for all runs and estimates
    resume: continue with the finished runs of that folder
    held_out: episodes to choose by, instead of a share of the dataset's own
    say: called with a line before every round
    """
    tuning.fqe.check()
    search = _Search(dataset, Path(out), tuning, list(candidates), held_out, progress, say)
    search.claim(resume)
    return search.go()


@dataclass
class _Search:
    """The rounds, from the first to the choice."""

    dataset: Dataset
    folder: Path
    tuning: Tuning
    candidates: list[Candidate]
    held_out: Dataset | None
    progress: bool
    say: Callable[[str], None]
    trained: dict[str, Trained] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse invalid settings and data before anything is trained."""
        tuning = self.tuning
        self.candidates = [candidate.resolved(self.dataset) for candidate in self.candidates]
        self.train = self.dataset
        self.held = self.held_out
        if self.held is None:
            self.train, self.held = split(self.dataset, tuning.share)
        self.rounds = schedule(len(self.candidates), tuning.runs)
        self.wanted = self.candidates[: self.rounds[0][0]]
        labels = [candidate.label for candidate in self.wanted]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise BadInput(f"candidates must differ, got {twice} twice; name each once")
        learner = tuning.learner(self.train)
        self.runs: dict[str, Run] = {}
        for candidate in self.wanted:
            parts = candidate.parts(tuning.algorithm, tuning.hidden)
            label = candidate.label
            self.runs[label] = Run(self.train, learner, *parts, name=label, method=label)
        check(list(self.runs.values()), steps=tuning.steps, batch_size=tuning.batch_size)
        estimate.check_fit(self.train, self.held)
        self.states, self.strata, self.notes = estimate.first_states(self.held)
        if left := [candidate.label for candidate in self.candidates[len(self.wanted) :]]:
            self.notes.append(f"{tuning.runs} runs are too few to try {', '.join(left)}")

    def claim(self, resume: bool) -> None:
        """Claim the output folder, which must be fresh or hold the same search."""
        assert self.held is not None
        asked = {
            "format": FORMAT,
            "train": self.train.fingerprint,
            "held_out": self.held.fingerprint,
            "candidates": [
                {"label": name, **{part: record(getattr(run, part)) for part in ("algorithm", "sampler", "weighter")}}
                for name, run in self.runs.items()
            ],
            "tuning": dataclasses.asdict(self.tuning),
        }
        wanted = json.loads(json.dumps(asked))
        earlier = claim(self.folder / "config.json", wanted, resume, "a search; continue it")
        if earlier not in (None, wanted):
            raise BadInput(f"{self.folder}: holds another search; resume with the same command or choose another --out")

    def go(self) -> Choice:
        stay = list(self.runs)
        seeds = dict.fromkeys(self.runs, 0)  # runs that each candidate has had
        table: list[MethodEstimate] = []
        drawn = np.zeros((0, 0))
        more: list[str] = []
        for number, (count, each) in enumerate(self.rounds, 1):
            stay = stay[:count]
            self.say(f"round {number} of {len(self.rounds)}: {len(stay)} candidates, {each} more run(s) of each")
            self._train(number, [(name, seeds[name] + i) for name in stay for i in range(each)])
            seeds |= {name: seeds[name] + each for name in stay}
            self._judge()
            table, drawn, more = self._compare()
            stay = [line.method for line in table if line.method in stay]
        return self._choose(stay, table, drawn, more)

    def _train(self, number: int, wanted: Sequence[tuple[str, int]]) -> None:
        done = train_runs(
            [dataclasses.replace(self.runs[name], seed=i, name=f"{name}.seed{i}") for name, i in wanted],
            steps=self.tuning.steps,
            batch_size=self.tuning.batch_size,
            chunk=min(5_000, self.tuning.steps),
            out=self.folder / f"round-{number}",
            resume=True,
            progress=self.progress,
        )
        self.trained |= {finished.run.name: finished for finished in done if not finished.failure}
        failed = [finished for finished in done if finished.failure]
        self.notes += [f"{finished.run.name} failed ({finished.failure}) and is left out" for finished in failed]
        if not self.trained:
            raise BadInput(f"{self.folder}: no candidate could be trained: {'; '.join(self.notes)}")

    def _judge(self) -> None:
        """Estimate the values [fits, states] of the runs that have none yet. They are saved on disk."""
        assert self.held is not None
        path = self.folder / "values.safetensors"
        settings = self.tuning.fqe
        like = np.zeros((settings.fits, len(self.states)))
        if path.exists():
            known = [name for name in checkpoint.read_record(path)["runs"] if name in self.trained]
            self.values |= checkpoint.load(path, dict.fromkeys(known, like))
        new = [finished for name, finished in self.trained.items() if name not in self.values]
        if not new:
            return
        log = {"train": self.train, "held-out": self.held}.get(self.tuning.fit) or join(self.train, self.held)
        with Progress(settings.steps * len(new), shown=self.progress, unit="updates") as bar:
            bar.describe(f"fitting Q to {len(new)} policies")
            policies = [estimate.policy_of(finished) for finished in new]
            estimates = fqe.evaluate(log, self.states, policies, settings, bar.count)
        self.values |= {finished.run.name: value.value for finished, value in zip(new, estimates, strict=True)}
        checkpoint.save(path, self.values, {"runs": sorted(self.values)})

    def _compare(self) -> tuple[list[MethodEstimate], np.ndarray, list[str]]:
        names = list(self.trained)
        values = np.stack([self.values[name] for name in names])
        seed = self.tuning.fqe.seed
        drawn = ranking.draws(values, self.strata, seed)
        labels = [self.trained[name].run.group for name in names]
        return ranking.compare(labels, values.mean(axis=(1, 2)), drawn, seed, [None] * len(names))

    def _choose(self, stay: list[str], table: list[MethodEstimate], drawn: np.ndarray, more: list[str]) -> Choice:
        """The best of those that stayed to the end, which were trained most often; the simplest, if several tie."""
        number = {line.method: i for i, line in enumerate(table)}
        tied = ties(table[number[stay[0]]], [line for line in table if line.method in stay])
        chosen = min((item for item in self.wanted if item.label in tied), key=lambda item: item.cost)
        first = number[chosen.label]
        other = next(i for i in range(len(table)) if i != first) if len(table) > 1 else first
        choice = Choice(
            chosen,
            table[first].best,
            table[other].method,
            float(np.mean(drawn[:, first] > drawn[:, other])),
            tied,
            table,
            self.tuning.train_options(chosen, self.dataset.path or self.dataset.meta.name),
            self.notes + more,
        )
        write_text(self.folder / "tune.json", json.dumps(choice.record(), indent=1) + "\n")
        return choice


def ties(best: MethodEstimate, others: Sequence[MethodEstimate]) -> list[str]:
    """The candidates whose interval overlaps that of the best, with the best first."""
    level = [line.method for line in others if line.method != best.method and line.value.high >= best.value.low]
    return [best.method, *level]
