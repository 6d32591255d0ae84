"""A PyTorch batch, checked and scaled as winnow's trainer would: what stands between a user's loop and the losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from winnow.data import scaling
from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.packs.tables import start_of
from winnow.plug.columns import NAMES, find
from winnow.plug.losses import Rows

MOST_STARTS = 10_000
"""Initial states kept to draw from; of a dataset with more of them, these many at random."""


class Scaling(nn.Module):
    """The dataset's scaling and its initial states, as buffers: they move with the module and are in its state_dict."""

    mean: Tensor
    deviation: Tensor
    unit: Tensor
    action_centre: Tensor
    action_half: Tensor
    starts: Tensor

    def __init__(self, obs_dim: int, action_dim: int) -> None:
        super().__init__()
        for name, size in (("obs_dim", obs_dim), ("action_dim", action_dim)):
            if not isinstance(size, int) or size < 1:
                raise BadInput(f"{name} is {size!r}; it is the number of columns, at least 1")
        self.obs_dim = obs_dim
        self.action_dim = action_dim
        self.register_buffer("mean", torch.zeros(obs_dim))
        self.register_buffer("deviation", torch.ones(obs_dim))
        self.register_buffer("unit", torch.tensor([1.0, 0.0]))
        self.register_buffer("action_centre", torch.zeros(action_dim))
        self.register_buffer("action_half", torch.ones(action_dim))
        self.register_buffer("starts", torch.zeros(0, obs_dim))  # none: the dataset is not known yet
        self._register_load_state_dict_pre_hook(self._make_room)
        self._looked = False

    def check(self, dataset: Dataset) -> None:
        for what in ("obs_dim", "action_dim"):
            if getattr(dataset, what) != getattr(self, what):
                raise BadInput(f"the dataset's {what} is {getattr(dataset, what)}, the weights' {getattr(self, what)}")

    def fit(self, dataset: Dataset, weighter: Any) -> None:
        """The scaling that a weighter of winnow's asks for."""
        self.check(dataset)
        index = np.arange(len(dataset.start_slot))
        if len(index) > MOST_STARTS:
            index = np.random.default_rng(0).choice(index, MOST_STARTS, replace=False)
        like = scaling.Scaling.of(dataset, weighter)
        values: dict[str, Any] = {"mean": like.mean, "deviation": like.std, "unit": like.reward}
        values |= {"action_centre": like.action_centre, "action_half": like.action_half}
        values["starts"] = starts(dataset, index)
        for name, value in values.items():
            setattr(self, name, torch.tensor(value, dtype=torch.float32, device=self.mean.device))

    def read(self, batch: Any) -> Rows:
        """A batch, checked and scaled. Without initial states of its own it gets some of the dataset's at random."""
        if len(self.starts) == 0:
            raise BadInput(
                "the weights do not know the dataset's scaling yet: make them with DensityWeights.from_dataset(data), "
                "call fit(data), or load a state_dict"
            )
        raw = find(batch)
        count = len(raw["observations"])
        if "start_observations" not in raw:
            picked = torch.randint(len(self.starts), (count,), device=self.starts.device)
            raw["start_observations"] = self.starts[picked]
        columns = {"actions": (count, self.action_dim), "rewards": (count,), "terminals": (count,)}
        for name in NAMES:
            raw[name] = self._column(raw[name], name, columns.get(name, (count, self.obs_dim)))
        self._look(raw)
        obs, following, start = (
            scaling.standardise(raw[name], self.mean, self.deviation)
            for name in ("observations", "next_observations", "start_observations")
        )
        action = (raw["actions"] - self.action_centre) / self.action_half
        reward = self.unit[0] * raw["rewards"] + self.unit[1]
        return Rows(obs, action, reward, following, raw["terminals"], start)

    def _column(self, value: Any, name: str, shape: tuple[int, ...]) -> Tensor:
        if not isinstance(value, Tensor):
            value = np.asarray(value)
            if value.dtype.kind not in "fiub":
                raise BadInput(f"the batch's {name} hold {value.dtype}; they must be numbers")
            value = torch.from_numpy(np.ascontiguousarray(value))
        if value.is_complex():
            raise BadInput(f"the batch's {name} hold {value.dtype}; they must be real numbers")
        if len(shape) == 1 and tuple(value.shape) == (*shape, 1):
            value = value[:, 0]
        if tuple(value.shape) != shape or shape[0] == 0:
            wanted = f"{shape[1]} columns" if len(shape) == 2 else "one number a row"
            raise BadInput(
                f"the batch's {name} have shape {list(value.shape)}; {list(shape)} is expected ({wanted}, at least one "
                "row, as many rows as observations)"
            )
        return value.detach().to(self.mean.device, torch.float32)

    def _look(self, columns: dict[str, Tensor]) -> None:
        """Refuse numbers that would spoil the parameters. On an accelerator only the first batch is looked at (each
        look waits for the device), and in a compiled program none."""
        if torch.compiler.is_compiling() or (self._looked and self.mean.device.type != "cpu"):
            return
        for name, value in columns.items():
            good = value.isfinite()
            if name == "terminals":
                good = (value == 0) | (value == 1)
            if not bool(good.all()):
                at = tuple(map(int, (~good).nonzero()[0]))
                position = "".join(f", {word} {number}" for word, number in zip(("row", "column"), at, strict=False))
                wanted = "is neither 0 nor 1" if name == "terminals" else "is not a finite number; repair the row"
                raise BadInput(f"the batch's {name}{position}: {float(value[at])} {wanted}")
        self._looked = True

    def _make_room(self, state_dict: dict[str, Tensor], prefix: str, *_: object) -> None:
        """For as many initial states as the loaded weights have."""
        saved = state_dict.get(f"{prefix}starts")
        if saved is not None and saved.ndim == 2 and saved.shape[1] == self.obs_dim:
            self.starts = self.starts.new_zeros(saved.shape)


def starts(dataset: Dataset, index: np.ndarray) -> np.ndarray:
    """Some of a dataset's initial states: first observations of episodes, or any where there are no episodes."""
    return dataset.start_obs[index] if dataset.has_episodes else dataset.rows(index).obs


def rows(dataset: Dataset, index: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of a dataset as a batch. Each has the initial state that winnow's own scores give it."""
    start = start_of(index, len(dataset.start_slot))
    obs, action, reward, following, terminal = dataset.rows(index)
    columns = (obs, action, reward, following, terminal, starts(dataset, start))
    return dict(zip(NAMES, columns, strict=True))
