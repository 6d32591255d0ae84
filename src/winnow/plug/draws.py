"""Rows drawn with a sampler's probabilities, as PyTorch's loaders want them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler as TorchSampler

from winnow.errors import BadInput
from winnow.plug.columns import Data, probabilities
from winnow.samplers import Sampler, alias_table

BLOCK = 65_536  # numbers drawn at a time


class RowSampler(TorchSampler[int]):
    """Row numbers drawn with replacement, for a `torch.utils.data.DataLoader` or by hand with `draw`.

    data, sampler: a dataset, and a sampler by name (`auto` chooses by the data; `aw`, `pf`, `rw`, `uniform`, …) or as
        `AW(temperature=0.2)`
    num_samples: draws in one pass over the loader; without it, as many as there are rows
    """

    def __init__(
        self,
        data: Data,
        sampler: str | Sampler = "auto",
        num_samples: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.probability = probabilities(data, sampler)
        self.num_samples = len(self.probability) if num_samples is None else num_samples
        if self.num_samples < 1:
            raise BadInput(f"num_samples is {num_samples}; it must be at least 1")
        self.generator = generator
        table = alias_table(self.probability)
        self._keep = torch.from_numpy(table.keep)
        self._other = torch.from_numpy(table.other).long()

    def draw(self, size: int) -> Tensor:
        """[size] row numbers."""
        column = torch.randint(len(self._keep), (size,), generator=self.generator)
        kept = torch.rand(size, generator=self.generator) < self._keep[column]
        return torch.where(kept, column, self._other[column])

    def __iter__(self) -> Iterator[int]:
        for low in range(0, self.num_samples, BLOCK):
            yield from self.draw(min(BLOCK, self.num_samples - low)).tolist()

    def __len__(self) -> int:
        return self.num_samples
