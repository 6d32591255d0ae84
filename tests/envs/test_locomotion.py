"""The crowd is Gymnasium to the last bit, and knows what it can't be."""

from __future__ import annotations

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from winnow import envs
from winnow.collect import behaviour
from winnow.envs.locomotion import Separate, SharedSimulation, is_supported, make_several
from winnow.nets import squashed_mean

FOUR = ("hopper", "halfcheetah", "walker2d", "ant")


def same(crowd: SharedSimulation, each: list, numbers: list[int], action: np.ndarray) -> list[int]:
    """Step both; those whose episodes ended."""
    seen, over = crowd.step(numbers, action), []
    for place, number in enumerate(numbers):
        obs, reward, terminated, truncated, _ = each[number].step(action[place])
        assert np.array_equal(obs, seen.obs[place])
        assert reward == seen.reward[place]
        assert (terminated, truncated and not terminated) == (seen.terminal[place], seen.timeout[place])
        over += [number] if terminated or truncated else []
    return over


@pytest.mark.parametrize("name", FOUR)
def test_random_actions_lead_where_gymnasium_leads(name):
    count, rng = 6, np.random.default_rng(1)
    crowd, each = make_several(lambda: envs.make(name), count), [envs.make(name) for _ in range(count)]
    assert isinstance(crowd, SharedSimulation)
    space, ends = each[0].action_space, 0
    for number in range(count):
        assert np.array_equal(crowd.reset(number, number), each[number].reset(seed=number)[0])
    for step in range(150):
        numbers = list(range(step % 2, count, 1 + step % 3))  # not always all of them
        action = rng.uniform(space.low, space.high, (len(numbers), *space.shape)).astype(space.dtype)
        for number in same(crowd, each, numbers, action):
            seed, ends = 100 * step + number, ends + 1
            assert np.array_equal(crowd.reset(number, seed), each[number].reset(seed=seed)[0])
    assert ends or name == "halfcheetah"


@pytest.mark.parametrize("name", FOUR)
def test_an_expert_runs_as_far_and_the_time_limit_holds(name):
    limit, (actor, _) = 120, behaviour(name, "expert")
    entry = envs.Environment(name, envs.lookup(name).source, limit, None, envs.lookup(name).options)
    crowd, alone = make_several(lambda: envs.make(entry), 1), envs.make(entry)
    assert isinstance(crowd, SharedSimulation)
    obs, over, steps = crowd.reset(0, 5), [], 0
    assert np.array_equal(obs, alone.reset(seed=5)[0])
    while not over:
        action = np.asarray(squashed_mean(actor, jnp.asarray(obs, jnp.float32)))[None]
        over = same(crowd, [alone], [0], action)
        obs, steps = alone.unwrapped._get_obs(), steps + 1
    assert steps == limit


def test_a_task_with_other_options_is_still_gymnasiums():
    def make():
        return gymnasium.make("Hopper-v5", healthy_reward=0.3, ctrl_cost_weight=0.5, terminate_when_unhealthy=False)

    crowd, alone = make_several(make, 1), make()
    assert isinstance(crowd, SharedSimulation)
    crowd.reset(0, 3)
    alone.reset(seed=3)
    for action in np.random.default_rng(0).uniform(-1, 1, (100, 1, 3)).astype(np.float32):
        assert not same(crowd, [alone], [0], action)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("Ant-v5", {}),  # shows contact forces
        ("Hopper-v5", {"exclude_current_positions_from_observation": False}),
        ("Hopper-v5", {"render_mode": "rgb_array"}),
        ("Swimmer-v5", {}),
    ],
)
def test_other_observations_and_tasks_are_left_to_gymnasium(source, options):
    made = gymnasium.make(source, **options)
    assert not is_supported(made)
    made.close()
    assert isinstance(make_several(lambda: gymnasium.make(source, **options), 2), Separate)


def test_a_wrapper_that_changes_what_is_seen_is_left_to_gymnasium():
    assert not is_supported(envs.make("ant-v2"))
    assert not is_supported(gymnasium.wrappers.TimeAwareObservation(envs.make("hopper")))
