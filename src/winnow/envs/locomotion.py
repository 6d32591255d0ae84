"""Gymnasium's four locomotion tasks, many copies at a time: the same numbers bit for bit, in less time.

Gymnasium spends a quarter of a step of these tasks in Python: on checks, on the info dictionary, on small arrays. Here
the observations, rewards and terminals of all copies are computed together. All copies share one simulation, whose
state is loaded and stored for each of them in turn, so that it stays in the processor's cache. Seeds, initial states
and physics are those of the Gymnasium environment, with any of its options.

This module needs NumPy, Gymnasium and MuJoCo, but not jax.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Stepped(NamedTuple):
    """What environments return after a step."""

    obs: np.ndarray  # [n, O]
    reward: np.ndarray  # [n]
    terminal: np.ndarray  # [n] the task ended
    timeout: np.ndarray  # [n] the time limit cut the episode off, and the task did not end


class Moved(NamedTuple):
    """Environments before and after a step of the physics."""

    action: np.ndarray  # [n, A] float32
    qpos: np.ndarray  # [n, Q]
    qvel: np.ndarray  # [n, V]
    before: np.ndarray  # [n] position along the track before the step
    after: np.ndarray  # [n] and after it
    force: np.ndarray  # [n, 6 × bodies] contact forces, if the task's reward uses them


StepRule = Callable[[Any, Moved], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""From a task and a step of its physics: observations, rewards, and whether each body is healthy."""


def _speed_and_effort(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray]:
    """The reward for speed, and the cost of effort."""
    speed = task._forward_reward_weight * ((moved.after - moved.before) / task.dt)
    return speed, task._ctrl_cost_weight * np.square(moved.action).sum(axis=1)


def _hopper(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, high = task._healthy_state_range
    state = np.concatenate([moved.qpos[:, 2:], moved.qvel], axis=1)
    return _upright(task, moved, ((low < state) & (state < high)).all(axis=1))


def _walker2d(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _upright(task, moved, np.ones(len(moved.qpos), bool))


def _upright(task: Any, moved: Moved, healthy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low_z, high_z = task._healthy_z_range
    low_angle, high_angle = task._healthy_angle_range
    z = moved.qpos[:, 1]
    angle = moved.qpos[:, 2]
    healthy = healthy & (low_z < z) & (z < high_z) & (low_angle < angle) & (angle < high_angle)
    speed, effort = _speed_and_effort(task, moved)
    obs = np.concatenate([moved.qpos[:, 1:], np.clip(moved.qvel, -10, 10)], axis=1)
    return obs, speed + healthy * task._healthy_reward - effort, healthy


def _halfcheetah(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    speed, effort = _speed_and_effort(task, moved)
    return np.concatenate([moved.qpos[:, 1:], moved.qvel], axis=1), speed - effort, np.ones(len(moved.qpos), bool)


def _ant(task: Any, moved: Moved) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, high = task._healthy_z_range
    z = moved.qpos[:, 2]
    finite = np.isfinite(moved.qpos).all(axis=1) & np.isfinite(moved.qvel).all(axis=1)
    healthy = finite & (low <= z) & (z <= high)
    speed, effort = _speed_and_effort(task, moved)
    contact = task._contact_cost_weight * np.square(np.clip(moved.force, *task._contact_force_range)).sum(axis=1)
    obs = np.concatenate([moved.qpos[:, 2:], moved.qvel], axis=1)
    return obs, speed + healthy * task._healthy_reward - (effort + contact), healthy


STEP_RULES: dict[str, StepRule] = {
    "gymnasium.envs.mujoco.hopper_v5:HopperEnv": _hopper,
    "gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv": _walker2d,
    "gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv": _halfcheetah,
    "gymnasium.envs.mujoco.ant_v5:AntEnv": _ant,
}
"""The supported tasks, by their classes."""
PLAIN_WRAPPERS = {"TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}
"""Wrappers that change nothing but the time limit."""


def is_supported(env: Any) -> bool:
    """Whether an environment is one of the four tasks, with plain wrappers and the benchmark's observations."""
    task = env.unwrapped
    layer = env
    while layer is not task:
        if type(layer).__name__ not in PLAIN_WRAPPERS:
            return False
        layer = layer.env
    usual = _class_of(task) in STEP_RULES and task._exclude_current_positions_from_observation
    return bool(usual and task.render_mode is None and not getattr(task, "_include_cfrc_ext_in_observation", False))


def _class_of(task: Any) -> str:
    return f"{type(task).__module__}:{type(task).__qualname__}"


class SharedSimulation:
    """Copies of one supported environment that share its simulation. The state of each copy is stored here."""

    def __init__(self, env: Any, count: int) -> None:
        self.env = env
        self.task = env.unwrapped
        self.action_dtype = env.action_space.dtype
        self.rule = STEP_RULES[_class_of(self.task)]
        self.limit = env.spec.max_episode_steps or np.iinfo(np.int64).max
        data = self.task.data
        # The warm start of the solver of contact forces is part of the state: without it, results differ in some bits.
        self.live = (data.qpos, data.qvel, data.qacc_warmstart)
        self.stored = tuple(np.zeros((count, len(part))) for part in self.live)
        self.by_env = list(zip(*self.stored, strict=True))
        # After a step, `xpos` is where the body was at the start of the step's last frame: it can't be had from `qpos`.
        self.body = self.task.data.body(self.task._main_body) if hasattr(self.task, "_main_body") else None
        self.position = np.zeros(count) if self.body else self.stored[0][:, 0]
        self.force = np.zeros((count, data.cfrc_ext.size if self.body else 0))
        self.elapsed = np.zeros(count, np.int64)

    def reset(self, number: int, seed: int) -> np.ndarray:
        """Begin an episode in one of them. Returns its first observation."""
        obs, _ = self.env.reset(seed=seed)
        for live, stored in zip(self.live, self.by_env[number], strict=True):
            stored[:] = live
        if self.body:
            self.position[number] = self.body.xpos[0]
        self.elapsed[number] = 0
        return obs

    def step(self, numbers: Sequence[int], action: np.ndarray) -> Stepped:
        """Step the environments with these numbers, with actions [n, A]."""
        mujoco: Any = importlib.import_module("mujoco")
        mj_step = mujoco.mj_step
        model = self.task.model
        data = self.task.data
        frames = self.task.frame_skip
        qpos, qvel, warm = self.live
        ctrl = data.ctrl
        before = self.position[numbers]
        for number, control in zip(numbers, action.astype(np.float64), strict=True):
            own_qpos, own_qvel, own_warm = self.by_env[number]
            qpos[:] = own_qpos
            qvel[:] = own_qvel
            warm[:] = own_warm
            ctrl[:] = control
            mj_step(model, data, frames)
            own_qpos[:] = qpos
            own_qvel[:] = qvel
            own_warm[:] = warm
            if self.body:
                mujoco.mj_rnePostConstraint(model, data)
                self.position[number] = self.body.xpos[0]
                self.force[number] = data.cfrc_ext.ravel()
        after = self.position[numbers]
        moved = Moved(action, self.stored[0][numbers], self.stored[1][numbers], before, after, self.force[numbers])
        obs, reward, healthy = self.rule(self.task, moved)
        self.elapsed[numbers] += 1
        ended = ~healthy & bool(getattr(self.task, "_terminate_when_unhealthy", False))
        return Stepped(obs, reward, ended, (self.elapsed[numbers] >= self.limit) & ~ended)


class Separate:
    """Environments of any kind, each with its own simulation: the same methods as `SharedSimulation`."""

    def __init__(self, envs: Sequence[Any]) -> None:
        self.env = envs[0]
        self.envs = envs
        self.action_dtype = envs[0].action_space.dtype

    def reset(self, number: int, seed: int) -> np.ndarray:
        return self.envs[number].reset(seed=seed)[0]

    def step(self, numbers: Sequence[int], action: np.ndarray) -> Stepped:
        steps = [self.envs[number].step(own)[:4] for number, own in zip(numbers, action, strict=True)]
        obs, reward, terminal, truncated = map(np.asarray, zip(*steps, strict=True))
        return Stepped(obs, reward, terminal.astype(bool), truncated.astype(bool) & ~terminal.astype(bool))


def make_several(make: Callable[[], Any], count: int) -> SharedSimulation | Separate:
    """`count` copies of an environment, in the fastest way that its kind allows."""
    env = make()
    return SharedSimulation(env, count) if is_supported(env) else Separate([env, *(make() for _ in range(count - 1))])
