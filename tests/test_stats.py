"""Statistics of scores: worked out by hand, equal to rliable's, and true of any scores.

50,000 resamples of 113 datasets × 3 seeds take about 0.35 s on one core (rliable: 6.3 s on the same machine); that is
for `benchmarks/` to watch, no test here is timed.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from winnow import stats
from winnow.errors import BadInput
from winnow.stats import (
    compare,
    interval,
    iqm,
    mean,
    median,
    optimality_gap,
    performance_profile,
    pool,
    probability_of_improvement,
)

quick = partial(interval, resamples=2000)

# ------------------------------------------------------------------------------------------------------- by hand


def test_iqm_drops_a_quarter_at_each_end():
    # 1 … 8: without 1, 2, 7, 8 the mean of 3, 4, 5, 6
    assert iqm([[1, 2, 3, 4], [5, 6, 7, 8]]) == 4.5
    # 5 runs: ⌊5/4⌋ = 1 at each end: the mean of 2, 3, 10
    assert iqm({"a": [100, 1], "b": [10, 2, 3]}) == 5
    # 3 runs: nothing is cut
    assert iqm({"a": [0, 3, 9]}) == 4


def test_iqm_is_scipys_trimmed_mean():
    from scipy.stats import trim_mean

    rng = np.random.default_rng(0)
    for runs in range(1, 20):
        score = rng.normal(size=runs)
        assert iqm({"a": score}) == pytest.approx(trim_mean(score, 0.25))


def test_mean_and_median_count_datasets_not_runs():
    # dataset means 2, 10 and 30; the median of all six runs would be 15
    scores = {"a": [1, 3], "b": [10], "c": [20, 30, 40]}
    assert mean(scores) == 14
    assert median(scores) == 10
    assert median({"a": [1, 3], "b": [10]}) == 6


def test_optimality_gap_stops_at_the_target():
    # 40, 100 (of 150), 100 and 60: the mean is 75
    assert optimality_gap([[40, 150], [100, 60]]) == 25
    # 40, 50, 50, 50: the mean is 47.5
    assert optimality_gap([[40, 150], [100, 60]], target=50) == 2.5


def test_probability_of_improvement_counts_a_tie_as_half():
    # of 2 × 3 pairs: 1 loses to 2 and 3 and ties with 1; 3 beats 1 and 2 and ties with 3: (½ + 2 + ½) / 6 = ½
    assert probability_of_improvement({"x": [1, 3]}, {"x": [1, 2, 3]}) == 0.5
    # the second dataset is won by every pair: (½ + 1) / 2
    assert probability_of_improvement({"x": [1, 3], "y": [9]}, {"x": [1, 2, 3], "y": [7, 8]}) == 0.75


def test_profile_is_the_share_of_runs_strictly_above():
    profile = performance_profile([[0, 10], [20, 20]], [-1, 0, 10, 15, 20], resamples=100)
    assert profile.share.tolist() == [1, 0.75, 0.5, 0.5, 0]
    assert profile.thresholds.tolist() == [-1, 0, 10, 15, 20]


def test_interval_of_two_runs_by_hand():
    # resamples of {0, 1}: mean 0, ½ or 1 with probability ¼, ½, ¼: the 5 % and 95 % quantiles are 0 and 1, while
    # 40 % and 60 % both fall on ½
    wide = interval({"a": [0, 1]}, mean, level=0.9)
    assert wide[:4] == (0.5, 0, 1, 2)
    narrow = interval({"a": [0, 1]}, mean, level=0.2)
    assert narrow[:3] == (0.5, 0.5, 0.5)


def test_seeds_are_resampled_inside_their_dataset():
    # all spread is between datasets, none between seeds: there is nothing to be unsure about
    estimate = quick([[0, 0, 0], [100, 100, 100]])
    assert estimate == (50, 50, 50, 3, None)


def test_bootstrap_against_every_possible_resample():
    # 3³ · 2² = 108 equally likely resamples; 13 % and 87 % lie well inside two of the values they take
    scores = {"a": [0.0, 1.0, 5.0], "b": [2.0, 9.0]}
    exact = [
        np.mean([np.mean(a), np.mean(b)])
        for a in product(scores["a"], repeat=3)
        for b in product(scores["b"], repeat=2)
    ]
    estimate = interval(scores, mean, level=0.74)
    assert [estimate.low, estimate.high] == pytest.approx(np.quantile(exact, (0.13, 0.87)).tolist())


# ---------------------------------------------------------------------------------------------------- like rliable

# The expected numbers of this section were printed by rliable 1.2.0 itself (arch 7.2.0, pandas 2.3.3, NumPy 2.4.6,
# SciPy 1.17.1, installed apart: it does not import with pandas 3). They come from `metrics.aggregate_*` (gamma=100),
# `metrics.probability_of_improvement`, `library.get_interval_estimates` and `library.create_performance_profile` on
# OURS.T and THEIRS.T. Intervals are of 200,000 resamples (10,000 for the probability of improvement) after
# np.random.seed(0), as rliable ignores its own `random_state`: they are equal up to the chance of the draws.

OURS = np.array(
    [
        [12.5, 14.1, 9.8, 13.3],
        [101.2, 98.7, 104.9, 55.0],
        [47.3, 52.8, 39.6, 44.4],
        [3.1, 2.2, 3.1, 0.0],
        [88.0, 91.5, 85.2, 110.4],
        [66.6, 20.3, 71.9, 64.0],
        [-1.5, 4.0, 30.2, 7.7],
    ]
)
THEIRS = np.array(
    [
        [11.0, 14.1, 10.2, 8.9, 12.0],
        [88.8, 60.1, 97.3, 93.0, 98.7],
        [50.5, 41.1, 36.2, 44.4, 48.0],
        [1.0, 3.1, 2.4, 2.9, 5.5],
        [79.9, 84.2, 91.5, 70.3, 86.1],
        [55.2, 60.0, 18.8, 48.7, 62.3],
        [2.5, 9.9, 4.0, -0.3, 12.6],
    ]
)
DRAWS = 0.1
"""Ends of an interval move by about 0.03 from one seed to another."""


@pytest.mark.parametrize(
    ("statistic", "ours", "theirs", "low", "high"),
    [
        (iqm, 38.699999999999996, 35.489473684210516, 31.699821428571454, 45.41428571428571),
        (mean, 44.29642857142858, 40.425714285714285, 39.410714285714285, 48.66071428571428),
        (median, 46.025, 44.04, 31.874999999999996, 50.699999999999996),
        (optimality_gap, 56.29285714285714, 59.574285714285715, 52.192857142857136, 60.964285714285715),
    ],
)
def test_statistics_are_rliables(statistic, ours, theirs, low, high):
    assert statistic(OURS) == pytest.approx(ours)
    assert statistic(THEIRS) == pytest.approx(theirs)
    estimate = interval(OURS, statistic)
    assert estimate.value == pytest.approx(ours)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=DRAWS)


def test_comparison_is_rliables():
    assert probability_of_improvement(OURS, THEIRS) == pytest.approx(0.6464285714285715)
    assert probability_of_improvement(THEIRS, OURS) == pytest.approx(0.3535714285714286)
    made = compare(OURS, THEIRS)
    assert made.improvement[:3] == pytest.approx((0.64642857, 0.5, 0.7857142857142857), abs=0.005)
    assert made.iqm[:3] == pytest.approx((3.21052632, -5.051889097744365, 11.104144736842107), abs=DRAWS)
    assert made.mean[:3] == pytest.approx((3.87071429, -1.76360714285714, 9.257857142857134), abs=DRAWS)


def test_profile_is_rliables():
    profile = performance_profile(OURS, [0, 10, 25, 50, 75, 100])
    share = [0.9285714285714286, 0.7142857142857143, 0.5714285714285714, 0.42857142857142855, 0.25, 0.10714285714285714]
    low = [0.8214285714285714, 0.6428571428571429, 0.5, 0.35714285714285715, 0.17857142857142858, 0.03571428571428571]
    high = [1.0, 0.7857142857142857, 0.6428571428571429, 0.5, 0.2857142857142857, 0.21428571428571427]
    assert profile.share == pytest.approx(share)
    assert profile.low == pytest.approx(low)
    assert profile.high == pytest.approx(high)


# ------------------------------------------------------------------------------------------------- of any scores

number = st.integers(-1000, 1000).map(lambda n: n / 8)
seeds = st.lists(number, min_size=1, max_size=5)
grids = st.dictionaries(st.sampled_from("abcdefg"), seeds, min_size=1)
pairs = st.lists(st.tuples(seeds, seeds), min_size=1, max_size=5).map(
    lambda rows: tuple({f"d{i}": row[k] for i, row in enumerate(rows)} for k in (0, 1))
)


@given(grids)
def test_between_the_lowest_and_the_highest(grid):
    runs = np.concatenate(list(grid.values()))
    for statistic in (iqm, mean, median):
        assert runs.min() - 1e-9 <= statistic(grid) <= runs.max() + 1e-9
    assert optimality_gap(grid) >= 0


@given(grids, st.data())
def test_a_better_run_never_makes_a_method_look_worse(grid, data):
    name = data.draw(st.sampled_from(sorted(grid)))
    run = data.draw(st.integers(0, len(grid[name]) - 1))
    better = {**grid, name: [x + 5 * (i == run) for i, x in enumerate(grid[name])]}
    for statistic in (iqm, mean, median):
        assert statistic(better) >= statistic(grid) - 1e-9
    assert optimality_gap(better) <= optimality_gap(grid) + 1e-9
    assert probability_of_improvement(better, grid) >= 0.5


@given(grids, st.randoms())
def test_order_does_not_matter(grid, random):
    other = {name: random.sample(grid[name], len(grid[name])) for name in random.sample(sorted(grid), len(grid))}
    for statistic in (iqm, mean, median, optimality_gap):
        assert interval(other, statistic, resamples=50) == interval(grid, statistic, resamples=50)


@given(st.lists(number, min_size=3, max_size=3), number)
def test_interval_of_symmetric_scores_holds_the_estimate(half, middle):
    # 7 seeds mirrored about the middle, which is then both the IQM and the mean
    score = [middle, *(middle + x for x in half), *(middle - x for x in half)]
    for statistic in (iqm, mean):
        estimate = interval({"a": score}, statistic, resamples=400)
        assert estimate.value == pytest.approx(middle)
        assert estimate.low - 1e-9 <= middle <= estimate.high + 1e-9


@given(pairs)
def test_probabilities_of_improvement_add_up_to_one(pair):
    a, b = pair
    assert probability_of_improvement(a, b) + probability_of_improvement(b, a) == pytest.approx(1)
    assert probability_of_improvement(a, a) == 0.5


@given(pairs)
def test_probability_of_improvement_by_loops(pair):
    a, b = pair
    by_dataset = [np.mean([(x > y) + 0.5 * (x == y) for x in a[name] for y in b[name]]) for name in a]
    assert probability_of_improvement(a, b) == pytest.approx(np.mean(by_dataset))


@given(grids)
def test_profile_falls_from_one_to_zero(grid):
    profile = performance_profile(grid, [-126, *range(-100, 101, 20), 125], resamples=50)
    for curve in (profile.share, profile.low, profile.high):
        assert (curve[0], curve[-1]) == (1, 0)
        assert (np.diff(curve) <= 1e-12).all()
    assert (profile.low <= profile.high).all()


# ------------------------------------------------------------------------------------------------------ intervals


@pytest.mark.parametrize(("count", "least", "most"), [(3, 0.82, 0.94), (10, 0.9, 0.99)])
def test_coverage_is_what_the_docstring_says(count, least, most):
    # 0.88 with 3 seeds, 0.95 with 10; a share of 250 intervals has a standard error of 0.02
    rng = np.random.default_rng(0)
    centre = np.linspace(0, 100, 32)
    held = 0
    for _ in range(250):
        estimate = interval(rng.normal(centre[:, None], 10, (32, count)), iqm, resamples=300)
        held += estimate.low <= 50 <= estimate.high
    assert least < held / 250 < most


def test_the_same_seed_gives_the_same_interval():
    assert quick(OURS) == quick(OURS)
    assert quick(OURS)[1:3] != quick(OURS, seed=1)[1:3]
    assert compare(OURS, THEIRS, resamples=500) == compare(OURS, THEIRS, resamples=500)


@pytest.mark.parametrize("block", [1, 100, 12345])
def test_blocks_change_nothing(monkeypatch, block):
    ragged = {"a": [1.1, 2.2, 3.3, 9.9], "b": [5.5, 4.4], "c": [0.3, 0.1, 0.7]}
    other = {"a": [1.7, 2.6], "b": [5.2, 4.7, 6.1], "c": [0.3]}
    tau = [0, 1, 5]

    def everything():
        profile = performance_profile(ragged, tau, resamples=500)
        estimates = [interval(ragged, f, resamples=500) for f in (iqm, mean, median, optimality_gap)]
        return estimates, profile.low.tolist(), profile.high.tolist(), compare(ragged, other, resamples=500)

    whole = everything()
    monkeypatch.setattr(stats, "_BLOCK", block)
    assert everything() == whole


def test_more_confidence_is_wider_and_more_seeds_narrower():
    sure, unsure = quick(OURS, level=0.99), quick(OURS, level=0.5)
    assert sure.low < unsure.low < unsure.value < unsure.high < sure.high
    many = quick(np.tile(OURS, 4))
    assert many.high - many.low < 0.7 * (quick(OURS).high - quick(OURS).low)


def test_seed_counts_may_differ():
    estimate = quick({"a": [1, 2, 3, 4], "b": [10, 20, 30]}, mean)
    assert estimate.value == 11.25
    assert estimate.low < 11.25 < estimate.high
    assert (estimate.seeds, estimate.warning) == (3, None)


def test_a_setting_and_a_statistic_of_ones_own():
    assert quick(OURS, partial(optimality_gap, target=50)).value == optimality_gap(OURS, target=50)
    worst = quick(OURS, lambda pooled: pooled.dataset_means.min(axis=-1))
    assert worst.value == pytest.approx(OURS[3].mean())
    assert 0 <= worst.low <= worst.high <= 3.1


# ----------------------------------------------------------------------------------------------------- comparison


def test_comparison_over_datasets_by_hand():
    # differences of means: +2, 0, −1, +3, +4, +5, +6: without the zero the ranks of the only loss are {1} of 1 … 6, so
    # 2 · P(W ≤ 1) = 2 · 2 / 2⁶
    a = {f"d{i}": [10 + d, 12 + d, 11 + d] for i, d in enumerate((2, 0, -1, 3, 4, 5, 6))}
    b = {f"d{i}": [10, 12, 11] for i in range(7)}
    made = compare(a, b, resamples=500)
    assert (made.wins, made.ties, made.losses) == (5, 1, 1)
    assert made.p_value == pytest.approx(4 / 64)
    assert made.warning is None
    assert made.mean.value == pytest.approx(19 / 7)
    assert made.mean.low < 19 / 7 < made.mean.high
    near = compare(a, b, tie=2, resamples=10)
    assert (near.wins, near.ties, near.losses) == (4, 3, 0)


def test_a_method_against_itself_is_a_tie():
    made = compare(OURS, OURS, resamples=500)
    assert (made.iqm.value, made.mean.value, made.improvement.value) == (0, 0, 0.5)
    assert made.iqm.low < 0 < made.iqm.high  # the runs are independent: two repetitions would differ
    assert (made.wins, made.ties, made.losses, made.p_value) == (0, 7, 0, 1)


def test_equal_but_for_rounding_is_a_tie():
    assert 0.1 + 0.2 != 0.3
    made = compare({"a": [0.1, 0.2]}, {"a": [0.3, 0.0]}, resamples=10)
    assert (made.wins, made.ties, made.losses) == (0, 1, 0)


def test_the_two_methods_are_resampled_apart():
    # were seeds resampled together, the difference would be 1 in every resample
    made = compare(OURS + 1, OURS, resamples=500)
    assert made.mean.high - made.mean.low > 5


def test_order_of_datasets_does_not_matter_to_a_comparison():
    a = {"x": [1.0, 2, 3], "y": [4.0, 5, 7]}
    b = {"y": [1.0, 2, 2], "x": [3.0, 1, 0]}
    assert compare(a, b, resamples=50) == compare(dict(reversed(a.items())), b, resamples=50)
    assert compare(a, b, resamples=50).wins == 2


# ------------------------------------------------------------------------------------------------------- warnings


def test_one_seed_is_not_certainty():
    estimate = quick({"hopper": [50], "ant": [30]})
    assert estimate.low == estimate.high == estimate.value
    assert estimate.seeds == 1
    assert estimate.warning is not None
    assert "2 of 2 datasets (first: ant) have 1 seed" in estimate.warning
    assert "not certainty" in estimate.warning


def test_few_seeds_somewhere_are_told():
    grid = {"hopper": [50, 40], "ant": [30, 20, 10]}
    for warned in (quick(grid), performance_profile(grid, [25], resamples=10), compare(grid, grid, resamples=10).mean):
        assert warned.seeds == 2
        assert warned.warning == (
            "1 of 2 datasets (first: hopper) have 2 seeds: an interval from so few is not reliable. Train at least 3"
        )


def test_the_method_with_fewer_seeds_counts():
    made = compare({"a": [1, 2, 3]}, {"a": [1]}, resamples=10)
    assert {estimate.seeds for estimate in (made.iqm, made.mean, made.improvement)} == {1}
    assert made.mean.warning is not None


def test_missing_runs_that_tilt_a_difference_of_iqms_are_told():
    full = {"easy": [90, 91, 92, 93], "hard": [10, 11, 12, 13]}
    lucky = {"easy": [90, 91, 92, 93], "hard": [10, 11, 13]}
    made = compare(lucky, full, resamples=10)
    assert made.iqm.warning is not None
    assert "missing unevenly (first: easy)" in made.iqm.warning
    assert made.mean.warning is None
    half = {name: score[:3] for name, score in full.items()}
    assert compare(half, full, resamples=10).iqm.warning is None


def test_few_datasets_for_the_test_are_told():
    made = compare({"a": [1, 2, 3], "b": [2, 3, 4]}, {"a": [0, 1, 1], "b": [1, 1, 1]}, resamples=10)
    assert made.p_value == 0.5
    assert made.warning == "2 dataset means differ: with so few, the test's p-value can't be below 0.5"


# ------------------------------------------------------------------------------------------------------- refusals

EPISODES = "[Ss]eeds are the unit; average a run's episodes first"


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros((4, 3, 20)),
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        [[[1, 2], [3]], [[5], [7, 8]]],
        {"hopper": [[1, 2, 3], [4, 5, 6]]},
        {"hopper": [[1, 2, 3], [4, 5]]},
        [[1, 2, 3], [4, 5]],
    ],
)
def test_episodes_are_refused(scores):
    for use in (iqm, quick, partial(performance_profile, thresholds=[0]), partial(compare, {"hopper": [1, 2]})):
        with pytest.raises(BadInput, match=EPISODES):
            use(scores)


@pytest.mark.parametrize(
    ("scores", "say"),
    [
        (
            {"ant": [1, 2], "hopper": [1, np.nan, 3]},
            r"dataset hopper: score 1 of 3 \(counted from 0\) must be a finite number, got nan",
        ),
        ({"ant": [np.inf]}, r"dataset ant: score 0 of 1 .* got inf"),
        (np.array([[1, 2], [np.nan, 2]]), r"row 1: score 0 of 2 .* got nan"),
        ({"ant": []}, "dataset ant: there must be at least one score, got none; leave the dataset out"),
        ({}, "scores must have at least one dataset"),
        (np.zeros((0, 3)), "at least one dataset"),
        (np.zeros((3, 0)), "row 0: there must be at least one score"),
        ({"ant": 3.0}, r"dataset ant: must have axes \[seeds\], got 0"),
        ([1, 2, 3], r"scores: must have axes \[datasets, seeds\], got 1"),
        ({"ant": [1, None]}, "dataset ant: must be numbers"),
        ({"ant": ["1", "2"]}, "dataset ant: must be numbers"),
    ],
)
def test_unusable_scores_are_refused(scores, say):
    with pytest.raises(BadInput, match=say):
        pool(scores)


@pytest.mark.parametrize(
    ("settings", "say"),
    [
        ({"level": 95}, "level must be between 0 and 1, got 95"),
        ({"level": 0}, "level must be between 0 and 1, got 0"),
        ({"resamples": 0}, "resamples must be at least 1"),
        ({"seed": -1}, "seed at least 0, got 50000 and -1"),
    ],
)
def test_unusable_settings_are_refused(settings, say):
    with pytest.raises(BadInput, match=say):
        interval(OURS, **settings)


@pytest.mark.parametrize(
    "thresholds", [[], 5, [[1, 2]], [2, 1], np.array([2, 1], np.uint8), [0, np.nan], [np.nan], ["a"]]
)
def test_unusable_thresholds_are_refused(thresholds):
    with pytest.raises(BadInput, match="thresholds: give a list of numbers in ascending order"):
        performance_profile(OURS, thresholds)


def test_methods_on_other_datasets_are_not_compared():
    with pytest.raises(BadInput, match=r"only one has hopper \(1 such in all\)"):
        compare({"ant": [1]}, {"ant": [1], "hopper": [2]})
    with pytest.raises(BadInput, match="only one has row 2"):
        probability_of_improvement(np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(BadInput, match="tie is -1"):
        compare(OURS, THEIRS, tie=-1)


def test_importing_it_is_cheap():
    code = "import sys, winnow.stats; print([m for m in ('scipy', 'jax', 'pandas') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
