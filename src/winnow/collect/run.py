"""The command: train to a number of steps, for a limited time, or until a level is reached, and print progress."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from winnow import envs
from winnow.collect.trainer import LEVELS, Setup, Trainer
from winnow.errors import BadInput


def train(
    env: str | Sequence[str],
    steps: int,
    seed: int | Sequence[int] = 0,
    out: str | Path = "runs/collect",
    *,
    until: str | None = None,
    seconds: float | None = None,
    save_every: float = 240.0,
    processes: int | None = None,
    verbose: bool = False,
    **settings: Any,
) -> dict[str, list[dict[str, Any]]]:
    """Train a policy for every environment with every seed, to `steps`. A second call with the same `out` continues.

    until: medium or expert: stop when every environment has a policy of this level, and write it as
        ENV-LEVEL.safetensors; with an expert also the medium policy of the same run, if an evaluation found one
    seconds: stop before this much time has passed
    save_every: seconds between two checkpoints
    settings: fields of `Setup`

    Writes under `out`: a folder for each lane with its learning curve (curve.jsonl) and a snapshot of the policy for
    each evaluation; log.jsonl with speeds; and the checkpoint. Returns the learning curve of each lane: a list of
    step, mean, std, score and raw returns.
    """
    began = time.monotonic()
    out = Path(out)
    known = {field.name for field in dataclasses.fields(Setup)}
    if wrong := sorted(set(settings) - known):
        raise BadInput(f"there is no setting {wrong[0]!r}; there are {', '.join(sorted(known))}")
    settings.setdefault("updates", settings.get("environments", Setup.environments))
    if until is not None:
        if until not in LEVELS:
            raise BadInput(f"there is no level {until!r}; choose from {', '.join(LEVELS)}")
        for name in (env,) if isinstance(env, str) else env:
            if envs.lookup(name).reference is None:
                raise BadInput(f"{name}: has no reference returns, so {until} is not defined for it; leave out --until")
    environments = (env,) if isinstance(env, str) else tuple(env)
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    trainer = Trainer(Setup(environments, seeds, **settings), out, processes)

    def say(text: str) -> None:
        if verbose:
            print(f"[{time.monotonic() - began:6.1f} s] {text}", flush=True)

    try:
        say(f"{', '.join(lane.name for lane in trainer.lanes)} from step {trainer.steps:,} on {jax.devices()[0]}")
        saved = began
        unsaved = False
        round_seconds = 0.0  # of the last round with its evaluation
        every = trainer.setup.evaluate_every
        while trainer.steps < steps:
            mark = time.monotonic()
            if seconds is not None and mark - began + 1.2 * round_seconds + trainer.saving() > seconds:
                say("stopping: another round would not fit into --seconds")
                break
            if unsaved and mark - saved > save_every:
                trainer.save()
                unsaved = False
                saved = time.monotonic()
                mark = saved
            log = trainer.round(min(steps, (trainer.steps // every + 1) * every))
            evaluation_began = time.monotonic()
            trainer.record(trainer.evaluate())
            unsaved = True
            ended = time.monotonic()
            round_seconds = ended - mark
            log["evaluation_seconds"] = ended - evaluation_began
            with (out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(log) + "\n")
            say(_line(log, trainer))
            if until and (reached := trainer.keep_levels(until)):
                say(f"{until}: {', '.join(reached)}")
                if len(reached) == len(trainer.setup.env):
                    break
        if unsaved:
            trainer.save()
            say(f"saved at step {trainer.steps:,}: {trainer.checkpoint}")
        if (out / "log.jsonl").exists():
            say(peak(out))
    finally:
        trainer.close()
    return {lane.name: curve for lane, curve in zip(trainer.lanes, trainer.curves, strict=True)}


def peak(out: Path) -> str:
    """The highest speeds in a run's log."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    names = ("environment_steps_per_second", "steps_per_second_of_a_lane", "updates_per_second_of_a_lane")
    return "peak: " + ", ".join(f"{max(line[n] for line in lines):,.0f} {n.replace('_', ' ')}" for n in names)


def _line(log: dict[str, Any], trainer: Trainer) -> str:
    """A line of progress: returns (and scores), speeds of each lane, and the shares of time spent waiting."""
    returns = []
    for lane, curve in zip(trainer.lanes, trainer.curves, strict=True):
        point = curve[-1]
        score = "" if point["score"] is None else f" ({point['score']:.1f})"
        returns.append(f"{lane.name} {point['mean']:.0f}{score}")
    steps = log["steps_per_second_of_a_lane"]
    updates = log["updates_per_second_of_a_lane"]
    waits = ", ".join(f"{name} {share:.0%}" for name, share in log["waiting"].items())
    return (
        f"step {log['step']:,}: {', '.join(returns)}; {steps:,.0f} steps/s, {updates:,.0f} updates/s per policy; "
        f"waiting for {waits}; evaluation {log['evaluation_seconds']:.1f} s"
    )


def parser_of(prog: str, epilog: str = "") -> argparse.ArgumentParser:
    """The parser of the command line."""
    about = "Train behaviour policies online with soft actor-critic."
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog, description=about, epilog=epilog, formatter_class=form)
    parser.add_argument("--env", nargs="+", required=True, help=f"one or more of {', '.join(envs.TABLE)}")
    parser.add_argument("--seed", nargs="+", type=int, default=[0], help="train every environment with each of these")
    parser.add_argument(
        "--steps", type=int, default=1_000_000, help="environment steps of each policy (default: 1,000,000)"
    )
    parser.add_argument(
        "--until",
        choices=list(LEVELS),
        help="stop when every environment has a policy of this level: a normalised score of 35 to 60 for medium, of at "
        "least 90 for expert",
    )
    parser.add_argument("--out", type=Path, required=True, help="output folder; the same command again continues there")
    parser.add_argument("--seconds", type=float, help="stop, with a checkpoint, before this many seconds have passed")
    parser.add_argument(
        "--save-every", type=float, default=240.0, help="seconds between two checkpoints (default: 240)"
    )
    parser.add_argument("--processes", type=int, help="processes that step environments (default: one for each core)")
    for field in dataclasses.fields(Setup):
        if "help" in field.metadata:
            text = field.metadata["help"]
            default = "" if "default:" in text else f" (default: {field.default:,})"
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, help=text + default)
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "python -m winnow.collect", epilog: str = "") -> None:
    """The command: train with these arguments, by default those of this process."""
    parser = parser_of(prog, epilog)
    given = {name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}
    train(given.pop("env"), given.pop("steps"), given.pop("seed"), given.pop("out"), verbose=True, **given)
