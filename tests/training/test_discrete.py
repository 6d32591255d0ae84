"""Discrete actions from a dataset by its name to a policy that plays: training, evaluation, estimates, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import quick_compiles

import winnow
from winnow.cli import main
from winnow.data.catalogue import open_named
from winnow.data.dataset import Dataset
from winnow.data.store import save
from winnow.errors import BadInput
from winnow.evaluation.play import evaluate
from winnow.methods import make_algorithm, resized
from winnow.policy import Policy
from winnow.training import train_runs
from winnow.training.planning import plan

STEPS = 300


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINNOW_DATA", str(tmp_path_factory.mktemp("data")))
        made = open_named("cartpole-random-expert-50%@1200", make=True, processes=1)
        return dataclasses.replace(made.compact(), meta=dataclasses.replace(made.meta, name="cartpole"))


def test_a_set_by_name_is_of_choices(cartpole: Dataset) -> None:
    assert (cartpole.action_kind, cartpole.action_dim, cartpole.meta.environment) == ("discrete", 2, "cartpole")
    expert = cartpole.returns[cartpole.episodes.source == 1].mean()
    assert expert > 5 * cartpole.returns[cartpole.episodes.source == 0].mean()


@pytest.fixture(scope="module")
def runs(cartpole: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CQL with the expert's rows alone."""
    folder = tmp_path_factory.mktemp("runs")
    learner: Any = resized(make_algorithm("cql", cartpole), (32,))
    learner = dataclasses.replace(learner, learning_rate=1e-2)
    with quick_compiles():
        train_runs(
            plan(cartpole, learner, "best-source"), steps=STEPS, batch_size=32, chunk=STEPS, out=folder, progress=False
        )
    return folder


def test_a_policy_that_clones_the_expert_balances(runs: Path) -> None:
    file = runs / "cartpole.discrete-cql.best-source.seed0.safetensors"
    policy = Policy.load(file)
    choice = policy(np.zeros((3, 4)))
    assert choice.dtype == np.int64
    np.testing.assert_array_equal(choice, policy.scores(np.zeros((3, 4))).argmax(axis=1))
    (played,) = evaluate(file, episodes=4, processes=1)
    assert np.mean(played.returns) > 60  # three times random
    assert played.score is not None


def test_what_is_for_continuous_actions_is_refused(cartpole: Dataset, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(BadInput, match="cartpole: has discrete actions, and CQL is for continuous ones"):
        winnow.Run(cartpole, winnow.CQL(), winnow.Uniform(), winnow.NoWeights())
    save(cartpole, tmp_path / "cartpole.safetensors")
    words = ["train", str(tmp_path / "cartpole.safetensors"), "--out", str(tmp_path / "runs"), "--steps", "10"]
    assert main([*words, "--algorithm", "td3bc"]) == 2
    assert "which td3bc can't take; choose one of bc, iql, cql" in capsys.readouterr().err
    assert main([*words, "--algorithm", "cql", "--algorithm.samples", "4"]) == 2
    assert "discrete-cql has no setting 'samples'" in capsys.readouterr().err
