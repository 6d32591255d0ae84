"""Weighters: how much a sampled row counts, learned beside the policy. One file each; a new one is a line here.

A weighter has `init`, `update` and `log_weight` (`winnow.types.Weighter`). It may also have
- `standardise`: whether it reads standardised observations; True if it does not say;
- `reward_scaling`: the reward it reads, `min-max` (if it does not say) or `std`: see `data.scaling`;
- `check(dataset)`: refuse a dataset it can't weigh, before anything is compiled;
- `reads_frequency`: whether it reads `Batch.frequency`, which is None where no weighter does;
- `stamp`: what changes when a file that `init` reads does;
- `refreshes` and `refresh(state, fetch, episode) -> state`: called between chunks with the whole dataset, where
  `fetch(rows)` gives any rows as a batch and `episode` [rows] numbers the episode of each row.
"""

from winnow.weighters.decoupled import Decoupled
from winnow.weighters.density import Density
from winnow.weighters.dual import Dual
from winnow.weighters.fixed import Fixed
from winnow.weighters.none import NoWeights
from winnow.weighters.optidice import OptiDICE

WEIGHTERS: dict[str, type] = {
    "none": NoWeights,
    "density": Density,
    "dual": Dual,
    "optidice": OptiDICE,
    "decoupled": Decoupled,
    "fixed": Fixed,
}

__all__ = ["WEIGHTERS", "Decoupled", "Density", "Dual", "Fixed", "NoWeights", "OptiDICE"]
