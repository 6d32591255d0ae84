"""Behaviour cloning of discrete actions: imitate the data, as much as it weighs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from winnow.algorithms.choices import log_prob
from winnow.nets import Adam, Initialisation, adam_init, minimise, mlp, mlp_init
from winnow.types import ActionKind, Array, Batch, Metrics, Spec, Weights, expect, plugin, setting


class DiscreteBCState(NamedTuple):
    params: dict[str, Any]
    optimiser: Adam


@plugin
class DiscreteBC:
    """π:  E_w[ −log π(a|s) ]  with π(·|s) the softmax of a network's outputs, one for each choice.

    `--algorithm bc` means this where actions are discrete. The policy that is played takes the most likely choice.

    There is no authors' code. Follows d3rlpy's `DiscreteBC` and deviates in this:

    - Nothing is added to the loss. There half of the mean square of the outputs is, by default.
    """

    learning_rate: float = setting(default=3e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    standardise: bool = True
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none"] = "none"
    """Rewards are not read."""
    initialisation: Initialisation = "orthogonal"
    """How the policy begins. See `winnow.nets.Initialisation`."""

    action_kind: ClassVar[ActionKind] = "discrete"
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def init(self, key: Array, spec: Spec) -> DiscreteBCState:
        params = {"actor": mlp_init(key, (spec.obs_dim, *self.hidden, spec.action_dim), self.initialisation, 0.01)}
        return DiscreteBCState(params, adam_init(params))

    def update(
        self, state: DiscreteBCState, batch: Batch, weights: Weights, key: Array
    ) -> tuple[DiscreteBCState, Metrics]:
        def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            actor = -expect(weights.sa, log_prob(mlp(params["actor"], batch.obs), batch.action))
            return actor, {"loss/actor": actor}

        params, optimiser, metrics = minimise(loss, state.params, state.optimiser, self.learning_rate)
        return DiscreteBCState(params, optimiser), metrics

    def inspect(self, state: DiscreteBCState, batch: Batch) -> Metrics:
        return {"nll": -log_prob(mlp(state.params["actor"], batch.obs), batch.action)}

    def act(self, state: DiscreteBCState, obs: Array) -> Array:
        return mlp(state.params["actor"], obs)
