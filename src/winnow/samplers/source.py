"""The oracle: it samples the rows of one source, by its label."""

from __future__ import annotations

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.samplers.base import require_episodes
from winnow.types import plugin


@plugin
class Source:
    """The rows of one source alone. It reads source labels, which real data rarely has: an oracle for comparison, not a
    method.

    Examples:
        >>> from winnow import toy
        >>> data = toy.imbalanced(1_000, share=0.1)  # of random's rows and expert's
        >>> bool((data.source[Source().probabilities(data) > 0] == data.meta.sources.index("expert")).all())
        True
    """

    label: str = ""
    """Which source; empty for the one whose episodes return most on average."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        labels = dataset.meta.sources
        if self.label:
            if self.label not in labels:
                known = f"it has {', '.join(labels)}" if labels else "its rows have none"
                raise BadInput(f"{dataset.meta.name}: sampler.label is {self.label!r}, which is no source; {known}")
            chosen = labels.index(self.label)
        else:
            require_episodes(dataset, "source")
            count = np.bincount(dataset.episodes.source)
            total = np.bincount(dataset.episodes.source, dataset.returns)
            chosen = int(np.argmax(np.where(count > 0, total / np.maximum(count, 1), -np.inf)))
        kept = (dataset.source == chosen).astype(np.float64)
        return kept / kept.sum()
