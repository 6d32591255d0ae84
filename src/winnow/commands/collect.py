"""`winnow collect train`: behaviour policies, trained online."""

from __future__ import annotations


def train(words: list[str], prog: str) -> None:
    """The options are those of `python -m winnow.collect`, which needs no tyro."""
    from winnow.collect import main

    main(words, prog)
