"""`winnow data split`: hold whole episodes out of a dataset, to judge by what is trained on the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from winnow.errors import BadInput


def split(
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")],
    /,
    *,
    share: float = 0.2,
    seed: int = 0,
    train: Path | None = None,
    held_out: Path | None = None,
    json: bool = False,
) -> None:
    """Split a dataset into one to train on and one that is held out, by whole episodes.

    Every source gives the same share, spread evenly over its returns. Segments of one episode stay together. The first
    file knows the second: `winnow ope` finds the held-out episodes of a run that was trained on the first.

    Args:
        dataset: A winnow dataset, or anything else that `winnow data import` reads.
        share: Part of the episodes to hold out, between 0 and 1.
        seed: Another seed holds out other episodes.
        train: The file to train on. Without it, NAME.train.safetensors beside the dataset's file, or here.
        held_out: The file of the held-out episodes. Without it, NAME.held-out.safetensors beside the first.
        json: Print what was written as one JSON object on stdout, and nothing else there.
    """
    from winnow.commands._shared import answer, dataset_record, opened, summarise
    from winnow.data import holdout

    path = Path(dataset)
    if not 0 < share < 1:
        raise BadInput(f"--share must be above 0 and below 1, got {share}; a fifth is 0.2")
    stem = path.stem if path.is_file() else path.name.replace(":", "-")
    first = train or (path.parent if path.is_file() else Path()) / f"{stem}.train.safetensors"
    second = held_out or first.parent / f"{stem}.held-out.safetensors"
    if path.exists() and path.resolve() in (first.resolve(), second.resolve()):
        raise BadInput(f"{path}: would be overwritten by a part of itself; choose other names (--train, --held-out)")
    with answer(json) as report:
        training, other = holdout.split(opened(dataset), share, seed)
        holdout.write(training, other, first, second)
        summarise(training, str(first))
        summarise(other, str(second))
        report({"train": dataset_record(training, str(first)), "held_out": dataset_record(other, str(second))})
