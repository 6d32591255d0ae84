"""A film of one episode of a trained policy.

The episode is played here, and then again, action by action, by a process that draws it. Which way of drawing works is
only known after trying, and MuJoCo settles on one when it is imported: so each has a process of its own.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from winnow import envs
from winnow.errors import BadInput, install_hint
from winnow.evaluation.candidates import Candidate, candidates, place
from winnow.system import processes
from winnow.system.files import replacing

RATE = 25
"""Frames a second, at the most."""


def film(run: Path, video: Path, environment: str | None = None, seed: int | None = None) -> None:
    """Write the first episode of a run (of a folder's first one) as a .gif or .mp4."""
    if video.suffix not in (".gif", ".mp4"):
        raise BadInput(f"{video}: a film is written as .gif or .mp4; choose one of these endings")
    if video.suffix == ".mp4" and not importlib.util.find_spec("imageio_ffmpeg"):
        raise BadInput(f"{video}: .mp4 needs an encoder; {install_hint('video')}, or choose a name ending in .gif")
    one = next((one for one in candidates(run) if isinstance(one, Candidate)), None)
    if one is None:
        raise BadInput(f"{run}: has no policy to film; its training failed")
    entry = place(environment or one.environment, one.spec)
    number = envs.episode_seed(envs.EVALUATION_SEEDS + (one.seed if seed is None else seed), 0, one.first)
    job = {"seed": number, "actions": _actions(one, entry, number)}
    shown = dataclasses.replace(entry, options=entry.options | {"render_mode": "rgb_array"})
    errors = []
    with replacing(video) as temporary:
        said = json.dumps(job | {"environment": envs.describe(shown), "file": str(temporary)})
        for way in _ways():
            error = _drawn(said, way)
            if error is None:
                return
            errors.append(f"{way or 'default'}: {error}")
        raise BadInput(
            f"{entry.name}: can't be drawn here ({'; '.join(errors)}); a renderer is needed: on Debian and Ubuntu "
            "`apt install libegl1 libgl1-mesa-dri`, elsewhere set MUJOCO_GL to one that is there"
        )


def _actions(one: Candidate, entry: envs.Environment, seed: int) -> list[list[float]]:
    """What the policy does in an episode."""
    game, act, taken, over = envs.make(entry), one.actors.on_cpu(), [], False
    obs, shape, dtype = game.reset(seed=seed)[0], envs.shape(entry, game), game.action_space.dtype
    while not over:
        action = act(np.asarray(obs, np.float32)[None, None])[0, 0]
        action = np.clip(action, shape.low, shape.high) if shape.first_choice is None else shape.choice(action)
        taken.append(action)
        obs, _, terminated, truncated, _ = game.step(action.astype(dtype))
        over = terminated or truncated
    game.close()
    return [action.tolist() for action in taken]


def _ways() -> list[str]:
    """Ways of drawing to try, by MuJoCo's names: the one that is asked for, or those that need no screen first."""
    if "MUJOCO_GL" in os.environ or not sys.platform.startswith("linux"):
        return [os.environ.get("MUJOCO_GL", "")]
    return ["egl", "osmesa", *(["glfw"] if os.environ.get("DISPLAY") else [])]


def _drawn(job: str, way: str) -> str | None:
    """Have it drawn one way. What went wrong, if something did."""
    told = processes.child_env(**({"MUJOCO_GL": way} if way else {}))
    command = processes.python_command("winnow.evaluation.video:draw")
    done = subprocess.run(command, input=job, env=told, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


# ---------------------------------------------------------------------------------- inside the process that draws


def draw() -> None:
    """Play the actions that are told on stdin and write what is seen to a file."""
    job = json.load(sys.stdin)
    try:
        game = envs.make(envs.from_description(job["environment"]))
        rate = game.metadata.get("render_fps") or RATE
        every = max(1, round(rate / RATE))
        frames = _frames(game, job["seed"], np.array(job["actions"], game.action_space.dtype), every)
        path = Path(job["file"])
        (_write_gif if path.suffix == ".gif" else _write_mp4)(path, frames, rate / every)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # a renderer that did not come up has more to say when it is taken down


def _frames(game: Any, seed: int, actions: np.ndarray, every: int) -> Iterator[np.ndarray]:
    game.reset(seed=seed)
    for number, action in enumerate(actions):
        if number % every == 0:
            yield game.render()
        game.step(action)
    yield game.render()


def _write_gif(path: Path, frames: Iterator[np.ndarray], rate: float) -> None:
    from PIL import Image

    small = [Image.fromarray(frame[::2, ::2]).quantize(64) for frame in frames]
    small[0].save(path, save_all=True, append_images=small[1:], duration=1000 / rate, loop=0)


def _write_mp4(path: Path, frames: Iterator[np.ndarray], rate: float) -> None:
    import imageio

    writer: Any
    with imageio.get_writer(path, fps=rate) as writer:
        for frame in frames:
            writer.append_data(frame)
