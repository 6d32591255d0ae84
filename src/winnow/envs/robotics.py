"""D4RL's AntMaze, Kitchen and Adroit tasks, made of Gymnasium-Robotics' (the extra `robotics`).

Importing this module registers them, and all of Gymnasium-Robotics, with Gymnasium. Each class says what it changes.
What stays different from D4RL everywhere is the simulator: D4RL ran MuJoCo 2, this runs MuJoCo 3.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

import gymnasium
import numpy as np

with contextlib.redirect_stderr(io.StringIO()):  # it prints a notice about Adroit's rewards, which are mended below
    from gymnasium_robotics.envs import adroit_hand
    from gymnasium_robotics.envs.franka_kitchen.kitchen_env import OBS_ELEMENT_INDICES, KitchenEnv
    from gymnasium_robotics.envs.maze.ant_maze_v5 import AntMazeEnv
    from gymnasium_robotics.utils import mujoco_utils

# Its own ways to a joint look for a NumPy integer among MuJoCo's enums, which MuJoCo 3.17 no longer takes for equal.
mujoco_utils.get_joint_qpos = lambda model, data, name: data.joint(name).qpos.copy()
mujoco_utils.get_joint_qvel = lambda model, data, name: data.joint(name).qvel.copy()
mujoco_utils.set_joint_qpos = lambda model, data, name, value: np.copyto(data.joint(name).qpos, value)
mujoco_utils.set_joint_qvel = lambda model, data, name, value: np.copyto(data.joint(name).qvel, value)

Reset = tuple[np.ndarray, dict[str, Any]]
Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]

# --------------------------------------------------------------------------------------------------- AntMaze

# D4RL's mazes for evaluation: walls, the cell where the ant starts and the one where it has to go.
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
    """D4RL's antmaze-*-v2: 29 numbers, reward 1 and the end within 0.5 of a goal that the observation does not show.

    As in D4RL and unlike Gymnasium-Robotics: the ant starts at the origin and y grows from row to row of the map (it is
    given upside down, and shifted); the goal lies up to 1.5 beyond its cell's centre in x and in y, drawn anew for each
    episode; positions start with noise within 0.1 and velocities with a deviation of 0.1; an action of 1 is a torque of
    30, not 150; a step is 0.1 s, not 0.05 s; contacts are as soft as D4RL's.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        os.unlink(env.tmp_xml_file_path)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (29,), np.float64)
        self.maze, self.ant = env, env.ant_env
        self.start, self.cell = env.maze.unique_reset_locations[0], env.maze.unique_goal_locations[0]
        self.maze.position_noise_range = 0.0
        self.ant._reset_noise_scale = 0.1
        self.ant.model.opt.timestep = 0.02
        self.ant.model.actuator_gear[:, 0] = 30
        self.ant.model.geom_solimp[:, :3] = 0.8, 0.8, 0.01

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seen, info = self.maze.reset(seed=seed)
        draw = self.ant.np_random.uniform
        self.maze.goal = self.cell + draw(0, 1, 2) + draw(0, 0.5, 2)
        self.maze.update_target_site_pos()
        return self._flat(seen), info | {"success": False}

    def step(self, action: np.ndarray) -> Step:
        seen, _, _, truncated, info = self.maze.step(action)
        there = bool(np.linalg.norm(seen["achieved_goal"] - self.maze.goal) <= 0.5)
        return self._flat(seen), float(there), there, truncated, info | {"success": there}

    def _flat(self, seen: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([seen["achieved_goal"] - self.start, seen["observation"]])


# --------------------------------------------------------------------------------------------------- Kitchen


def kitchen(tasks: list[str]) -> Kitchen:
    return Kitchen(KitchenEnv(tasks_to_complete=tasks, robot_noise_ratio=0.1, object_noise_ratio=0.0))


class Kitchen(gymnasium.ObservationWrapper[np.ndarray, np.ndarray, Any]):
    """D4RL's kitchen-*-v0: 60 numbers, reward 1 for each task when it is done, the end when all are.

    As in D4RL and unlike Gymnasium-Robotics: where the robot (9) and the things (21) are, without velocities, then
    where the tasks want them (30, with 0 where it does not matter); D4RL's noise on all positions.
    Still different: a task is judged by where a thing is, in D4RL by the noisy observation of it (off by 0.01 at most;
    0.3 is near enough to be done).
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (60,), np.float64)
        self.robot = env.robot_env
        self.noise = 0.1 * np.append(self.robot.robot_pos_noise_amp[9:], 0.005)  # read for velocities: one too few
        self.goal = np.zeros(30)
        for task, goal in env.goal.items():
            self.goal[OBS_ELEMENT_INDICES[task]] = goal

    def observation(self, observation: Any) -> np.ndarray:
        robot, things = observation["observation"][:9], observation["observation"][18:39]
        return np.concatenate([robot, things + self.noise * self.robot.np_random.uniform(-1, 1, 21), self.goal])


# ---------------------------------------------------------------------------------------------------- Adroit


def adroit(task: str) -> Adroit:
    return Adroit(getattr(adroit_hand, f"AdroitHand{task.capitalize()}Env")(reward_type="dense"), task)


class Adroit(gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """D4RL's pen, hammer, door and relocate, with the dense reward.

    As in D4RL and unlike Gymnasium-Robotics: a dropped pen ends the episode; a tenth of the distance from the hand to
    the hammer, the handle or the ball is taken from the reward (there, by mistake, it is added).
    """

    def __init__(self, env: Any, task: str) -> None:
        super().__init__(env)
        self.task = task

    def step(self, action: np.ndarray) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self.task == "pen":
            return obs, float(reward), bool(obs[26] < 0.075), truncated, info
        reach = {"hammer": obs[33:36] - obs[36:39], "door": obs[35:38], "relocate": obs[30:33]}[self.task]
        return obs, float(reward) - 0.2 * float(np.linalg.norm(reach)), terminated, truncated, info


gymnasium.register("winnow/AntMaze-v0", f"{__name__}:ant_maze")
gymnasium.register("winnow/Kitchen-v0", f"{__name__}:kitchen")
gymnasium.register("winnow/Adroit-v0", f"{__name__}:adroit")
