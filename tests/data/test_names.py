"""Names of datasets: what they mean, how many there are, and what stands in for what (nothing)."""

from __future__ import annotations

import pytest

from winnow.data.names import all_names, is_name, level, parse, suites
from winnow.errors import BadInput


def test_there_are_113_in_the_suites_of_the_paper():
    sizes = {name: len(names) for name, names in suites().items()}
    assert sizes == {
        "mixed": 32,
        "diverse": 32,
        "small": 8,
        "d4rl-mujoco": 24,
        "d4rl-antmaze": 6,
        "d4rl-kitchen": 3,
        "d4rl-adroit": 8,
    }
    assert len(set(all_names())) == 113


def test_every_name_of_a_suite_is_taken_apart_into_that_suite():
    for version in ("", "v2"):
        for suite, names in suites(version).items():
            assert {parse(name).suite for name in names} == {suite}


def test_a_mixture():
    name = parse("hopper-random-expert-5%")
    assert (name.environment, name.sources, name.is_d4rl) == ("hopper", ("hopper-random", "hopper-expert"), False)
    assert name.recipe is not None
    assert (name.recipe.share, name.recipe.rows, name.recipe.shape) == (0.05, 1_000_000, "episodes")


def test_diverse_sets_are_made_of_segments_and_small_ones_have_50000_rows():
    diverse, small = parse("ant-random-medium-diverse-50%").recipe, parse("ant-random-medium-10%-small").recipe
    assert diverse is not None
    assert small is not None
    assert (diverse.shape, diverse.rows) == ("segments", 1_000_000)
    assert (small.shape, small.rows, parse("ant-random-medium-10%-small").pool_rows) == ("episodes", 50_000, 1_000_000)


def test_a_version_means_d4rl_and_none_means_regenerated():
    versioned, ours = parse("hopper-random-expert-5%-v2"), parse("hopper-random-expert-5%")
    assert versioned.is_d4rl
    assert versioned.sources == ("hopper-random-v2", "hopper-expert-v2")
    assert not ours.is_d4rl
    assert parse("hopper-medium-v2").kind == "d4rl"
    assert parse("hopper-medium").kind == "pool"


def test_a_trial_has_fewer_rows_from_smaller_pools():
    name = parse("hopper-random-expert-diverse-10%@3000")
    assert name.recipe is not None
    assert name.recipe.rows == 3000
    assert name.sources == ("hopper-random@3000", "hopper-expert@3000")
    assert [level(name) for name in ("hopper-random@3000", "ant-expert-v2", "ant-medium")] == [
        "random",
        "expert",
        "medium",
    ]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("hoper-random-expert-5%", "hopper-random-expert-5%"),
        ("hopper-random-expert-5", "hopper-random-expert-5%"),
        ("hopper-medium-v3", "hopper-medium-v2"),
        ("walker-expert", "walker2d-expert"),
        ("kitchen-complet-v0", "kitchen-complete-v0"),
    ],
)
def test_a_wrong_name_gets_the_nearest_ones(wrong, meant):
    assert not is_name(wrong)
    with pytest.raises(BadInput, match="did you mean") as error:
        parse(wrong)
    assert meant in str(error.value)


@pytest.mark.parametrize("wrong", ["hopper-expert-expert-5%", "hopper-random-expert-101%", "hopper-random@0", "../x"])
def test_what_can_not_be_a_dataset_is_no_name(wrong):
    assert not is_name(wrong)
