"""Learned weights and samplers for a PyTorch training loop.

    weights = DensityWeights.from_dataset(dataset)      # before the loop
    w = weights.update(batch)                           # in it: how much each row counts
    loss = expect(w.sa, td_error)                       # in place of td_error.mean()

`docs/plug.md` says where the weights go in the losses of IQL, CQL and TD3+BC.
"""

from __future__ import annotations

import difflib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

import numpy as np

from winnow.errors import BadInput, install_hint

try:
    import torch
except ImportError as error:
    raise ImportError(f"winnow.plug.torch needs PyTorch installed: {install_hint('torch')}") from error
from torch import Tensor, nn

from winnow.nets import Initialisation
from winnow.plug import losses
from winnow.plug.columns import Data, as_dataset, probabilities
from winnow.plug.draws import BLOCK, RowSampler
from winnow.plug.scaling import Scaling, rows
from winnow.samplers import Sampler
from winnow.system import checkpoint
from winnow.training import weight_table
from winnow.types import check_settings
from winnow.weighters import Density, Dual

if TYPE_CHECKING:
    from winnow.training.row_weights import RowWeights

__all__ = ["DensityWeights", "RowSampler", "Weights", "expect", "probabilities"]

Form = Literal["dual", "code", "code-td3bc", "paper"]
DECAY, EPSILON = (0.9, 0.999), 1e-8  # Adam's usual ones


class Weights(NamedTuple):
    """How much each row counts. Both are [B], ≥ 0, sum to 1, and carry no gradient."""

    sa: Tensor
    """Where the dataset's action is judged."""
    s: Tensor
    """Where the policy's own action is; the same as `sa` unless state_weight="marginal"."""


def expect(weight: Tensor, value: Tensor) -> Tensor:
    """E_w[value] = Σ w · value, in place of `value.mean()`. The value is one number a row: [B] or [B, 1].

    A product of [B] and [B, 1] would silently be [B, B]; here it is not.
    """
    if value.numel() != weight.numel():
        raise BadInput(
            f"the loss has shape {list(value.shape)} and there are {weight.numel()} weights; reduce it to one number "
            "a row first"
        )
    return (weight.reshape(-1) * value.reshape(-1)).sum()


class DensityWeights(nn.Module):
    """Density-ratio weights, learnt on the batches that a training loop draws anyway: see docs/weighters.md.

    form: code (what made the published numbers with IQL and CQL), code-td3bc (those with TD3+BC), paper (the equations
    as printed) or dual (the exact problem).
    settings: those of `winnow.Dual` (budget, control, temperature, discount, …) or of `winnow.Density` (lambda_k,
    lambda_f, …): names, meanings and usual values are the same.

    It holds its own Adam. Parameters, Adam's moments and the dataset's scaling are all in `state_dict()`. Losses are
    computed in float32, also under autocast.
    """

    count: Tensor

    def __init__(self, obs_dim: int, action_dim: int, form: Form = "code", **settings: Any) -> None:
        super().__init__()
        self.config: Any = _configure(form, settings)
        self.scaling = Scaling(obs_dim, action_dim)
        values: dict[str, Tensor] = {}
        like: Initialisation = getattr(self.config, "initialisation", "he")
        for name, (inputs, last_scale) in losses.shapes(self.config, obs_dim, action_dim).items():
            values |= losses.layers(name, (inputs, *self.config.hidden, 1), like, last_scale)
        if form == "dual" and self.config.control == "budget":
            values["log_temperature"] = torch.tensor(self.config.temperature).log()
        self.params = nn.ParameterDict(values)
        for name, value in values.items():
            self.register_buffer(f"mu/{name}", torch.zeros_like(value))
            self.register_buffer(f"nu/{name}", torch.zeros_like(value))
        self.register_buffer("count", torch.zeros((), dtype=torch.int32))

    @classmethod
    def from_dataset(cls, data: Data, form: Form = "code", **settings: Any) -> Self:
        """Fresh weights for a dataset: its sizes, its scaling and its initial states."""
        dataset = as_dataset(data)
        return cls(dataset.obs_dim, dataset.action_dim, form, **settings).fit(dataset)

    def fit(self, data: Data) -> Self:
        """Take the scaling (of observations, rewards and actions) and the initial states from a dataset.

        The dataset here and the batches later must be on the same scale. With the exact dual any shift and scale that
        your loop has given to observations and rewards makes no difference.
        """
        self.scaling.fit(as_dataset(data), self.config)
        return self

    # ------------------------------------------------------------------------------------------- in the loop

    def update(self, batch: Any) -> Weights:
        """Learn from a batch, and say how much its rows count: the weights from before this update."""
        seen = self.scaling.read(batch)
        with torch.autocast(self.count.device.type, enabled=False):
            taught = torch.func.grad_and_value(lambda params: losses.loss(self.config, params, seen), has_aux=True)
            grads, (_, scores) = taught({name: value.detach() for name, value in self.params.items()})
        self._adam(grads)
        return Weights(*(torch.softmax(score.detach(), dim=0) for score in scores))

    @torch.no_grad()
    def forward(self, batch: Any) -> Weights:
        """How much the rows of a batch count, without learning from it."""
        with torch.autocast(self.count.device.type, enabled=False):
            _, scores = losses.loss(self.config, dict(self.params.items()), self.scaling.read(batch))
        return Weights(*(torch.softmax(score, dim=0) for score in scores))

    @torch.no_grad()
    def log_weight(self, batch: Any) -> Tensor:
        """[B] log w of each row, up to a constant that is the same for all rows."""
        with torch.autocast(self.count.device.type, enabled=False):
            return losses.log_weight(self.config, dict(self.params.items()), self.scaling.read(batch))

    @torch.no_grad()
    def diagnose(self, weights: Weights, batch: Any = None) -> dict[str, float]:
        """What winnow logs of weights, under its names (see `winnow.weighters.diagnostics`): effective sample size,
        greatest weight and KL divergence; with the batch also the reward and the flow residual under them."""
        weight = weights.sa
        count = len(weight)
        metrics = {
            "weight/ess": 1 / (count * (weight**2).sum()),
            "weight/max": count * weight.max(),
            "weight/kl": (weight * (count * weight).clamp(min=1e-30).log()).sum(),
        }
        if batch is not None:
            seen = self.scaling.read(batch)
            change = seen.after - seen.obs
            drift = (weight @ change).abs() / (weight @ change**2 + 1e-8).sqrt()
            metrics |= {"weight/reward": (weight * seen.reward).sum(), "weight/flow": drift.mean()}
        return {name: float(value) for name, value in metrics.items()}

    @torch.no_grad()
    def _adam(self, grads: dict[str, Tensor]) -> None:
        self.count += 1
        first, second = (1 - torch.pow(decay, self.count.float()) for decay in DECAY)
        for name, value in self.params.items():
            mu = self.get_buffer(f"mu/{name}")
            nu = self.get_buffer(f"nu/{name}")
            grad = grads[name]
            mu.mul_(DECAY[0]).add_(grad, alpha=1 - DECAY[0])
            nu.mul_(DECAY[1]).addcmul_(grad, grad, value=1 - DECAY[1])
            rate = self.config.temperature_rate if name == "log_temperature" else self.config.learning_rate
            value.sub_(rate * (mu / first) / ((nu / second).sqrt() + EPSILON))
            if name == "log_temperature":  # projected onto λ ≥ its floor, so that it can rise again
                value.clamp_(min=math.log(self.config.least_temperature))

    # ------------------------------------------------------------------------------------ to and from winnow

    @classmethod
    def from_run(cls, run: str | Path, dataset: Data | None = None) -> Self:
        """The weights that `winnow train` learnt, from a finished run's file; the dataset from where it was, unless it
        is given. Learning goes on where it stopped: Adam's moments come along."""
        from winnow.training.trained import Trained

        trained = Trained.load(run, None if dataset is None else as_dataset(dataset))
        config = trained.run.weighter
        if not isinstance(config, (Density, Dual)):
            raise BadInput(f"{run}: was trained without learned weights; give a run of dw-… or dual-…")
        if trained.failure:
            raise BadInput(f"{run}: this run failed ({trained.failure}); it has no weights")
        settings = {name: value for name, value in vars(config).items() if name != "form"}
        made = cls.from_dataset(trained.run.dataset, getattr(config, "form", "dual"), **settings)
        saved = checkpoint.flatten(trained.weighter_state)
        with torch.no_grad():
            for name, target in made._places().items():
                target.copy_(torch.from_numpy(np.array(saved[name])))
        return made

    def to_winnow(self) -> tuple[Density | Dual, Any]:
        """winnow's own weighter with these settings, and its state (a pytree of JAX arrays) with these parameters."""
        import jax
        import jax.numpy as jnp

        from winnow.types import Spec

        # Copies: JAX may read PyTorch's own memory otherwise, which the next update writes to.
        saved = {name: jnp.asarray(value.detach().cpu().numpy().copy()) for name, value in self._places().items()}
        spec = Spec(self.scaling.obs_dim, self.scaling.action_dim, 0)
        like = jax.eval_shape(lambda key: self.config.init(key, spec), jax.random.key(0))
        names = checkpoint.flatten(jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like))
        leaves = [saved.get(name, empty) for name, empty in names.items()]  # only Dual's table, of no rows, is not held
        return self.config, jax.tree.unflatten(jax.tree.structure(like), leaves)

    def _places(self) -> dict[str, Tensor]:
        """Parameters and Adam's moments under the names that winnow's checkpoints have for them."""
        places: dict[str, Tensor] = {"optimiser/moments/count": self.count}
        for name, value in self.params.items():
            places[f"params/{name}"] = value
            for moment in ("mu", "nu"):
                places[f"optimiser/moments/{moment}/{name}"] = self.get_buffer(f"{moment}/{name}")
        return places

    def rows(self, data: Data, sampler: str | Sampler = "uniform") -> RowWeights:
        """What the weights say of each row of a dataset, drawn with a sampler: `.ratio`, `.probability`, `.weight`."""
        from winnow.training.row_weights import RowWeights

        dataset = as_dataset(data)
        chance = probabilities(dataset, sampler)
        count = len(dataset)
        blocks = [np.arange(low, min(low + BLOCK, count)) for low in range(0, count, BLOCK)]
        score = torch.cat([self.log_weight(rows(dataset, index)) for index in blocks])
        return RowWeights.of(chance, score.cpu().numpy())

    def write(self, path: str | Path, data: Data, sampler: str | Sampler = "uniform") -> None:
        """The weight of every row as the table that `winnow weights` writes (.parquet, .npy or .csv).
        `winnow train --weighter fixed --weighter.path` reads the first two."""
        weight_table.format_of(Path(path))
        dataset = as_dataset(data)
        weight_table.write(Path(path), dataset, self.rows(dataset, sampler))


def _configure(form: str, settings: dict[str, Any]) -> Density | Dual:
    if form not in get_args(Form):
        raise BadInput(f"form is {form!r}; choose one of {', '.join(map(repr, get_args(Form)))}")
    kind: Any = Dual if form == "dual" else Density
    known = [name for name in kind.__dataclass_fields__ if name != "form"]
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise BadInput(f"form {form!r} has no setting {name!r}{hint} (it has {', '.join(known)})")
    if settings.get("average", "row") != "row":
        raise BadInput(
            "average='trajectory' needs the whole dataset at hand between updates; here only average='row' is offered "
            "(`winnow train --weighter dual --weighter.average trajectory` has it)"
        )
    config = kind(**settings) if form == "dual" else kind(form=form, **settings)
    check_settings(config, "weights")
    return config
