"""Each algorithm learns to keep the puck on the dome, where the best possible return is known and imitation fails."""

from __future__ import annotations

import pytest

from winnow import toy
from winnow.algorithms import BC, CQL, IQL, TD3BC
from winnow.data.dataset import Dataset
from winnow.data.recipes import mixed
from winnow.samplers import AW, Sampler, Uniform
from winnow.training import train
from winnow.types import Algorithm

HIDDEN = (64, 64)


@pytest.fixture(scope="module")
def dome() -> Dataset:
    low, high = toy.make(toy.random, 100_000, 0, "random"), toy.make(toy.expert, 20_000, 1, "expert")
    return mixed(low, high, 0.05, 100_000, low_label="random", high_label="expert", name="dome")


def score(dataset: Dataset, algorithm: Algorithm, sampler: Sampler, steps: int) -> float:
    """0 is random, 100 the best possible."""
    policy = train(dataset, algorithm, "uniform", sampler=sampler, steps=steps, progress=False)[0].policy
    return float(toy.normalised(toy.evaluate(policy)).mean())


def test_cloning_everything_fails(dome):
    assert score(dome, BC(hidden=HIDDEN), Uniform(), 3000) < 20


@pytest.mark.parametrize(
    ("algorithm", "sampler", "steps"),
    [
        (IQL(hidden=HIDDEN), Uniform(), 5000),
        (TD3BC(hidden=HIDDEN), AW(0.1), 5000),
        (CQL(hidden=HIDDEN, samples=4, penalty=1.0, standardise=True), Uniform(), 3000),
    ],
    ids=["iql", "td3bc", "cql"],
)
def test_it_comes_close_to_the_best_possible(dome, algorithm, sampler, steps):
    assert score(dome, algorithm, sampler, steps) > 80
