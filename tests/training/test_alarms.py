"""Each alarm rings for what it is for, once, and not before; and a real training raises, keeps and shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import quick_compiles, tiny, toy_dataset

from winnow.algorithms import BC, IQL, TD3BC
from winnow.data.arrays import from_arrays
from winnow.errors import BadInput
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.packs.tables import PROBE, split_rows
from winnow.samplers import Uniform
from winnow.training import train_runs
from winnow.training.alarms import Watch, greatest_value
from winnow.training.trained import Trained
from winnow.types import Algorithm
from winnow.weighters import Density, NoWeights

EVEN = {"weighter/loss": -1.0, "weight/ess": 0.5}


def watch(algorithm: Algorithm | None = None, rows: int = 200) -> Watch:
    data = toy_dataset(rows, action_bounds=(-1, 1))
    return Watch(Run(data, algorithm or IQL(reward_scaling="none"), Uniform(), NoWeights()), steps=1_000)


# -------------------------------------------------------------------------------------------------- the critic


def test_values_beyond_the_largest_reward_for_ever_are_an_alarm() -> None:
    made = watch()
    bound = float(np.abs(made.run.dataset.reward).max()) / 0.01
    assert greatest_value(made.run) == pytest.approx(bound)
    assert made.look(10, {"q/min": -bound, "q/max": bound, "q/mean": bound}) == []
    (text,) = made.look(20, {"q/min": 0.0, "q/max": 1.3 * bound, "q/mean": 1.2 * bound})
    assert "its critic diverges" in text
    assert f"{1.3 * bound:.4g}" in text
    assert made.look(30, {"q/min": -20 * bound, "q/max": 0.0, "q/mean": 0.0}) == []  # it was said
    (text,) = watch().look(5, {"q/min": -20 * bound, "q/max": 0.0, "q/mean": 0.0})
    assert "its critic diverges" in text


def test_a_critic_that_is_wrong_on_single_rows_does_not_diverge() -> None:
    made = watch()
    bound = greatest_value(made.run)
    (text,) = made.look(5, {"q/min": -1.2 * bound, "q/max": 0.0, "q/mean": -0.2 * bound})
    assert "its critic is wrong on single rows" in text
    assert f"{1.2 * bound:.4g}" in text
    (text,) = made.look(6, {"q/min": -2 * bound, "q/max": 0.0, "q/mean": -1.2 * bound})
    assert "its critic diverges" in text


def test_the_bound_is_on_the_scale_that_the_algorithm_reads() -> None:
    scaled, raw = watch(IQL()), watch()
    low, high = scaled.run.dataset.return_range
    assert greatest_value(scaled.run) == pytest.approx(1_000 / (high - low) * greatest_value(raw.run))
    assert greatest_value(watch(BC()).run) == np.inf  # nothing is discounted where nothing is valued


# ------------------------------------------------------------------------------------------------ memorising


def test_a_policy_that_memorises_is_an_alarm() -> None:
    made = watch()
    for step, (drawn, held) in enumerate([(3.0, 3.1), (2.0, 2.2), (1.8, 2.25), (1.5, 2.35)]):
        assert made.look(step, {"nll/drawn": drawn, "nll/held_out": held}) == []
    (text,) = made.look(9, {"nll/drawn": 1.0, "nll/held_out": 2.6})
    assert "memorises" in text
    assert "2.2 after 1 updates to 2.6" in text


def test_a_policy_that_gets_worse_on_all_rows_does_not_memorise() -> None:
    """As one does that turns to other rows than it was tried on."""
    made = watch()
    assert made.look(0, {"nll/drawn": 1.0, "nll/held_out": 1.0}) == []
    assert made.look(1, {"nll/drawn": 5.0, "nll/held_out": 5.0}) == []


def test_an_error_memorises_by_a_factor() -> None:
    made = watch(TD3BC())
    assert made.look(0, {"error/drawn": 0.10, "error/held_out": 0.11}) == []
    assert made.look(1, {"error/drawn": 0.07, "error/held_out": 0.12}) == []
    (text,) = made.look(2, {"error/drawn": 0.05, "error/held_out": 0.14})
    assert "squared error" in text


# --------------------------------------------------------------------------------------------------- weights


def test_weights_that_leave_hardly_any_row_are_an_alarm() -> None:
    (text,) = watch().look(1, EVEN | {"weight/ess": 0.01})
    assert "hardly any row: 1.0 %" in text


def test_weights_that_weigh_nothing_are_an_alarm_when_they_had_time() -> None:
    made = watch()
    assert made.look(100, EVEN | {"weight/ess": 0.99}) == []
    (text,) = made.look(300, EVEN | {"weight/ess": 0.99})
    assert "weigh nothing" in text


def test_a_weighter_that_learns_nothing_is_left_alone() -> None:
    assert watch().look(900, {"weight/ess": 1.0}) == []


# ----------------------------------------------------------------------------------------------- rows held out


def test_rows_that_are_held_out_are_never_drawn_and_are_a_part_of_every_kind() -> None:
    rng = np.random.default_rng(0)
    probability = rng.exponential(size=100_000)
    probability[rng.random(100_000) < 0.5] = 0
    probability /= probability.sum()
    here, rows = split_rows(probability, 0.01)
    held = (here == 0) & (probability > 0)
    assert here.sum() == pytest.approx(1)
    assert probability[held].sum() == pytest.approx(0.01, abs=0.002)
    drawn, unseen = rows[:PROBE], rows[PROBE:]
    assert (here[drawn] > 0).all()
    assert held[unseen].all()
    np.testing.assert_allclose(here[here > 0] / probability[here > 0], 1 / (1 - probability[held].sum()), rtol=1e-9)


@pytest.mark.parametrize(("count", "part"), [(100_000, 0.0), (1, 0.5), (3, 1e-9)])
def test_nothing_is_held_out_where_nothing_can_be(count: int, part: float) -> None:
    probability = np.full(count, 1 / count)
    here, rows = split_rows(probability, part)
    np.testing.assert_allclose(here, probability)
    assert rows.max() < count


def test_a_pack_never_draws_what_it_holds_out() -> None:
    """Rewards of these rows are NaN: one of them in a batch would spoil the losses."""
    data = toy_dataset(2_000, seed=3)
    here, _ = split_rows(np.full(2_000, 1 / 2_000), 0.05)
    rows = data.rows()
    reward = np.where(here == 0, np.nan, rows.reward)
    broken = from_arrays(rows.obs, rows.action, rows.reward, next_observations=rows.next_obs, kind="bag")
    broken.arenas[0].reward[broken.slot] = reward
    runs = [Run(broken, tiny(IQL, reward_scaling="none"), Uniform(), NoWeights())]
    with quick_compiles():
        for held_out, clean in ((0.05, True), (0.0, False)):
            pack = Pack(runs, 50, 256, held_out=held_out)
            pack.advance(50)
            assert np.isfinite(pack.end_chunk()["loss/critic"]).all() == clean


# ------------------------------------------------------------------------------------------------ in training


def overfitting() -> Run:
    """A hundred rows of noise, and a network that can hold them."""
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(120, 4)), rng.uniform(-0.9, 0.9, (120, 2))
    data = from_arrays(obs, action, rng.random(120), next_observations=obs, kind="bag", action_bounds=(-1, 1))
    return Run(data, BC(learning_rate=3e-3, hidden=(128, 128)), Uniform(), NoWeights(), name="noise")


def test_a_real_policy_that_memorises_is_named_kept_and_marked(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "runs"
    (one,) = train_runs([overfitting()], steps=600, chunk=100, batch_size=64, out=out, progress=False, held_out=0.2)
    assert any("memorises" in text for text in one.warnings)
    assert "noise: its policy memorises rows" in capsys.readouterr().err
    assert Trained.load(out / "noise.safetensors", one.run.dataset).warnings == one.warnings
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["nll/drawn"] < lines[0]["nll/drawn"]
    assert lines[-1]["nll/held_out"] > lines[0]["nll/held_out"]


def test_an_alarm_of_an_earlier_call_is_not_given_again(tmp_path: Path, capsys: Any) -> None:
    """The run stops after its alarm and goes on: the warning stays with it and is said once."""
    out = tmp_path / "runs"
    how: dict[str, Any] = {"chunk": 100, "batch_size": 64, "out": out, "progress": False, "held_out": 0.2}
    (whole,) = train_runs([overfitting()], steps=600, **how)
    capsys.readouterr()
    (again,) = train_runs([overfitting()], steps=600, resume=True, **how)
    assert again.warnings == whole.warnings
    assert "memorises" not in capsys.readouterr().err


def test_training_logs_values_and_likelihoods(tmp_path: Path) -> None:
    data = toy_dataset(300, action_bounds=(-1, 1))
    run = Run(data, tiny(IQL), Uniform(), tiny(Density))
    with quick_compiles():
        train_runs([run], steps=20, chunk=10, batch_size=16, out=tmp_path / "runs", progress=False)
    line = json.loads((tmp_path / "runs" / "metrics.jsonl").read_text().splitlines()[-1])
    for name in ("q", "v", "advantage"):
        assert line[f"{name}/min"] <= line[f"{name}/mean"] <= line[f"{name}/max"]
    assert {"nll/drawn", "nll/held_out"} <= set(line)


@pytest.mark.parametrize("part", [-0.1, 1.0, 2.0])
def test_a_part_that_can_not_be_held_out_is_refused(part: float) -> None:
    with pytest.raises(BadInput, match="held_out"):
        train_runs([overfitting()], steps=1, held_out=part, progress=False)
