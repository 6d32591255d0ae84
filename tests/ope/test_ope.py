"""Off-policy evaluation: exact values where they are known, splits, intervals, the command and its errors."""

from __future__ import annotations

import csv
import dataclasses
import json

import numpy as np
import pytest
from helpers.problems import tiny, toy_dataset

from winnow import toy
from winnow.algorithms import BC
from winnow.cli import main
from winnow.data import holdout, store
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset, combine
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.methods import method, resized
from winnow.ope import estimate, fqe, ranking, weighted_reward
from winnow.ope.fqe import FQE
from winnow.training import train_runs
from winnow.training.planning import plan
from winnow.weighters import Density, Dual

QUICK = FQE(steps=1_500, fits=2, batch_size=64, hidden=(32, 32), discount=0.9, learning_rate=3e-3)


# ----------------------------------------------------------------------------------------------- exact values


def chain(rows: int, seed: int, ends: bool):
    """Five states in a row, one-hot; a ≥ 0 moves right with 0.9, a < 0 left; the last state pays 1 (and ends, or not).

    Returns the data and the exact value of "always right" and "always left" in the first state, γ = 0.9.
    """
    rng = np.random.default_rng(seed)
    state, action = rng.integers(5, size=rows), rng.uniform(-1, 1, (rows, 1))
    step = np.where((action[:, 0] >= 0) == (rng.random(rows) < 0.9), 1, -1)
    following = np.clip(state + step, 0, 4)
    reward = (following == 4).astype(float)
    terminal = reward if ends else np.zeros(rows)
    eye = np.eye(5)
    data = from_arrays(eye[state], action, reward, terminal, 1 - terminal, eye[following], action_bounds=(-1, 1))
    exact = []
    for right in (0.9, 0.1):
        move = np.zeros((5, 5))
        for s in range(5):
            move[s, min(s + 1, 4)] += right
            move[s, max(s - 1, 0)] += 1 - right
        arrive = move[:, 4].copy()
        kept = move.copy()
        if ends:
            kept[:, 4] = 0
        exact.append(np.linalg.solve(np.eye(5) - 0.9 * kept, arrive)[0])
    return data, exact


@pytest.mark.parametrize("ends", [True, False], ids=["terminal", "no end"])
def test_fqe_finds_the_exact_value_of_a_chain(ends):
    data, exact = chain(3_000, 0, ends)
    policies = [lambda obs, a=a: np.full((len(obs), 1), a, np.float32) for a in (0.5, -0.5)]
    found = fqe.evaluate(data, np.eye(5)[:1].astype(np.float32), policies, QUICK)
    assert found[0].value.shape == (2, 1)
    np.testing.assert_allclose([one.value.mean() for one in found], exact, rtol=0.1, atol=0.05)
    assert all(abs(one.drift) < 0.1 for one in found)


def test_packed_policies_have_the_values_they_have_alone():
    data, _ = chain(300, 1, True)
    few = dataclasses.replace(QUICK, steps=30)
    policies = [lambda obs, a=a: np.full((len(obs), 1), a, np.float32) for a in (0.5, -0.5)]
    states = np.eye(5, dtype=np.float32)
    packed, alone = (fqe.evaluate(data, states, policies, few, block=size) for size in (2, 1))
    for one, other in zip(packed, alone, strict=True):
        np.testing.assert_allclose(one.value, other.value, atol=1e-5)


def test_pessimism_lowers_values_and_counts_updates():
    data, _ = chain(200, 2, True)
    policy = [lambda obs: np.full((len(obs), 1), 0.5, np.float32)]
    ticks: list[int] = []
    few = dataclasses.replace(QUICK, steps=300)
    plain = fqe.evaluate(data, np.eye(5, dtype=np.float32), policy, few, ticks.append)
    shy = fqe.evaluate(data, np.eye(5, dtype=np.float32), policy, dataclasses.replace(few, pessimism=4.0))
    assert shy[0].value.mean() < plain[0].value.mean()
    assert sum(ticks) == 300


def test_returns_to_go_and_bounds_match_a_loop():
    data = toy_dataset(rows=60, seed=3)
    rows, want = data.rows(), np.zeros(60)
    for start, length, ended in zip(data.episodes.start, data.episodes.length, data.episodes.terminated, strict=True):
        span = slice(start, start + length)
        value = 0.0 if ended else float(rows.reward[span].astype(float).mean()) / 0.1
        for row in reversed(range(start, start + length)):
            value = want[row] = float(rows.reward[row]) + 0.9 * value
    np.testing.assert_allclose(fqe.returns_to_go(data, 0.9), want, rtol=1e-6, atol=1e-9)
    low, high = fqe.bounds(data, dataclasses.replace(QUICK, clip="rewards"))
    assert (low, high) == pytest.approx((10 * rows.reward.min(), 10 * rows.reward.max()))
    inner = fqe.bounds(data, QUICK)
    assert low <= inner[0] <= min(want.min(), 0)
    assert max(want.max(), 0) <= inner[1] <= high


def test_resamples_are_whole_episodes_of_each_source():
    data = combine({"a": toy_dataset(rows=40, seed=0), "b": toy_dataset(rows=80, seed=1)})
    rows, size = fqe.resamples(data, 4, 0)
    assert rows.shape[0] == 4
    for drawn, count in zip(rows, size, strict=True):
        episodes, times = np.unique(data.episode[drawn[:count]], return_counts=True)
        copies = times / data.episodes.length[episodes]
        assert (copies == copies.round()).all()
        for source in (0, 1):
            inside = data.episodes.source[episodes] == source
            assert copies[inside].sum() == (data.episodes.source == source).sum()


# ------------------------------------------------------------------------------------------------------ split


def test_a_split_keeps_episodes_whole_sources_in_proportion_and_both_parts_known(tmp_path):
    data = combine({"bad": toy_dataset(rows=900, seed=0), "good": toy_dataset(rows=100, seed=1)}, name="mine")
    train, held = holdout.split(data, 0.2, seed=3)
    assert len(train) + len(held) == len(data)
    for source in (0, 1):
        all_of, some = ((part.episodes.source == source).sum() for part in (data, held))
        assert some == round(0.2 * all_of)
    # Evenly over returns: the held-out part's quantiles are close to those of all.
    spread = data.returns.std()
    assert abs(np.median(held.returns) - np.median(data.returns)) < 0.15 * spread
    holdout.write(train, held, tmp_path / "t.safetensors", tmp_path / "h.safetensors")
    found = holdout.held_out_of(open_dataset(tmp_path / "t.safetensors"))
    assert found is not None
    assert found.fingerprint == held.fingerprint
    assert holdout.join(train, held).returns.sum() == pytest.approx(data.returns.sum())
    store.save(train, tmp_path / "h.safetensors")
    with pytest.raises(BadInput, match="other rows"):
        holdout.held_out_of(open_dataset(tmp_path / "t.safetensors"))
    (tmp_path / "h.safetensors").unlink()
    with pytest.raises(BadInput, match="is gone"):
        holdout.held_out_of(open_dataset(tmp_path / "t.safetensors"))


def test_pieces_of_one_episode_stay_together():
    whole = toy_dataset(rows=400, seed=2)
    twice = whole.select(np.repeat(np.arange(len(whole.episodes)), 2))
    train, held = holdout.split(twice, 0.3)
    assert not set(train.episodes.origin) & set(held.episodes.origin)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(BadInput, match="share"):
        holdout.split(toy_dataset(), share)


def test_a_single_episode_can_not_be_split():
    with pytest.raises(BadInput, match="one part would be empty"):
        holdout.split(toy_dataset(rows=20, kind="continuing"), 0.5)


# ---------------------------------------------------------------------------------------------------- intervals


def test_draws_have_the_covariance_of_the_fits_and_the_spread_of_the_states():
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=20), rng.normal(size=(2, 20))
    by_fit = np.stack([5 + shared + 0.1 * own[0], 4 + shared + 0.1 * own[1]])
    values = np.repeat(by_fit[:, :, None], 8, axis=2)  # no spread over states
    drawn = ranking.draws(values, np.zeros(8, int), 0, count=40_000)
    wide = 19 / 17  # variance of a t distribution with 19 degrees of freedom
    np.testing.assert_allclose(drawn.mean(axis=0), by_fit.mean(axis=1), atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), wide * np.cov(by_fit), rtol=0.05)
    # What all runs share cancels in their difference: the better run is nearly always ahead.
    assert np.mean(drawn[:, 0] > drawn[:, 1]) > 0.99
    states = np.tile(rng.normal(size=200), (1, 1, 1))
    drawn = ranking.draws(states, np.zeros(200, int), 0, count=20_000)
    assert drawn.std() == pytest.approx(states.std() / np.sqrt(200), rel=0.05)


def test_methods_are_ordered_and_training_seeds_widen_their_intervals():
    centre = np.array([1.0, 3.0, 2.0, 2.2])
    drawn = np.broadcast_to(centre, (20_000, 4))
    table, found, notes = ranking.compare(["a", "a", "b", "b"], centre, drawn, 0, [None, 0.5, 1.0, None])
    assert [line.method for line in table] == ["b", "a"]
    assert [line.weighted for line in table] == [1.0, 0.5]
    assert not notes
    # Pooled variance (2 + 0.02) / 2 over 2 degrees of freedom, 2 runs each: t = 4.303.
    half = 4.303 * np.sqrt(1.01 / 2)
    assert table[0].value.high - table[0].value.value == pytest.approx(half, rel=0.05)
    assert sum(line.best for line in table) == pytest.approx(1)
    assert table[0].best == pytest.approx(np.mean(found[:, 0] > found[:, 1]))
    alone, _, notes = ranking.compare(["a", "b"], centre[:2], drawn[:, :2], 0, [None, None])
    assert alone[0].value.low == alone[0].value.high == 3.0
    assert "training seeds" in notes[0]


# ------------------------------------------------------------------------------------------------ trained runs


def dome() -> tuple[Dataset, Dataset]:
    bad, good = toy.make(toy.random, 1_500, 0), toy.make(toy.expert, 2_000, 1)
    return holdout.split(combine({"random": bad, "expert": good}, name="dome"), 0.3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Four finished runs on a split that lies in files: (folder, runs)."""
    place = tmp_path_factory.mktemp("ope")
    holdout.write(*dome(), place / "d.train.safetensors", place / "d.held-out.safetensors")
    data = open_dataset(place / "d.train.safetensors")
    runs = []
    for word in ("uniform", "pf", "dw-aw"):
        sampler, weighter = method(word, "bc")
        runs += plan(
            data, tiny(BC), word, sampler=sampler, weighter=resized(weighter, (16,)), seeds=1 if word == "dw-aw" else 2
        )
    return place, train_runs(runs, steps=300, batch_size=64, out=place / "runs", progress=False)


def test_the_weighted_reward_is_the_self_normalised_mean(trained):
    place, runs = trained
    held = open_dataset(place / "d.held-out.safetensors")
    plain, kept, learnt = (weighted_reward.weighted_reward(runs[i], held) for i in (0, 2, 4))
    assert plain is not None
    assert kept is not None
    assert learnt is not None
    assert plain.reward.value == pytest.approx(held.reward.mean(dtype=float))
    chosen = runs[2].run.sampler.probabilities(held)
    assert kept.reward.value == pytest.approx(float(chosen @ held.reward.astype(float)))
    assert kept.reward.low < kept.reward.value < kept.reward.high
    # The learnt ratio by hand: φ + ψ on rows scaled by the training data.
    run, state, rows = runs[4].run, runs[4].weighter_state, held.rows()
    mean, std = run.dataset.obs_moments

    def network(layers, x):
        hidden = np.maximum(x @ np.asarray(layers[0]["w"]) + np.asarray(layers[0]["b"]), 0)
        return (hidden @ np.asarray(layers[1]["w"]) + np.asarray(layers[1]["b"]))[:, 0]

    seen = (rows.obs - mean) / std
    phi = network(state.params["phi"], seen)
    psi = network(state.params["psi"], np.concatenate([seen, rows.action], axis=1))
    weight = run.sampler.probabilities(held) * np.exp(np.clip(phi, -1.2, 1.2) + np.clip(psi, -1.2, 1.2))
    assert learnt.reward.value == pytest.approx(float(weight @ rows.reward / weight.sum()), rel=1e-4)


def test_weights_that_belong_to_training_rows_have_no_held_out_reward(trained):
    place, runs = trained
    held = open_dataset(place / "d.held-out.safetensors")
    bound = dataclasses.replace(runs[4].run, weighter=Dual(average="trajectory", hidden=(8,)))
    assert weighted_reward.weighted_reward(dataclasses.replace(runs[4], run=bound), held) is None
    assert isinstance(runs[4].run.weighter, Density)


def test_the_data_own_return_is_the_mean_of_its_episodes():
    held = toy.make(toy.random, 300, 5)
    want = [
        sum(0.9**t * r for t, r in enumerate(held.reward[s : s + n].astype(float)))
        for s, n in zip(held.episodes.start, held.episodes.length, strict=True)
    ]
    found = weighted_reward.own_return(held, 0.9, 0)
    assert found is not None
    assert found.value == pytest.approx(np.mean(want))
    error = np.std(want) / np.sqrt(len(want))
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert weighted_reward.own_return(held.describe(return_range=(0.0, 1.0)), 0.9, 0) is None


FAST = ["--fqe.steps", "200", "--fqe.fits", "2", "--fqe.hidden", "8", "--fqe.batch-size", "32"]


def test_the_command_ranks_methods_and_writes_json_and_csv(trained, tmp_path, capsys):
    place, runs = trained
    assert main(["ope", str(place / "runs"), "--json", "--fit", "both", *FAST]) == 0
    (said,) = json.loads(capsys.readouterr().out)["estimates"]
    assert [one["runs"] for one in said["methods"]].count(2) == 2
    assert {one["run"] for one in said["runs"]} == {one.run.name for one in runs}
    assert said["held_out"]["seen_in_training"] is False
    assert said["fit"] == "both"
    assert sum(one["best"] for one in said["methods"]) == pytest.approx(1)
    one_run = str(place / "runs" / f"{runs[0].run.name}.safetensors")
    out = tmp_path / "table.csv"
    assert main(["ope", one_run, "--held-out", "0.3", "--each", "--out", str(out), *FAST]) == 0
    shown = capsys.readouterr().out
    assert "part of the training data" in shown
    assert "Not covered" in shown
    lines = list(csv.DictReader(out.read_text().splitlines()))
    assert [line["level"] for line in lines] == ["method", "run"]
    assert float(lines[1]["low"]) <= float(lines[1]["value"]) <= float(lines[1]["high"])


def test_bad_input_is_refused_before_anything_starts(trained, tmp_path, capsys):
    place, runs = trained
    run = str(place / "runs" / f"{runs[0].run.name}.safetensors")
    store.save(toy_dataset(), tmp_path / "other.safetensors")
    alone = toy.make(toy.random, 200, 9, "alone")
    store.save(alone, tmp_path / "alone.safetensors")
    loose = train_runs(plan(alone, tiny(BC), "uniform"), steps=1, out=tmp_path / "loose", progress=False)
    filed = open_dataset(tmp_path / "alone.safetensors")
    train_runs(plan(filed, tiny(BC), "uniform"), steps=1, out=tmp_path / "filed", progress=False)
    without = str(tmp_path / "loose" / f"{loose[0].run.name}.safetensors")
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = [
        ([run, "--held-out", str(tmp_path / "other.safetensors")], "obs_dim is 4, and 3"),
        ([run, "--held-out", str(place / "d.train.safetensors")], "is what the run was trained on"),
        ([run, "--held-out", "1.5"], "share"),
        ([run, "--out", "x.txt"], ".json or .csv"),
        ([run, "--fqe.discount", "1"], "discount"),
        ([run, "--fqe.pessimism", "1", "--fqe.members", "1"], "at least 2 fqe.members"),
        ([without], "never in a file"),
        ([str(tmp_path / "filed")], "nothing was held out"),
        ([str(empty)], "no finished run"),
        ([str(tmp_path / "gone.safetensors")], "no such file"),
        ([str(tmp_path / "other.safetensors")], "winnow"),
        ([], "name at least one"),
    ]
    for words, reason in cases:
        assert main(["ope", *words, *FAST]) == 2, words
        assert reason in capsys.readouterr().err, words
    none = open_dataset(place / "d.held-out.safetensors").select(np.zeros(0, int))
    with pytest.raises(BadInput, match="held-out set is empty"):
        estimate.judge(runs, none)


def test_split_by_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store.save(toy.make(toy.random, 500, 0, "mine"), tmp_path / "mine.safetensors")
    assert main(["data", "split", "mine.safetensors", "--share", "0.25"]) == 0
    train, held = open_dataset("mine.train.safetensors"), open_dataset("mine.held-out.safetensors")
    assert len(held.episodes) == round(0.25 * len(toy.make(toy.random, 500, 0).episodes))
    found = holdout.held_out_of(train)
    assert found is not None
    assert found.fingerprint == held.fingerprint
    capsys.readouterr()
    for words in (["mine.safetensors", "--train", "mine.safetensors"], ["mine.safetensors", "--share", "2"]):
        assert main(["data", "split", *words]) == 2
    same = ["mine.safetensors", "--train", "a.safetensors", "--held-out", "a.safetensors"]
    assert main(["data", "split", *same]) == 2
    assert "same file" in capsys.readouterr().err
