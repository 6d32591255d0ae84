"""OptiDICE's weights (Lee et al., ICML 2021, arXiv:2106.10783): the density ratio of the best policy near the data."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.nets import Adam, adam_init, adam_step, mlp_init, scalar
from winnow.types import Array, Batch, Metrics, Spec, Weights, plugin, setting
from winnow.weighters.diagnostics import after, diagnose
from winnow.weighters.marginal import marginal_fit


class Divergence(NamedTuple):
    """A convex f by what its dual needs: w = (f')⁻¹(y) is exp(y − shift) up to a knee and a straight line above it."""

    shift: float
    knee: float  # in log w; above it f is quadratic
    floor: float  # f*(y) is ∫ w dy less this


DIVERGENCES = {"kl": Divergence(1.0, 10.0, 0.0), "soft-chi2": Divergence(0.0, 0.0, 1.0)}
"""kl: x log x (quadratic above e¹⁰ ≈ 22,000); soft-chi2: x log x − x + 1 below 1, (x − 1)²/2 above."""


class OptiDICEState(NamedTuple):
    params: dict[str, Any]
    optimiser: Adam


@plugin
class OptiDICE:
    """max_w E_D[w r̃] − α E_D[f(w)] subject to the discounted flow from the dataset's initial states. With ν(s):

    e = r̃ + γ (1 − terminal) ν(s') − ν(s),   w = max(0, (f')⁻¹(e/α))

    min_ν (1 − γ) E[ν(s0)] + E_D[w e − α f(w)],   where w e − α f(w) = α f*(e/α)

    Both f here have a (f')⁻¹ above 0, so the max never acts and log w is finite. For KL it is exp(e/α − 1), which
    overflows at small α, before ν has come near its solution: it goes on as a straight line from w = e¹⁰. That is the
    exact dual of an f that is x log x up to e¹⁰ and quadratic above, where hardly any ratio of a finite dataset lies.

    Follows the equations of the paper that DW is from. Its authors' runs of OptiDICE are not in their published code.
    Deviates from OptiDICE's own code (secury/optidice) in this:

    - Rewards are scaled to [0, 1]; there they are standardised and multiplied by 0.1.
    - Weights are normalised over the batch; there a learned multiplier keeps E_D[w] at 1.
    - w is read from ν and the row's own s'; there a second network learns e(s,a).
    - ν is 0 after a terminal; there a terminal leads to an absorbing state with a ν of its own.
    - ν begins as `he` with a small last layer, so that w begins even; there Glorot uniform, the last layer in ±0.003.
    - Learning rate 1e-4 and batches of 256, as with DW; there 3e-4 and 512, and 500,000 updates before the policy's.

    Examples:
        >>> from winnow import BC, toy, train
        >>> data = toy.imbalanced(2_000, share=0.1)
        >>> weighter = OptiDICE(hidden=(32,), divergence="kl", alpha=0.1)
        >>> (run,) = train(data, BC(hidden=(8,)), "uniform", weighter=weighter, steps=300, progress=False)
        >>> round(run.weights().share(data.source == 1), 1)  # of a batch's weight; 0.1 of the rows are good
        0.2
    """

    divergence: Literal["kl", "soft-chi2"] = "soft-chi2"
    """f. kl: x log x; soft-chi2: like it below 1 and (x − 1)²/2 above, as in OptiDICE's own experiments."""
    alpha: float = setting(default=1.0, low=1e-6)
    """α, in units of the scaled reward: the higher, the nearer weights stay to 1. The paper's grid: 0.1, 1, 5."""
    discount: float = setting(default=0.99, low=0, high=1)
    """γ of the flow, which restarts from the dataset's initial states with probability 1 − γ at every step."""
    terminal: Literal["end", "reset"] = "end"
    """What follows a terminal row. end: nothing, ν is 0 there; reset: a random initial state."""
    state_weight: Literal["joint", "marginal"] = "joint"
    """Weight where the policy's own action is judged. joint: w(s,a); marginal: w(s), a regression of w(s,a) on s."""
    learning_rate: float = setting(default=1e-4, low=0)
    """How far Adam moves ν (and the regression) in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of ν."""

    def init(self, key: Array, spec: Spec) -> OptiDICEState:
        k_nu, k_state = jax.random.split(key)
        params: dict[str, Any] = {"nu": mlp_init(k_nu, (spec.obs_dim, *self.hidden, 1), last_scale=1e-3)}
        if self.state_weight == "marginal":
            params["state"] = mlp_init(k_state, (spec.obs_dim, *self.hidden, 1), last_scale=0.01)
        return OptiDICEState(params, adam_init(params))

    def update(self, state: OptiDICEState, batch: Batch, key: Array) -> tuple[OptiDICEState, Weights, Metrics]:
        stop_gradient = jax.lax.stop_gradient

        def loss(params: dict[str, Any]) -> tuple[Array, tuple[Array, Array, Array]]:
            score = self._score(params, batch)
            dual = self.alpha * (jnp.mean(self._area(score)) - DIVERGENCES[self.divergence].floor)
            dual += (1 - self.discount) * jnp.mean(scalar(params["nu"], batch.start_obs))
            log_ratio = marginal = stop_gradient(self._log_ratio(score))
            fit = 0.0
            if self.state_weight == "marginal":
                ratio = batch.reward.shape[0] * jax.nn.softmax(log_ratio)
                fit, marginal = marginal_fit(params["state"], batch.obs, ratio)
            return dual + fit, (dual, log_ratio, marginal)

        grads, (dual, log_ratio, marginal) = jax.grad(loss, has_aux=True)(state.params)
        params, optimiser = adam_step(state.params, grads, state.optimiser, self.learning_rate)
        joint = stop_gradient(jax.nn.softmax(log_ratio))
        weights = Weights(joint, stop_gradient(jax.nn.softmax(marginal)) if self.state_weight == "marginal" else joint)
        metrics = {"weighter/loss": dual, "weighter/ratio": jnp.mean(jnp.exp(log_ratio))}
        return OptiDICEState(params, optimiser), weights, metrics | diagnose(joint, batch)

    def log_weight(self, state: OptiDICEState, batch: Batch) -> Array:
        return self._log_ratio(self._score(state.params, batch))

    def _score(self, params: dict[str, Any], batch: Batch) -> Array:
        """e/α less the shift of f: log w, up to the knee."""
        following = scalar(params["nu"], after(batch))
        if self.terminal == "end":
            following *= 1 - batch.terminal
        gain = batch.unit_reward + self.discount * following - scalar(params["nu"], batch.obs)
        return gain / self.alpha - DIVERGENCES[self.divergence].shift

    def _log_ratio(self, score: Array) -> Array:
        knee = DIVERGENCES[self.divergence].knee
        return jnp.minimum(score, knee) + jnp.log1p(jnp.maximum(score - knee, 0.0))

    def _area(self, score: Array) -> Array:
        """The integral of w up to a score: f*, up to a constant. Its slope is w."""
        knee = DIVERGENCES[self.divergence].knee
        beyond = jnp.maximum(score - knee, 0.0)
        return jnp.exp(jnp.minimum(score, knee)) + jnp.exp(knee) * (beyond + beyond**2 / 2)
