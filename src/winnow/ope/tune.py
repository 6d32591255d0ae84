"""Choosing a method and its settings without an environment, with a bounded number of runs.

Candidates are the published grids, cut short. Every candidate is trained once; the best third of them, by fitted Q
evaluation on episodes that none of them saw, is trained again with other seeds, and so on until the runs are spent. So
most runs go to candidates that are hard to tell apart. All runs are of full length: a policy's learning rate follows
the length of its run, so a run cut short says little about the whole one. The runs of a round are packed into as few
programs as they have shapes. A sampler of trials in turn (Optuna's) would wait for each before it starts the next, and
has little to model in two dozen runs.
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
    """How candidates are trained and judged."""

    algorithm: str = "iql"
    """Every candidate is trained with this one."""
    runs: int = 24
    """Runs in all, at the most."""
    steps: int = 100_000
    """Updates of each run."""
    batch_size: int = 256
    """Rows drawn for each update."""
    hidden: tuple[int, ...] | None = None
    """Widths of all hidden layers, where the algorithm's own are not wanted."""
    learning_rate: float | None = None
    """The algorithm's learning rate, where its own is not wanted."""
    share: float = 0.2
    """Part of the dataset's episodes that is held out to choose by."""
    fit: Fit = "held-out"
    """The rows that Q is fitted to."""
    fqe: FQE = USUAL

    def learner(self, dataset: Dataset) -> Algorithm:
        made: Any = make_algorithm(self.algorithm, dataset)
        made = resized(made, self.hidden) if self.hidden else made
        return dataclasses.replace(made, learning_rate=self.learning_rate) if self.learning_rate else made

    def words(self, chosen: Candidate, dataset: str) -> list[str]:
        """What follows `winnow train` to train a candidate as it was trained here."""
        words = [dataset, "--algorithm", self.algorithm, *chosen.words]
        words += ["--steps", str(self.steps), "--batch-size", str(self.batch_size)]
        if self.learning_rate:
            words += ["--algorithm.learning-rate", f"{self.learning_rate:g}"]
        for place in ("algorithm", *(["weighter"] if self.hidden and chosen.has_layers else [])):
            words += [f"--{place}.hidden", *map(str, self.hidden)] if self.hidden else []
        return words


AS_USUAL = Tuning()


@dataclass(frozen=True)
class Choice:
    """What was chosen, and how sure that is."""

    chosen: Candidate
    probability: float
    """That its value is the highest of all candidates', as far as the intervals reach."""
    runner_up: str
    """The candidate with the next best value."""
    ahead: float
    """The probability that the chosen one's value is above the runner-up's."""
    table: list[MethodEstimate]
    """All candidates, best first; those that stayed longer have more runs."""
    words: list[str]
    """What follows `winnow train`."""
    notes: list[str]

    def record(self) -> dict[str, Any]:
        told = dataclasses.asdict(self) | {"chosen": self.chosen.label}
        return told | {"table": [dataclasses.asdict(one) | {"value": one.value._asdict()} for one in self.table]}


def schedule(candidates: int, runs: int) -> list[tuple[int, int]]:
    """(candidates that stay, runs that each of them gets) for every round, within the number of runs."""
    if candidates < 2 or runs < 2:
        raise BadInput(f"{candidates} candidates and {runs} runs: with fewer than 2 of each there is nothing to choose")
    stay = min(candidates, max(2, runs // 2))
    rounds, left = [(stay, 1)], runs - stay
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

    out, resume: a folder for all runs and estimates; go on with what it holds
    held_out: episodes to choose by, instead of a share of the dataset's own
    say: told of every round
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
        """Everything that can be refused is refused here, before anything is trained."""
        tuning = self.tuning
        self.train, self.held = self.dataset, self.held_out
        if self.held is None:
            self.train, self.held = split(self.dataset, tuning.share)
        self.rounds = schedule(len(self.candidates), tuning.runs)
        self.wanted = self.candidates[: self.rounds[0][0]]
        if len({one.label for one in self.wanted}) < len(self.wanted):
            raise BadInput("two candidates are the same; name each once")
        learner = tuning.learner(self.train)
        self.runs: dict[str, Run] = {}
        for one in self.wanted:
            parts = one.parts(tuning.algorithm, len(self.dataset), tuning.hidden)
            self.runs[one.label] = Run(self.train, learner, *parts, name=one.label, method=one.label)
        check(list(self.runs.values()), steps=tuning.steps, batch_size=tuning.batch_size)
        estimate.check_fit(self.train, self.held)
        self.states, self.strata, self.notes = estimate.first_states(self.held)
        if left := [one.label for one in self.candidates[len(self.wanted) :]]:
            self.notes.append(f"{tuning.runs} runs are too few to try {', '.join(left)}")

    def claim(self, resume: bool) -> None:
        """Make the folder ours: fresh, or one that holds the same search."""
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
        held = claim(self.folder / "config.json", wanted, resume, "a search; go on with it")
        if held not in (None, wanted):
            raise BadInput(f"{self.folder}: holds another search; give the same words again, or choose another --out")

    def go(self) -> Choice:
        stay, seeds = list(self.runs), dict.fromkeys(self.runs, 0)
        table: list[MethodEstimate] = []
        drawn, more = np.zeros((0, 0)), []
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
        self.trained |= {one.run.name: one for one in done if not one.failure}
        self.notes += [f"{one.run.name} failed ({one.failure}) and is left out" for one in done if one.failure]
        if not self.trained:
            raise BadInput(f"{self.folder}: no candidate could be trained: {'; '.join(self.notes)}")

    def _judge(self) -> None:
        """Values of the runs that have none yet: [fits, states] each, kept on disk."""
        assert self.held is not None
        path, settings = self.folder / "values.safetensors", self.tuning.fqe
        like = np.zeros((settings.fits, len(self.states)))
        if path.exists():
            known = [name for name in checkpoint.read_record(path)["runs"] if name in self.trained]
            self.values |= checkpoint.load(path, dict.fromkeys(known, like))
        new = [one for name, one in self.trained.items() if name not in self.values]
        if not new:
            return
        log = {"train": self.train, "held-out": self.held}.get(self.tuning.fit) or join(self.train, self.held)
        with Progress(settings.steps * len(new), shown=self.progress, unit="updates") as bar:
            bar.describe(f"fitting Q to {len(new)} policies")
            found = fqe.evaluate(log, self.states, [estimate.policy_of(one) for one in new], settings, bar.count)
        self.values |= {one.run.name: value.value for one, value in zip(new, found, strict=True)}
        checkpoint.save(path, self.values, {"runs": sorted(self.values)})

    def _compare(self) -> tuple[list[MethodEstimate], np.ndarray, list[str]]:
        names = list(self.trained)
        values, seed = np.stack([self.values[name] for name in names]), self.tuning.fqe.seed
        drawn = ranking.draws(values, self.strata, seed)
        labels = [self.trained[name].run.group for name in names]
        return ranking.compare(labels, values.mean(axis=(1, 2)), drawn, seed, [None] * len(names))

    def _choose(self, stay: list[str], table: list[MethodEstimate], drawn: np.ndarray, more: list[str]) -> Choice:
        """The best of those that stayed to the end: they were trained most often."""
        place = {line.method: i for i, line in enumerate(table)}
        first = place[stay[0]]
        other = next(i for i in range(len(table)) if i != first) if len(table) > 1 else first
        chosen = next(one for one in self.wanted if one.label == stay[0])
        choice = Choice(
            chosen,
            table[first].best,
            table[other].method,
            float(np.mean(drawn[:, first] > drawn[:, other])),
            table,
            self.tuning.words(chosen, self.dataset.path or self.dataset.meta.name),
            self.notes + more,
        )
        write_text(self.folder / "tune.json", json.dumps(choice.record(), indent=1) + "\n")
        return choice
