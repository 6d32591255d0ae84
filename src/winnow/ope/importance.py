"""Importance sampling: what a policy of discrete actions is worth, from logged choices and their propensities.

An episode of the log counts by how much likelier the policy makes its choices than the one that logged them did,
ρ = Π π(a|s)/μ(a|s). With ρ_t the product up to step t, and Q, V of a fit:

- `importance`: mean ρ G, unbiased and noisy
- `weighted`: Σ ρ G / Σ ρ, less noisy, biased for few episodes
- `per_decision`: mean Σ γᵗ ρ_t r_t, where later choices do not weigh earlier rewards
- `weighted_per_decision`: the same with ρ_t divided by its mean over episodes at step t
- `doubly_robust`: mean of V(s₀) + Σ γᵗ ρ_t (r_t + γ V(s_{t+1}) − Q(s_t, a_t)) (Jiang & Li, 2016): right if either the
  propensities or Q are

Intervals are of a bootstrap over episodes. They mean little where few episodes carry the weight: see `effective`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.ope.weighted_reward import Interval

RESAMPLES = 1_000
"""Bootstrap resamples of the episodes."""
FEW_EPISODES = 10
"""Below so many effective episodes an estimate by importance sampling rests on next to nothing."""


class Importance(NamedTuple):
    """Estimates of a policy's discounted return from the first steps of the log's episodes."""

    importance: Interval | None
    """None where the policy makes the choices of no whole episode: nothing is known then. So with the next."""
    weighted: Interval | None
    per_decision: Interval
    weighted_per_decision: Interval
    doubly_robust: Interval | None
    """None without a fitted Q."""
    effective: float
    """Effective number of episodes, (Σ ρ)² / Σ ρ²: far below their number, few of them decide."""


def importance(
    log: Dataset, policy: np.ndarray, discount: float, q: np.ndarray | None = None, seed: int = 0
) -> Importance:
    """Estimates for a policy, from a log with propensities.

    policy: [rows, K] π(·|s) of each row's state
    q: [rows, K] Q(s, ·) of each row's state, of a fit to the policy
    """
    check(log)
    assert log.propensity is not None
    rows = np.arange(len(log))
    table = log.episodes
    taken = log.rows().action[:, 0]
    ratio = _by_episode(policy[rows, taken] / log.propensity, table.length, 1.0)
    reward = _by_episode(log.reward.astype(np.float64), table.length, 0.0)
    inside = _by_episode(np.ones(len(log)), table.length, 0.0)
    product = np.cumprod(ratio, axis=1)
    gamma = discount ** np.arange(ratio.shape[1])
    # The return and ρ of whole episodes; the same step by step.
    returns = reward @ gamma
    whole = product[:, -1]
    later = gamma * reward * product
    columns = {"whole": whole, "gain": whole * returns, "steps": later.sum(axis=1)}
    if q is not None:
        columns["robust"] = _doubly_robust(log, policy, q, taken, product, reward, inside, gamma)
    rng = np.random.default_rng([seed, 3])
    samples = rng.integers(len(table), size=(RESAMPLES, len(table)))

    def mean(name: str) -> Interval:
        return Interval.of(columns[name].mean(), columns[name][samples].mean(axis=1))

    def share() -> Interval:
        totals = whole[samples].sum(axis=1)
        gains = columns["gain"][samples].sum(axis=1)
        return Interval.of(columns["gain"].sum() / whole.sum(), gains[totals > 0] / totals[totals > 0])

    def step_share() -> Interval:
        drawn = [_by_step(later[index], product[index]) for index in samples[:: RESAMPLES // 200]]
        return Interval.of(_by_step(later, product), np.array(drawn))

    robust = mean("robust") if q is not None else None
    if whole.sum() == 0:
        return Importance(None, None, mean("steps"), step_share(), robust, 0.0)
    effective = float(whole.sum() ** 2 / (whole**2).sum())
    return Importance(mean("gain"), share(), mean("steps"), step_share(), robust, effective)


def has_propensities(log: Dataset) -> bool:
    """Whether a log has all that importance sampling needs."""
    whole = log.has_episodes and not (log.episodes.offset != 0).any()
    return log.action_kind == "discrete" and log.propensity is not None and whole


def check(log: Dataset) -> None:
    """Refuse a log that has no propensities, or no whole episodes."""
    if log.action_kind != "discrete" or log.propensity is None:
        raise BadInput(
            f"{log.meta.name}: importance sampling needs discrete actions and their propensities; import the log with "
            "a column `propensity`"
        )
    if not log.has_episodes or (log.episodes.offset != 0).any():
        raise BadInput(
            f"{log.meta.name}: importance sampling needs whole episodes from their first step; give such a log"
        )


def _doubly_robust(
    log: Dataset,
    policy: np.ndarray,
    q: np.ndarray,
    taken: np.ndarray,
    product: np.ndarray,
    reward: np.ndarray,
    inside: np.ndarray,
    gamma: np.ndarray,
) -> np.ndarray:
    """[episodes] V(s₀) + Σ γᵗ ρ_t (r_t + γ V(s_{t+1}) − Q(s_t, a_t)). Nothing follows an episode's last step."""
    length = log.episodes.length
    value = _by_episode((policy * q).sum(axis=1), length, 0.0)
    chosen = _by_episode(q[np.arange(len(log)), taken], length, 0.0)
    following = np.concatenate([value[:, 1:], np.zeros((len(value), 1))], axis=1)
    discount = gamma[1] if len(gamma) > 1 else 0.0
    return value[:, 0] + (gamma * product * inside * (reward + discount * following - chosen)).sum(axis=1)


def _by_episode(values: np.ndarray, length: np.ndarray, padding: float) -> np.ndarray:
    """[episodes, most steps] a column by episode, padded at the ends."""
    inside = np.arange(length.max()) < length[:, None]
    out = np.full(inside.shape, padding)
    out[inside] = values
    return out


def _by_step(gain: np.ndarray, product: np.ndarray) -> float:
    """Σ_t of Σ gains / Σ ρ_t over episodes. An episode that has ended keeps its last ρ."""
    total = product.sum(axis=0)
    return float((gain.sum(axis=0)[total > 0] / total[total > 0]).sum())
