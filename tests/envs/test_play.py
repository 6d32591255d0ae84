"""Playing episodes of several policies, in real simulators."""

from __future__ import annotations

import os
import signal

import jax
import numpy as np
import pytest
from helpers.counter_env import Counter

from winnow import envs
from winnow.envs.play import Games, play
from winnow.envs.workers import WorkerError
from winnow.errors import BadInput
from winnow.nets import mlp, mlp_init
from winnow.policy.stacked import Actors


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs, "TABLE", dict(envs.TABLE))


def swing(obs: np.ndarray, runs: slice = slice(None)) -> np.ndarray:
    """Three policies for hopper that differ a little; each row by itself."""
    return np.tanh(obs[..., :3] * np.array([0.5, 1.0, 2.0])[runs, None, None] + obs[..., 8:])


def by_hand(run: int, seed: int, episode: int) -> tuple[float, int]:
    """An episode of one of these policies, stepped here."""
    env, total, steps, over = envs.make("hopper"), 0.0, 0, False
    obs, _ = env.reset(seed=envs.episode_seed(envs.EVALUATION_SEEDS + seed, 0, episode))
    while not over:
        action = swing(np.broadcast_to(obs.astype(np.float32), (3, 1, 11)))[run, 0]
        obs, reward, terminated, truncated, _ = env.step(action.astype(np.float32))
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
    return total, steps


SEEDS, EPISODES = [4, 9, 4], 5


def test_returns_are_those_of_episodes_stepped_by_hand():
    played = play("hopper", swing, SEEDS, EPISODES, processes=1)
    for run, episode in ((0, 0), (1, 4), (2, 3)):
        total, steps = by_hand(run, SEEDS[run], episode)
        assert played.returns[run, episode] == total
        assert played.lengths[run, episode] == steps
    assert len(np.unique(played.returns)) == 3 * EPISODES
    assert played.returns.dtype == np.float64


@pytest.mark.parametrize(("processes", "seats"), [(1, 1), (2, 2), (2, None), (1, 3)])
def test_returns_depend_on_neither_processes_nor_seats(processes, seats):
    usual = play("hopper", swing, SEEDS, EPISODES, processes=1, seats=4)
    other = play("hopper", swing, SEEDS, EPISODES, processes=processes, seats=seats)
    np.testing.assert_array_equal(usual.returns, other.returns)
    np.testing.assert_array_equal(usual.lengths, other.lengths)


def test_networks_give_the_same_returns_for_any_number_of_seats():
    """The forward pass of a row does not depend on the rows beside it: to the last bit."""
    keys = jax.random.split(jax.random.key(0), 2)
    state = jax.vmap(lambda key: mlp_init(key, (11, 256, 256, 3)))(keys)

    class Net:
        standardise = False

        def act(self, state, obs):
            return jax.numpy.tanh(mlp(state, obs))

    jax.tree_util.register_static(Net)
    zero, one = np.zeros((2, 11), np.float32), np.ones((2, 11), np.float32)
    act = Actors(Net(), state, zero, one, zero[:, :3], one[:, :3]).on_cpu()
    few, more = (play("hopper", act, [0, 1], 6, processes=2, seats=seats) for seats in (1, 6))
    np.testing.assert_array_equal(few.returns, more.returns)
    alone = play("hopper", lambda obs, _: act(obs, slice(1, 2)), [1], 6)
    np.testing.assert_array_equal(alone.returns[0], more.returns[1])


def test_later_episodes_are_the_later_ones_of_a_longer_evaluation():
    whole = play("hopper", swing, SEEDS, 5, processes=1)
    late = play("hopper", swing, SEEDS, 2, first=[3, 0, 1], processes=1)
    for run, first in enumerate((3, 0, 1)):
        np.testing.assert_array_equal(late.returns[run], whole.returns[run, first : first + 2])


def test_runs_that_do_not_play_are_left_out_and_change_nothing():
    with Games(["hopper"] * 3, EPISODES, 2) as games:
        ticks: list[int] = []
        whole = games.play(swing, SEEDS, tick=ticks.append)
        some = games.play(swing, SEEDS, plays=[True, False, True])
    assert sum(ticks) == 3 * EPISODES
    assert np.isnan(some.returns[1]).all()
    assert not some.lengths[1].any()
    np.testing.assert_array_equal(some.returns[[0, 2]], whole.returns[[0, 2]])


def test_a_worker_that_is_killed_changes_no_return():
    usual = play("hopper", swing, SEEDS, EPISODES, processes=2)
    with Games(["hopper"] * 3, EPISODES, 2) as games:
        calls = 0

        def act(obs, runs):
            nonlocal calls
            calls += 1
            if calls in (9, 24):
                os.kill(games.workers._children[calls % 2].pid, signal.SIGKILL)
            return swing(obs, runs)

        killed = games.play(act, SEEDS)
    assert calls > 30
    np.testing.assert_array_equal(killed.returns, usual.returns)
    np.testing.assert_array_equal(killed.lengths, usual.lengths)


def test_time_limits_are_obeyed(table):
    envs.register("brief", "HalfCheetah-v5", 7)
    played = play(["halfcheetah", "brief"], lambda obs, _: 0.5 * obs[..., :6], [0, 0], 2)
    assert played.lengths.tolist() == [[1000, 1000], [7, 7]]


def test_environments_of_other_units_get_their_actions(table):
    """Counter takes −2 to 4 and pays what it is given: more than that is cut off."""
    envs.register("counter", Counter, 4)
    wanted = np.array([-1.5, 3.0, 9.0])[:, None, None]
    played = play("counter", lambda obs, runs: np.broadcast_to(wanted[runs], (*obs.shape[:2], 1)), [0, 1, 2], 2)
    np.testing.assert_allclose(played.returns, np.repeat([[-6.0], [12.0], [16.0]], 2, axis=1), rtol=1e-6)


def test_what_goes_wrong_is_said(table):
    with pytest.raises(BadInput, match="did you mean walker2d"):
        play("walker2", swing, [0], 1)
    envs.register("endless", Counter)
    with pytest.raises(BadInput, match="endless: has no time limit"):
        play("endless", swing, [0], 1)
    envs.register("breaks", Counter, 9, fault="raise")
    with pytest.raises(WorkerError, match="the hinge broke"):
        play("breaks", lambda obs, _: obs[..., :1], [0], 1)
    envs.register("falls", Counter, 9, fault="exit")
    with pytest.raises(WorkerError, match="died 3 times in a row"):
        play("falls", lambda obs, _: obs[..., :1], [0], 1)
