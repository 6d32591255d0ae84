"""Soft actor-critic and the training of behaviour policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winnow import collect, envs
from winnow.collect import behaviour
from winnow.collect import sac as sac_
from winnow.collect.learner import unpack
from winnow.collect.sac import SAC, SACState, Transitions
from winnow.collect.trainer import Trainer
from winnow.errors import BadInput
from winnow.nets import squashed_mean, squashed_sample
from winnow.system import checkpoint

TINY = SAC(hidden=(16, 16), learning_rate=1e-3)
STEP = jax.jit(sac_.update)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs, "TABLE", dict(envs.TABLE))
    envs.register("pendulum", "Pendulum-v1", 200)
    envs.register("brief", "Pendulum-v1", 7)


# ------------------------------------------------------------------------------------------------ the update


def batch(seed: int = 0, rows: int = 64, obs_dim: int = 5, action_dim: int = 3, **given: Any) -> Transitions:
    rng = np.random.default_rng(seed)
    made = {
        "obs": rng.normal(size=(rows, obs_dim)),
        "action": rng.uniform(-1, 1, (rows, action_dim)),
        "reward": rng.normal(size=rows),
        "next_obs": rng.normal(size=(rows, obs_dim)),
        "terminal": rng.random(rows) < 0.2,
    }
    return Transitions(**{name: jnp.asarray(column, jnp.float32) for name, column in (made | given).items()})


def updated(
    state: SACState, data: Transitions, real: jax.Array, steps: int = 1
) -> tuple[SACState, dict[str, jax.Array]]:
    metrics: dict[str, jax.Array] = {}
    for number in range(steps):
        state, metrics = STEP(TINY, state, data, jax.random.fold_in(jax.random.key(1), number), real)
    return state, metrics


def test_every_group_learns_and_stays_finite() -> None:
    state = sac_.init(TINY, jax.random.key(0), 5, 3)
    after, metrics = updated(state, batch(), jnp.ones(3), 20)
    assert all(np.isfinite(value) for value in metrics.values())
    for name in state.params:
        moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), state.params[name], after.params[name])
        assert all(jax.tree.leaves(moved)), name
    assert not jnp.array_equal(after.target_critic[0]["w"], state.target_critic[0]["w"])


@pytest.mark.parametrize(("log_std", "rises"), [(0.0, False), (-4.0, True)])
def test_temperature_moves_towards_the_target_entropy(log_std: float, rises: bool) -> None:
    """A policy with more entropy than −|A| lowers α; one with less raises it."""
    state = sac_.init(TINY, jax.random.key(0), 5, 3)
    state.params["actor"][-1]["b"] = jnp.array([0.0] * 3 + [log_std] * 3)
    after, metrics = updated(state, batch(), jnp.ones(3))
    assert (metrics["entropy"] < -3) == rises
    assert (after.params["log_alpha"] > 0) == rises


def test_a_terminal_does_not_bootstrap_and_backs_up_entropy_otherwise() -> None:
    state, ones = sac_.init(TINY, jax.random.key(0), 5, 3), jnp.ones(64)
    data = batch(reward=0 * ones, terminal=ones)
    value = sac_.twins(state.params["critic"], data.obs, data.action)
    _, ended = updated(state, data, jnp.ones(3))
    np.testing.assert_allclose(ended["loss/td"], (value**2).sum(axis=0).mean(), rtol=1e-5)
    # with Q̄ = 0 all that is left is α times the entropy
    state = state._replace(target_critic=jax.tree.map(jnp.zeros_like, state.target_critic))
    _, log_prob = squashed_sample(state.params["actor"], data.next_obs, jax.random.split(_first_key())[1])
    _, going = updated(state, data._replace(terminal=0 * ones), jnp.ones(3))
    expected = ((value + 0.99 * log_prob) ** 2).sum(axis=0).mean()
    np.testing.assert_allclose(going["loss/td"], expected, rtol=1e-5)


def _first_key() -> jax.Array:
    return jax.random.fold_in(jax.random.key(1), 0)


def test_what_was_filled_up_changes_nothing() -> None:
    """An environment of 5 and 3 in a program for 8 and 6: the same policy, and zeros stay zeros."""
    real = jnp.arange(6) < 3
    narrow, wide = sac_.init(TINY, jax.random.key(0), 5, 3), sac_.init(TINY, jax.random.key(0), 5, 3, (8, 6))
    data = batch()
    filled = batch(
        obs=np.pad(data.obs, ((0, 0), (0, 3))),
        next_obs=np.pad(data.next_obs, ((0, 0), (0, 3))),
        action=np.pad(data.action, ((0, 0), (0, 3))),
    )
    same = sac_.mean(wide.params["actor"], filled.obs, real)
    np.testing.assert_allclose(same[:, :3], squashed_mean(narrow.params["actor"], data.obs), atol=1e-6)
    after, _ = updated(wide, filled, real.astype(jnp.float32), 10)
    critic, actor = after.params["critic"], after.params["actor"]
    assert not critic[0]["w"][:, 5:8].any()
    assert not critic[0]["w"][:, 11:].any()
    assert not actor[0]["w"][5:].any()
    assert not jnp.split(actor[-1]["w"], 2, axis=-1)[1][:, 3:].any()
    own = sac_.trimmed(actor, 5, 3)
    np.testing.assert_allclose(squashed_mean(own, data.obs), sac_.mean(actor, filled.obs, real)[:, :3], atol=1e-6)


# ---------------------------------------------------------------------------------------------- the training


def test_a_short_run_learns_pendulum(tmp_path: Path) -> None:
    curves = collect.train(
        "pendulum",
        10_000,
        out=tmp_path,
        processes=1,
        environments=8,
        random_steps=1_000,
        evaluate_every=2_500,
        episodes=8,
        batch_size=128,
        capacity=20_000,
        sac=SAC(hidden=(64, 64), learning_rate=2e-3),
    )
    means = [point["mean"] for point in curves["pendulum-0"]]
    assert means[-1] > -400, means  # a random policy gets about −1200, a perfect one −150
    assert means[-1] > means[0] + 400, means


SMALL: dict[str, Any] = {
    "environments": 2,
    "random_steps": 40,
    "evaluate_every": 60,
    "episodes": 3,
    "batch_size": 8,
    "capacity": 101,
    "sac": TINY,
}


def test_stop_and_resume_equals_straight_through(tmp_path: Path) -> None:
    """Two environments of different sizes, a replay that wraps, and another number of processes."""
    names = ["brief", "hopper"]
    straight = collect.train(names, 180, 5, tmp_path / "a", processes=1, **SMALL)
    collect.train(names, 120, 5, tmp_path / "b", processes=2, **SMALL)
    resumed = collect.train(names, 180, 5, tmp_path / "b", processes=1, **SMALL)
    assert straight == resumed
    assert [point["step"] for point in straight["hopper-5"]] == [60, 120, 180]
    files = [tmp_path / run / "checkpoint.safetensors" for run in "ab"]
    left, right = (file.read_bytes() for file in files)
    assert left == right
    for lane in ("brief-5", "hopper-5"):
        assert (tmp_path / "a" / lane / "curve.jsonl").read_text() == (
            tmp_path / "b" / lane / "curve.jsonl"
        ).read_text()
    assert collect.train(names, 180, 5, tmp_path / "b", **SMALL) == straight  # nothing is left to do
    with pytest.raises(BadInput, match="another batch_size"):
        collect.train(names, 240, 5, tmp_path / "b", **{**SMALL, "batch_size": 9})


def test_snapshots_are_policies(tmp_path: Path) -> None:
    curves = collect.train(["pendulum", "hopper"], 60, out=tmp_path, processes=1, **SMALL)
    actor, record = collect.load_snapshot(tmp_path / "hopper-0" / "000000060.safetensors")
    assert record["returns"] == curves["hopper-0"][0]["returns"]
    assert len(record["returns"]) == 3
    assert record["score"] == pytest.approx(np.mean(envs.normalised("hopper", record["returns"])))  # pyright: ignore
    assert "mujoco" in record["physics"]
    assert squashed_mean(actor, jnp.zeros(11)).shape == (3,)
    # the first episode of the evaluation, played again by hand
    env, total, over = envs.make("hopper"), 0.0, False
    obs, _ = env.reset(seed=envs.episode_seed(envs.EVALUATION_SEEDS, 0, 0))
    while not over:
        obs, reward, ended, cut, _ = env.step(np.asarray(squashed_mean(actor, jnp.asarray(obs, jnp.float32))))
        total, over = total + reward, ended or cut
    assert total == pytest.approx(record["returns"][0], rel=1e-3)
    assert json.loads((tmp_path / "pendulum-0" / "curve.jsonl").read_text())["score"] is None
    with pytest.raises(BadInput, match="is not a policy"):
        collect.load_snapshot(tmp_path / "checkpoint.safetensors")


def test_a_timeout_bootstraps_and_a_terminal_does_not(tmp_path: Path) -> None:
    """What the replay holds: the true final observation, and a 1 only where the task ended."""
    collect.train(["brief", "hopper"], 60, out=tmp_path, processes=1, **SMALL)
    like = {"replay": jax.ShapeDtypeStruct((2, 60, 2 * 11 + 3 + 2), jnp.float32)}
    rows = checkpoint.load(tmp_path / "checkpoint.safetensors", like)["replay"]
    brief, hopper = (jax.tree.map(np.asarray, unpack(lane, 11)) for lane in rows)
    assert not brief.terminal.any()
    assert hopper.terminal.any()
    ends = np.zeros(30, bool)
    ends[6::7] = True  # the time limit of 7
    for env in range(2):
        obs, following = brief.obs[env::2, :3], brief.next_obs[env::2, :3]
        goes_on = (obs[1:] == following[:-1]).all(axis=1)
        np.testing.assert_array_equal(goes_on, ~ends[:-1])
        assert np.abs(following - obs).max() < 1.0  # one step of a pendulum, never a jump to the next start
    assert (np.abs(brief.action[:, 0]) <= 1).all()
    assert not brief.action[:, 1:].any()


def test_a_run_stops_at_its_time_limit(tmp_path: Path) -> None:
    curves = collect.train(["brief", "hopper"], 10**9, out=tmp_path, processes=1, seconds=2.0, **SMALL)
    assert (tmp_path / "checkpoint.safetensors").exists()
    again = collect.train(["brief", "hopper"], 10**9, out=tmp_path, processes=1, seconds=0.0, **SMALL)
    assert again == curves
    assert "updates per second" in collect.peak(tmp_path)


def test_training_until_a_level_keeps_the_policy_and_stops(tmp_path: Path) -> None:
    envs.register("easy", "Pendulum-v1", 7, reference=(-2000.0, 2000.0))  # any policy scores between 47 and 50
    curves = collect.train("easy", 10**9, out=tmp_path, until="medium", processes=1, **SMALL)
    assert len(curves["easy-0"]) == 1
    _, record = collect.load_snapshot(tmp_path / "easy-medium.safetensors")
    assert 35 <= record["score"] <= 60
    ends = 3 * SMALL["evaluate_every"]
    assert len(collect.train("easy", ends, out=tmp_path, until="expert", processes=1, **SMALL)["easy-0"]) == 3
    assert not (tmp_path / "easy-expert.safetensors").exists()


def test_a_policy_that_new_episodes_do_not_confirm_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    envs.register("easy", "Pendulum-v1", 7, reference=(-2000.0, 2000.0))
    real = Trainer.evaluate
    monkeypatch.setattr(Trainer, "evaluate", lambda self, confirm=False: real(self, confirm) + (2000 if confirm else 0))
    collect.train("easy", 2 * SMALL["evaluate_every"], out=tmp_path, until="medium", processes=1, **SMALL)
    assert not (tmp_path / "easy-medium.safetensors").exists()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"until": "best"}, "no level 'best'"),
        ({"until": "medium"}, "no reference returns"),
        ({"env": "hoper"}, "did you mean hopper"),
        ({"env": []}, "nothing to train"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"capacity": 1}, "capacity must be at least one step of all . environments, got 1"),
        ({"speed": 9}, "no setting 'speed'"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, given: dict[str, Any], text: str) -> None:
    words: dict[str, Any] = {"env": "brief", "steps": 10, "out": tmp_path, **SMALL, **given}
    with pytest.raises(BadInput, match=text):
        collect.train(**words)


@pytest.mark.parametrize("env", ["hopper", "halfcheetah", "walker2d", "ant"])
@pytest.mark.parametrize("level", ["medium", "expert"])
def test_behaviour_policies_ship_for_every_environment(env, level):
    actor, record = behaviour(env, level)
    assert record["env"] == env
    action = squashed_mean(actor, jnp.zeros((1, record["spec"][0])))
    assert action.shape == (1, record["spec"][1])


def test_an_unknown_behaviour_policy_is_named():
    with pytest.raises(
        BadInput, match="there is no behaviour policy hopper-novice; there are acrobot-expert, ant-expert"
    ):
        behaviour("hopper", "novice")


def test_the_expert_hops_and_the_medium_one_hops_less():
    """One real episode each: what the docs say of twenty."""
    returns = {}
    for level in ("medium", "expert"):
        actor, _ = behaviour("hopper", level)
        game, total, over = envs.make("hopper"), 0.0, False
        obs = game.reset(seed=1)[0]
        act = jax.jit(lambda seen, actor=actor: squashed_mean(actor, seen))
        while not over:
            obs, reward, terminal, timeout, _ = game.step(np.asarray(act(obs.astype(np.float32)), np.float64))
            total, over = total + float(reward), terminal or timeout
        returns[level] = total
    assert returns["expert"] > 3000 > 2000 > returns["medium"] > 800
