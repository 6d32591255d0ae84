"""D4RL's AntMaze, Kitchen and Adroit tasks, built on Gymnasium-Robotics' (the extra `robotics`).

Importing this module registers them, and all of Gymnasium-Robotics, with Gymnasium. Each class lists what it changes.
One difference from D4RL remains in all of them: D4RL ran MuJoCo 2, this runs MuJoCo 3.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

import gymnasium
import numpy as np

with contextlib.redirect_stderr(io.StringIO()):  # it prints a notice about Adroit's rewards, which are fixed below
    from gymnasium_robotics.envs import adroit_hand
    from gymnasium_robotics.envs.franka_kitchen.kitchen_env import OBS_ELEMENT_INDICES, KitchenEnv
    from gymnasium_robotics.envs.maze.ant_maze_v5 import AntMazeEnv
    from gymnasium_robotics.utils import mujoco_utils

# Gymnasium-Robotics' own versions look up a NumPy integer among MuJoCo's enums, which no longer compare equal since
# MuJoCo 3.17.
mujoco_utils.get_joint_qpos = lambda model, data, name: data.joint(name).qpos.copy()
mujoco_utils.get_joint_qvel = lambda model, data, name: data.joint(name).qvel.copy()
mujoco_utils.set_joint_qpos = lambda model, data, name, value: np.copyto(data.joint(name).qpos, value)
mujoco_utils.set_joint_qvel = lambda model, data, name, value: np.copyto(data.joint(name).qvel, value)

Reset = tuple[np.ndarray, dict[str, Any]]
Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]

# --------------------------------------------------------------------------------------------------- AntMaze

# D4RL's mazes for evaluation: walls (#), the cell where the ant starts (r), and the cell of its goal (g).
MAZES = {
    "umaze": (
        "#####",
        "#r  #",
        "### #",
        "#g  #",
        "#####",
    ),
    "medium": (
        "########",
        "#r ##  #",
        "#  #   #",
        "##   ###",
        "#  #   #",
        "# #  # #",
        "#   # g#",
        "########",
    ),
    "large": (
        "############",
        "#r   #     #",
        "# ## # # # #",
        "#      #   #",
        "# #### ### #",
        "#  # #     #",
        "## # # # ###",
        "#  #   # g #",
        "############",
    ),
}


def ant_maze(maze: str) -> AntMaze:
    cells: dict[str, str | int] = {"#": 1, " ": 0, "r": "r", "g": "g"}
    rows = [[cells[cell] for cell in row] for row in reversed(MAZES[maze])]
    return AntMaze(AntMazeEnv(maze_map=rows, include_cfrc_ext_in_observation=False))


class AntMaze(gymnasium.Wrapper[np.ndarray, np.ndarray, Any, np.ndarray]):
    """D4RL's antmaze-*-v2: observations of 29 numbers, without the goal. Within 0.5 of the goal the reward is 1 and the
    episode ends.

    As in D4RL and unlike Gymnasium-Robotics: the ant starts at the origin, and y grows from row to row of the map
    (which is therefore passed upside down, and shifted); in x and in y, the goal is sampled for each episode up to 1.5
    beyond its cell's centre; initial positions have noise within 0.1, and velocities a standard deviation of 0.1; an
    action of 1 is a torque of 30, not 150; a step is 0.1 s, not 0.05 s; contacts are as soft as D4RL's.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        os.unlink(env.tmp_xml_file_path)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (29,), np.float64)
        self.maze = env
        self.ant = env.ant_env
        self.start = env.maze.unique_reset_locations[0]
        self.goal_cell = env.maze.unique_goal_locations[0]
        self.maze.position_noise_range = 0.0
        self.ant._reset_noise_scale = 0.1
        self.ant.model.opt.timestep = 0.02
        self.ant.model.actuator_gear[:, 0] = 30
        self.ant.model.geom_solimp[:, :3] = 0.8, 0.8, 0.01

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        obs, info = self.maze.reset(seed=seed)
        uniform = self.ant.np_random.uniform
        self.maze.goal = self.goal_cell + uniform(0, 1, 2) + uniform(0, 0.5, 2)
        self.maze.update_target_site_pos()
        return self._flat(obs), info | {"success": False}

    def step(self, action: np.ndarray) -> Step:
        obs, _, _, truncated, info = self.maze.step(action)
        success = bool(np.linalg.norm(obs["achieved_goal"] - self.maze.goal) <= 0.5)
        return self._flat(obs), float(success), success, truncated, info | {"success": success}

    def _flat(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([obs["achieved_goal"] - self.start, obs["observation"]])


# --------------------------------------------------------------------------------------------------- Kitchen


def kitchen(tasks: list[str]) -> Kitchen:
    return Kitchen(KitchenEnv(tasks_to_complete=tasks, robot_noise_ratio=0.1, object_noise_ratio=0.0))


class Kitchen(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, Any]):
    """D4RL's kitchen-*-v0: observations of 60 numbers, reward 1 when a task is completed, terminal when all are.

    As in D4RL and unlike Gymnasium-Robotics: an observation has the positions of the robot (9) and the objects (21),
    without velocities, then their goal positions (30, with 0 where no task sets one); all positions have D4RL's noise.
    Still different: a task is completed when its object is within 0.3 of its goal. Here that is measured by the true
    position, in D4RL by the noisy observation, which is off by at most 0.01.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (60,), np.float64)
        self.robot = env.robot_env
        # There is an amplitude for each of 20 velocities, but there are 21 positions.
        self.noise = 0.1 * np.append(self.robot.robot_pos_noise_amp[9:], 0.005)
        self.goal = np.zeros(30)
        for task, goal in env.goal.items():
            self.goal[OBS_ELEMENT_INDICES[task]] = goal

    def observation(self, observation: Any) -> np.ndarray:
        robot = observation["observation"][:9]
        objects = observation["observation"][18:39]
        return np.concatenate([robot, objects + self.noise * self.robot.np_random.uniform(-1, 1, 21), self.goal])


# ---------------------------------------------------------------------------------------------------- Adroit


def adroit(task: str) -> Adroit:
    return Adroit(getattr(adroit_hand, f"AdroitHand{task.capitalize()}Env")(reward_type="dense"), task)


class Adroit(gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """D4RL's pen, hammer, door and relocate, with the dense reward.

    As in D4RL and unlike Gymnasium-Robotics: a dropped pen ends the episode; a tenth of the distance from the hand to
    the hammer, the handle or the ball is subtracted from the reward (Gymnasium-Robotics adds it by mistake).
    """

    def __init__(self, env: Any, task: str) -> None:
        super().__init__(env)
        self.task = task

    def step(self, action: np.ndarray) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self.task == "pen":
            return obs, float(reward), bool(obs[26] < 0.075), truncated, info
        to_object = {"hammer": obs[33:36] - obs[36:39], "door": obs[35:38], "relocate": obs[30:33]}[self.task]
        return obs, float(reward) - 0.2 * float(np.linalg.norm(to_object)), terminated, truncated, info


gymnasium.register("winnow/AntMaze-v0", f"{__name__}:ant_maze")
gymnasium.register("winnow/Kitchen-v0", f"{__name__}:kitchen")
gymnasium.register("winnow/Adroit-v0", f"{__name__}:adroit")
