"""Environments and their workers, on real simulators."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.counter_env import Counter

from winnow import envs
from winnow.envs.workers import Board, WorkerError, Workers
from winnow.errors import BadInput
from winnow.system.cores import container_share, cores_here


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(envs, "TABLE", dict(envs.TABLE))


def test_the_four_locomotion_tasks_have_d4rl_sizes() -> None:
    sizes = {name: envs.shape(name) for name in ("hopper", "halfcheetah", "walker2d", "ant", "ant-v2")}
    assert {name: (s.obs_dim, s.action_dim, s.time_limit) for name, s in sizes.items()} == {
        "hopper": (11, 3, 1000),
        "halfcheetah": (17, 6, 1000),
        "walker2d": (17, 6, 1000),
        "ant": (27, 8, 1000),
        "ant-v2": (111, 8, 1000),
    }
    assert "mujoco 3." in envs.physics()


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("hopper", -20.272305, 3234.3),
        ("halfcheetah", -280.178953, 12135.0),
        ("walker2d", 1.629008, 4592.3),
        ("ant", -325.6, 3879.7),
    ],
)
def test_scores_are_d4rls(name: str, low: float, high: float) -> None:
    np.testing.assert_allclose(envs.normalised(name, [low, (low + high) / 2, high]), [0, 50, 100])  # pyright: ignore


def test_unknown_names(table: None) -> None:
    with pytest.raises(BadInput, match="did you mean walker2d"):
        envs.make("walker")
    envs.register("counter", Counter, 5)
    for name in ("counter", "nowhere"):
        with pytest.warns(UserWarning, match="no reference returns"):
            assert envs.normalised(name, [1.0]) is None


def play(names: list[str], processes: int, steps: int, seed: int = 3) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(0)
    seen: list[tuple[np.ndarray, ...]]
    with Workers(names, processes) as workers:
        seen = [(workers.reset(seed).copy(),)]
        for _ in range(steps):
            action = rng.uniform(-1, 1, workers.board.action.shape)
            seen.append(tuple(column.copy() for column in workers.step(action.astype(np.float32))))
    return seen


def test_episodes_do_not_depend_on_the_number_of_processes() -> None:
    names = ["hopper", "ant", "hopper"]
    one, two = play(names, 1, 80), play(names, 2, 80)
    for left, right in zip(one, two, strict=True):
        for a, b in zip(left, right, strict=True):
            np.testing.assert_array_equal(a, b)
    ends = np.array([Board(*step).terminal for step in one[1:]])
    assert ends[:, 0].sum() >= 2
    assert one[0][0][0, :11].tolist() != one[0][0][2, :11].tolist()
    assert not one[-1][1][0, 11:].any()  # a hopper's row is filled up with zeros


def test_an_episode_is_the_one_its_seed_gives() -> None:
    """Stepped here by hand: observations, rewards, and at the end the true final observation."""
    hopper = envs.make("hopper")
    rng = np.random.default_rng(1)
    with Workers(["ant", "hopper"], 2) as workers:
        start = workers.reset(9, [0, 4])[1, :11].copy()
        obs, _ = hopper.reset(seed=envs.episode_seed(9, 1, 4))
        np.testing.assert_array_equal(start, obs.astype(np.float32))
        over, steps, board = False, 0, workers.board
        while not over:
            action = rng.uniform(-1, 1, (2, 8)).astype(np.float32)
            board = workers.step(action)
            obs, reward, over, _, _ = hopper.step(action[1, :3])
            assert board.reward[1] == reward
            np.testing.assert_array_equal(board.next_obs[1, :11], obs.astype(np.float32))
            steps += 1
        assert board.terminal[1]
        assert not board.timeout[1]
        assert board.episode[1] == 5
        first, _ = hopper.reset(seed=envs.episode_seed(9, 1, 5))
        np.testing.assert_array_equal(board.obs[1, :11], first.astype(np.float32))
    assert steps > 3


def test_a_time_limit_is_a_timeout_and_no_terminal(table: None) -> None:
    envs.register("brief", "HalfCheetah-v5", 5)
    envs.register("counter", Counter, 4)
    steps = [Board(*step) for step in play(["brief", "counter"], 1, 10)[1:]]
    assert not any(step.terminal.any() for step in steps)
    assert [s.timeout[0].item() for s in steps] == [False, False, False, False, True] * 2
    assert [s.timeout[1].item() for s in steps] == [False, False, False, True] * 2 + [False, False]
    assert [int(s.next_obs[1, 0]) for s in steps] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert [int(s.obs[1, 0]) for s in steps] == [1, 2, 3, 0, 1, 2, 3, 0, 1, 2]


def test_actions_are_scaled_to_the_bounds(table: None) -> None:
    envs.register("counter", Counter, 4)
    with Workers(["counter"] * 3) as workers:
        workers.reset(0)
        board = workers.step(np.array([[-1.0], [0.0], [7.0]], np.float32))
    assert board.reward.tolist() == [-2, 1, 4]


def test_a_worker_does_not_import_jax(table: None) -> None:
    import jax  # noqa: F401  (here it is imported)

    envs.register("spy", Counter, 4, fault="jax")
    assert Board(*play(["spy"], 1, 1)[1]).reward.tolist() == [0.0]


def test_a_lost_worker_is_told(table: None) -> None:
    envs.register("falls", Counter, 9, fault="exit")
    with pytest.raises(WorkerError, match=r"worker 1 \(falls 1\) died with exit code 7"):
        play(["hopper", "falls"], 2, 5)
    envs.register("breaks", Counter, 9, fault="raise")
    with pytest.raises(WorkerError, match="the hinge broke"):
        play(["breaks"], 1, 5)


def test_an_environment_that_cannot_travel_is_refused(table: None) -> None:
    envs.register("local", lambda: Counter(), 9)
    with pytest.raises(BadInput, match="local: can't be sent to a worker"):
        Workers(["local"])
    envs.register("odd", Counter, 9, fault=object())
    with pytest.raises(BadInput, match="odd: can't be sent to a worker"):
        Workers(["odd"])


def test_a_function_of_a_module_travels_by_its_name(table: None) -> None:
    entry = envs.register("counter", Counter, 4, fault="")
    said = envs.describe(entry)
    assert said == {"name": "counter", "limit": 4, "options": {"fault": ""}, "function": "helpers.counter_env:Counter"}
    assert envs.from_description(said) == entry


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="there is no /proc")
def test_the_shared_file_has_no_name_that_could_be_left_behind(table: None) -> None:
    envs.register("counter", Counter, 9)
    with Workers(["counter"]) as workers:
        held = os.readlink(f"/proc/self/fd/{workers._file.fileno()}")
    assert held.endswith("(deleted)")


# ------------------------------------------------------------------------------------------ idle and revived


def test_an_environment_waits_after_its_last_episode(table: None) -> None:
    """Episodes 0 and 2 for the first, 1 for the second; the third has nothing to play."""
    envs.register("counter", Counter, 3)
    zero = np.zeros((3, 1), np.float32)
    with Workers(["counter"] * 3, 2, [0, 0, 0]) as workers:
        first = workers.reset(5, [0, 1, 2], until=[3, 3, 0], stride=2).copy()
        seen = [Board(*(column.copy() for column in workers.step(zero))) for _ in range(8)]
        again = workers.reset(5, [2, 1, 1]).copy()
        np.testing.assert_array_equal(again[1], again[2])
    assert not first[2].any()
    assert [one.playing.tolist() for one in seen] == (
        [[True, True, False]] * 2 + [[True, False, False]] * 3 + [[False] * 3] * 3
    )
    assert [int(one.next_obs[0, 0]) for one in seen] == [1, 2, 3, 1, 2, 3, 3, 3]
    assert [int(one.next_obs[1, 0]) for one in seen] == [1, 2, 3, 3, 3, 3, 3, 3]
    assert [one.timeout[:2].tolist() for one in seen[2:4]] == [[True, True], [False, False]]
    assert [one.reward.tolist() for one in seen[5:7]] == [[1, 0, 0], [0, 0, 0]]
    assert again[0, 1] == seen[2].obs[0, 1]  # number 2 begins as it did before


def test_groups_step_on_their_own(table: None) -> None:
    envs.register("counter", Counter, 9)
    with Workers(["counter"] * 5, 2, groups=[2, 3]) as workers:
        workers.reset(0)
        for group in (0, 1, 1):
            workers.send(np.zeros((2 + group, 1), np.float32), group)
        workers.receive(0)
        workers.receive(1)
        assert workers.receive(1).obs[:, 0].tolist() == [2, 2, 2]
        assert workers.board.obs[:, 0].tolist() == [1, 1, 2, 2, 2]


def test_a_worker_that_is_killed_begins_its_episodes_again(table: None) -> None:
    envs.register("counter", Counter, 4)
    zero = np.zeros((3, 1), np.float32)
    with Workers(["counter"] * 3, 2, restart=True) as workers:
        start = workers.reset(1).copy()
        for _ in range(5):  # into the second episode
            workers.step(zero)
        marks = workers.board.obs[:, 1].copy()
        os.kill(workers._children[0].pid, signal.SIGKILL)
        board = workers.step(zero)
        assert board.fresh.tolist() == [True, False, True]
        assert board.obs[:, 0].tolist() == [0, 2, 0]
        assert board.reward.tolist() == [0, 1, 0]
        np.testing.assert_array_equal(board.obs[:, 1], marks)  # the same episodes, and not the first ones
        assert not np.array_equal(marks, start[:, 1])
        board = workers.step(zero)
        assert board.obs[:, 0].tolist() == [0, 3, 0]  # they wait until the caller has seen it
        board.fresh[:] = False
        assert workers.step(zero).obs[:, 0].tolist() == [1, 0, 1]


def test_a_worker_that_dies_again_and_again_is_given_up(table: None) -> None:
    envs.register("falls", Counter, 9, fault="exit")

    def step_on() -> None:
        with Workers(["falls"], restart=True) as workers:
            workers.reset(0)
            for _ in range(30):
                workers.step(np.zeros((1, 1), np.float32)).fresh[:] = False

    with pytest.raises(WorkerError, match="died 3 times in a row, the last time with exit code 7"):
        step_on()


def test_no_more_cores_than_one_is_told_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    there = len(os.sched_getaffinity(0))
    monkeypatch.delenv("WINNOW_CORES", raising=False)
    assert 1 <= cores_here() <= there
    monkeypatch.setenv("WINNOW_CORES", "1")
    assert cores_here() == 1
    monkeypatch.setenv("WINNOW_CORES", str(there + 7))
    assert cores_here() <= there
    for wrong in ("0", "two", "1.5", "-1"):
        monkeypatch.setenv("WINNOW_CORES", wrong)
        with pytest.raises(BadInput, match="WINNOW_CORES"):
            cores_here()


@pytest.mark.parametrize(
    ("listed", "files", "share"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/elsewhere\n", {"cpu.max": "300000 100000\n"}, 3.0),
        ("0::/\n", {}, np.inf),
        (
            "5:memory:/x\n3:cpu,cpuacct:/a\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "50000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, np.inf),
        ("1:memory:/\n", {"memory/cpu.max": "1 1"}, np.inf),
    ],
)
def test_a_containers_share_of_the_cores_counts(
    tmp_path: Path, listed: str, files: dict[str, str], share: float
) -> None:
    (tmp_path / "list").write_text(listed)
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    assert container_share(str(tmp_path / "list"), str(tmp_path / "root")) == share
    assert container_share(str(tmp_path / "nothing")) == np.inf


def test_xla_is_told_of_the_share_when_it_starts() -> None:
    """Its own setting is kept where $WINNOW_CORES is not given. With one thread programs would round otherwise."""
    script = """
import os
import winnow.packs.pack, jax.numpy
(jax.numpy.ones((300, 300)) @ jax.numpy.ones((300, 300))).block_until_ready()
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(names.count("tf_XLAEigen"))
"""
    settings = {key: value for key, value in os.environ.items() if key != "WINNOW_CORES"} | {"PJRT_NPROC": "5"}
    for more, threads in (({}, 5), ({"WINNOW_CORES": "1"}, 2)):
        said = subprocess.check_output([sys.executable, "-c", script], env=settings | more, text=True)
        assert int(said) == threads
