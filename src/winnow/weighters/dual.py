"""Density ratios with exact flow conservation: the convex dual of the paper's own problem."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.nets import Adam, adam_init, adam_step, mlp_init, scalar
from winnow.types import Array, Batch, Fetch, Metrics, Spec, Weights, plugin, setting
from winnow.weighters.diagnostics import after, diagnose
from winnow.weighters.marginal import marginal_fit

BLOCK = 8192  # rows scored at a time when the whole dataset is


class DualState(NamedTuple):
    params: dict[str, Any]
    optimiser: Adam
    table: Array  # [rows] log w averaged over trajectories, as of the last refresh; [0] when rows are weighed alone


@plugin
class Dual:
    """max_w E_D[w r̃] − λ KL(D_w‖D) subject to flow conservation and E_D[w] = 1. With multiplier ν(s):

    e = r̃ + γ ν(s') − ν(s),   w = exp(e/λ) / E_D[exp(e/λ)],   min_ν λ log E_D[exp(e/λ)] + (1 − γ) E[ν(s0)]

    It is convex in ν, and its gradient in ν is the flow residual under w. With a KL budget ε, λ is learned too:
    min_{ν, λ} λ ε + λ log E_D[exp(e/λ)] (relative entropy policy search, Peters et al., 2010).

    There is no authors' code to follow: this is the exact solution of the problem that the paper states.

    ν reads standardised observations and begins as `he` with a last layer of 1e-3: w then begins as exp(r̃/λ), whatever
    the observations' scale.

    Examples:
        >>> from winnow import BC, toy, train
        >>> data = toy.imbalanced(2_000, share=0.1)
        >>> (run,) = train(data, BC(hidden=(8,)), "uniform", weighter=Dual(hidden=(32,)), steps=300, progress=False)
        >>> round(run.weights().share(data.source == 1), 1)  # of a batch's weight; 0.1 of the rows are good
        0.6
    """

    control: Literal["budget", "temperature"] = "budget"
    """budget: give the KL divergence to spend and learn λ, whatever the reward's scale; temperature: give λ."""
    budget: float = setting(default=2.0, low=0)
    """ε: how far in nats the weighted data may be from the dataset. 2 nats can single out about a tenth of it."""
    temperature: float = setting(default=0.1, low=1e-6)
    """λ, in units of the scaled reward: fixed with control=temperature, where learning starts with control=budget."""
    least_temperature: float = setting(default=0.02, low=1e-6)
    """λ is never learned below this."""
    discount: float = setting(default=1.0, low=0, high=1)
    """γ. Below 1 the flow restarts from the dataset's own initial states with probability 1 − γ at every step."""
    average: Literal["row", "trajectory"] = "row"
    """row: each row has its own weight; trajectory: the mean of log w over its episode, renewed once a chunk."""
    terminal: Literal["reset", "mask"] = "reset"
    """What follows a terminal row. reset: a random initial state; mask: nothing, the row leaves the flow."""
    state_weight: Literal["joint", "marginal"] = "joint"
    """Weight where the policy's own action is judged. joint: w(s,a); marginal: w(s), a regression of w(s,a) on s."""
    learning_rate: float = setting(default=1e-3, low=0)
    """How far Adam moves ν (and the regression) in one update."""
    temperature_rate: float = setting(default=1e-2, low=0)
    """How far Adam moves log λ in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of ν."""

    def check(self, dataset: Dataset) -> None:
        if self.average == "trajectory" and not dataset.has_episodes:
            raise BadInput(
                f"{dataset.meta.name}: is {dataset.meta.kind} data: there is no trajectory to average weights over; "
                "leave weighter.average at row"
            )

    @property
    def refreshes(self) -> bool:
        return self.average == "trajectory"

    def init(self, key: Array, spec: Spec) -> DualState:
        k_nu, k_state = jax.random.split(key)
        params: dict[str, Any] = {"nu": mlp_init(k_nu, (spec.obs_dim, *self.hidden, 1), last_scale=1e-3)}
        if self.control == "budget":
            params["log_temperature"] = jnp.log(jnp.asarray(self.temperature, jnp.float32))
        if self.state_weight == "marginal":
            params["state"] = mlp_init(k_state, (spec.obs_dim, *self.hidden, 1), last_scale=0.01)
        return DualState(params, adam_init(params), jnp.zeros(spec.rows if self.refreshes else 0))

    def update(self, state: DualState, batch: Batch, key: Array) -> tuple[DualState, Weights, Metrics]:
        count = batch.reward.shape[0]

        def dual(params: dict[str, Any]) -> tuple[Array, Array]:
            heat, score = self._temperature(params), self._gain(params, batch) / self._temperature(params)
            loss = heat * (jax.nn.logsumexp(score) - jnp.log(count))
            loss += (1 - self.discount) * jnp.mean(scalar(params["nu"], batch.start_obs))
            if self.control == "budget":
                loss += heat * self.budget
            return loss, score

        def loss(params: dict[str, Any]) -> tuple[Array, tuple[Array, Array]]:
            total, score = dual(params)
            score = state.table[batch.row] if self.refreshes else score
            marginal = score
            if self.state_weight == "marginal":
                ratio = jax.lax.stop_gradient(count * jax.nn.softmax(score))
                fit, marginal = marginal_fit(params["state"], batch.obs, ratio)
                total += fit
            return total, (score, marginal)

        (total, (score, marginal)), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        rates = dict.fromkeys(state.params, self.learning_rate) | {"log_temperature": self.temperature_rate}
        params, optimiser = adam_step(state.params, grads, state.optimiser, rates)
        if self.control == "budget":  # projected onto λ ≥ its floor, so that it can rise again
            params["log_temperature"] = jnp.maximum(params["log_temperature"], jnp.log(self.least_temperature))
        score, marginal = jax.lax.stop_gradient((score, marginal))
        joint = jax.nn.softmax(score)
        metrics = {"weighter/loss": total, "weighter/temperature": self._temperature(state.params)}
        weights = Weights(joint, jax.nn.softmax(marginal) if self.state_weight == "marginal" else joint)
        return DualState(params, optimiser, state.table), weights, metrics | diagnose(joint, batch)

    def log_weight(self, state: DualState, batch: Batch) -> Array:
        return state.table[batch.row] if self.refreshes else self._score(state.params, batch)

    def refresh(self, state: DualState, fetch: Fetch, episode: Array) -> DualState:
        """Average log w over each trajectory: on a path that never merges, flow conservation makes w constant."""
        rows = episode.shape[0]
        blocks = jnp.arange(-(-rows // BLOCK) * BLOCK).reshape(-1, BLOCK)
        score = jax.lax.map(lambda index: self._score(state.params, fetch(jnp.minimum(index, rows - 1))), blocks)
        total = jax.ops.segment_sum(score.reshape(-1)[:rows], episode, num_segments=rows)
        steps = jax.ops.segment_sum(jnp.ones(rows), episode, num_segments=rows)
        return state._replace(table=(total / jnp.maximum(steps, 1.0))[episode])

    def _temperature(self, params: dict[str, Any]) -> Array:
        if self.control == "temperature":
            return jnp.asarray(self.temperature)
        return jnp.exp(params["log_temperature"])

    def _gain(self, params: dict[str, Any], batch: Batch) -> Array:
        """e = r̃ + γ ν(s') − ν(s): what the row adds to the objective, over and above the flow it uses."""
        # Two passes, not one over both: so the gradient of ν's last bias, which changes nothing, is exactly 0.
        flow = self.discount * scalar(params["nu"], after(batch)) - scalar(params["nu"], batch.obs)
        if self.terminal == "mask":
            flow *= 1 - batch.terminal
        return batch.unit_reward + flow

    def _score(self, params: dict[str, Any], batch: Batch) -> Array:
        return self._gain(params, batch) / self._temperature(params)
