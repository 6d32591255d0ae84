"""Evaluation beside training: policies go out as snapshot files, returns come back as lines, and training never waits.

OUT/policies/pack-K-STEP.safetensors   policies that are still to be played, or all of them where they are kept
OUT/returns.jsonl                      one line for each run and round, with the raw returns of its episodes

A process of its own plays the snapshots in the order in which they were written. (Not a thread: XLA has as many threads
as there are cores, and while packs train on all of them every other program waits until one has done its piece.) A
snapshot is removed when its lines are written: whatever is killed at whatever moment, the files say what is left to do.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from winnow import envs
from winnow.algorithms import ALGORITHMS
from winnow.envs import Environment
from winnow.envs.play import Games
from winnow.envs.workers import WorkerError
from winnow.errors import BadInput
from winnow.evaluation.candidates import Snapshot, place
from winnow.evaluation.records import Round, earned
from winnow.evaluation.settings import Evaluation
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.plugins import record
from winnow.policy import stacked
from winnow.system import checkpoint, processes
from winnow.system.files import sweep
from winnow.system.metrics import keep_lines, read_metrics
from winnow.system.progress import say

IDLE = 20.0
"""Seconds without a snapshot after which the environments are closed."""


class Rounds:
    """The rounds of all packs of a call: those that were played, and those that are to be."""

    def __init__(
        self, settings: Evaluation, runs: Sequence[Run], total: int, folder: Path | None, say: Callable[[str], None]
    ) -> None:
        settings.check()
        self.settings, self.say, self.total = settings, say, total
        self.error: str | None = None
        self.played: dict[str, list[Round]] = {run.name: [] for run in runs}
        self._news: queue.SimpleQueue[Round] = queue.SimpleQueue()
        self._places = _places(runs)
        self.steps = settings.steps(total) if self._places else {}
        self._job = self._described(runs)
        self._spare: tempfile.TemporaryDirectory[str] | None = None
        if folder is None:
            self._spare = tempfile.TemporaryDirectory(prefix="winnow-")
            folder = Path(self._spare.name)
        self._out = folder
        self._left: list[Path] = []  # handed over and not played yet
        self._changed = threading.Condition()
        self._child: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    def after(self, step: int) -> int:
        """The next step at which policies are played."""
        return next((each for each in self.steps if each > step), self.total)

    def take_up(self, reached: Mapping[str, int]) -> None:
        """Go on after an earlier call that left these runs at these steps."""
        sweep(self._policies)
        lines = self._out / "returns.jsonl"
        have = {(line["run"], line["step"]) for line in read_metrics(lines)}
        again: dict[Path, set[tuple[str, int]]] = {}
        for path in sorted(self._policies.glob("pack-*-*.safetensors"), key=_number_and_step):
            said = checkpoint.read_record(path)
            playing = {(run["name"], said["step"]) for run in said["runs"] if run["plays"]}
            if any(step > reached[name] for name, step in playing):
                path.unlink()  # training comes by there again
            elif not playing <= have:
                again[path] = playing
            elif not self.settings.keep:
                path.unlink()
        half = set().union(*again.values())  # written in part
        keep_lines(lines, lambda said: said["step"] <= reached[said["run"]] and (said["run"], said["step"]) not in half)
        for line in read_metrics(lines):
            self.played[line["run"]].append(Round(**line))
        for path in again:
            self._hand_over(path)

    def snapshot(self, number: int, pack: Pack, failures: Mapping[str, str]) -> None:
        """Write down the policies of a pack as they are now, and have them played."""
        lost = self.error is not None and self._spare is not None  # nobody will ever play them
        if pack.step not in self.steps or lost or not any(map(self._plays, pack.runs)):
            return
        held = stacked.of_pack(pack)
        runs = [
            {
                "name": run.name,
                "seed": run.seed,
                "environment": run.dataset.meta.environment,
                "algorithm": record(run.algorithm),
                "plays": self._plays(run) and run.name not in failures and good,
            }
            for run, good in zip(pack.runs, held.finite(), strict=True)
        ]
        if any(run["plays"] for run in runs):
            first = self.settings.episodes * list(self.steps).index(pack.step)
            path = self._policies / f"pack-{number}-{pack.step:09d}.safetensors"
            Snapshot(pack.step, self.steps[pack.step], first, pack.spec, runs, held).save(path)
            self._hand_over(path)

    def finish(self, describe: Callable[[str], None], should_stop: Callable[[], bool]) -> None:
        """Wait until all is played."""
        with self._changed:
            while self._left and self.error is None:
                describe(f"evaluating: {len(self._left)} rounds left")
                self._changed.wait(0.2)
                if should_stop():
                    raise KeyboardInterrupt

    def news(self) -> Iterator[Round]:
        """The rounds that were played since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._news.get_nowait()

    def of(self, run: str) -> tuple[Round, ...]:
        """A run's rounds in the order of its training."""
        return tuple(sorted(self.played[run], key=lambda one: one.step))

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process that plays, wherever it is."""
        if self._child and self._child.stdin and self._child.stdout and self._listener:
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.close()
            self._child.kill()
            self._listener.join()
            self._child.stdout.close()
            self._child.wait()
        if self._spare:
            self._spare.cleanup()

    # --------------------------------------------------------------------------------------------- details

    @property
    def _policies(self) -> Path:
        return self._out / "policies"

    def _plays(self, run: Run) -> bool:
        return _where(run) in self._places

    def _described(self, runs: Sequence[Run]) -> str:
        """What the process that plays must know, as a line."""
        kinds = {record(run.algorithm)["name"]: type(run.algorithm) for run in runs if self._plays(run)}
        try:
            learners = {name: processes.address(kind) for name, kind in kinds.items()}
        except ValueError as error:
            raise BadInput(f"can't be evaluated while it trains: {error}; define it in a module of its own") from error
        places = {name: envs.describe(entry) for (name, *_), entry in self._places.items()}
        settings = {"episodes": self.settings.episodes, "processes": self.settings.processes}
        return json.dumps(settings | {"environments": places, "algorithms": learners}) + "\n"

    def _hand_over(self, path: Path) -> None:
        if self.error is not None:
            return
        with self._changed:
            self._left.append(path)
        if self._child is None:
            self._start()
        self._tell(f"{path}\n")

    def _start(self) -> None:
        self._child = subprocess.Popen(
            processes.python_command("winnow.evaluation.background:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.child_env(JAX_PLATFORMS="cpu"),
            encoding="utf-8",
        )
        self._tell(self._job)
        self._listener = threading.Thread(target=self._listen, args=(self._child,), daemon=True)
        self._listener.start()

    def _tell(self, line: str) -> None:
        assert self._child
        assert self._child.stdin
        with contextlib.suppress(BrokenPipeError):  # it died: the listener says so
            self._child.stdin.write(line)
            self._child.stdin.flush()

    def _listen(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout
        assert child.stdin
        try:
            for line in child.stdout:
                answer = json.loads(line)
                if "error" in answer:
                    self._give_up(answer["error"])
                else:
                    self._write([earned(**said) for said in answer["rounds"]])
            if not child.stdin.closed and self.error is None:
                self._give_up(f"the process that plays died with exit code {child.wait()}")
        except Exception as error:
            self._give_up(str(error))

    def _write(self, rounds: list[Round]) -> None:
        """The lines of a snapshot; then it has done its part."""
        if not self._spare:
            with (self._out / "returns.jsonl").open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(one.line()) + "\n" for one in rounds))
                file.flush()
                os.fsync(file.fileno())
        for one in rounds:
            self.played[one.run].append(one)
            self._news.put(one)
        with self._changed:
            path = self._left.pop(0)
            if not self.settings.keep:
                path.unlink(missing_ok=True)
            self._changed.notify_all()

    def _give_up(self, why: str) -> None:
        with self._changed:
            self.error = why
            self._changed.notify_all()
        self.say(f"evaluation has stopped, training goes on: {why}")


Where = tuple[str | None, int, int, str]
"""An environment, the sizes of observations and actions in the data, and the kind of the actions."""


def _where(run: Run) -> Where:
    return run.dataset.meta.environment, run.spec.obs_dim, run.spec.action_dim, run.spec.action_kind


def _places(runs: Sequence[Run]) -> dict[Where, Environment]:
    """The environments of the runs that can be played. Where there is none, a line says so."""
    found: dict[Where, Environment] = {}
    for where, run in {_where(run): run for run in runs}.items():
        try:
            found[where] = place(run.dataset.meta.environment, run.spec)
        except BadInput as error:
            say(f"{run.dataset.meta.name}: there is no environment to evaluate in: {error}")
    return found


def _number_and_step(path: Path) -> tuple[int, int]:
    _, number, step = path.stem.split("-")
    return int(number), int(step)


# -------------------------------------------------------------------------------- inside the process that plays


def serve() -> None:
    """Read what there is to know, then play one snapshot after another until the caller is gone."""
    answers = io.TextIOWrapper(processes.serve_pipes()[1], encoding="utf-8")
    with contextlib.suppress(BrokenPipeError):
        try:
            job = json.loads(sys.stdin.readline())
            for answer in _play_all(job):
                answers.write(json.dumps({"rounds": answer}) + "\n")
                answers.flush()
        except Exception as error:
            known = isinstance(error, (BadInput, WorkerError))
            answers.write(json.dumps({"error": str(error) if known else traceback.format_exc()}) + "\n")
            answers.flush()


def _play_all(job: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """The rounds of each snapshot that comes in. Environments stay open as long as they serve the next one."""
    ALGORITHMS.update({name: processes.at_address(where) for name, where in job["algorithms"].items()})
    places = {name: envs.from_description(said) for name, said in job["environments"].items()}
    waiting: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_on, args=(waiting,), daemon=True).start()
    games, open_for = None, []
    while True:
        try:
            snapshot = Snapshot.load(Path(waiting.get(timeout=IDLE)))
        except queue.Empty:
            if games:
                games.close()
            games = None
            continue
        other = next(run["environment"] for run in snapshot.runs if run["plays"])
        needed = [places.get(run["environment"], places[other]) for run in snapshot.runs]
        if games is None or needed != open_for:
            if games:
                games.close()
            games, open_for = Games(needed, job["episodes"], job["processes"]), needed
        seeds, plays = [run["seed"] for run in snapshot.runs], [run["plays"] for run in snapshot.runs]
        played = games.play(snapshot.actors.on_cpu(), seeds, snapshot.first, plays)
        yield [
            {
                "run": run["name"],
                "step": snapshot.step,
                "number": snapshot.round,
                "environment": run["environment"],
                "returns": returns,
                "lengths": lengths,
            }
            for run, returns, lengths in zip(
                snapshot.runs, played.returns.tolist(), played.lengths.tolist(), strict=True
            )
            if run["plays"]
        ]


def _read_on(waiting: queue.Queue[str]) -> None:
    """Take in what comes; when the caller is gone, so is this process, and with it its environments."""
    for line in sys.stdin:
        waiting.put(line.rstrip("\n"))
    os._exit(0)
