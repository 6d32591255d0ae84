"""A whole call: train to a number of steps, for some time or until a level is reached, and say how it goes."""

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
    """Train every environment with every seed to `steps`, or until `seconds` are nearly over; called again, go on.

    `until` (medium or expert) stops when every environment has such a policy, and leaves it as ENV-LEVEL.safetensors;
    an expert with the medium policy that its run passed through, if an evaluation saw one.

    Under `out`: a folder for each lane with its curve (curve.jsonl) and a snapshot of the policy for each evaluation,
    log.jsonl with the rates, and the checkpoint, written at the end and about every `save_every` seconds. `settings`
    are those of `Setup`. The curves: for each lane a list of step, mean, std, score and raw returns.
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
                raise BadInput(f"{name}: has no reference returns, so no policy of it is {until}; give --steps alone")
    lanes = ((env,) if isinstance(env, str) else tuple(env), (seed,) if isinstance(seed, int) else tuple(seed))
    trainer = Trainer(Setup(*lanes, **settings), out, processes)

    def say(text: str) -> None:
        if verbose:
            print(f"[{time.monotonic() - began:6.1f} s] {text}", flush=True)

    try:
        say(f"{', '.join(lane.name for lane in trainer.lanes)} from step {trainer.steps:,} on {jax.devices()[0]}")
        saved, unsaved, took = began, False, 0.0
        every = trainer.setup.evaluate_every
        while trainer.steps < steps:
            mark = time.monotonic()
            if seconds is not None and mark - began + 1.2 * took + trainer.saving() > seconds:
                say("the time is nearly over")
                break
            if unsaved and mark - saved > save_every:
                trainer.save()
                saved, unsaved, mark = time.monotonic(), False, time.monotonic()
            log = trainer.round(min(steps, (trainer.steps // every + 1) * every))
            evaluation = time.monotonic()
            trainer.note(trainer.evaluate())
            unsaved, took = True, time.monotonic() - mark
            log["evaluation_seconds"] = time.monotonic() - evaluation
            with (out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(log) + "\n")
            say(_line(log, trainer))
            if until and (there := trainer.settle(until)):
                say(f"{until}: {', '.join(there)}")
                if len(there) == len(trainer.setup.env):
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
    """The greatest rates that a run's log tells of."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    names = ("environment_steps_per_second", "steps_per_second_of_a_lane", "updates_per_second_of_a_lane")
    return "peak: " + ", ".join(f"{max(line[n] for line in lines):,.0f} {n.replace('_', ' ')}" for n in names)


def _line(log: dict[str, Any], trainer: Trainer) -> str:
    last = [(lane.name, curve[-1]) for lane, curve in zip(trainer.lanes, trainer.curves, strict=True)]
    each = ", ".join(f"{n} {p['mean']:.0f}" + ("" if p["score"] is None else f" ({p['score']:.1f})") for n, p in last)
    rates = (
        f"{log['steps_per_second_of_a_lane']:,.0f} steps/s, {log['updates_per_second_of_a_lane']:,.0f} updates/s a lane"
    )
    waits = ", ".join(f"{name} {share:.0%}" for name, share in log["waiting"].items())
    return f"step {log['step']:,}: {each}; {rates}; waits for {waits}; evaluation {log['evaluation_seconds']:.1f} s"


def parser_of(prog: str) -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(prog, description="Train behaviour policies with soft actor-critic.")
    parser.add_argument("--env", nargs="+", required=True, help=f"one or more of {', '.join(envs.TABLE)}")
    parser.add_argument("--seed", nargs="+", type=int, default=[0], help="every environment with each of these seeds")
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps for each environment and seed")
    parser.add_argument("--until", choices=list(LEVELS), help="stop when every environment has such a policy")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; called again, the run goes on")
    parser.add_argument("--seconds", type=float, help="stop cleanly before this many seconds are over")
    parser.add_argument("--save-every", type=float, default=240.0, help="seconds between checkpoints")
    parser.add_argument("--processes", type=int, help="worker processes for all environments; default: one a core")
    for field in dataclasses.fields(Setup):
        if field.type == "int":
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, help=f"default {field.default}")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "python -m winnow.collect") -> None:
    """Train as a command line asks."""
    parser = parser_of(prog)
    words = {name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}
    train(words.pop("env"), words.pop("steps"), words.pop("seed"), words.pop("out"), verbose=True, **words)
