"""Algorithms: a batch and its weights to a better policy. One file each; a new one is a line here.

An algorithm never averages over a batch: it calls `expect(weights.sa, loss)` where the dataset's action is judged and
`expect(weights.s, loss)` where the policy's own action is. Uniform weights are the plain algorithm.

An algorithm is for one kind of actions. The names of those for discrete actions begin with `discrete-`; `bc`, `iql` and
`cql` mean them too where a dataset's actions are discrete (`winnow.methods.make_algorithm`).
"""

from winnow.algorithms.bc import BC
from winnow.algorithms.cql import CQL
from winnow.algorithms.discrete_bc import DiscreteBC
from winnow.algorithms.discrete_cql import DiscreteCQL
from winnow.algorithms.discrete_iql import DiscreteIQL
from winnow.algorithms.fql import FQL
from winnow.algorithms.iql import IQL
from winnow.algorithms.rebrac import ReBRAC
from winnow.algorithms.td3bc import TD3BC

ALGORITHMS: dict[str, type] = {
    "bc": BC,
    "iql": IQL,
    "cql": CQL,
    "td3bc": TD3BC,
    "rebrac": ReBRAC,
    "fql": FQL,
    "discrete-bc": DiscreteBC,
    "discrete-iql": DiscreteIQL,
    "discrete-cql": DiscreteCQL,
}

__all__ = ["ALGORITHMS", "BC", "CQL", "FQL", "IQL", "TD3BC", "DiscreteBC", "DiscreteCQL", "DiscreteIQL", "ReBRAC"]
