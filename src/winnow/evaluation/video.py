"""A video of one episode of a trained policy.

The episode is played here, and then played again, action by action, by a child process that renders it. Whether a
renderer works is only known after trying it, and MuJoCo chooses its renderer when it is imported: so each renderer is
tried in a process of its own.
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
from winnow.evaluation.candidates import Candidate, candidates, resolve_environment
from winnow.system import processes
from winnow.system.files import replacing

MAX_FRAMES_PER_SECOND = 25


def film(run: Path, video: Path, environment: str | None = None, seed: int | None = None) -> None:
    """Write the first episode of a run as a .gif or .mp4. Of a folder, the first run that has a policy."""
    if video.suffix not in (".gif", ".mp4"):
        raise BadInput(f"{video}: a video is written as .gif or .mp4; choose one of these endings")
    if video.suffix == ".mp4" and not importlib.util.find_spec("imageio_ffmpeg"):
        raise BadInput(f"{video}: .mp4 needs an encoder; {install_hint('video')}, or choose a name ending in .gif")
    policy = next((candidate for candidate in candidates(run) if isinstance(candidate, Candidate)), None)
    if policy is None:
        raise BadInput(f"{run}: has no policy to film; its training failed")
    entry = resolve_environment(environment or policy.environment, policy.spec)
    base = policy.seed if seed is None else seed
    episode_seed = envs.episode_seed(envs.EVALUATION_SEEDS + base, 0, policy.first)
    job = {"seed": episode_seed, "actions": _actions(policy, entry, episode_seed)}
    rendered = dataclasses.replace(entry, options=entry.options | {"render_mode": "rgb_array"})
    errors = []
    with replacing(video) as temporary:
        job |= {"environment": envs.describe(rendered), "file": str(temporary)}
        for renderer in _renderers():
            error = _try_renderer(json.dumps(job), renderer)
            if error is None:
                return
            errors.append(f"{renderer or 'default'}: {error}")
        raise BadInput(
            f"{entry.name}: can't be rendered here ({'; '.join(errors)}); install a renderer: on Debian and Ubuntu "
            "`apt install libegl1 libgl1-mesa-dri`, elsewhere set MUJOCO_GL to one that is installed"
        )


def _actions(policy: Candidate, entry: envs.Environment, seed: int) -> list[list[float]]:
    """The policy's actions in one episode."""
    env = envs.make(entry)
    act = policy.actors.on_cpu()
    obs, _ = env.reset(seed=seed)
    shape = envs.shape(entry, env)
    actions = []
    over = False
    while not over:
        action = act(np.asarray(obs, np.float32)[None, None])[0, 0]
        action = np.clip(action, shape.low, shape.high) if shape.first_choice is None else shape.choice(action)
        actions.append(action)
        obs, _, terminated, truncated, _ = env.step(action.astype(env.action_space.dtype))
        over = terminated or truncated
    env.close()
    return [action.tolist() for action in actions]


def _renderers() -> list[str]:
    """Values of MUJOCO_GL to try: the user's own, or on Linux first those that need no screen."""
    if "MUJOCO_GL" in os.environ or not sys.platform.startswith("linux"):
        return [os.environ.get("MUJOCO_GL", "")]
    return ["egl", "osmesa", *(["glfw"] if os.environ.get("DISPLAY") else [])]


def _try_renderer(job: str, renderer: str) -> str | None:
    """Render in a child process. Returns its error, if there was one."""
    variables = processes.child_env(**({"MUJOCO_GL": renderer} if renderer else {}))
    command = processes.python_command("winnow.evaluation.video:render")
    done = subprocess.run(command, input=job, env=variables, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


# -------------------------------------------------------------------------------------- inside the child process


def render() -> None:
    """Main function of the child process: play the actions of the job on stdin and write the frames to its file."""
    job = json.load(sys.stdin)
    try:
        env = envs.make(envs.from_description(job["environment"]))
        rate = env.metadata.get("render_fps") or MAX_FRAMES_PER_SECOND
        every = max(1, round(rate / MAX_FRAMES_PER_SECOND))
        frames = _frames(env, job["seed"], np.array(job["actions"], env.action_space.dtype), every)
        path = Path(job["file"])
        (_write_gif if path.suffix == ".gif" else _write_mp4)(path, frames, rate / every)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # a renderer that failed to start prints more errors when it is closed


def _frames(env: Any, seed: int, actions: np.ndarray, every: int) -> Iterator[np.ndarray]:
    env.reset(seed=seed)
    for number, action in enumerate(actions):
        if number % every == 0:
            yield env.render()
        env.step(action)
    yield env.render()


def _write_gif(path: Path, frames: Iterator[np.ndarray], rate: float) -> None:
    from PIL import Image

    images = [Image.fromarray(frame[::2, ::2]).quantize(64) for frame in frames]
    images[0].save(path, save_all=True, append_images=images[1:], duration=1000 / rate, loop=0)


def _write_mp4(path: Path, frames: Iterator[np.ndarray], rate: float) -> None:
    import imageio

    writer: Any
    with imageio.get_writer(path, fps=rate) as writer:
        for frame in frames:
            writer.append_data(frame)
