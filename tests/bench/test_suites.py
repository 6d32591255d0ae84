"""Which datasets the words of a grid mean."""

from __future__ import annotations

import re

import pytest

from winnow import envs
from winnow.bench.suites import SIZES, chosen, entries
from winnow.data.names import suites
from winnow.errors import BadInput


def names(words, **options):
    return [entry.text for entry in entries(words, **options)]


def test_suites_have_the_papers_sizes():
    counts = {"mixed": 32, "diverse": 32, "small": 8, "d4rl-mujoco": 24, "d4rl-antmaze": 6, "d4rl-kitchen": 3}
    counts |= {"d4rl-adroit": 8, "paper": 113}
    assert {suite: len(names([suite])) for suite in counts} == counts
    assert names(["paper"]) == [name for suite in suites().values() for name in suite]


def test_words_may_be_suites_and_names_and_each_dataset_comes_once():
    assert (
        names(["hopper-random-expert-5%@300", "small", "ant-random-medium-10%-small"])[0]
        == "hopper-random-expert-5%@300"
    )
    assert len(names(["small", "ant-random-medium-10%-small", "small"])) == 8


def test_trials_and_d4rls_version():
    assert all(name.endswith("-small@500") for name in names(["small"], rows=500))
    assert names(["small"], rows=50_000) == names(["small"])  # as many as it has
    assert all(entry.name.is_d4rl for entry in entries(["mixed"], version="v2"))
    with pytest.raises(BadInput, match="hopper-random-v2: can't be reduced to 500 rows"):
        entries(["d4rl-mujoco"], rows=500)


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"environments": ["hopper"]}, 16 + 2 + 6),
        ({"environments": ["ant"]}, 16 + 2 + 6),
        ({"environments": ["antmaze", "kitchen"]}, 9),
        ({"environments": ["antmaze-umaze"]}, 1),
        ({"levels": ["medium-replay"]}, 4),
        ({"levels": ["expert"], "shares": [1.0, 5.0]}, 16),
        ({"environments": ["hopper"], "levels": ["expert"], "shares": [10.0]}, 3),
    ],
)
def test_filters(filters, count):
    assert len(chosen(entries(["paper"]), **filters)) == count


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: entries(["mixd"]), "did you mean 'mixed'?"),
        (lambda: entries(["hopper-expert-random-exprt"]), "there is no dataset called"),
        (lambda: entries([]), "name a suite"),
        (lambda: entries(["small"], rows=0), "--rows must be at least 1, got 0"),
        (lambda: entries(["small"], version="v3"), "--version must be v2"),
        (lambda: chosen(entries(["small"]), environments=["pen"]), "choose from ant, halfcheetah, hopper, walker2d"),
        (lambda: chosen(entries(["mixed"]), shares=[7.0]), "choose from 1, 5, 10, 50"),
        (lambda: chosen(entries(["small", "pen-human-v1"]), environments=["pen"], shares=[10.0]), "no dataset"),
    ],
)
def test_wrong_words_are_named(make, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        make()


def test_sizes_are_those_of_the_environments():
    known = {entry.environment: entry.sizes for entry in entries(["paper"])}
    assert set(SIZES) <= {*known, "antmaze", "kitchen"}
    for environment, sizes in known.items():
        shape = envs.shape(environment)
        assert (shape.obs_dim, shape.action_dim) == sizes, environment
