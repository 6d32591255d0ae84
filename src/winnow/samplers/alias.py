"""Walker's alias table: sampling a row by any probabilities costs two look-ups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Alias(NamedTuple):
    """A table for drawing in constant time: take column i at random, keep it with `keep[i]`, else `other[i]`."""

    keep: np.ndarray  # [rows] float32
    other: np.ndarray  # [rows] int32


def alias_table(probability: np.ndarray) -> Alias:
    """Walker's alias table, built in float64 with sums and searches over whole arrays.

    Lay the deficits of light columns (p < mean) and the surpluses of heavy ones end to end. A light column borrows
    from the heavy one that its deficit begins in. A heavy column whose last borrower reaches beyond its surplus is
    itself short by that overhang, and borrows it from the next heavy column.
    """
    scaled = np.asarray(probability, np.float64) * (len(probability) / np.sum(probability, dtype=np.float64))
    light = np.flatnonzero(scaled < 1)
    heavy = np.flatnonzero(scaled >= 1)
    keep = np.ones(len(scaled))
    other = np.arange(len(scaled))
    if len(light) == 0 or len(heavy) == 0:  # all equal, to rounding
        return Alias(keep.astype(np.float32), other.astype(np.int32))
    deficit = np.cumsum(1 - scaled[light])
    surplus = np.cumsum(scaled[heavy] - 1)
    begins = np.concatenate([[0.0], deficit[:-1]])
    lender = np.minimum(np.searchsorted(surplus, begins, side="right"), len(heavy) - 1)
    keep[light] = scaled[light]
    other[light] = heavy[lender]
    last = np.searchsorted(deficit, surplus, side="left")
    # The last heavy columns may have no borrower at their edge (rounding), and those before any surplus lend nothing.
    short = (last < len(light)) & (surplus > 0)
    overhang = np.where(short, deficit[np.minimum(last, len(light) - 1)] - surplus, 0.0)
    keep[heavy] = np.clip(1 - overhang, 0.0, 1.0)
    other[heavy] = heavy[np.minimum(np.arange(len(heavy)) + 1, len(heavy) - 1)]
    return Alias(keep.astype(np.float32), other.astype(np.int32))
