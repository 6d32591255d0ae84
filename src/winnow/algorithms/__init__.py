"""Algorithms: a batch and its weights to a better policy. One file each; a new one is a line here.

An algorithm never averages over a batch: it calls `expect(weights.sa, loss)` where the dataset's action is judged and
`expect(weights.s, loss)` where the policy's own action is. Uniform weights are the plain algorithm.
"""

from winnow.algorithms.bc import BC
from winnow.algorithms.cql import CQL
from winnow.algorithms.iql import IQL
from winnow.algorithms.td3bc import TD3BC

ALGORITHMS: dict[str, type] = {"bc": BC, "iql": IQL, "cql": CQL, "td3bc": TD3BC}

__all__ = ["ALGORITHMS", "BC", "CQL", "IQL", "TD3BC"]
