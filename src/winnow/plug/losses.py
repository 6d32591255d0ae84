"""The losses of `winnow.weighters` once more, in PyTorch: the tests hold the two together step by step.

Parameters are a flat dictionary under the names that winnow's files have for them (`nu/0/w`); layers are [in, out].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from winnow.nets import CUT_DEVIATION, Initialisation
from winnow.weighters import Density, Dual
from winnow.weighters.density import CLIP

Params = Mapping[str, Tensor]
Config = Density | Dual


class Rows(NamedTuple):
    """A batch as a weighter reads it: observations and rewards scaled as it asks, actions in [−1, 1]."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    terminal: Tensor
    start_obs: Tensor

    @property
    def after(self) -> Tensor:
        """Where each row leads: s', or an initial state where the task ended."""
        return torch.where(self.terminal[:, None] > 0, self.start_obs, self.next_obs)


class Scores(NamedTuple):
    """log w of each row, each up to a constant."""

    sa: Tensor
    s: Tensor


def shapes(config: Config, obs_dim: int, action_dim: int) -> dict[str, tuple[int, float]]:
    """The networks of a weighter: how many numbers each reads, and the size of its last layer's first weights."""
    if isinstance(config, Density):
        return {"phi": (obs_dim, 0.01), "psi": (obs_dim + action_dim, 0.01)}
    nets = {"nu": (obs_dim, 1e-3)}
    return nets | {"state": (obs_dim, 0.01)} if config.state_weight == "marginal" else nets


def layers(name: str, sizes: Sequence[int], like: Initialisation, last_scale: float) -> dict[str, Tensor]:
    """The layers of a network as they begin, as `winnow.nets.mlp_init` makes them."""
    made: dict[str, Tensor] = {}
    for depth, (i, o) in enumerate(itertools.pairwise(sizes)):
        last = depth == len(sizes) - 2
        w = torch.empty(i, o)
        b = torch.zeros(o)
        if like == "orthogonal":
            torch.nn.init.orthogonal_(w, 2**0.5)
        elif like == "torch":
            w.uniform_(-1, 1).div_(i**0.5)
            b.uniform_(-1, 1).div_(i**0.5)
        elif like == "lecun" and last:
            w.uniform_(-1, 1).mul_((0.03 / i) ** 0.5)
        elif like == "lecun":
            torch.nn.init.trunc_normal_(w, a=-2, b=2).div_(CUT_DEVIATION * i**0.5)
        else:
            w.normal_().mul_((last_scale if last else 2**0.5) / i**0.5)
        made |= {f"{name}/{depth}/w": w, f"{name}/{depth}/b": b}
    return made


def net(params: Params, name: str, *inputs: Tensor) -> Tensor:
    """A ReLU network with one output: [B, I] -> [B]."""
    x = torch.cat(inputs, dim=-1)
    depth = 0
    while f"{name}/{depth + 1}/w" in params:
        x = torch.relu(x @ params[f"{name}/{depth}/w"] + params[f"{name}/{depth}/b"])
        depth += 1
    return (x @ params[f"{name}/{depth}/w"] + params[f"{name}/{depth}/b"])[:, 0]


def loss(config: Any, params: Params, rows: Rows) -> tuple[Tensor, Scores]:
    """What the weighter minimises on a batch, and the scores of its rows."""
    return _density(config, params, rows) if isinstance(config, Density) else _dual(config, params, rows)


def log_weight(config: Any, params: Params, rows: Rows) -> Tensor:
    """log w(s,a) of each row, up to a constant."""
    if isinstance(config, Density):
        return _score(config, net(params, "phi", rows.obs), net(params, "psi", rows.obs, rows.action))
    return _gain(config, params, rows) / temperature(config, params)


def _density(config: Density, params: Params, rows: Rows) -> tuple[Tensor, Scores]:
    phi, following = net(params, "phi", torch.cat([rows.obs, rows.after])).chunk(2)
    psi = net(params, "psi", rows.obs, rows.action)
    score = _score(config, phi, psi)
    marginal = _bound(config, phi)
    residual = (following.exp() - (phi + psi).exp()) ** 2
    if config.terminal == "mask":
        residual = (1 - rows.terminal) * residual
    gain = (torch.softmax(score, dim=0) * rows.reward).sum()
    log_kl = torch.log_softmax(marginal if config.form == "code-td3bc" else score, dim=0)
    total = -gain + config.lambda_f * residual.mean() + config.lambda_k * (log_kl.exp() * log_kl).sum()
    return total, Scores(score, marginal if config.state_weight == "marginal" else score)


def _score(config: Density, phi: Tensor, psi: Tensor) -> Tensor:
    """log w̄ up to a constant."""
    if config.form == "code-td3bc":
        return _bound(config, phi + psi)
    return _bound(config, phi) + _bound(config, psi)


def _bound(config: Density, value: Tensor) -> Tensor:
    return value if config.form == "paper" else value.clamp(-CLIP, CLIP)


def _dual(config: Dual, params: Params, rows: Rows) -> tuple[Tensor, Scores]:
    heat = temperature(config, params)
    count = len(rows.reward)
    score = _gain(config, params, rows) / heat
    total = heat * (torch.logsumexp(score, dim=0) - math.log(count))
    if config.discount < 1:
        total = total + (1 - config.discount) * net(params, "nu", rows.start_obs).mean()
    if config.control == "budget":
        total = total + heat * config.budget
    if config.state_weight == "joint":
        return total, Scores(score, score)
    # exp m − w m, whose minimum over m(s) is log E[w | s]
    log_ratio = net(params, "state", rows.obs).clamp(max=10.0)
    ratio = count * torch.softmax(score.detach(), dim=0)
    return total + (log_ratio.exp() - ratio * log_ratio).mean(), Scores(score, log_ratio)


def temperature(config: Dual, params: Params) -> Any:
    return config.temperature if config.control == "temperature" else params["log_temperature"].exp()


def _gain(config: Dual, params: Params, rows: Rows) -> Tensor:
    # Two passes, not one over both: so the gradient of ν's last bias, which changes nothing, is exactly 0.
    flow = config.discount * net(params, "nu", rows.after) - net(params, "nu", rows.obs)
    return rows.reward + ((1 - rows.terminal) * flow if config.terminal == "mask" else flow)
