"""The dome has the optimum it says it has, and its data the ends it says it has."""

from __future__ import annotations

import numpy as np
import pytest

from winnow import toy


def test_no_other_linear_policy_near_the_best_one_is_better():
    rng = np.random.default_rng(0)
    gain = toy.optimal_gain()

    def worth(k: np.ndarray) -> float:
        rewards = toy.play(lambda state, _: -state @ k.T, 200, seed=1)[2]
        return float((rewards * toy.DISCOUNT ** np.arange(toy.STEPS)[:, None]).sum(axis=0).mean())

    best = worth(gain)
    assert all(worth(gain + rng.normal(0, 0.3, gain.shape)) < best for _ in range(20))


def test_scores_run_from_random_to_best():
    assert toy.normalised(toy.play(toy.random, 1000, 12345)[2].sum(axis=0)).mean() == pytest.approx(0)
    assert toy.normalised(toy.play(toy.best, 1000, 12345)[2].sum(axis=0)).mean() == pytest.approx(100)


def test_random_episodes_end_over_the_edge_and_the_experts_at_the_time_limit():
    lost, kept = toy.make(toy.random, 2_000, 0), toy.make(toy.expert, 2_000, 0)
    assert lost.episodes.terminated.all()
    assert lost.episodes.length.mean() < 60
    assert not kept.episodes.terminated.any()
    assert (kept.episodes.length == toy.STEPS).all()


def test_the_same_seed_makes_the_same_data_and_another_seed_other_data():
    one, same, other = (toy.make(toy.random, 500, seed) for seed in (3, 3, 4))
    assert one.fingerprint == same.fingerprint != other.fingerprint
