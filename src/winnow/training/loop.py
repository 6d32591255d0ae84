"""The training loop: packs from their first update, or from a checkpoint, to the files of their runs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from winnow.evaluation.background import Rounds
from winnow.packs.pack import Pack
from winnow.packs.run import Drawn, Run
from winnow.packs.step import Learner
from winnow.plugins import record
from winnow.policy import Policy
from winnow.policy.files import pack_checkpoint
from winnow.policy.stacked import SCALING
from winnow.system import checkpoint
from winnow.system.metrics import Log, read_metrics
from winnow.training.alarms import Watch
from winnow.training.hooks import Hooks
from winnow.training.pace import ACCELERATOR_STEPS, Pace
from winnow.training.trained import Trained


class Call(NamedTuple):
    """What all packs of one call of `train_runs` share."""

    steps: int
    batch_size: int
    chunk: int
    held_out: float
    folder: Path | None
    logs: list[Log]
    hooks: Hooks
    pace: Pace
    checkpoint_seconds: float
    drawn: Drawn
    rounds: Rounds | None
    writer: checkpoint.Writer

    def pauses(self, step: int) -> tuple[int, int]:
        """The first middle of a chunk after a step, and the first end."""
        begin = step - step % self.chunk
        half = -(-self.chunk // 2)
        half = -(-half // ACCELERATOR_STEPS) * ACCELERATOR_STEPS if half > ACCELERATOR_STEPS else half
        end = begin + self.chunk
        return min(begin + half if step < begin + half else end + half, self.steps), min(end, self.steps)

    def log_rounds(self) -> None:
        """Log the evaluation rounds finished since the last call."""
        for finished in self.rounds.news() if self.rounds else ():
            for log in self.logs:
                log.evaluated(finished.metrics())


@dataclass
class Job:
    """One pack, trained from its first update or from its checkpoint to its files."""

    runs: list[Run]
    number: int
    call: Call

    @cached_property
    def watches(self) -> dict[str, Watch]:
        """The alarms of each run."""
        return {run.name: Watch(run, self.call.steps) for run in self.runs}

    def _restore_alarms(self) -> None:
        if self.call.folder:
            for line in read_metrics(self.call.folder / "metrics.jsonl"):
                if line["run"] in self.watches:
                    self.watches[line["run"]].replay([line])

    def finish(self) -> list[Trained]:
        call = self.call
        algorithm = record(self.runs[0].algorithm)["name"]
        weighter = record(self.runs[0].weighter)["name"]
        call.hooks.on_pack(f"pack {self.number + 1}: {len(self.runs)} × {algorithm} with weights {weighter}")
        if self._finished:
            call.hooks.on_skipped(call.steps * len(self.runs))
            loaded = [Trained.load(file, run.dataset) for file, run in zip(self._files, self.runs, strict=True)]
            return [dataclasses.replace(old, run=run) for old, run in zip(loaded, self.runs, strict=True)]
        pack = Pack(self.runs, call.steps, call.batch_size, drawn=call.drawn, held_out=call.held_out)
        failures = self._restore(pack)
        self._restore_alarms()
        self._loop(pack, failures)
        trained = list(self._take_out(pack, failures))
        if call.folder:
            for file, run in zip(self._files, trained, strict=True):
                run.save(file)
            call.writer.wait()
            self._checkpoint.unlink(missing_ok=True)
        return trained

    def _loop(self, pack: Pack, failures: dict[str, str]) -> None:
        call = self.call
        saved = time.monotonic()
        while pack.step < call.steps and len(failures) < len(self.runs):
            if call.hooks.should_stop():
                self._save(pack, failures)
                raise KeyboardInterrupt
            middle, end = call.pauses(pack.step)
            stop = min(middle, end, call.rounds.after(pack.step) if call.rounds else end)
            call.pace.advance(pack, stop - pack.step, call.hooks)
            if pack.step == end:
                means = pack.end_chunk()
                for number, run in enumerate(self.runs):
                    if run.name not in failures:
                        mine = {name: float(mean[number]) for name, mean in means.items()}
                        self._report(run, pack.step, mine, failures)
                call.log_rounds()
            if call.rounds:
                call.rounds.snapshot(self.number, pack, failures)
            due = pack.step in (middle, end) and time.monotonic() - saved >= call.checkpoint_seconds
            if call.folder and (due or pack.step == call.steps):
                self._save(pack, failures)
                saved = time.monotonic()

    def _report(self, run: Run, step: int, means: dict[str, float], failures: dict[str, str]) -> None:
        line: dict[str, Any] = {"run": run.name, "step": step}
        not_finite = next((name for name, mean in means.items() if not np.isfinite(mean)), None)
        if not_finite:
            failures[run.name] = (
                f"{not_finite} was {means[not_finite]} in the {self.call.chunk} updates before step {step}"
            )
            line["failed"] = failures[run.name]
            advice = "lower its learning rate or look at its rewards"
            self.call.hooks.warn(f"{run.name} stopped: {failures[run.name]}; {advice}")
        else:
            line |= means
            for text in self.watches[run.name].look(step, means):
                self.call.hooks.warn(f"{run.name}: {text}")
        for log in self.call.logs:
            log.write(line)

    # ------------------------------------------------------------------------------------------ checkpoints

    @property
    def _files(self) -> list[Path]:
        assert self.call.folder is not None
        return [self.call.folder / f"{run.name}.safetensors" for run in self.runs]

    @property
    def _checkpoint(self) -> Path:
        assert self.call.folder is not None
        return pack_checkpoint(self.call.folder, self.number)

    @property
    def _finished(self) -> bool:
        """Whether every run has its file. The checkpoint is removed after the last one is written."""
        return bool(self.call.folder) and not self._checkpoint.exists() and all(file.exists() for file in self._files)

    def reached(self) -> int:
        """The number of updates that an earlier call left on disk."""
        if self._checkpoint.exists():
            return checkpoint.read_record(self._checkpoint)["step"]
        return self.call.steps if self._finished else 0

    def _save(self, pack: Pack, failures: dict[str, str]) -> None:
        saved = {"step": pack.step, "since": pack.since, "failures": dict(failures)}
        self.call.writer.save(self._checkpoint, _states(pack.learners), saved)

    def _restore(self, pack: Pack) -> dict[str, str]:
        """Load the pack's checkpoint. Returns the runs that had failed by then, and why."""
        if not self.call.folder or not self._checkpoint.exists():
            return {}
        states = jax.tree.map(jax.numpy.asarray, checkpoint.load(self._checkpoint, _states(pack.learners)))
        pack.learners = pack.learners._replace(**states)
        saved = checkpoint.read_record(self._checkpoint)
        pack.step = saved["step"]
        pack.since = saved["since"]
        self.call.hooks.on_skipped(pack.step * len(self.runs))
        return saved["failures"]

    def _take_out(self, pack: Pack, failures: dict[str, str]) -> Iterator[Trained]:
        """The runs of a pack, with one transfer from the device."""
        state, weights, *scaling = jax.device_get(
            (pack.learners.algorithm, pack.learners.weighter, *(getattr(pack.lanes, name) for name in SCALING))
        )
        for number, run in enumerate(self.runs):
            mine, weighed, *scales = jax.tree.map(lambda leaf, i=number: leaf[i], (state, weights, *scaling))
            policy = Policy(run.algorithm, mine, *scales)
            failure = failures.get(run.name)
            warnings = tuple(self.watches[run.name].raised.values())
            own = _own_rows(weighed, run)
            yield Trained(run, pack.step, failure, policy, own, precision=pack.precision, warnings=warnings)


def _states(learners: Learner) -> dict[str, Any]:
    return {"weighter": learners.weighter, "algorithm": learners.algorithm, "sums": learners.sums}


def _own_rows(state: Any, run: Run) -> Any:
    """A weighter's state without the padding to the longest dataset of its pack."""
    like = jax.eval_shape(lambda key: run.weighter.init(key, run.spec), jax.random.key(0))
    return jax.tree.map(lambda leaf, own: np.asarray(leaf)[tuple(slice(n) for n in own.shape)], state, like)
