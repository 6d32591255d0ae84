"""`winnow.plug.d3rlpy` on the real library: weighted losses beside ones computed by hand, and learning."""

from __future__ import annotations

import copy
import logging
from typing import Any

import d3rlpy
import numpy as np
import pytest
import structlog
import torch
from d3rlpy.dataset import FIFOBuffer, FrameStackTransitionPicker, InfiniteBuffer, MDPDataset, ReplayBuffer
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.torch_utility import TorchMiniBatch

from winnow import AW, PF, BadInput, toy
from winnow.data.advice import advise
from winnow.data.arrays import from_arrays
from winnow.data.recipes import mixed
from winnow.data.store import save
from winnow.methods import make_sampler, make_weighter
from winnow.plug.d3rlpy import action_scaler, add_weights, as_dataset, resampled, to_mdp_dataset
from winnow.plug.torch import DensityWeights, Weights

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
CONFIGS = {"iql": d3rlpy.algos.IQLConfig, "cql": d3rlpy.algos.CQLConfig, "td3bc": d3rlpy.algos.TD3PlusBCConfig}
SIZE = 24


def dome(rows: int) -> tuple[MDPDataset, Any]:
    """95 % random data and 5 % of a policy that keeps the puck up, for d3rlpy and for winnow."""
    low, high = toy.make(toy.random, rows, 0, "random"), toy.make(toy.expert, 6_000, 1, "expert")
    data = mixed(low, high, 0.05, rows, low_label="random", high_label="expert")
    return to_mdp_dataset(data), data


@pytest.fixture(scope="module")
def small() -> MDPDataset:
    return dome(2_000)[0]


def make(name: str, hidden: int = 16, **options: Any) -> Any:
    kind: Any = CONFIGS[name]
    encoder = d3rlpy.models.VectorEncoderFactory([hidden, hidden])
    encoders = {f"{part}_encoder_factory": encoder for part in ("actor", "critic", "value")}
    known = {key: value for key, value in encoders.items() if key in kind.__dataclass_fields__}
    return kind(**known, **options).create(device="cpu:0")


def weighted(name: str, dataset: MDPDataset, **options: Any) -> tuple[Any, Any, Weights, Any, np.ndarray, np.ndarray]:
    """An algorithm with weights of our choice: its implementation, a batch, and the weights in two forms."""
    d3rlpy.seed(0)
    algo = make(name, **options)
    add_weights(algo, dataset, hidden=(8,))
    batch = TorchMiniBatch.from_batch(dataset.sample_transition_batch(SIZE), 0.99, False, "cpu:0")
    sa, s = torch.distributions.Dirichlet(torch.ones(SIZE)).sample((2,))
    algo.impl.weigh(Weights(sa, s))
    return algo, algo.impl, Weights(sa, s), batch, sa.numpy(), s.numpy()


def number(value: torch.Tensor) -> np.ndarray:
    return value.detach().double().numpy()


def critics(impl: Any, obs: torch.Tensor, action: torch.Tensor, which: str = "q_funcs") -> np.ndarray:
    return np.stack([number(each(obs, action).q_value)[:, 0] for each in getattr(impl._modules, which)])


def td_error(impl: Any, batch: Any, target: torch.Tensor) -> np.ndarray:
    """[B] summed over critics."""
    backup = number(batch.rewards + 0.99 * target * (1 - batch.terminals))[:, 0]
    return ((critics(impl, batch.observations, batch.actions) - backup) ** 2).sum(axis=0)


# ------------------------------------------------------------------------------------------------- losses


def test_iql_losses_are_those_computed_by_hand(small: MDPDataset) -> None:
    _, impl, _, batch, sa, s = weighted("iql", small)
    impl._modules.q_funcs[0]._fc.bias.data += 2  # away from the targets, and from a zero advantage
    impl._modules.targ_q_funcs[0]._fc.bias.data += 0.5
    impl._modules.targ_q_funcs[1]._fc.bias.data += 0.4
    target = impl.compute_target(batch)
    np.testing.assert_array_equal(number(target), number(impl._modules.value_func(batch.next_observations)))
    loss = impl.compute_critic_loss(batch, target)
    value = number(impl._modules.value_func(batch.observations))[:, 0]
    gap = critics(impl, batch.observations, batch.actions, "targ_q_funcs").min(axis=0) - value
    expectile = np.where(gap < 0, 0.3, 0.7) * gap**2
    assert number(loss.q_loss) == pytest.approx(sa @ td_error(impl, batch, target), rel=1e-5)
    assert number(loss.v_loss) == pytest.approx(s @ expectile, rel=1e-5)
    assert number(loss.critic_loss) == pytest.approx(sa @ td_error(impl, batch, target) + s @ expectile, rel=1e-5)

    policy = impl._modules.policy(batch.observations)
    mean, log_std = number(policy.squashed_mu), number(policy.logstd)
    scaled = (number(batch.actions) - mean) / np.exp(log_std)
    log_prob = (-0.5 * scaled**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    actor = -(sa @ (np.minimum(np.exp(3 * gap), 100) * log_prob))
    assert number(impl.compute_actor_loss(batch, policy).actor_loss) == pytest.approx(actor, rel=1e-5)


def test_td3bc_losses_are_those_computed_by_hand(small: MDPDataset) -> None:
    _, impl, _, batch, sa, s = weighted("td3bc", small)
    target = impl.compute_target(batch)
    loss = impl.compute_critic_loss(batch, target)
    assert number(loss.critic_loss) == pytest.approx(sa @ td_error(impl, batch, target), rel=1e-5)
    policy = impl._modules.policy(batch.observations)
    value = critics(impl, batch.observations, policy.squashed_mu)[0]
    imitation = sa @ ((number(policy.squashed_mu) - number(batch.actions)) ** 2).mean(axis=1)
    actor = -2.5 / np.abs(value).mean() * (s @ value) + imitation
    got = impl.compute_actor_loss(batch, policy)
    assert number(got.actor_loss) == pytest.approx(actor, rel=1e-5)
    assert number(got.bc_loss) == pytest.approx(imitation, rel=1e-5)


def test_cql_losses_are_those_computed_by_hand(small: MDPDataset) -> None:
    _, impl, _, batch, sa, s = weighted("cql", small, alpha_learning_rate=0.0, initial_alpha=2.0, alpha_threshold=1.5)
    target = impl.compute_target(batch)
    torch.manual_seed(4)
    loss = impl.compute_critic_loss(batch, target)
    torch.manual_seed(4)
    here, log_here = impl._compute_policy_is_values(batch.observations, batch.observations, None)
    there, log_there = impl._compute_policy_is_values(batch.next_observations, batch.observations, None)
    random, log_random = impl._compute_random_is_values(batch.observations)
    drawn = np.exp(np.concatenate([number(here - log_here), number(there - log_there), number(random - log_random)], 2))
    gap = np.log(drawn.sum(axis=2)) - critics(impl, batch.observations, batch.actions)
    penalty = 2.0 * 5.0 * ((gap @ sa) - 1.5).sum()
    assert number(loss.conservative_loss) == pytest.approx(penalty, rel=1e-4)
    assert number(loss.critic_loss) == pytest.approx(sa @ td_error(impl, batch, target) + penalty, rel=1e-4)

    policy = impl._modules.policy(batch.observations)
    heat = float(number(impl._modules.log_temp._parameter.exp())[0, 0])
    impl._modules.temp_optim.optim.param_groups[0]["lr"] = 0.1
    torch.manual_seed(5)
    got = impl.compute_actor_loss(batch, policy)
    torch.manual_seed(5)
    raw = torch.distributions.Normal(policy.mu, policy.logstd.exp()).rsample()
    scaled = (number(raw) - number(policy.mu)) / np.exp(number(policy.logstd))
    log_prob = (-0.5 * scaled**2 - number(policy.logstd) - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    log_prob -= np.log(1 - np.tanh(number(raw)) ** 2).sum(axis=1)
    value = critics(impl, batch.observations, torch.tanh(raw)).min(axis=0)
    assert number(got.temp_loss) == pytest.approx(-heat * (s @ (log_prob - 2)), rel=1e-4)
    warmer = float(
        number(impl._modules.log_temp._parameter.exp())[0, 0]
    )  # the temperature moves before the actor's loss, in d3rlpy
    assert warmer != pytest.approx(heat, rel=1e-3)
    assert number(got.actor_loss) == pytest.approx(s @ (warmer * log_prob - value), rel=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_uniform_weights_are_the_stock_algorithm(name: str, small: MDPDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    d3rlpy.seed(1)
    plain = make(name, batch_size=SIZE)
    plain.build_with_dataset(small)
    algo = copy.deepcopy(plain)
    weights = add_weights(algo, small, hidden=(8,))
    even = torch.full((SIZE,), 1 / SIZE)
    monkeypatch.setattr(weights, "update", lambda batch: Weights(even, even))
    batches = [small.sample_transition_batch(SIZE) for _ in range(4)]
    losses = []
    for one in (plain, algo):
        torch.manual_seed(7)
        losses.append([one.update(batch) for batch in batches])
    for stock, mine in zip(*losses, strict=True):
        assert all(mine[key] == pytest.approx(value, rel=1e-4, abs=1e-6) for key, value in stock.items())
        assert mine["weight_ess"] == pytest.approx(1)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_allclose(algo.predict(obs), plain.predict(obs), atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_learnt_on_raw_rows_and_used_from_before_the_update(name: str, small: MDPDataset) -> None:
    """With d3rlpy's own scalers on, which change what the algorithm reads."""
    scalers = {
        "observation_scaler": d3rlpy.preprocessing.StandardObservationScaler(),
        "reward_scaler": d3rlpy.preprocessing.ConstantShiftRewardScaler(-1.0),
    }
    algo = make(name, batch_size=SIZE, **scalers)
    weights = add_weights(algo, small, form="code", hidden=(8,))
    algo.fit(small, 2, 2, show_progress=False, logger_adapter=d3rlpy.logging.NoopAdapterFactory())  # fits the scalers
    assert int(weights.count) == 2
    clone, raw = copy.deepcopy(weights), small.sample_transition_batch(SIZE)
    torch.manual_seed(3)
    expected = clone.update(raw)
    torch.manual_seed(3)
    metrics = algo.update(raw)
    np.testing.assert_allclose(algo.impl.sa[:, 0], SIZE * expected.sa, rtol=1e-6)
    assert int(weights.count) == 3
    assert {"weight_ess", "weight_max", "weight_kl"} <= set(metrics)


# ------------------------------------------------------------------------------------------------ sampling


def test_rows_are_the_buffers_transitions(small: MDPDataset) -> None:
    rows = as_dataset(small).rows()
    assert len(rows.reward) == small.transition_count
    for number in range(0, small.transition_count, 7):
        episode, step = small.buffer[number]
        transition: Any = small.transition_picker(episode, step)
        np.testing.assert_array_equal(rows.obs[number], transition.observation)
        np.testing.assert_array_equal(rows.action[number], transition.action)
        assert rows.reward[number] == transition.reward[0]
        assert rows.terminal[number] == bool(transition.terminal)
        if not transition.terminal:
            np.testing.assert_array_equal(rows.next_obs[number], transition.next_observation)


def test_transitions_are_drawn_with_the_samplers_probabilities(small: MDPDataset) -> None:
    d3rlpy.seed(0)
    drawn = resampled(small, AW(0.3))
    rows = as_dataset(small)
    np.testing.assert_allclose(drawn.probability, AW(0.3).probabilities(rows))
    place = {row.tobytes(): number for number, row in enumerate(rows.rows().obs)}
    batch = drawn.sample_transition_batch(20_000)
    seen: Any = batch.observations
    episode = rows.episode[[place[row.tobytes()] for row in seen]]
    counts = np.bincount(episode, minlength=len(rows.episodes))
    expected = 20_000 * np.bincount(rows.episode, weights=drawn.probability)
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 1).all()
    assert counts.max() > 3 * 20_000 / len(counts)
    half = np.full((9, 1), 0.5, np.float32)
    small_copy = MDPDataset(half, half, half, np.ones(9, np.float32))
    again = resampled(small_copy, PF(0.5))
    small_copy.append_episode(small_copy.episodes[0])
    with pytest.raises(BadInput, match="has grown"):
        again.sample_transition()


# ------------------------------------------------------------------------------------------------ learning


@pytest.fixture(scope="module")
def imbalanced() -> MDPDataset:
    return dome(40_000)[0]


def score(algo: Any, data: ReplayBuffer, steps: int) -> float:
    """0 is random, 100 the best possible."""
    algo.fit(data, steps, steps, show_progress=False, logger_adapter=d3rlpy.logging.NoopAdapterFactory())
    return float(toy.normalised(toy.evaluate(lambda state: algo.predict(state.astype(np.float32)))).mean())


def test_weights_are_set_as_published_with_their_algorithm(small: MDPDataset) -> None:
    for name in ("iql", "td3bc"):
        assert add_weights(make(name), small).config == make_weighter("density", name)
    assert add_weights(make("iql"), small, lambda_k=0.5).config.lambda_k == 0.5


def test_auto_resamples_by_what_the_data_asks_for(small: MDPDataset, capsys: pytest.CaptureFixture[str]) -> None:
    probability = resampled(small).probability
    chosen = advise(as_dataset(small)).method
    np.testing.assert_allclose(probability, make_sampler(chosen).probabilities(as_dataset(small)))
    assert f"d3rlpy: auto chose {chosen}: " in capsys.readouterr().err


QUICK: dict[str, Any] = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "batch_size": 128, "hidden": 64}


def test_learned_weights_improve_td3bc_on_imbalanced_data(imbalanced: MDPDataset) -> None:
    found = {}
    for method in ("uniform", "dual"):
        d3rlpy.seed(0)
        scaler = d3rlpy.preprocessing.StandardObservationScaler()
        algo = make("td3bc", **QUICK, alpha=0.5, observation_scaler=scaler)
        if method == "dual":
            add_weights(algo, imbalanced, "dual", hidden=(64, 64), learning_rate=3e-3, temperature_rate=0.03)
        found[method] = score(algo, imbalanced, 2_500)
    assert found["dual"] > found["uniform"] + 15, found  # seeds 0, 1, 2, 3 gave 43, 95, 97, 81


def test_aw_sampling_improves_iql_on_imbalanced_data(imbalanced: MDPDataset) -> None:
    found = {}
    for method in ("uniform", "aw"):
        d3rlpy.seed(0)
        data = resampled(imbalanced, AW(0.1)) if method == "aw" else imbalanced
        found[method] = score(make("iql", **QUICK), data, 500)
    assert found["aw"] > found["uniform"] + 50, found


# ------------------------------------------------------------------------------------------------ the rest


def test_a_saved_algorithm_is_a_stock_one(small: MDPDataset, tmp_path: Any) -> None:
    algo = make("iql", batch_size=SIZE)
    weights = add_weights(algo, small, hidden=(8,))
    algo.update(small.sample_transition_batch(SIZE))
    algo.save(str(tmp_path / "iql.d3"))
    again: Any = d3rlpy.load_learnable(str(tmp_path / "iql.d3"))
    obs = np.zeros((3, 4), np.float32)
    np.testing.assert_array_equal(again.predict(obs), algo.predict(obs))
    with pytest.raises(BadInput, match="already has weights"):
        add_weights(algo, small)
    other = DensityWeights(4, 2, hidden=(8,))
    other.load_state_dict(weights.state_dict())
    assert add_weights(again, small, weights=other) is other
    again.update(small.sample_transition_batch(SIZE))
    assert int(other.count) == 2


@pytest.mark.parametrize("terminal", [False, True], ids=["all cut", "the second ends"])
def test_a_dataset_keeps_its_timeouts_and_all_its_transitions(terminal: bool) -> None:
    rng = np.random.default_rng(0)
    last = np.isin(np.arange(12), [3, 7, 11])
    ended = (np.arange(12) == 7) & terminal
    obs = rng.normal(size=(12, 3))
    following = np.where(last[:, None], rng.normal(size=(12, 3)), np.roll(obs, -1, axis=0))
    data = from_arrays(obs, rng.uniform(-2, 2, (12, 2)), np.arange(12.0), ended, last & ~ended, following)
    made = to_mdp_dataset(data)
    assert [one.terminated for one in made.episodes] == [False, terminal, False]
    assert [one.transition_count for one in made.episodes] == [4, 4, 4]
    again = as_dataset(made)
    follows = ~data.rows().terminal.astype(bool)  # nothing follows a terminal: d3rlpy keeps no state for it
    for name, column in data.rows()._asdict().items():
        rows = follows if name == "next_obs" else slice(None)
        np.testing.assert_array_equal(getattr(again.rows(), name)[rows], column[rows], err_msg=name)
    np.testing.assert_array_equal(again.episodes.terminated, data.episodes.terminated)


def test_a_file_is_opened_and_whole_number_actions_stay_continuous(tmp_path: Any) -> None:
    last = np.arange(8) % 4 == 3
    data = from_arrays(np.zeros((8, 2)), np.ones((8, 1)), np.ones(8), last, np.zeros(8, bool), action_bounds=(-1, 1))
    save(data, tmp_path / "mine.safetensors")
    assert to_mdp_dataset(tmp_path / "mine.safetensors").dataset_info.action_space == d3rlpy.ActionSpace.CONTINUOUS
    assert action_scaler(data) is None


def test_actions_beyond_one_need_a_scaler() -> None:
    rng = np.random.default_rng(0)
    last = np.arange(400) % 20 == 19
    actions = rng.uniform(-3, 5, (400, 2))
    data = from_arrays(rng.normal(size=(400, 3)), actions, np.ones(400), last, np.zeros(400, bool))
    dataset = to_mdp_dataset(data)
    with pytest.raises(BadInput, match=r"actions must be in \[-1, 1\] where d3rlpy's policies act, got 4\.9"):
        add_weights(make("iql"), dataset)
    scaler = action_scaler(data)
    assert scaler is not None
    algo = make("iql", action_scaler=scaler)
    add_weights(algo, dataset, hidden=(8,))
    algo.fit(dataset, n_steps=2, n_steps_per_epoch=2, show_progress=False, logger_adapter=NoopAdapterFactory())
    played = algo.predict(rng.normal(size=(50, 3)).astype(np.float32) * 100)
    assert np.abs(played).max() > 1
    assert (played >= actions.min(axis=0) - 1e-5).all()
    assert (played <= actions.max(axis=0) + 1e-5).all()


def test_rows_without_order_are_refused() -> None:
    bag = from_arrays(
        np.zeros((8, 2)), np.ones((8, 1)), np.ones(8), np.zeros(8), next_observations=np.ones((8, 2)), kind="bag"
    )
    with pytest.raises(BadInput, match="its rows have no order, and d3rlpy needs episodes"):
        to_mdp_dataset(bag)


def test_bad_input(small: MDPDataset) -> None:
    with pytest.raises(BadInput, match="AWAC has no weighted losses here"):
        add_weights(d3rlpy.algos.AWACConfig().create(), small)
    with pytest.raises(BadInput, match="has no setting 'buget'"):
        add_weights(make("iql"), small, buget=1.0)
    with pytest.raises(BadInput, match="the dataset is a dict"):
        add_weights(make("iql"), {})
    with pytest.raises(BadInput, match="obs_dim is 4, the weights' 3"):
        add_weights(make("iql"), small, weights=DensityWeights(3, 2))
    built = make("iql")
    built.create_impl((3,), 2)
    with pytest.raises(BadInput, match=r"built for sizes \(3, 2\), the dataset has \(4, 2\)"):
        add_weights(built, small)

    def data(obs: Any, action: Any, **options: Any) -> MDPDataset:
        reward, end = np.ones(9, np.float32), np.arange(9) % 3 == 2
        return MDPDataset(np.asarray(obs, np.float32), action, reward, end.astype(np.float32), **options)

    action = np.zeros((9, 1), np.float32)
    with pytest.raises(BadInput, match=r"observations of shape \[1, 2, 2\] and CONTINUOUS"):
        resampled(data(np.ones((9, 1, 2, 2)), action + 0.5))
    with pytest.raises(BadInput, match="DISCRETE"):
        resampled(data(np.ones((9, 2)), np.arange(9, dtype=np.int32)[:, None] % 2))
    with pytest.raises(BadInput, match="transition picker is FrameStack"):
        resampled(data(np.ones((9, 2)), action + 0.5, transition_picker=FrameStackTransitionPicker(2)))
    nan = np.ones((9, 2))
    nan[3, 1] = np.nan
    with pytest.raises(BadInput, match="observations, row 3, column 1: nan"):
        resampled(data(nan, action + 0.5))
    cut = ReplayBuffer(FIFOBuffer(100), episodes=small.episodes)
    with pytest.raises(BadInput, match="the buffer holds 100 transitions of"):
        resampled(cut)
    info: Any = small.dataset_info
    empty = ReplayBuffer(
        InfiniteBuffer(),
        observation_signature=info.observation_signature,
        action_signature=info.action_signature,
        reward_signature=info.reward_signature,
        action_space=info.action_space,
        action_size=2,
    )
    with pytest.raises(BadInput, match="has no episodes"):
        resampled(empty)
