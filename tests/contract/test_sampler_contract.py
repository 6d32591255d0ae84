"""What every registered sampler keeps to, the numbers of each worked out apart, and drawing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import toy_dataset
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

from winnow.algorithms import BC
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.packs.run import Run
from winnow.packs.tables import draw, lay_out
from winnow.samplers import AW, PF, RW, SAMPLERS, Alias, Sampler, Uniform, alias_table
from winnow.weighters import NoWeights

BY_RETURN = [name for name in SAMPLERS if name not in ("uniform", "odpr-a")]


def episodes(*rewards: list[float], start: list[float] | None = None) -> Dataset:
    """Terminal episodes with these rewards; the first observation of each as given, all others 0."""
    length = np.array([len(part) for part in rewards], int)
    end = np.cumsum(length) - 1
    terminal = np.isin(np.arange(length.sum()), end)
    obs = np.zeros((int(length.sum()), 1))
    obs[end - length + 1, 0] = start or [0.0] * len(rewards)
    return from_arrays(obs, np.zeros_like(obs), np.concatenate(rewards), terminal, np.zeros_like(terminal))


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("rows", [1, 7, 200])
def test_probabilities_are_a_distribution_over_rows(name: str, rows: int) -> None:
    probability = SAMPLERS[name]().probabilities(toy_dataset(rows))
    assert probability.shape == (rows,)
    assert probability.dtype == np.float64
    assert (probability >= 0).all()
    assert probability.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", BY_RETURN)
def test_rows_of_an_episode_are_drawn_alike(name: str) -> None:
    data = toy_dataset(200)
    probability = SAMPLERS[name]().probabilities(data)
    np.testing.assert_array_equal(probability, probability[data.episodes.start][data.episode])


@pytest.mark.parametrize("name", BY_RETURN)
@pytest.mark.parametrize("kind", ["continuing", "bag"])
def test_data_without_episodes_is_refused_with_what_to_use_instead(name: str, kind: str) -> None:
    data = toy_dataset(kind=kind, name="plant")
    with pytest.raises(BadInput, match=rf"plant: is {kind} data, and {name} needs .* use .*dual-uniform.* or uniform"):
        SAMPLERS[name]().probabilities(data)


@pytest.mark.parametrize("kind", ["continuing", "bag"])
def test_uniform_takes_data_without_episodes(kind: str) -> None:
    np.testing.assert_allclose(Uniform().probabilities(toy_dataset(kind=kind)), 1 / 40)


# ------------------------------------------------------------------------------------------------ by hand


def test_rw_on_numbers_worked_out_by_hand() -> None:
    """Returns 3, 1, 2 become 1, 0, ½; with η = ½ their rows weigh e², 1, e."""
    data = episodes([1, 1, 1], [1], [0, 2])
    weight = np.array([np.e**2] * 3 + [1] + [np.e] * 2)
    np.testing.assert_allclose(RW(temperature=0.5).probabilities(data), weight / weight.sum(), rtol=1e-12)


def test_aw_on_numbers_worked_out_by_hand() -> None:
    """Returns 0, 2, 4, 2 from starts 0, 1, 2, 3: V(s) = 0.8 + 0.8 s, so A = −0.8, 0.4, 1.6, −1.2, and A scaled is
    1/7, 4/7, 1, 0."""
    data = episodes([0], [1, 1], [4, 0, 0], [2], start=[0, 1, 2, 3])
    weight = np.exp(np.repeat([1 / 7, 4 / 7, 1, 0], [1, 2, 3, 1]) / 0.2)
    np.testing.assert_allclose(AW(temperature=0.2).probabilities(data), weight / weight.sum(), rtol=1e-9)


@pytest.mark.parametrize(
    "data",
    [
        episodes([1], [3, 0], [7, 0, 0], [5], start=[0, 1, 3, 2]),
        episodes([1, 1], [2], [0, 2, 0], start=[0, 1, 7]),
        toy_dataset(6, longest=3),
    ],
    ids=["linear-returns", "equal-returns", "fewer-episodes-than-columns"],
)
def test_aw_sees_no_advantage_where_the_start_explains_the_return(data: Dataset) -> None:
    """What is left of the returns is rounding, which must not be stretched to [0, 1]."""
    np.testing.assert_allclose(AW().probabilities(data), 1 / len(data))


def test_a_low_temperature_does_not_overflow() -> None:
    probability = RW(temperature=1e-4).probabilities(episodes([0], [1, 1], [5]))
    np.testing.assert_allclose(probability, [0, 0, 0, 1], atol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("kind", [AW, RW])
def test_a_temperature_that_is_not_positive_is_refused(kind: type, temperature: float) -> None:
    with pytest.raises(BadInput, match=r"sampler\.temperature"):
        kind(temperature=temperature).probabilities(toy_dataset())


@pytest.mark.parametrize(
    ("share", "kept"),
    [(0.5, [0, 1, 1, 1, 0, 0]), (0.3, [0, 1, 1, 0, 0, 0]), (0.01, [0, 1, 1, 0, 0, 0]), (1.0, [1, 1, 1, 1, 1, 1])],
)
def test_pf_keeps_the_rows_of_the_best_episodes(share: float, kept: list[int]) -> None:
    """Returns 1, 6, 3, 2: ⌊share · 4⌋ of them and at least one."""
    data = episodes([1], [5, 1], [3], [1, 1])
    np.testing.assert_allclose(PF(share).probabilities(data), np.array(kept) / sum(kept))


def test_pf_breaks_a_tie_for_the_earlier_episode() -> None:
    np.testing.assert_allclose(PF(0.5).probabilities(episodes([1], [2], [0], [2], [2])), [0, 0.5, 0, 0.5, 0])


@pytest.mark.parametrize(("share", "count", "kept"), [(0.1, 30, 3), (0.29, 100, 29), (0.58, 100, 58), (0.7, 10, 7)])
def test_pf_keeps_as_many_episodes_as_the_share_says(share: float, count: int, kept: int) -> None:
    data = episodes(*[[float(number)] for number in range(count)])
    assert np.count_nonzero(PF(share).probabilities(data)) == kept


@pytest.mark.parametrize("share", [0.0, 1.5, -0.1])
def test_pf_refuses_a_share_that_is_none(share: float) -> None:
    with pytest.raises(BadInput, match=r"sampler\.share"):
        PF(share).probabilities(toy_dataset())


# --------------------------------------------------------------------------------------------- alias table


def implied(table: Alias) -> np.ndarray:
    """The probability of every row when columns are taken at random and kept as the table says."""
    keep = table.keep.astype(np.float64)
    probability = keep.copy()
    np.add.at(probability, table.other, 1 - keep)
    return probability / len(keep)


def assert_table_holds(probability: np.ndarray) -> None:
    table = alias_table(probability)
    assert ((table.other >= 0) & (table.other < len(probability))).all()
    assert ((table.keep >= 0) & (table.keep <= 1)).all()
    np.testing.assert_allclose(implied(table), probability / probability.sum(), rtol=1e-6, atol=1e-30)
    assert (implied(table)[probability == 0] == 0).all()


masses = st.floats(1e-6, 1.0) | st.just(0.0) | st.just(1.0)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(arrays(np.float64, st.integers(1, 24), elements=masses).filter(np.any))
@example(np.array([1.0]))
@example(np.ones(7))
@example(np.array([0.0, 0.0, 1.0]))
@example(np.array([1e-12] * 20 + [1.0]))
@example(np.array([0.0] * 15 + [1.0] * 5))
@example(np.array([1.0, 0.4, 1.6, 1.0]))
def test_an_alias_table_holds_any_probabilities(probability: np.ndarray) -> None:
    """Also where a row has exactly the mean mass, which neither lends nor borrows."""
    assert_table_holds(probability)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.1, 1.0, 5.0]))
def test_an_alias_table_holds_boltzmann_probabilities(rows: int, seed: int, temperature: float) -> None:
    assert_table_holds(np.exp((np.random.default_rng(seed).random(rows) - 1) / temperature))


def test_an_alias_table_holds_uniform_probabilities_of_any_length() -> None:
    """n · 1/n may round to less than 1 for every row, so that no row has anything to lend."""
    for rows in [*range(1, 400), 50_000, 999_999, 1_000_000]:
        assert_table_holds(np.full(rows, 1 / rows))


def test_an_alias_table_of_a_million_rows_holds() -> None:
    probability = np.random.default_rng(0).exponential(size=1_000_000) ** 3
    probability[:100_000] = 0
    assert_table_holds(probability)


# ------------------------------------------------------------------------------------------------- drawing


@pytest.mark.parametrize("sampler", [Uniform(), AW(1.0), RW(0.5), PF(0.3)], ids=["uniform", "aw", "rw", "pf"])
def test_draws_match_the_probabilities(sampler: Sampler) -> None:
    """The second lane of a pack, so that its tables do not begin at 0."""
    data = toy_dataset(30, longest=5)
    runs = [Run(toy_dataset(50, seed=1), BC(), Uniform(), NoWeights()), Run(data, BC(), sampler, NoWeights())]
    tables, lanes = lay_out(runs, with_episodes=False)
    lane = jax.tree.map(lambda leaf: leaf[1], lanes)
    batch = draw(tables, lane, jax.random.key(5), 60_000, jnp.zeros((), int), jnp.zeros(()))
    count = np.bincount(np.asarray(batch.row), minlength=30)
    expected = 60_000 * sampler.probabilities(data)
    assert len(count) == 30
    assert (count[expected == 0] == 0).all()
    drawn = expected > 0
    assert chisquare(count[drawn], expected[drawn]).pvalue > 1e-3
    starts = data.start_obs
    which = (np.asarray(batch.start_obs)[:, None] == starts).all(axis=-1)
    assert chisquare(which.sum(axis=0)).pvalue > 1e-3
