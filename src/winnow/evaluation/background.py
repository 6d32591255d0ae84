"""Evaluation during training: policies are written as snapshot files, returns come back as lines; training never waits.

OUT/policies/pack-K-STEP.safetensors   policies that are still to be played; all policies with `Evaluation.keep`
OUT/returns.jsonl                      one line for each run and round, with the raw returns of its episodes

A child process plays the snapshots in the order in which they were written. (A thread would not do: XLA has one thread
for each core, and while packs train on all of them, any other program has to wait for a free one.) A snapshot is
removed after its lines are written. So whatever is killed at any moment, the files tell what is left to do.
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
from winnow.evaluation.candidates import Snapshot, resolve_environment
from winnow.evaluation.records import Round, make_round
from winnow.evaluation.settings import Evaluation
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.plugins import record
from winnow.policy import stacked
from winnow.system import checkpoint, processes
from winnow.system.files import sweep
from winnow.system.metrics import keep_lines, read_metrics
from winnow.system.progress import say

IDLE_SECONDS = 20.0
"""Environments are closed when no snapshot has arrived for this long."""
POLL_SECONDS = 0.2
"""How often `finish` looks whether it is asked to stop."""


class Rounds:
    """The evaluation rounds of all packs of a call: those played, and those still to be played."""

    def __init__(
        self, settings: Evaluation, runs: Sequence[Run], total: int, folder: Path | None, say: Callable[[str], None]
    ) -> None:
        settings.check()
        self.settings = settings
        self.say = say
        self.total = total
        self.error: str | None = None
        self.played: dict[str, list[Round]] = {run.name: [] for run in runs}
        self._news: queue.SimpleQueue[Round] = queue.SimpleQueue()
        self._environments = _environments(runs)
        self.steps = settings.steps(total) if self._environments else {}
        self._job = self._describe_job(runs)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None  # used if the caller has no output folder
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="winnow-")
            folder = Path(self._temporary.name)
        self._out = folder
        self._waiting: list[Path] = []  # snapshots handed to the child process and not played yet
        self._changed = threading.Condition()
        self._child: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    def after(self, step: int) -> int:
        """The next step at which policies are evaluated."""
        return next((each for each in self.steps if each > step), self.total)

    def resume(self, reached: Mapping[str, int]) -> None:
        """Continue after an earlier call. `reached`: the step from which each run continues."""
        sweep(self._policies)
        lines = self._out / "returns.jsonl"
        on_file = {(line["run"], line["step"]) for line in read_metrics(lines)}
        unplayed: dict[Path, set[tuple[str, int]]] = {}
        for path in sorted(self._policies.glob("pack-*-*.safetensors"), key=_number_and_step):
            snapshot = checkpoint.read_record(path)
            playing = {(run["name"], snapshot["step"]) for run in snapshot["runs"] if run["plays"]}
            if any(step > reached[name] for name, step in playing):
                path.unlink()  # training will write it again
            elif not playing <= on_file:
                unplayed[path] = playing
            elif not self.settings.keep:
                path.unlink()
        partly_written = set().union(*unplayed.values())

        def is_valid(line: dict[str, Any]) -> bool:
            return line["step"] <= reached[line["run"]] and (line["run"], line["step"]) not in partly_written

        keep_lines(lines, is_valid)
        for line in read_metrics(lines):
            self.played[line["run"]].append(Round(**line))
        for path in unplayed:
            self._hand_over(path)

    def snapshot(self, number: int, pack: Pack, failures: Mapping[str, str]) -> None:
        """Write a snapshot of a pack's policies and hand it to the child process. Does nothing between rounds."""
        useless = self.error is not None and self._temporary is not None  # nothing will ever play it
        if pack.step not in self.steps or useless or not any(map(self._plays, pack.runs)):
            return
        actors = stacked.of_pack(pack)
        runs = [
            {
                "name": run.name,
                "seed": run.seed,
                "environment": run.dataset.meta.environment,
                "algorithm": record(run.algorithm),
                "plays": self._plays(run) and run.name not in failures and finite,
            }
            for run, finite in zip(pack.runs, actors.finite(), strict=True)
        ]
        if any(run["plays"] for run in runs):
            first = self.settings.episodes * list(self.steps).index(pack.step)
            path = self._policies / f"pack-{number}-{pack.step:09d}.safetensors"
            Snapshot(pack.step, self.steps[pack.step], first, pack.spec, runs, actors).save(path)
            self._hand_over(path)

    def finish(self, describe: Callable[[str], None], should_stop: Callable[[], bool]) -> None:
        """Wait until every snapshot is played."""
        with self._changed:
            while self._waiting and self.error is None:
                describe(f"evaluating: {len(self._waiting)} rounds left")
                self._changed.wait(POLL_SECONDS)
                if should_stop():
                    raise KeyboardInterrupt

    def news(self) -> Iterator[Round]:
        """The rounds played since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._news.get_nowait()

    def of(self, run: str) -> tuple[Round, ...]:
        """A run's rounds, in the order of their steps."""
        return tuple(sorted(self.played[run], key=lambda played: played.step))

    def __enter__(self) -> Rounds:
        return self

    def __exit__(self, *_: object) -> None:
        """End the child process, whatever it is doing."""
        if self._child and self._child.stdin and self._child.stdout and self._listener:
            with contextlib.suppress(BrokenPipeError):
                self._child.stdin.close()
            self._child.kill()
            self._listener.join()
            self._child.stdout.close()
            self._child.wait()
        if self._temporary:
            self._temporary.cleanup()

    # --------------------------------------------------------------------------------------------- details

    @property
    def _policies(self) -> Path:
        return self._out / "policies"

    def _plays(self, run: Run) -> bool:
        return _task(run) in self._environments

    def _describe_job(self, runs: Sequence[Run]) -> str:
        """What the child process must know, as a line of JSON."""
        classes = {record(run.algorithm)["name"]: type(run.algorithm) for run in runs if self._plays(run)}
        try:
            algorithms = {name: processes.address(kind) for name, kind in classes.items()}
        except ValueError as error:
            raise BadInput(
                f"an algorithm can't be evaluated during training: {error}; define it in a module of its own"
            ) from error
        environments = {name: envs.describe(entry) for (name, *_), entry in self._environments.items()}
        settings = {"episodes": self.settings.episodes, "processes": self.settings.processes}
        return json.dumps(settings | {"environments": environments, "algorithms": algorithms}) + "\n"

    def _hand_over(self, path: Path) -> None:
        if self.error is not None:
            return
        with self._changed:
            self._waiting.append(path)
        if self._child is None:
            self._start()
        self._send(f"{path}\n")

    def _start(self) -> None:
        self._child = subprocess.Popen(
            processes.python_command("winnow.evaluation.background:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.child_env(JAX_PLATFORMS="cpu"),
            encoding="utf-8",
        )
        self._send(self._job)
        self._listener = threading.Thread(target=self._listen, args=(self._child,), daemon=True)
        self._listener.start()

    def _send(self, line: str) -> None:
        assert self._child
        assert self._child.stdin
        with contextlib.suppress(BrokenPipeError):  # it died: `_listen` reports it
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
                    self._write([make_round(**fields) for fields in answer["rounds"]])
            if not child.stdin.closed and self.error is None:
                self._give_up(f"its process died with exit code {child.wait()}")
        except Exception as error:
            self._give_up(str(error))

    def _write(self, rounds: list[Round]) -> None:
        """Write the lines of the oldest snapshot, then remove it."""
        if not self._temporary:
            with (self._out / "returns.jsonl").open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(played.line()) + "\n" for played in rounds))
                file.flush()
                os.fsync(file.fileno())
        for played in rounds:
            self.played[played.run].append(played)
            self._news.put(played)
        with self._changed:
            path = self._waiting.pop(0)
            if not self.settings.keep:
                path.unlink(missing_ok=True)
            self._changed.notify_all()

    def _give_up(self, why: str) -> None:
        with self._changed:
            self.error = why
            self._changed.notify_all()
        self.say(f"evaluation has stopped, training continues: {why}")


EnvTask = tuple[str | None, int, int, str]
"""The environment that a dataset names, the sizes of its observations and actions, and the kind of its actions."""


def _task(run: Run) -> EnvTask:
    return run.dataset.meta.environment, run.spec.obs_dim, run.spec.action_dim, run.spec.action_kind


def _environments(runs: Sequence[Run]) -> dict[EnvTask, Environment]:
    """The environments of the runs that can be evaluated. For each of the others, a line with the reason."""
    environments: dict[EnvTask, Environment] = {}
    for task, run in {_task(run): run for run in runs}.items():
        try:
            environments[task] = resolve_environment(run.dataset.meta.environment, run.spec)
        except BadInput as error:
            say(f"{run.dataset.meta.name}: there is no environment to evaluate in: {error}")
    return environments


def _number_and_step(path: Path) -> tuple[int, int]:
    _, number, step = path.stem.split("-")
    return int(number), int(step)


# -------------------------------------------------------------------------------------- inside the child process


def serve() -> None:
    """Main function of the child process: read the job, then play one snapshot after another until the caller is
    gone."""
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
    """The rounds of each snapshot that comes in. Environments stay open while the next snapshot needs the same ones."""
    ALGORITHMS.update({name: processes.at_address(where) for name, where in job["algorithms"].items()})
    environments = {name: envs.from_description(entry) for name, entry in job["environments"].items()}
    incoming: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_paths, args=(incoming,), daemon=True).start()
    games = None
    open_environments = []
    while True:
        try:
            snapshot = Snapshot.load(Path(incoming.get(timeout=IDLE_SECONDS)))
        except queue.Empty:
            if games:
                games.close()
            games = None
            continue
        # A run that does not play still needs environments, of any kind: it takes those of one that does.
        stand_in = environments[next(run["environment"] for run in snapshot.runs if run["plays"])]
        needed = [environments.get(run["environment"], stand_in) for run in snapshot.runs]
        if games is None or needed != open_environments:
            if games:
                games.close()
            games = Games(needed, job["episodes"], job["processes"])
            open_environments = needed
        seeds = [run["seed"] for run in snapshot.runs]
        plays = [run["plays"] for run in snapshot.runs]
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


def _read_paths(incoming: queue.Queue[str]) -> None:
    """Queue the paths of snapshots. When the caller is gone, end this process, and with it its environments."""
    for line in sys.stdin:
        incoming.put(line.rstrip("\n"))
    os._exit(0)
