"""FQL, flow Q-learning (Park et al., 2025): a flow that clones the data, and a one-step policy distilled from it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.nets import Adam, adam_init, minimise, track
from winnow.nets.normed import normed, normed_init, normed_twins, normed_twins_init
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting


class FQLState(NamedTuple):
    params: dict[str, Any]
    target_critic: Any
    optimiser: Adam


@plugin
class FQL:
    """Four losses, minimised together; z, x ~ N(0, 1), t ~ U(0, 1), μ(s, z) is the one-step policy:

    Q:  E_w[ ½ Σ (r + γ mean Q̄(s', μ(s', z)) − Q(s,a))² ]

    flow:  E_w[ |v(s, (1 − t) x + t a, t) − (a − x)|² / |A| ]

    distillation:  α E_w[ |μ(s, z) − flow(s, z)|² / |A| ],  where flow(s, z) follows v from z in `flow_steps` steps

    policy:  −E_w[ mean Q(s, μ(s, z)) ]

    The flow is weighted by w(s,a), so it clones the weighted data; the two losses on the policy's own action by w(s).

    Follows the authors' code (seohongpark/fql): networks (GELU, layer normalisation in the critic) and how they begin,
    losses, clipping, one Adam for all, a target that follows the critic of before this update. Deviates in this:

    - The policy acts with z = 0, so that its action is determined by the observation. The authors sample z.
    - The authors tune α for each environment; the default is their code's.
    """

    alpha: float = setting(default=10.0, low=0)
    """α: how much the policy is held to the flow. Unless `normalise_q` is on it depends on the scale of Q: the authors
    take 3 to 1000. With `normalise_q` they advise to try 0.03 to 10."""
    normalise_q: bool = False
    """Divide the policy's loss by mean|Q|, so that α does not depend on the reward's scale."""
    target: Literal["mean", "min"] = "mean"
    """Which of the two target critics the backup takes."""
    flow_steps: int = setting(default=10, low=1)
    """Euler steps from noise to an action of the flow."""
    discount: float = setting(default=0.99, low=0, high=1)
    """γ of the value functions."""
    target_rate: float = setting(default=0.005, low=0, high=1)
    """How fast the target critic follows."""
    learning_rate: float = setting(default=3e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (512, 512, 512, 512)
    """Widths of the hidden layers."""
    normalise_critic: bool = True
    """Layer normalisation in the critic."""
    normalise_actor: bool = False
    """Layer normalisation in the flow and the policy."""
    standardise: bool = False
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none", "return-range", "minus-one"] = "none"
    """none: raw; return-range: × 1000 / (greatest − least return); minus-one: r − 1 (AntMaze)."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def init(self, key: Array, spec: Spec) -> FQLState:
        k_critic, k_flow, k_policy = jax.random.split(key, 3)
        both = spec.obs_dim + spec.action_dim
        actor = {"like": "glorot", "normalise": self.normalise_actor}
        params: dict[str, Any] = {
            "critic": normed_twins_init(k_critic, (both, *self.hidden, 1), "glorot", normalise=self.normalise_critic),
            "flow": normed_init(k_flow, (both + 1, *self.hidden, spec.action_dim), **actor),
            "policy": normed_init(k_policy, (both, *self.hidden, spec.action_dim), **actor),
        }
        return FQLState(params, params["critic"], adam_init(params))

    def update(self, state: FQLState, batch: Batch, weights: Weights, key: Array) -> tuple[FQLState, Metrics]:
        k_next, k_start, k_time, k_noise = jax.random.split(key, 4)
        shape = batch.action.shape
        next_action = _policy(state.params["policy"], batch.next_obs, jax.random.normal(k_next, shape))
        next_values = _values(state.target_critic, batch.next_obs, jnp.clip(next_action, -1, 1))
        next_value = next_values.mean(axis=0) if self.target == "mean" else next_values.min(axis=0)
        backup = batch.reward + self.discount * (1 - batch.terminal) * next_value
        start = jax.random.normal(k_start, shape)
        time = jax.random.uniform(k_time, (*shape[:-1], 1))
        noise = jax.random.normal(k_noise, shape)
        cloned = self._follow(state.params["flow"], batch.obs, noise)

        def critic_loss(params: dict[str, Any]) -> tuple[Array, Array]:
            value = _values(params["critic"], batch.obs, batch.action)
            return expect(weights.values.sa, ((value - backup) ** 2).mean(axis=0)), expect(weights.sa, value[0])

        def flow_loss(params: dict[str, Any]) -> Array:
            velocity = _velocity(params["flow"], batch.obs, (1 - time) * start + time * batch.action, time)
            return expect(weights.sa, ((velocity - (batch.action - start)) ** 2).mean(axis=-1))

        def policy_loss(params: dict[str, Any]) -> tuple[Array, Array]:
            action = _policy(params["policy"], batch.obs, noise)
            distillation = expect(weights.s, ((action - cloned) ** 2).mean(axis=-1))
            value = _values(state.params["critic"], batch.obs, jnp.clip(action, -1, 1)).mean(axis=0)
            # A plain mean: it sets the scale of Q, and is not a loss over the batch.
            scale = 1 / jax.lax.stop_gradient(jnp.abs(value).mean()) if self.normalise_q else 1.0
            return distillation, -scale * expect(weights.s, value)

        def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            critic, q = critic_loss(params)
            flow = flow_loss(params)
            distillation, improvement = policy_loss(params)
            total = critic + flow + self.alpha * distillation + improvement
            losses = {"critic": critic, "flow": flow, "distillation": distillation, "policy": improvement}
            return total, {f"loss/{name}": value for name, value in losses.items()} | {"q": q}

        params, optimiser, metrics = minimise(loss, state.params, state.optimiser, self.learning_rate)
        target = track(state.target_critic, state.params["critic"], self.target_rate)
        return FQLState(params, target, optimiser), metrics

    def _follow(self, flow: Any, obs: Array, noise: Array) -> Array:
        """The flow's action for some noise."""
        action = noise
        for step in range(self.flow_steps):
            time = jnp.full((*obs.shape[:-1], 1), step / self.flow_steps)
            action = action + _velocity(flow, obs, action, time) / self.flow_steps
        return jnp.clip(action, -1, 1)

    def inspect(self, state: FQLState, batch: Batch) -> Metrics:
        q = _values(state.params["critic"], batch.obs, batch.action).min(axis=0)
        return {"error": ((self.act(state, batch.obs) - batch.action) ** 2).mean(axis=-1), "q": q}

    def act(self, state: FQLState, obs: Array) -> Array:
        policy = state.params["policy"]
        action_dim = policy[-1]["b"].shape[-1]
        return jnp.clip(_policy(policy, obs, jnp.zeros((*obs.shape[:-1], action_dim))), -1, 1)


def _values(critic: Any, obs: Array, action: Array) -> Array:
    return normed_twins(critic, obs, action, activation=jax.nn.gelu)


def _velocity(flow: Any, obs: Array, action: Array, time: Array) -> Array:
    return normed(flow, obs, action, time, activation=jax.nn.gelu)


def _policy(policy: Any, obs: Array, noise: Array) -> Array:
    return normed(policy, obs, noise, activation=jax.nn.gelu)
