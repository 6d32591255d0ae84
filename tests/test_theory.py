"""Each statement of docs/theory.md, checked by numbers. The comments give the section."""

from __future__ import annotations

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.special import logsumexp

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.data.imbalance import imbalance
from winnow.samplers import alias_table
from winnow.tabular import density, judge
from winnow.tabular.data import STEP_COST, Data, collect
from winnow.tabular.exact import divergence, exact_dual, linear_program
from winnow.tabular.grid import Grid
from winnow.tabular.small_rooms import collect as collect_small
from winnow.tabular.small_rooms import small_rooms
from winnow.weighters import Density


@cache
def rooms(slip: float = 0.0) -> Data:
    return collect(Grid(slip), 0, 300)


def random_episode_weights(data: Data, seed: int) -> np.ndarray:
    """[rows] log of a weight for each episode."""
    episodes = data.dataset.episodes
    return np.repeat(np.random.default_rng(seed).normal(0, 2, len(episodes)), episodes.length)


def row_flow(data: Data, log_weight: np.ndarray) -> np.ndarray:
    """[S] inflow less outflow of weighted rows."""
    return np.exp(judge.from_rows(data, log_weight)) @ data.drift


# --------------------------------------------------------------------- 1. a weight for each episode, and the flow


@pytest.mark.parametrize("slip", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_weights_of_whole_episodes_conserve_flow_even_where_episodes_meet(slip: float, seed: int) -> None:
    np.testing.assert_allclose(row_flow(rooms(slip), random_episode_weights(rooms(slip), seed)), 0, atol=1e-12)


def test_weights_of_pieces_of_episodes_do_not() -> None:
    """Drop the second half of every episode: what leaves its last state is missing."""
    data = rooms()
    step = np.arange(len(data.dataset)) - np.repeat(data.dataset.episodes.start, data.dataset.episodes.length)
    half = step < np.repeat(data.dataset.episodes.length // 2, data.dataset.episodes.length)
    kept = np.exp(judge.from_edges(data, np.zeros(len(data.share))))
    pieces = np.bincount(data.edge[half], minlength=len(data.share)) / half.sum()
    assert np.abs(kept @ data.drift).sum() < 1e-12
    assert np.abs(pieces @ data.drift).sum() / 2 > 0.01


def penalty(state: np.ndarray, following: np.ndarray, weight: np.ndarray) -> float:
    """The paper's flow penalty at its best: mean over rows of (w(s') − w(s,a))² with the true w(s) = E[w | s].
    Rows whose s' is never left are not counted."""
    states = max(state.max(), following.max()) + 1
    count = np.bincount(state, minlength=states)
    of_state = np.bincount(state, weight, minlength=states) / np.maximum(count, 1)
    inside = count[following] > 0
    return float(((of_state[following] - weight) ** 2)[inside].mean())


def test_the_penalty_row_by_row_is_zero_for_them_only_where_episodes_never_meet() -> None:
    weight = np.repeat([0.5, 1.0, 1.5], 5)
    apart = np.arange(15).reshape(3, 5)  # three paths, no state in common
    meeting = apart.copy()
    meeting[:, 3:] = apart[0, 3:]  # they come together
    for path, zero in ((apart, True), (meeting, False)):
        following = np.column_stack([path[:, 1:], [[99]] * 3])
        assert (penalty(path.ravel(), following.ravel(), weight) == 0) is zero
    data = rooms()
    row_weight = np.exp(random_episode_weights(data, 0))
    inside = data.terminal[data.edge] == 0
    state, following = data.state[data.edge][inside], data.following[data.edge][inside]
    assert penalty(state, following, row_weight[inside] / row_weight[inside].mean()) > 0.1


@pytest.mark.parametrize(("meet", "free"), [(False, 3), (True, 4)])
def test_where_paths_never_meet_only_weights_of_whole_paths_conserve_flow(meet: bool, free: int) -> None:
    """Three loops. Apart, what conserves flow has one number for each loop. With one state in common to two of them
    that they pass on in different ways, one more: halves of loops can be exchanged."""
    loops = np.arange(12).reshape(3, 4)
    if meet:  # loops 0 and 1 share two states, so the way between can be that of either
        loops[1, [0, 2]] = loops[0, [0, 2]]
    state, following = loops.ravel(), np.roll(loops, -1, axis=1).ravel()
    drift = np.eye(12)[following] - np.eye(12)[state]
    assert len(state) - np.linalg.matrix_rank(drift) == free
    by_loop = np.repeat(np.eye(3), 4, axis=0)
    np.testing.assert_allclose(by_loop.T @ drift, 0)  # those of whole loops always conserve it


@pytest.mark.parametrize("seed", range(5))
def test_no_weights_of_episodes_are_worth_more_than_the_best_episode(seed: int) -> None:
    data = rooms()
    best = 1 / data.dataset.episodes.length.min()
    mass = np.exp(judge.from_rows(data, random_episode_weights(data, seed)))
    assert mass @ data.reward <= best
    assert data.share * np.exp(exact_dual(data, 0.003)) @ data.reward > 1.01 * best


@pytest.mark.parametrize("seed", range(3))
def test_where_flow_is_conserved_and_nothing_slips_a_policy_is_worth_what_its_weights_report(seed: int) -> None:
    data = rooms()
    for log_mass in (
        judge.from_rows(data, random_episode_weights(data, seed)),
        judge.from_edges(data, exact_dual(data, (0.1, 0.03, 0.01)[seed])),
    ):
        assert data.grid.value(judge.extracted(data, log_mass)) == pytest.approx(np.exp(log_mass) @ data.reward)
    tilted = judge.from_edges(data, 5 * data.reward)  # conserves no flow
    assert np.exp(tilted) @ data.reward > 10 * data.grid.value(judge.extracted(data, tilted))


# ------------------------------------------------------------------------------------- 2. what the dual converges to


def dual_value(data: Data, nu: np.ndarray, heat: float) -> float:
    return heat * float(np.asarray(logsumexp((data.reward + data.drift @ nu) / heat, b=data.share)))


def test_the_gradient_of_the_dual_is_the_flow_residual() -> None:
    data, rng = rooms(0.1), np.random.default_rng(0)
    nu, heat = rng.normal(0, 0.1, data.grid.states), 0.1
    score = (data.reward + data.drift @ nu) / heat
    residual = data.share * np.exp(score - np.asarray(logsumexp(score, b=data.share))) @ data.drift
    for state in rng.choice(data.grid.states, 10, replace=False):
        step = 1e-5 * np.eye(data.grid.states)[state]
        slope = (dual_value(data, nu + step, heat) - dual_value(data, nu - step, heat)) / 2e-5
        assert slope == pytest.approx(residual[state], abs=1e-8)


@pytest.mark.parametrize("slip", [0.0, 0.1])
@pytest.mark.parametrize("heat", [0.3, 0.03])
def test_no_weights_that_conserve_flow_have_a_better_objective(slip: float, heat: float) -> None:
    """J − λ KL of the dual's weights is the dual's value, so nothing feasible lies above; mixtures with others lie
    below."""
    data = rooms(slip)
    log_weight = exact_dual(data, heat)
    mass = data.share * np.exp(log_weight)
    primal = mass @ data.reward - heat * divergence(data, log_weight)
    features = np.column_stack([data.drift, np.ones(len(mass))])  # λ log w = r̃ + ν(s') − ν(s) − a constant
    *nu, _ = np.linalg.lstsq(features, heat * log_weight - data.reward, rcond=None)[0]
    assert primal == pytest.approx(dual_value(data, np.array(nu), heat), abs=1e-8)
    others = [np.exp(judge.from_rows(data, random_episode_weights(data, seed))) for seed in range(3)]
    for other in [*others, linear_program(data, "edge")[1], data.share]:
        mixed = 0.9 * mass + 0.1 * other
        worth = mixed @ data.reward - heat * mixed @ np.log(mixed / data.share)
        assert worth < primal + 1e-9


def test_as_lambda_falls_the_dual_tends_to_the_optimal_flow_nearest_to_the_data() -> None:
    """J is within λ KL(D*‖D) of the linear program's; the limit D* has the least KL of all optimal flows."""
    data = collect_small(small_rooms())
    best, _ = linear_program(data)
    limit = nearest_optimal_flow(data)
    assert limit @ data.reward == pytest.approx(best)
    used = limit > 0
    least = limit[used] @ np.log(limit[used] / data.share[used])
    log_weight = np.zeros(len(data.share))
    for heat in (0.3, 0.1, 0.03, 0.01, 0.003):
        log_weight = exact_dual(data, heat)
        reported = data.share * np.exp(log_weight) @ data.reward
        assert best - heat * least - 1e-7 <= reported <= best + 1e-9
        assert divergence(data, log_weight) <= least + 1e-5
    assert divergence(data, log_weight) == pytest.approx(least, abs=1e-3)
    assert np.abs(data.share * np.exp(log_weight) - limit).sum() / 2 < 1e-3


def nearest_optimal_flow(data: Data) -> np.ndarray:
    """[edges] the flow along shortest ways with the least KL from the data, found without the dual: Newton's method
    in the space of changes that keep the flow."""
    grid = data.grid
    ahead = np.where(data.terminal > 0, 0, grid.least_steps[data.following])
    use = ahead == grid.least_steps[data.state] - 1
    often = grid.occupancy(grid.optimal)
    assert often is not None
    use &= often.ravel()[data.pair] > 0
    flow, share = often.ravel()[data.pair[use]], data.share[use]
    keep = null_space(np.vstack([data.drift[use].T, np.ones(use.sum())]))
    slope = np.ones(keep.shape[1])
    for _ in range(50):
        slope = keep.T @ np.log(flow / share)
        step = -keep @ np.linalg.solve(keep.T @ (keep / flow[:, None]), slope)
        flow = flow + min(1.0, 0.5 / np.max(-step / flow)) * step
    assert np.abs(slope).max() < 1e-9
    out = np.zeros(len(data.share))
    out[use] = flow
    return out


def test_as_lambda_grows_the_dual_tends_to_the_data_itself() -> None:
    """Whole episodes conserve flow, so w = 1 is feasible."""
    data = rooms()
    for heat in (10.0, 100.0):
        assert np.abs(exact_dual(data, heat)).max() < 3 / heat


def test_where_moves_slip_the_dual_tends_to_a_program_that_may_choose_outcomes() -> None:
    data = rooms(0.1)
    reported = data.share * np.exp(exact_dual(data, 0.003)) @ data.reward
    assert reported == pytest.approx(linear_program(data, "edge")[0], rel=1e-3)
    assert reported > 1.2 * linear_program(data, "pair")[0]


@pytest.mark.parametrize("lambda_f", [0.1, 10.0])
@pytest.mark.parametrize("lambda_k", [0.2, 1.0])
def test_the_loss_of_the_paper_comes_down_to_a_bound_that_knows_no_flow(lambda_k: float, lambda_f: float) -> None:
    """−λK log E_D[exp(r̃/λK)]: w ∝ exp(r̃/λK) with the scale of w going to 0."""
    data = rooms()
    weighter, edges = Density(form="paper", lambda_k=lambda_k, lambda_f=lambda_f), density.Edges(data).arrays
    bound = -lambda_k * float(np.asarray(logsumexp(data.reward / lambda_k, b=data.share)))
    paid = np.repeat((data.grid.transition[..., -1].max(axis=1) > 0).astype(np.float32), 4)
    rng, losses = np.random.default_rng(0), []
    for fall in (0.0, 2.0, 4.0, 8.0):
        params = {"phi": jnp.full(data.grid.states, -fall), "psi": jnp.asarray(paid / lambda_k)}
        losses.append(float(density.loss(weighter, params, edges)))
        noise = {name: value + rng.normal(0, 1, value.shape) for name, value in params.items()}
        assert float(density.loss(weighter, noise, edges)) > bound
    assert (np.diff(losses) < 0).all()
    assert bound - 1e-6 < losses[-1] < bound + 1e-3 * (1 + lambda_f)  # single precision


# --------------------------------------------------------------------------- 3. weighting and sampling are the same


def drawing(seed: int = 0) -> tuple[np.random.Generator, np.ndarray, np.ndarray, np.ndarray]:
    """Rows with probabilities p, weights w with E_p[w] = 1, and a loss of each."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(400, 2.0))
    w = rng.lognormal(0, 1, 400)
    return rng, p, w / (p @ w), rng.normal(1, 1, 400)


def draw(rng: np.random.Generator, probability: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Rows from winnow's own alias table."""
    table = alias_table(probability)
    column = rng.integers(len(probability), size=shape)
    return np.where(rng.random(shape) < table.keep[column], column, table.other[column])


def test_drawing_by_p_and_weighing_by_w_has_the_gradient_of_drawing_by_their_product() -> None:
    """Weighted least squares with weights p w is least squares on rows drawn with p w: here on very many of them."""
    rng, p, w, y = drawing()
    x = np.column_stack([np.ones(400), rng.normal(size=(400, 2))])
    theta = rng.normal(size=3)
    weighted = (p * w) @ (x * (x @ theta - y)[:, None])
    rows = draw(rng, p * w, (2_000_000,))
    sampled = (x * (x @ theta - y)[:, None])[rows].mean(axis=0)
    np.testing.assert_allclose(sampled, weighted, atol=0.01)
    rows = draw(rng, p, (2_000_000,))
    np.testing.assert_allclose((w[:, None] * x * (x @ theta - y)[:, None])[rows].mean(axis=0), weighted, atol=0.02)


def test_normalising_over_a_batch_costs_a_bias_of_one_over_its_size() -> None:
    """E[Σ w̄ l] − E_pw[l] → −E_p[w² (l − mean)] / B."""
    rng, p, w, loss = drawing(1)
    mean = (p * w) @ loss
    for size in (64, 256):
        rows = draw(rng, p, (12_800_000 // size, size))
        batch = (w[rows] * loss[rows]).sum(axis=1) / w[rows].sum(axis=1)
        wanted = -(p @ (w**2 * (loss - mean))) / size
        noise = batch.std() / np.sqrt(len(batch))
        assert abs(wanted) > 3 * noise
        assert batch.mean() - mean == pytest.approx(wanted, abs=4 * noise + 0.15 * abs(wanted))


def test_weights_need_more_rows_than_draws_for_the_same_noise() -> None:
    """1/ESS = E_p[w²] times as many, where losses and weights have nothing to do with each other."""
    rng, p, w, _ = drawing(2)
    noise = rng.normal(0, 1, (200, 400))  # 200 losses, drawn apart from w
    centred = noise - (noise @ (p * w))[:, None]
    weighing = (centred**2 @ (p * w**2)).mean()
    sampling = (centred**2 @ (p * w)).mean()
    assert weighing / sampling == pytest.approx(p @ w**2, rel=0.05)
    assert p @ w**2 > 1.5


# ------------------------------------------------------------------------------------- 4. RPSV and what it promises


def episodes_with(returns: np.ndarray) -> Dataset:
    """An episode of one step for each return."""
    count = len(returns)
    blank = np.zeros((count, 1))
    return from_arrays(blank, blank, returns, np.ones(count), np.zeros(count), action_bounds=(-1, 1))


SPREADS = {
    "normal": lambda rng: rng.normal(size=500),
    "few good": lambda rng: np.where(rng.random(500) < 0.05, 10, 0) + rng.normal(size=500),
    "few bad": lambda rng: np.where(rng.random(500) < 0.05, -10, 0) + rng.normal(size=500),
    "heavy": lambda rng: rng.pareto(2.0, 500),
}


@pytest.mark.parametrize("kind", SPREADS)
def test_weights_in_proportion_to_what_is_above_the_mean_gain_rpsv_over_the_mean_of_it(kind: str) -> None:
    returns = SPREADS[kind](np.random.default_rng(0)).astype(np.float32).astype(np.float64)
    measured = imbalance(episodes_with(returns))
    above = np.maximum(returns - returns.mean(), 0)
    gain = above / above.sum() @ returns - returns.mean()
    assert gain == pytest.approx(measured.rpsv / above.mean())
    assert gain >= np.sqrt(measured.rpsv) - 1e-9
    # Its effective number of episodes is what `winnow inspect` calls the effective sample size.
    assert above.sum() ** 2 / (above**2).sum() == pytest.approx(measured.effective_count)
    assert gain == pytest.approx(np.sqrt(measured.rpsv * len(returns) / measured.effective_count))


@pytest.mark.parametrize("kind", SPREADS)
@pytest.mark.parametrize("temperature", [0.02, 0.1, 0.5, 5.0])
def test_no_weights_gain_more_than_the_root_of_rpsv_over_their_effective_share(kind: str, temperature: float) -> None:
    rng = np.random.default_rng(1)
    returns = SPREADS[kind](rng).astype(np.float32).astype(np.float64)
    rpsv = imbalance(episodes_with(returns)).rpsv
    unit = (returns - returns.min()) / np.ptp(returns)
    for q in (
        np.exp((unit - 1) / temperature),
        rng.dirichlet(np.full(500, temperature)),
        returns >= np.median(returns),
    ):
        q = q / q.sum()
        share = 1 / (500 * (q @ q))
        assert q @ returns - returns.mean() <= np.sqrt(rpsv / share) + 1e-9


def test_without_rpsv_there_is_nothing_to_gain() -> None:
    assert imbalance(episodes_with(np.full(50, 3.0))).rpsv == 0


def mean_return(data: Data, q: np.ndarray) -> float:
    """Of the policy cloned from episodes with weights q, exactly: 1 for the goal less the cost of its steps."""
    log_q = np.log(np.maximum(q, 1e-300))
    policy = judge.extracted(data, judge.from_rows(data, np.repeat(log_q, data.dataset.episodes.length)))
    return 1 - STEP_COST / data.grid.value(policy)


def test_where_nothing_slips_the_policy_gains_what_its_episodes_gain_and_so_rpsv_over_the_mean() -> None:
    data = rooms()
    returns = data.dataset.returns
    above = np.maximum(returns - returns.mean(), 0)
    even = np.full(len(returns), 1 / len(returns))
    gain = mean_return(data, above / above.sum()) - mean_return(data, even)
    assert mean_return(data, even) == pytest.approx(returns.mean(), rel=1e-4)
    assert gain == pytest.approx(imbalance(data.dataset).rpsv / above.mean(), rel=1e-4)


def test_where_moves_slip_the_policy_gains_less() -> None:
    """Part of what stands out was luck."""
    data = rooms(0.1)
    returns = data.dataset.returns
    above = np.maximum(returns - returns.mean(), 0)
    even = np.full(len(returns), 1 / len(returns))
    promised = imbalance(data.dataset).rpsv / above.mean()
    gain = mean_return(data, above / above.sum()) - mean_return(data, even)
    assert 0 < gain < 0.8 * promised
