"""The runs of a dataset, an algorithm and a method: one for each seed."""

from __future__ import annotations

from collections.abc import Sequence

from winnow.data.advice import AUTO
from winnow.data.dataset import Dataset
from winnow.methods import for_dataset, make_algorithm, make_sampler, make_weighter
from winnow.packs.run import Run
from winnow.plugins import record
from winnow.samplers import Sampler
from winnow.system.files import file_stem
from winnow.types import Algorithm, Weighter


def plan(
    dataset: Dataset,
    algorithm: str | Algorithm,
    method_name: str,
    *,
    sampler: str | Sampler | None = None,
    weighter: str | Weighter | None = None,
    seeds: int | Sequence[int] = 1,
) -> list[Run]:
    """The runs of one dataset, algorithm and method: one for each seed.

    A run is named after its dataset (with `-` for the slashes of a Minari id), algorithm, method and seed; a sampler
    or weighter given by name takes the method's place there. `auto` chooses the method by the data; a run of it knows
    both names.
    """
    learner = make_algorithm(algorithm, dataset) if isinstance(algorithm, str) else algorithm
    title = record(learner)["name"]
    usual = for_dataset(method_name, dataset, title)
    drawn = make_sampler(sampler, title) if isinstance(sampler, str) else sampler or usual.sampler
    weighed = make_weighter(weighter, title) if isinstance(weighter, str) else weighter or usual.weighter
    same = type(drawn) is type(usual.sampler) and type(weighed) is type(usual.weighter)
    label = method_name if same else f"{record(weighed)['name']}-{record(drawn)['name']}"
    resolved = usual.method if label == AUTO else label
    group = f"{file_stem(dataset.meta.name)}.{title}.{label}"
    return [
        Run(dataset, learner, drawn, weighed, seed, f"{group}.seed{seed}", label, resolved)
        for seed in (range(seeds) if isinstance(seeds, int) else seeds)
    ]
