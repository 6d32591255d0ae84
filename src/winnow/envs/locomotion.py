"""Gymnasium's four locomotion tasks, many at a time: its physics and its numbers, bit for bit, in less time.

Gymnasium spends a quarter of a step of these tasks in Python: on checks, on a dictionary of details, on small arrays.
Here observations, rewards and ends of all environments are computed together, and one simulation goes from one to the
next, so that it stays in the processor's cache. Seeds, starts and physics are those of the Gymnasium environment it is
made of, whatever its options.

It needs NumPy, Gymnasium and MuJoCo, and no jax.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Stepped(NamedTuple):
    """What some environments show after a step."""

    obs: np.ndarray  # [n, O]
    reward: np.ndarray  # [n]
    terminal: np.ndarray  # [n] the task ended
    timeout: np.ndarray  # [n] the time limit cut the episode off, and the task did not end


class Moved(NamedTuple):
    """Some environments before and after a step of the physics."""

    action: np.ndarray  # [n, A] float32
    qpos: np.ndarray  # [n, Q]
    qvel: np.ndarray  # [n, V]
    before: np.ndarray  # [n] where the body was, along the track
    after: np.ndarray  # [n]
    force: np.ndarray  # [n, 6 × bodies] contact forces, where the task counts them


Judge = Callable[[Any, Moved], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Of a task and what moved: observations, rewards, and whether each body is still as it should be."""


def _onward(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray]:
    """The reward of speed, and the cost of effort."""
    speed = task._forward_reward_weight * ((moved.after - moved.before) / task.dt)
    return speed, task._ctrl_cost_weight * np.square(moved.action).sum(axis=1)


def _hopper(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, high = task._healthy_state_range
    state = np.concatenate([moved.qpos[:, 2:], moved.qvel], axis=1)
    return _upright(task, moved, ((low < state) & (state < high)).all(axis=1))


def _walker2d(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _upright(task, moved, np.ones(len(moved.qpos), bool))


def _upright(task: Any, moved: Moved, healthy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    (low_z, high_z), (low, high) = task._healthy_z_range, task._healthy_angle_range
    z, angle = moved.qpos[:, 1], moved.qpos[:, 2]
    healthy = healthy & (low_z < z) & (z < high_z) & (low < angle) & (angle < high)
    speed, effort = _onward(task, moved)
    obs = np.concatenate([moved.qpos[:, 1:], np.clip(moved.qvel, -10, 10)], axis=1)
    return obs, speed + healthy * task._healthy_reward - effort, healthy


def _halfcheetah(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    speed, effort = _onward(task, moved)
    return np.concatenate([moved.qpos[:, 1:], moved.qvel], axis=1), speed - effort, np.ones(len(moved.qpos), bool)


def _ant(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, high = task._healthy_z_range
    z, finite = moved.qpos[:, 2], np.isfinite(moved.qpos).all(axis=1) & np.isfinite(moved.qvel).all(axis=1)
    healthy = finite & (low <= z) & (z <= high)
    speed, effort = _onward(task, moved)
    contact = task._contact_cost_weight * np.square(np.clip(moved.force, *task._contact_force_range)).sum(axis=1)
    obs = np.concatenate([moved.qpos[:, 2:], moved.qvel], axis=1)
    return obs, speed + healthy * task._healthy_reward - (effort + contact), healthy


JUDGES: dict[str, Judge] = {
    "gymnasium.envs.mujoco.hopper_v5:HopperEnv": _hopper,
    "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv": _walker2d,
    "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv": _halfcheetah,
    "gymnasium.envs.mujoco.ant_v5:AntEnv": _ant,
}
"""The tasks that are known here, by their classes."""
PLAIN = {"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}
"""Wrappers that change nothing that is seen but the time limit."""


def known(env: Any) -> bool:
    """Whether an environment is one of the four tasks, with nothing around it and the observations of the benchmark."""
    task = env.unwrapped
    layer = env
    while layer is not task:
        if type(layer).__name__ not in PLAIN:
            return False
        layer = layer.env
    usual = _kind(task) in JUDGES and task._exclude_current_positions_from_observation and task.render_mode is None
    return bool(usual and not getattr(task, "_include_cfrc_ext_in_observation", False))


def _kind(task: Any) -> str:
    return f"{type(task).__module__}:{type(task).__qualname__}"


class Crowd:
    """Copies of one environment (`known`). They share its simulation: the state of each is kept beside it."""

    def __init__(self, env: Any, count: int) -> None:
        self.env, self.task, self.action_kind = env, env.unwrapped, env.action_space.dtype
        self.judge = JUDGES[_kind(self.task)]
        self.limit = env.spec.max_episode_steps or np.iinfo(np.int64).max
        data = self.task.data
        # Where the solver of contact forces begins is part of the state, or bits would differ.
        self.now = (data.qpos, data.qvel, data.qacc_warmstart)
        self.kept = tuple(np.zeros((count, len(part))) for part in self.now)
        self.each = list(zip(*self.kept, strict=True))  # the same by environment
        # A body whose place is taken from the simulation is where it was at the last of a step's frames.
        self.body = self.task.data.body(self.task._main_body) if hasattr(self.task, "_main_body") else None
        self.place = np.zeros(count) if self.body else self.kept[0][:, 0]
        self.force = np.zeros((count, data.cfrc_ext.size if self.body else 0))
        self.elapsed = np.zeros(count, np.int64)

    def reset(self, number: int, seed: int) -> np.ndarray:
        """Begin an episode in one of them; its first observation."""
        obs, _ = self.env.reset(seed=seed)
        for part, held in zip(self.now, self.each[number], strict=True):
            held[:] = part
        if self.body:
            self.place[number] = self.body.xpos[0]
        self.elapsed[number] = 0
        return obs

    def step(self, numbers: Sequence[int], action: np.ndarray) -> Stepped:
        """Let some of them take their actions [n, A]."""
        mujoco: Any = importlib.import_module("mujoco")
        advance, model, data, frames = mujoco.mj_step, self.task.model, self.task.data, self.task.frame_skip
        (qpos, qvel, warm), ctrl, before = self.now, data.ctrl, self.place[numbers]
        for number, taken in zip(numbers, action.astype(np.float64), strict=True):
            own_qpos, own_qvel, own_warm = self.each[number]
            qpos[:], qvel[:], warm[:], ctrl[:] = own_qpos, own_qvel, own_warm, taken
            advance(model, data, frames)
            own_qpos[:], own_qvel[:], own_warm[:] = qpos, qvel, warm
            if self.body:
                mujoco.mj_rnePostConstraint(model, data)
                self.place[number], self.force[number] = self.body.xpos[0], data.cfrc_ext.ravel()
        after, qpos, qvel = self.place[numbers], self.kept[0][numbers], self.kept[1][numbers]
        obs, reward, healthy = self.judge(self.task, Moved(action, qpos, qvel, before, after, self.force[numbers]))
        self.elapsed[numbers] += 1
        ended = ~healthy & bool(getattr(self.task, "_terminate_when_unhealthy", False))
        return Stepped(obs, reward, ended, (self.elapsed[numbers] >= self.limit) & ~ended)


class Singles:
    """Environments of any kind, each stepped on its own: the same calls as a crowd's."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self.env, self.envs, self.action_kind = envs[0], envs, envs[0].action_space.dtype

    def reset(self, number: int, seed: int) -> np.ndarray:
        return self.envs[number].reset(seed=seed)[0]

    def step(self, numbers: Sequence[int], action: np.ndarray) -> Stepped:
        seen = [self.envs[number].step(taken)[:4] for number, taken in zip(numbers, action, strict=True)]
        obs, reward, terminal, truncated = map(np.asarray, zip(*seen, strict=True))
        return Stepped(obs, reward, terminal.astype(bool), truncated.astype(bool) & ~terminal.astype(bool))


def several(make: Callable[[], Any], count: int) -> Crowd | Singles:
    """So many of an environment, stepped as fast as its kind allows."""
    first = make()
    return Crowd(first, count) if known(first) else Singles([first, *(make() for _ in range(count - 1))])
