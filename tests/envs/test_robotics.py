"""AntMaze, Kitchen and Adroit as D4RL's tasks, on the real simulators (the extra `robotics`)."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from winnow import envs
from winnow.envs.workers import Workers
from winnow.errors import BadInput, install_hint

# What D4RL's files and environments have: numbers in an observation and in an action, the time limit.
SIZES = {
    "antmaze-umaze": (29, 8, 700),
    "antmaze-umaze-diverse": (29, 8, 700),
    "antmaze-medium-play": (29, 8, 1000),
    "antmaze-medium-diverse": (29, 8, 1000),
    "antmaze-large-play": (29, 8, 1000),
    "antmaze-large-diverse": (29, 8, 1000),
    "kitchen-complete": (60, 9, 280),
    "kitchen-partial": (60, 9, 280),
    "kitchen-mixed": (60, 9, 280),
    "pen": (45, 24, 100),
    "hammer": (46, 26, 200),
    "door": (39, 28, 200),
    "relocate": (39, 30, 200),
}


def played(game: Any, seed: int, steps: int) -> np.ndarray:
    """What an episode shows under fixed actions, and its rewards."""
    rng = np.random.default_rng(0)
    obs, _ = game.reset(seed=seed)
    rows = [np.append(obs, 0.0)]
    for _ in range(steps):
        obs, reward, *_ = game.step(rng.uniform(-1, 1, game.action_space.shape))
        rows.append(np.append(obs, reward))
    return np.array(rows)


@pytest.mark.parametrize("name", SIZES)
def test_each_has_d4rls_sizes_and_plays_the_same_from_a_seed(name: str) -> None:
    shape = envs.shape(name)
    assert (shape.obs_dim, shape.action_dim, shape.time_limit) == SIZES[name]
    assert shape.low.tolist() == [-1] * shape.action_dim
    assert shape.high.tolist() == [1] * shape.action_dim
    game = envs.make(name)
    first = played(game, 5, 20)
    assert first.shape == (21, shape.obs_dim + 1)
    assert np.isfinite(first).all()
    assert not np.array_equal(first, played(game, 6, 20))
    np.testing.assert_array_equal(first, played(game, 5, 20))  # also after other episodes
    np.testing.assert_array_equal(first, played(envs.make(name), 5, 20))
    game.close()


@pytest.mark.parametrize("name", ["door", "antmaze-umaze"])
def test_the_time_limit_is_a_timeout(name: str) -> None:
    game, limit = envs.make(name), SIZES[name][2]
    game.reset(seed=0)
    ends = [game.step(np.zeros(game.action_space.shape))[2:4] for _ in range(limit)]
    assert ends == [(False, False)] * (limit - 1) + [(False, True)]


def test_scores_are_d4rls() -> None:
    lowest = {"pen": 96.262799, "hammer": -274.856578, "door": -56.512833, "relocate": -6.425911}
    highest = {
        "pen": 3076.8331017826877,
        "hammer": 12794.134825156867,
        "door": 2880.5693087298737,
        "relocate": 4233.877797728884,
    }
    for name in SIZES:
        low, high = lowest.get(name, 0), highest.get(name, 4 if name.startswith("kitchen") else 1)
        assert envs.normalised(name, [low, high]) == pytest.approx([0, 100])


# --------------------------------------------------------------------------------------------------- AntMaze


@pytest.mark.parametrize(
    ("name", "drawing", "far"),
    [
        ("antmaze-umaze", "U_MAZE", (0, 8)),
        ("antmaze-medium-play", "MEDIUM_MAZE", (20, 20)),
        ("antmaze-large-diverse", "LARGE_MAZE", (32, 24)),
    ],
)
def test_the_maze_lies_as_in_d4rl(name: str, drawing: str, far: tuple[int, int]) -> None:
    """The start at the origin, cells 4 apart, y growing from row to row; the goal up to 1.5 beyond `far`."""
    game: Any = envs.make(name)
    inside, goals = game.unwrapped, []
    start = inside.maze.unique_reset_locations[0]
    for seed in range(30):
        obs, _ = game.reset(seed=seed)
        assert np.abs(obs[:2]).max() <= 0.1
        goals.append(inside.goal - start)
    beyond = np.array(goals) - far
    assert beyond.min() >= 0
    assert beyond.max() <= 1.5
    assert len(np.unique(beyond)) == 60
    model = inside.model
    blocks = [i for i in range(model.ngeom) if model.geom(i).name.startswith("block_")]
    walls = {tuple((model.geom_pos[i, :2] - start).tolist()) for i in blocks}
    rows = getattr(importlib.import_module("gymnasium_robotics.envs.maze.maps"), drawing)
    assert walls == {(4 * (j - 1), 4 * (i - 1)) for i, row in enumerate(rows) for j, cell in enumerate(row) if cell}


def test_reaching_the_goal_pays_1_and_ends_the_episode() -> None:
    game: Any = envs.make("antmaze-umaze")
    for distance, reached in ((0.6, False), (0.4, True)):
        game.reset(seed=0)
        inside = game.unwrapped
        place = inside.data.qpos.copy()
        place[:2] = inside.goal - (distance, 0)
        inside.ant_env.set_state(place, 0 * inside.data.qvel)
        obs, reward, terminated, truncated, info = game.step(np.zeros(8))
        assert (reward, terminated, truncated, info["success"]) == (float(reached), reached, False, reached)
        np.testing.assert_array_equal(obs[2:15], inside.data.qpos[2:])
        np.testing.assert_array_equal(obs[15:], inside.data.qvel)


def test_the_ant_is_d4rls() -> None:
    game: Any = envs.make("antmaze-umaze")
    model = game.unwrapped.model
    assert model.opt.timestep * game.unwrapped.ant_env.frame_skip == pytest.approx(0.1)
    assert set(model.actuator_gear[:, 0]) == {30}


# --------------------------------------------------------------------------------------------------- Kitchen


def test_the_kitchen_shows_positions_and_goals() -> None:
    game: Any = envs.make("kitchen-mixed")
    obs, _ = game.reset(seed=0)
    assert np.abs(obs[:30] - game.unwrapped.data.qpos).max() <= 0.0101
    goal = np.zeros(30)
    goal[[11, 12, 17, 18, 22]] = -0.88, -0.01, -0.69, -0.05, -0.75
    goal[23:] = -0.23, 0.75, 1.62, 0.99, 0, 0, -0.06
    np.testing.assert_array_equal(obs[30:], goal)
    obs, _ = envs.make("kitchen-partial").reset(seed=0)
    goal[[11, 12, 19]] = 0, 0, 0.37
    np.testing.assert_array_equal(obs[30:], goal)


def test_each_task_of_the_kitchen_pays_once_and_all_end_it() -> None:
    game: Any = envs.make("kitchen-complete")
    game.reset(seed=0)
    inside, paid = game.unwrapped, []
    for joint, value in (("microwave", -0.75), ("slide_cabinet", 0.37), ("light_switch", -0.69), ("kettle", 0.75)):
        data = inside.data.joint(joint)
        if joint == "kettle":
            data.qpos[:] = -0.23, value, 1.62, 0.99, 0, 0, -0.06
        else:
            data.qpos[:] = value
        paid += [game.step(np.zeros(9))[1:3] for _ in range(2)]
    assert sum(reward for reward, _ in paid) == 4
    assert [over for _, over in paid].index(True) == max(i for i, (reward, _) in enumerate(paid) if reward)


# ---------------------------------------------------------------------------------------------------- Adroit


@pytest.mark.parametrize(("task", "within"), [("hammer", 8), ("door", 2), ("relocate", 8)])
def test_random_actions_earn_what_they_do_in_d4rl(task: str, within: float) -> None:
    game: Any = envs.make(task)
    earned = np.mean([played(game, seed, 200)[:, -1].sum() for seed in range(4)])
    reference = envs.TABLE[task].reference
    assert reference
    assert earned == pytest.approx(reference[0], abs=within)


@pytest.mark.parametrize("task", ["hammer", "door", "relocate"])
def test_distance_from_the_hand_costs(task: str) -> None:
    """D4RL's reward where nothing is lifted, hit or opened."""
    game: Any = envs.make(task)
    game.reset(seed=0)
    _, reward, *_ = game.step(np.zeros(game.action_space.shape))
    data = game.unwrapped.data

    def away(one: Any, other: Any) -> float:
        return float(np.linalg.norm(one.xpos - other.xpos))

    palm = data.site("S_grasp")
    if task == "hammer":
        nail = data.site("S_target")
        expected = -0.1 * away(palm, data.body("Object")) - away(data.site("tool"), nail)
        expected -= 10 * away(nail, data.site("nail_goal")) + 1e-2 * np.linalg.norm(data.qvel)
    elif task == "door":
        hinge = data.joint("door_hinge").qpos[0]
        expected = -0.1 * away(palm, data.site("S_handle")) - 0.1 * (hinge - 1.57) ** 2 - 1e-5 * np.sum(data.qvel**2)
    else:
        expected = -0.1 * away(palm, data.body("Object"))
    assert reward == pytest.approx(expected, abs=1e-9)


def test_a_dropped_pen_ends_the_episode() -> None:
    game: Any = envs.make("pen")
    game.reset(seed=0)
    assert not game.step(np.zeros(24))[2]
    game.unwrapped.data.joint("OBJTx").qpos[:] = 0.3  # the pen lies on its side: this is down
    assert game.step(np.zeros(24))[2]


# ------------------------------------------------------------------------------------------------ the others


def test_workers_play_them() -> None:
    names = ["antmaze-umaze", "kitchen-partial", "pen"]
    rng = np.random.default_rng(0)
    with Workers(names, 2) as workers:
        first = workers.reset(3).copy()
        board = [workers.step(rng.uniform(-1, 1, (3, 24)).astype(np.float32)) for _ in range(3)][-1]
        assert np.isfinite(board.next_obs).all()
    for row, name in enumerate(names):
        obs, _ = envs.make(name).reset(seed=envs.episode_seed(3, row, 0))
        np.testing.assert_array_equal(first[row, : len(obs)], obs.astype(np.float32))


def test_any_gymnasium_id_will_do() -> None:
    kinds = {name: envs.lookup(name) for name in ("Hopper-v5", "AntMaze_UMaze-v4", "FetchReach-v4")}
    assert [entry.reference for entry in kinds.values()] == [envs.TABLE["hopper"].reference, None, None]
    sizes = [envs.shape(name) for name in kinds]
    assert [(s.obs_dim, s.time_limit) for s in sizes] == [(11, 1000), (31, 700), (16, 50)]  # parts laid side by side
    game: Any = envs.make("AntMaze_UMaze-v4")
    obs, _ = game.reset(seed=0)
    np.testing.assert_array_equal(obs[2:4], game.unwrapped.goal)  # achieved_goal, desired_goal, observation
    with pytest.warns(UserWarning, match="no reference returns"):
        assert envs.normalised("AntMaze_UMaze-v4", [1.0]) is None
    assert envs.lookup("antmaze-umaze-v2") == envs.TABLE["antmaze-umaze"]
    with pytest.raises(BadInput, match="did you mean AntMaze_UMaze-v5"):
        envs.lookup("AntMaze_Umaze-v5")


def test_physics_names_the_version_of_the_tasks() -> None:
    assert "gymnasium-robotics 1." in envs.physics("pen")
    assert "gymnasium-robotics 1." in envs.physics("AntMaze_UMaze-v4")
    assert envs.physics("hopper") == envs.physics()
    assert "robotics" not in envs.physics()


def printed(code: str) -> str:
    """What a new Python prints."""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def test_a_missing_extra_is_told() -> None:
    without = "import sys; sys.modules['gymnasium_robotics'] = None; from winnow import envs; "
    needed = printed(without + "envs.make('pen')")
    assert f"BadInput: pen: needs gymnasium-robotics; {install_hint('robotics')}" in needed
    unknown = printed(without + "envs.lookup('AntMaze_UMaze-v4')")
    assert "BadInput: there is no environment 'AntMaze_UMaze-v4'" in unknown
    assert install_hint("robotics") in unknown


def test_making_one_prints_nothing() -> None:
    names = ("pen", "kitchen-mixed", "antmaze-umaze", "AntMaze_UMaze-v4")
    assert printed(f"from winnow import envs; [envs.make(name).reset(seed=0) for name in {names}]") == ""
