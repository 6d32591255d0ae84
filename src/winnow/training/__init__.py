"""Training: which runs there are, the loop over their chunks, checkpoints, and what is left at the end.

OUT/config.json          everything that was asked for
OUT/metrics.jsonl        one line for each run and chunk
OUT/returns.jsonl        one line for each run and round of evaluation (see `winnow.evaluation.background`)
OUT/NAME.safetensors     one for each finished run: policy, weighter, scaling, settings
OUT/pack-K.safetensors   the state of a pack that is not finished yet
OUT/lock                 held while a process trains there
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from winnow import __version__
from winnow.data.advice import AUTO, advise
from winnow.data.dataset import Dataset
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.evaluation.background import Rounds
from winnow.evaluation.settings import Evaluation
from winnow.packs.run import Drawn, Run, packs, probabilities
from winnow.policy.files import is_pack_checkpoint
from winnow.samplers import Sampler
from winnow.system import checkpoint
from winnow.system.files import claim, sweep
from winnow.system.locks import alone
from winnow.system.metrics import Log, keep_lines, open_logs
from winnow.system.progress import Progress, say
from winnow.training.hooks import Hooks
from winnow.training.loop import Call, Job
from winnow.training.pace import Pace
from winnow.training.planning import plan
from winnow.training.trained import Trained, run_record
from winnow.types import Algorithm, Weighter, check_settings

FORMAT = "winnow-train-3"
HELD_OUT = 0.01
"""Default fraction of rows that training never samples."""

Many = Sequence[Any]


# ------------------------------------------------------------------------------------------- what to train


def train(
    dataset: Dataset | str | Path | Many,
    algorithm: str | Algorithm | Many = "iql",
    method: str | Many = AUTO,
    *,
    sampler: str | Sampler | None = None,
    weighter: str | Weighter | None = None,
    seeds: int | Sequence[int] = 1,
    **options: Any,
) -> list[Trained]:
    """Train every combination of dataset, algorithm, method and seed, with one program for each shape of run.

    A method is a sampler and a weighter by one name (`dw-aw`, see `winnow.methods`); `auto` chooses it by the data and
    says so. `sampler` and `weighter` replace the method's. Options are those of `train_runs`: steps, batch_size, out,
    resume, …
    """
    opened = [data if isinstance(data, Dataset) else open_dataset(data) for data in _several(dataset)]
    if AUTO in _several(method):
        for data in opened:
            say(advise(data).line(data.meta.name))
    return train_runs(
        [
            run
            for data in opened
            for learner in _several(algorithm)
            for name in _several(method)
            for run in plan(data, learner, name, sampler=sampler, weighter=weighter, seeds=seeds)
        ],
        **options,
    )


def _several(value: Any) -> Many:
    return value if isinstance(value, (list, tuple)) else [value]


# ------------------------------------------------------------------------------------------------ the loop


def train_runs(
    runs: Sequence[Run],
    *,
    steps: int = 1_000_000,
    batch_size: int = 256,
    chunk: int = 5_000,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 30.0,
    largest_pack: int | None = None,
    log: Sequence[str] = (),
    progress: bool = True,
    hooks: Hooks | None = None,
    evaluate: Evaluation | None = None,
    held_out: float = HELD_OUT,
) -> list[Trained]:
    """Train runs, packed by shape, one pack after another. Ctrl-C stops after a checkpoint, if there is a folder.

    steps, batch_size: updates of each run, and rows sampled for each update
    chunk: updates between two reports; weighters that need the whole dataset see it once a chunk
    out: folder for checkpoints, metrics and finished runs; locked while this process trains
    resume: continue from the checkpoints in that folder, bit for bit
    checkpoint_seconds: minimum time between two checkpoints. They are taken in the middle and at the end of a chunk
        and written while training goes on, so that with 0 at most one chunk can be lost
    largest_pack: maximum number of runs in one program, for devices with little memory
    log: "tensorboard", "wandb"
    progress: whether to show a bar
    hooks: callbacks in place of the bar, for a caller that trains several packs
    evaluate: when and how much to play the policies in their environment while training goes on
    held_out: fraction of each dataset's rows that is never sampled, to see whether a policy overfits
    """
    if not 0 <= held_out < 1:
        raise BadInput(f"held_out must be at least 0 and below 1, got {held_out}; 1 % is 0.01")
    check(runs, steps=steps, batch_size=batch_size, chunk=chunk)
    groups = packs(runs, largest_pack)
    folder = None if out is None else Path(out)
    config: dict[str, Any] = {"format": FORMAT, "steps": steps, "batch_size": batch_size, "chunk": chunk}
    config["evaluation"] = evaluate.record() if evaluate else None
    config["held_out"] = held_out
    hooks = hooks or Hooks(Progress(steps * len(runs), shown=progress))
    logs: list[Log] = []
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(alone(folder))
        record_of_runs = {"runs": [run_record(run) for group in groups for run in group]}
        drawn = _probabilities(runs, folder, config | record_of_runs, resume)
        rounds = stack.enter_context(Rounds(evaluate, runs, steps, folder, hooks.warn)) if evaluate else None
        if folder is not None:
            stack.enter_context(_stopped_by_ctrl_c(folder, hooks))
        writer = stack.enter_context(checkpoint.Writer())
        sizes = (steps, batch_size, chunk, held_out)
        call = Call(*sizes, folder, logs, hooks, Pace(), checkpoint_seconds, drawn, rounds, writer)
        jobs = [Job(group, number, call) for number, group in enumerate(groups)]
        if folder is not None:
            reached = {run.name: job.reached() for job in jobs for run in job.runs}
            keep_lines(folder / "metrics.jsonl", lambda line: line["step"] <= reached.get(line["run"], -1))
            logs += open_logs(folder, log)
            if rounds:
                rounds.resume(reached)
        for each in logs:
            stack.callback(each.close)
        hooks.on_begin()
        stack.callback(hooks.on_end)
        done = {trained.run.name: trained for job in jobs for trained in job.finish()}
        hooks.on_trained()
        if rounds:
            rounds.finish(hooks.on_evaluating, hooks.should_stop)
            call.log_rounds()
            done = {name: dataclasses.replace(run, rounds=rounds.of(name)) for name, run in done.items()}
            if rounds.error and folder:
                raise BadInput(
                    f"{folder}: training finished but evaluation failed; fix the error above and re-run with --resume"
                )
    return [done[run.name] for run in runs]


@contextlib.contextmanager
def _stopped_by_ctrl_c(folder: Path, hooks: Hooks) -> Iterator[None]:
    """The first Ctrl-C stops after a checkpoint; the second one stops at once."""

    def ask(*_: object) -> None:
        if hooks.should_stop():
            raise KeyboardInterrupt
        hooks.ask_to_stop()
        hooks.say("stopping after a checkpoint; Ctrl-C again stops at once")

    inside = threading.current_thread() is threading.main_thread()  # only there can signals be caught
    before = signal.getsignal(signal.SIGINT)
    if inside:
        signal.signal(signal.SIGINT, ask)
    try:
        yield
    except KeyboardInterrupt:
        hooks.warn(
            f"{folder}: progress is saved up to the last checkpoint; run the same command with --resume to continue"
        )
        raise
    finally:
        if inside:
            signal.signal(signal.SIGINT, before)


def check(runs: Sequence[Run], **counts: int) -> None:
    """Refuse what can't be trained, before anything is computed or written."""
    for name, count in counts.items():
        if count < 1:
            raise BadInput(f"{name} must be at least 1, got {count}")
    if not runs:
        raise BadInput("there are no runs to train; give at least one seed")
    names = [run.name for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice:
        raise BadInput(f"run names must differ, got {twice!r} twice; rename one")
    for run in runs:
        if Path(run.name).name != run.name or run.name.startswith("."):
            raise BadInput(f"a run's name must be a file name, got {run.name!r}; choose one without slashes")
        if is_pack_checkpoint(run.name):
            raise BadInput(f"a run must not be named {run.name!r}: that is a checkpoint's file name; choose another")
        for where, part in (("algorithm", run.algorithm), ("sampler", run.sampler), ("weighter", run.weighter)):
            check_settings(part, where)
    # Weighters check a whole dataset, so once for each dataset and not for every seed.
    for run in {(id(run.dataset), run.weighter): run for run in runs}.values():
        checker = getattr(run.weighter, "check", None)
        if checker:
            checker(run.dataset)


def _probabilities(runs: Sequence[Run], folder: Path | None, config: dict[str, Any], resume: bool) -> Drawn:
    """Sampling probabilities. A sampler may fit networks for minutes, so the folder is claimed first. A fresh claim is
    withdrawn if a sampler fails or is interrupted."""
    fresh = folder is not None and _claim(folder, config, resume)
    try:
        drawn = probabilities(runs)
        for run in runs:
            if drawn[run.drawing].sum() <= 0:
                raise BadInput(f"{run.name}: its sampler gives every row a probability of 0; choose another sampler")
    except BaseException:
        if folder is not None and fresh:
            (folder / "config.json").unlink()
        raise
    return drawn


def _claim(folder: Path, config: dict[str, Any], resume: bool) -> bool:
    """Claim the output folder, which must be fresh or hold the same runs. Returns whether it is fresh."""
    wanted = json.loads(json.dumps(config))
    versions = {"winnow": __version__, "jax": jax.__version__}
    earlier = claim(folder / "config.json", wanted, resume, "runs; resume them", versions)
    if earlier is None:
        return True
    for name in wanted:
        if earlier.get(name) != wanted[name]:
            raise BadInput(
                f"{folder}: holds runs with other {name}; resume with the same command, or choose another --out"
            )
    sweep(folder)
    return False
