"""AW, PF and RW sampling and learned weights for stock d3rlpy: IQL, CQL and TD3+BC.

    data = winnow.open_dataset("mine.safetensors")
    dataset = to_mdp_dataset(data)                         # with its timeouts
    iql = d3rlpy.algos.IQLConfig(action_scaler=action_scaler(data)).create()
    weights = add_weights(iql, dataset)                    # learned weights in all of its losses
    iql.fit(resampled(dataset), n_steps=100_000)           # and rows sampled as the data asks for

Nothing of d3rlpy is replaced but the losses of the one algorithm object: where its losses average over a batch, these
take the weighted mean, with w(s,a) where the dataset's action is judged and w(s) where the policy's own is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from winnow.errors import BadInput, install_hint

try:
    import d3rlpy
except ImportError as error:
    raise ImportError(f"winnow.plug.d3rlpy needs d3rlpy installed: {install_hint('d3rlpy')}") from error
import torch
from d3rlpy.algos.qlearning.torch.cql_impl import CQLImpl
from d3rlpy.algos.qlearning.torch.ddpg_impl import DDPGBaseImpl
from d3rlpy.algos.qlearning.torch.iql_impl import IQLImpl
from d3rlpy.algos.qlearning.torch.sac_impl import SACActorLoss
from d3rlpy.algos.qlearning.torch.td3_plus_bc_impl import TD3PlusBCActorLoss, TD3PlusBCImpl
from d3rlpy.dataset import BasicTransitionPicker, MDPDataset, ReplayBuffer, SparseRewardTransitionPicker
from d3rlpy.models.torch import (
    ContinuousEnsembleQFunctionForwarder,
    build_squashed_gaussian_distribution,
    get_parameter,
)
from torch import Tensor

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.data.sources import open_dataset
from winnow.methods import DENSITY, sampler_for
from winnow.plug.torch import DensityWeights, Form, Weights
from winnow.samplers import Sampler, alias_table

__all__ = ["action_scaler", "add_weights", "as_dataset", "resampled", "to_mdp_dataset"]


def to_mdp_dataset(data: Dataset | str | Path) -> MDPDataset:
    """A winnow dataset, or the file of one, as d3rlpy's, with every transition.

    Every episode ends where it ends in the data: with a terminal, or with a timeout where it was cut. d3rlpy makes no
    transition of the last step before a timeout, so the state that was reached is added as one more step. Actions and
    rewards are as recorded; d3rlpy's policies act in [-1, 1], so give the algorithm `action_scaler(data)` as well.
    """
    rows_of = data if isinstance(data, Dataset) else open_dataset(data)
    if rows_of.meta.kind == "bag":
        raise BadInput(
            f"{rows_of.meta.name}: its rows have no order, and d3rlpy needs episodes; record where they end, or train "
            "with winnow"
        )
    rows = rows_of.rows()
    episodes = rows_of.episodes
    cut = (episodes.start + episodes.length)[~episodes.terminated]  # rows before which a state is added
    return MDPDataset(
        np.insert(rows.obs, cut, rows.next_obs[cut - 1], axis=0),
        np.insert(rows.action, cut, rows.action[cut - 1], axis=0),
        np.insert(rows.reward, cut, 0.0)[:, None],
        np.insert(rows.terminal.astype(np.float32), cut, 0.0),
        np.insert(np.zeros(len(rows_of), np.float32), cut, 1.0),
        action_space=d3rlpy.ActionSpace.CONTINUOUS,
    )


def action_scaler(data: Dataset | str | Path) -> d3rlpy.preprocessing.MinMaxActionScaler | None:
    """What d3rlpy's algorithms need as `action_scaler` to act within the data's bounds; None if these are [-1, 1]."""
    rows_of = data if isinstance(data, Dataset) else open_dataset(data)
    low = np.asarray(rows_of.meta.action_low)
    high = np.asarray(rows_of.meta.action_high)
    if (low == -1).all() and (high == 1).all():
        return None
    return d3rlpy.preprocessing.MinMaxActionScaler(minimum=low, maximum=high)


def as_dataset(buffer: Any) -> Dataset:
    """The transitions of a d3rlpy dataset (a ReplayBuffer) as winnow's, row by row in the buffer's order.

    d3rlpy makes no transition of the last step of an episode that was cut: neither does winnow.
    """
    if not isinstance(buffer, ReplayBuffer):
        raise BadInput(f"the dataset is a {type(buffer).__name__}; give a d3rlpy ReplayBuffer or MDPDataset")
    if type(buffer.transition_picker) not in (BasicTransitionPicker, SparseRewardTransitionPicker):
        raise BadInput(
            f"the dataset's transition picker is {type(buffer.transition_picker).__name__}; weights and samplers are "
            "for single steps of flat observations: use BasicTransitionPicker"
        )
    episodes = buffer.episodes
    if not episodes:
        raise BadInput("the dataset has no episodes")
    shape = np.shape(episodes[0].observations)
    if len(shape) != 2 or buffer.dataset_info.action_space != d3rlpy.ActionSpace.CONTINUOUS:
        raise BadInput(
            f"the dataset has observations of shape {list(shape[1:])} and {buffer.dataset_info.action_space.name} "
            "actions; weights are for flat observations and continuous actions"
        )
    last = np.cumsum([each.size() for each in episodes]) - 1
    ends = np.isin(np.arange(last[-1] + 1), last)
    terminal = np.zeros(len(ends), bool)
    terminal[last] = [bool(each.terminated) for each in episodes]
    obs, action, reward = (
        np.concatenate([getattr(each, name) for each in episodes]) for name in ("observations", "actions", "rewards")
    )
    made = from_arrays(obs, action, reward, terminal, ends & ~terminal, where="d3rlpy dataset", name="d3rlpy")
    if len(made) != buffer.transition_count:
        raise BadInput(
            f"the buffer holds {buffer.transition_count} transitions of {len(made)} in its episodes; fill a new one "
            "with whole episodes (InfiniteBuffer)"
        )
    return made


# ------------------------------------------------------------------------------------------------- sampling


class Resampled(ReplayBuffer):
    """The same transitions, drawn with other probabilities."""

    def __init__(self, buffer: ReplayBuffer, probability: np.ndarray) -> None:
        info = buffer.dataset_info
        super().__init__(
            buffer.buffer,
            buffer.transition_picker,
            buffer.trajectory_slicer,
            observation_signature=info.observation_signature,
            action_signature=info.action_signature,
            reward_signature=info.reward_signature,
            action_space=info.action_space,
            action_size=info.action_size,
        )
        self.probability = probability
        self._alias = alias_table(probability)

    def sample_transition(self) -> Any:
        if self.transition_count != len(self.probability):
            raise BadInput("the dataset has grown since it was resampled; resample it again")
        # NumPy's global state, as d3rlpy draws: d3rlpy.seed makes these draws repeat too.
        column = np.random.randint(len(self.probability))  # noqa: NPY002
        kept = np.random.random() < self._alias.keep[column]  # noqa: NPY002
        episode, step = self._buffer[column if kept else int(self._alias.other[column])]
        return self._transition_picker(episode, step)


def resampled(dataset: Any, sampler: str | Sampler = "auto") -> Resampled:
    """A d3rlpy dataset that draws its transitions with AW, PF or RW: by name, or as `AW(temperature=0.2)`.

    Every `fit` of d3rlpy takes it. The transitions are shared, not copied.
    """
    rows = as_dataset(dataset)
    chosen = sampler_for(sampler, rows) if isinstance(sampler, str) else sampler
    return Resampled(dataset, chosen.probabilities(rows))


# -------------------------------------------------------------------------------------------------- weights


class _TemporalDifference(ContinuousEnsembleQFunctionForwarder):
    """d3rlpy's critics with weights on the TD error, through the masks that it already takes."""

    def __init__(self, plain: ContinuousEnsembleQFunctionForwarder, impl: _Weighted) -> None:
        super().__init__(plain.forwarders, plain._action_size)
        self._impl = impl

    def compute_error(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().compute_error(*args, **kwargs | {"masks": self._impl.sa})


class _Weighted(DDPGBaseImpl):
    """What the three have in common. `sa` and `s` are [B, 1] and average to 1: multiply, then take d3rlpy's mean."""

    weights: DensityWeights
    sa: Tensor
    s: Tensor

    def inner_update(self, batch: Any, grad_step: int) -> dict[str, float]:
        weights = self.weights.update(batch.numpy_batch)  # before d3rlpy's scalers: as the weights' own were fitted
        self.weigh(weights)
        metrics = super().inner_update(batch, grad_step)
        return metrics | {name.replace("/", "_"): value for name, value in self.weights.diagnose(weights).items()}

    def weigh(self, weights: Weights) -> None:
        sa, s = (len(weight) * weight[:, None] for weight in weights)
        if getattr(self, "sa", None) is None or self.sa.shape != sa.shape:
            self.sa = sa.clone()
            self.s = s.clone()
        else:  # in place: where d3rlpy has captured a CUDA graph, it reads these tensors
            self.sa.copy_(sa)
            self.s.copy_(s)


class WeightedIQL(_Weighted, IQLImpl):
    def compute_value_loss(self, batch: Any) -> Tensor:
        """E_w(s)[ |τ − 1(u < 0)| u² ]"""
        value = self._targ_q_func_forwarder.compute_expected_q(batch.observations, batch.actions, "min").detach()
        gap = value - self._modules.value_func(batch.observations)
        return (self.s * (self._expectile - (gap < 0).float()).abs() * gap**2).mean()

    def _compute_weight(self, batch: Any) -> Tensor:
        """What multiplies log π(a|s): the advantage's weight and the row's."""
        return self.sa * super()._compute_weight(batch)


class WeightedCQL(_Weighted, CQLImpl):
    def _compute_conservative_loss(self, obs_t: Any, act_t: Tensor, obs_tp1: Any, returns_to_go: Tensor) -> Tensor:
        """E_w(s,a)[ log Σ_a exp Q(s,a) − Q(s,a) ] of each critic, less the threshold."""
        here, log_here = self._compute_policy_is_values(obs_t, obs_t, returns_to_go)
        there, log_there = self._compute_policy_is_values(obs_tp1, obs_t, returns_to_go)
        anywhere, log_anywhere = self._compute_random_is_values(obs_t)
        drawn = torch.cat([here - log_here, there - log_there, anywhere - log_anywhere], dim=2)
        taken = self._q_func_forwarder.compute_expected_q(obs_t, act_t, "none")
        gap = torch.logsumexp(drawn, dim=2, keepdim=True) - taken  # [critics, B, 1]
        return self._conservative_weight * ((self.sa * gap).mean(dim=(1, 2)) - self._alpha_threshold)

    def compute_actor_loss(self, batch: Any, action: Any) -> SACActorLoss:
        """E_w(s)[ α log π(a|s) − min Q(s,a) ],  a ~ π(s)"""
        drawn, log_prob = build_squashed_gaussian_distribution(action).sample_with_log_prob()
        learns = self._modules.temp_optim is not None
        temp_loss = self.update_temp(log_prob) if learns else torch.zeros((), device=log_prob.device)
        heat = get_parameter(self._modules.log_temp).exp()
        value = self._q_func_forwarder.compute_expected_q(batch.observations, drawn, "min")
        return SACActorLoss((self.s * (heat * log_prob - value)).mean(), temp_loss=temp_loss, temp=heat[0][0])

    def update_temp(self, log_prob: Tensor) -> Tensor:
        """The temperature's loss is linear in log π − |A|: weights on that are weights on the loss."""
        return super().update_temp(self._action_size + self.s * (log_prob - self._action_size))


class WeightedTD3PlusBC(_Weighted, TD3PlusBCImpl):
    def compute_actor_loss(self, batch: Any, action: Any) -> TD3PlusBCActorLoss:
        """−λ E_w(s)[ Q1(s, π(s)) ] + E_w(s,a)[ (π(s) − a)² ],  λ = α / plain mean |Q1|"""
        value = self._q_func_forwarder.compute_expected_q(batch.observations, action.squashed_mu, "none")[0]
        scale = self._alpha / value.abs().mean().detach()
        imitation = (self.sa * (batch.actions - action.squashed_mu) ** 2).mean()
        return TD3PlusBCActorLoss(imitation - scale * (self.s * value).mean(), bc_loss=imitation)


SUPPORTED = (d3rlpy.algos.IQL, d3rlpy.algos.CQL, d3rlpy.algos.TD3PlusBC)
PUBLISHED: dict[type, str] = {d3rlpy.algos.IQL: "iql", d3rlpy.algos.CQL: "cql", d3rlpy.algos.TD3PlusBC: "td3bc"}
"""Whose published settings of the weights an algorithm takes."""
WEIGHTED: dict[type, type] = {IQLImpl: WeightedIQL, CQLImpl: WeightedCQL, TD3PlusBCImpl: WeightedTD3PlusBC}


def add_weights(
    algo: Any, dataset: Any, form: Form | None = None, weights: DensityWeights | None = None, **settings: Any
) -> DensityWeights:
    """Learn density-ratio weights beside a d3rlpy algorithm, and use them in all of its losses from its next update on.

    algo: IQL, CQL or TD3+BC, as its config's `create` made it; built for the dataset here if it is not yet
    dataset: the d3rlpy dataset; give `fit` this one or one that is resampled from it
    form, settings: those of `DensityWeights`; or `weights`, already made (say, by `DensityWeights.from_run`). Without a
        form they are set as published with this algorithm

    The weights are returned: `weights.state_dict()` keeps them, which d3rlpy's own `save` does not.
    """
    rows = as_dataset(dataset)
    if not isinstance(algo, SUPPORTED):
        raise BadInput(
            f"{type(algo).__name__} has no weighted losses here; weights can be added to IQL, CQL, TD3PlusBC"
        )
    if form is None:
        published = dict(DENSITY[PUBLISHED[type(algo)]])
        settings = {"form": "code"} | published | settings
    else:
        settings = {"form": form} | settings
    made = DensityWeights.from_dataset(rows, **settings) if weights is None else weights
    made.scaling.check(rows)
    largest = float(np.abs(rows.rows().action).max())
    if largest > 1 and algo.config.action_scaler is None:
        raise BadInput(
            f"actions must be in [-1, 1] where d3rlpy's policies act, got {largest:.4g}; make the algorithm with "
            "action_scaler=winnow.plug.d3rlpy.action_scaler(data)"
        )
    if algo.impl is None:
        algo.build_with_dataset(dataset)
    impl: Any = algo.impl
    if isinstance(impl, _Weighted):
        raise BadInput("this algorithm already has weights; make a new one with its config's create")
    sizes = (*impl.observation_shape, impl.action_size)
    if sizes != (rows.obs_dim, rows.action_dim):
        raise BadInput(f"the algorithm was built for sizes {sizes}, the dataset has {(rows.obs_dim, rows.action_dim)}")
    impl.__class__ = WEIGHTED[type(impl)]
    impl.weights = made.to(algo._device)
    impl._q_func_forwarder = _TemporalDifference(impl._q_func_forwarder, impl)
    return impl.weights
