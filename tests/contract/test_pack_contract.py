"""Many runs as one program: what a run in a pack may rely on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import assert_same, is_discrete, quick_compiles, tiny, toy_dataset

from winnow.algorithms import ALGORITHMS, BC, CQL, IQL
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.data.recipes import diverse, mixed
from winnow.packs.pack import Pack
from winnow.packs.run import Run, packs
from winnow.packs.tables import gather, lay_out
from winnow.samplers import AW, PF, Uniform
from winnow.weighters import WEIGHTERS, Density, Dual, Fixed, NoWeights

STEPS, BATCH = 7, 8


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


def sources_and_mixtures(choices: int = 0) -> tuple[Dataset, Dataset, Dataset, Dataset]:
    low = toy_dataset(320, seed=1, longest=60, choices=choices)
    high = toy_dataset(200, seed=2, longest=60, choices=choices)
    return low, high, mixed(low, high, 0.2, rows=120), diverse(low, high, 0.3, rows=150, seed=3)


LOW, HIGH, MIXED, DIVERSE = sources_and_mixtures()
CHOOSING = sources_and_mixtures(choices=3)[2:]

pairs = pytest.mark.parametrize("weighter", ["none", "density", "dual"])
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def three_runs(algorithm: str, weighter: str) -> list[Run]:
    """Runs that differ in all that a pack allows. The last one's learning rate makes it blow up."""
    learner, weigher = tiny(ALGORITHMS[algorithm], hidden=()), tiny(WEIGHTERS[weighter])
    weigher = dataclasses.replace(weigher, hidden=()) if hasattr(weigher, "hidden") else weigher
    episodes, segments = CHOOSING if is_discrete(learner) else (MIXED, DIVERSE)
    return [
        Run(segments, learner, Uniform(), weigher, seed=0),
        Run(episodes, dataclasses.replace(learner, learning_rate=1e-3), AW(1.0), weigher, seed=5),
        Run(segments, dataclasses.replace(learner, learning_rate=1e30), PF(0.5), weigher, seed=2),
    ]


def trained(runs: list[Run], *counts: int) -> Pack:
    pack = Pack(runs, STEPS, BATCH, block=len(runs))
    for count in counts:
        pack.advance(count)
    return pack


@every_algorithm
@pairs
def test_a_run_in_a_pack_equals_the_run_alone(algorithm: str, weighter: str) -> None:
    """One of its neighbours has other rows in the same arenas, the other one blows up."""
    runs = three_runs(algorithm, weighter)
    together, alone = trained(runs, STEPS).lane(1)[1], trained(runs[1:2], STEPS).lane(0)[1]
    assert_same(together, alone, rtol=1e-3, atol=1e-5)


@every_algorithm
@pairs
def test_steps_in_parts_equal_steps_at_once_bit_for_bit(algorithm: str, weighter: str) -> None:
    runs = three_runs(algorithm, weighter)
    for group in (runs, runs[1:2]):
        assert_same(trained(group, 2, 1, STEPS - 3).learners, trained(group, STEPS).learners)


def test_a_neighbour_that_blows_up_does() -> None:
    """Or else the runs above would have proved nothing."""
    *_, learner = trained(three_runs("iql", "none"), STEPS).lane(2)
    assert not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learner.algorithm))


def test_runs_of_a_pack_differ_by_seed_alone() -> None:
    run = three_runs("bc", "none")[0]
    pack = trained([run, dataclasses.replace(run, seed=1), run], STEPS)
    first, second, again = (pack.lane(number)[1] for number in range(3))
    assert_same(first, again)
    assert not np.array_equal(first.algorithm.params["actor"]["log_std"], second.algorithm.params["actor"]["log_std"])


# ------------------------------------------------------------------------------------------------ grouping


def test_float_settings_datasets_seeds_and_samplers_pack_together() -> None:
    base = Run(LOW, IQL(), Uniform(), Dual())
    others = [
        dataclasses.replace(base, algorithm=IQL(expectile=0.9, beta=10.0, learning_rate=1e-4)),
        dataclasses.replace(base, weighter=Dual(budget=0.5, discount=0.9)),
        dataclasses.replace(base, dataset=MIXED, seed=4),
        dataclasses.replace(base, dataset=DIVERSE, sampler=AW()),
    ]
    assert packs([base, *others]) == [[base, *others]]
    assert packs([base, *others], largest=2) == [[base, others[0]], others[1:3], others[3:]]


@pytest.mark.parametrize(
    "other",
    [
        {"algorithm": IQL(hidden=(8,))},
        {"algorithm": IQL(dropout=0.1)},
        {"algorithm": IQL(standardise=True)},
        {"algorithm": CQL()},
        {"weighter": Dual(terminal="mask")},
        {"weighter": Dual(control="temperature")},
        {"weighter": Density()},
        {"dataset": from_arrays(np.zeros((3, 5)), np.zeros((3, 2)), np.zeros(3), kind="continuing")},
    ],
    ids=lambda change: "-".join(change),
)
def test_static_settings_and_sizes_keep_runs_apart(other: dict[str, Any]) -> None:
    base = Run(LOW, IQL(), Uniform(), Dual())
    changed = dataclasses.replace(base, **other)
    assert packs([base, changed, base]) == [[base, base], [changed]]


# --------------------------------------------------------------------------------------------------- rows


def three_episodes() -> Dataset:
    """5 steps to a terminal, 1 step to a timeout, 3 steps to a terminal; every number tells its place."""
    end = np.array([0, 0, 0, 0, 1, 1, 0, 0, 1], bool)
    timeout = np.arange(9) == 5
    obs = np.arange(27.0).reshape(9, 3)
    following = np.where(end[:, None], 100 + obs, np.roll(obs, -1, axis=0))
    action = np.linspace(-2, 3, 18).reshape(9, 2)
    return from_arrays(
        obs, action, np.arange(9.0), end & ~timeout, timeout, following, action_bounds=([-2] * 2, [3] * 2)
    )


@pytest.fixture(scope="module")
def gathered() -> dict[str, tuple[Dataset, Any]]:
    """Every row of datasets that share a layout, as a run's program sees it."""
    data = {
        "three": three_episodes(),
        "diverse": DIVERSE,
        "mixed": MIXED,
        "low": LOW,
        "continuing": toy_dataset(kind="continuing", seed=5),
        "bag": toy_dataset(kind="bag", seed=6),
    }
    runs = [Run(part, BC(), Uniform(), NoWeights()) for part in data.values()]
    tables, lanes = lay_out(runs, with_episodes=True)

    def look(number: int, rows: int) -> Any:
        lane = jax.tree.map(lambda leaf: leaf[number], lanes)
        row = jnp.arange(rows)
        start = row % lane.starts
        return gather(tables, lane, row, start, jnp.zeros((), int), jnp.zeros(())), tables.episode[lane.first_row + row]

    return {name: (part, look(number, len(part))) for number, (name, part) in enumerate(data.items())}


@pytest.mark.parametrize("name", ["three", "diverse", "mixed", "low", "continuing", "bag"])
def test_rows_stay_aligned(name: str, gathered: dict[str, tuple[Dataset, Any]]) -> None:
    data, (batch, episode) = gathered[name]
    rows = data.rows()
    low, high = np.asarray(data.meta.action_low), np.asarray(data.meta.action_high)
    np.testing.assert_array_equal(batch.obs, rows.obs)
    np.testing.assert_array_equal(batch.next_obs, rows.next_obs)
    np.testing.assert_array_equal(batch.reward, rows.reward)
    np.testing.assert_array_equal(batch.terminal, rows.terminal)
    np.testing.assert_array_equal(episode, data.episode)
    np.testing.assert_allclose(low + (batch.action + 1) * (high - low) / 2, rows.action, atol=1e-6)
    span = rows.reward.max() - rows.reward.min()
    np.testing.assert_allclose(batch.unit_reward, (rows.reward - rows.reward.min()) / span, atol=1e-6)
    starts = data.start_obs if data.has_episodes else rows.obs
    np.testing.assert_array_equal(batch.start_obs, starts[np.arange(len(data)) % len(starts)])


def test_three_episodes_read_as_they_were_given(gathered: dict[str, tuple[Dataset, Any]]) -> None:
    """A timeout keeps its recorded final observation and is no terminal."""
    _, (batch, episode) = gathered["three"]
    np.testing.assert_array_equal(batch.obs[:, 0], 3 * np.arange(9))
    np.testing.assert_array_equal(batch.next_obs[:, 0], [3, 6, 9, 12, 112, 115, 21, 24, 124])
    np.testing.assert_array_equal(batch.terminal, [0, 0, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(episode, [0, 0, 0, 0, 0, 1, 2, 2, 2])
    np.testing.assert_array_equal(batch.start_obs[:3, 0], [0, 15, 18])
    np.testing.assert_allclose(batch.action[[0, 8], [0, 1]], [-1, 1])


def test_segments_hold_consecutive_steps_of_their_source(gathered: dict[str, tuple[Dataset, Any]]) -> None:
    """Rows of `diverse` are found in the episode they say they were cut from, and only a true end is terminal."""
    data, (batch, _) = gathered["diverse"]
    sources = [LOW, HIGH]
    for row in range(len(data)):
        source, origin = sources[data.source[row]], data.episodes.origin[data.episode[row]]
        at = source.episodes.start[origin] + data.step[row]
        there = source.rows(np.array([at]))
        np.testing.assert_array_equal(batch.obs[row], there.obs[0])
        np.testing.assert_array_equal(batch.next_obs[row], there.next_obs[0])
        assert batch.terminal[row] == there.terminal[0]


def test_arenas_that_runs_share_are_laid_once() -> None:
    runs = [Run(data, BC(), Uniform(), NoWeights()) for data in (LOW, MIXED, DIVERSE, HIGH, MIXED)]
    tables, _ = lay_out(runs, with_episodes=False)
    assert len(tables.obs) == LOW.arenas[0].slots + HIGH.arenas[0].slots
    assert len(tables.slot) == len(tables.keep) == len(LOW) + len(MIXED) + len(DIVERSE) + len(HIGH)


# ----------------------------------------------------------------------------------------------- weighters


def test_a_pack_refreshes_the_weights_of_every_lane_over_its_own_episodes() -> None:
    """The datasets differ in size, so the smaller one is padded."""
    by_row, averaged = Dual(hidden=(8,)), Dual(hidden=(8,), average="trajectory")
    data = [toy_dataset(40), toy_dataset(25, seed=4)]
    pack = Pack([Run(part, tiny(BC), Uniform(), averaged) for part in data], STEPS, BATCH)
    pack.advance(3)
    pack.end_chunk()
    for number, part in enumerate(data):
        _, learner = pack.lane(number)
        alone = Pack([Run(part, tiny(BC), Uniform(), by_row)], STEPS, BATCH)
        state = learner.weighter._replace(table=jnp.zeros(0))
        alone.learners = alone.learners._replace(weighter=jax.tree.map(lambda leaf: leaf[None], state))
        score = alone.log_weights(0)
        mean = np.bincount(part.episode, score) / np.bincount(part.episode)
        np.testing.assert_allclose(pack.log_weights(number), mean[part.episode], rtol=1e-4, atol=1e-5)


def test_fixed_weights_are_read_anew_for_every_pack(tmp_path: Path) -> None:
    """The file may have been written again since a pack last read it."""
    path = tmp_path / "weight.npy"

    def learnt_from(weight: np.ndarray) -> np.ndarray:
        np.save(path, weight)
        return Pack([Run(LOW, tiny(BC), Uniform(), Fixed(path=str(path)))], STEPS, BATCH).log_weights(0)

    rising = np.arange(1.0, 1 + len(LOW))
    np.testing.assert_allclose(learnt_from(rising), np.log(rising), rtol=1e-5)
    np.testing.assert_allclose(learnt_from(rising[::-1]), np.log(rising[::-1]), rtol=1e-5)


def test_metrics_are_means_since_the_last_report() -> None:
    runs = three_runs("bc", "none")[:1]
    whole, first, second = (trained(runs), trained(runs), trained(runs))
    whole.advance(6)
    first.advance(2)
    second.advance(2)
    second.end_chunk()
    second.advance(4)
    total = 6 * whole.end_chunk()["loss/actor"]
    np.testing.assert_allclose(
        2 * first.end_chunk()["loss/actor"] + 4 * second.end_chunk()["loss/actor"], total, rtol=1e-5
    )


def test_lanes_one_by_one_equal_lanes_together() -> None:
    """What a CPU does, against what an accelerator does."""
    runs = [Run(data, tiny(IQL), Uniform(), tiny(Dual), seed) for seed, data in enumerate((LOW, HIGH, LOW))]
    packed = {block: Pack(runs, STEPS, BATCH, block=block) for block in (1, 2, 3)}
    for pack in packed.values():
        pack.advance(STEPS)
    for block in (1, 2):
        assert_same(packed[block].learners, packed[3].learners, rtol=1e-3, atol=1e-5)
