"""Samplers: how often a row is sampled. Probabilities are fixed before training; sampling a row costs two look-ups.

A sampler is a frozen dataclass with `probabilities(dataset) -> [rows]`. Most need numpy alone; ODPR-A, `continued` and
`followed` fit a network first (`winnow.samplers.fits`).
"""

from __future__ import annotations

from winnow.samplers.alias import Alias, alias_table
from winnow.samplers.base import Sampler
from winnow.samplers.continued import Continued, Followed
from winnow.samplers.odpr import ODPRA
from winnow.samplers.returns import AW, PF, RW, ReD, Uniform
from winnow.samplers.source import Source

__all__ = [
    "AW",
    "ODPRA",
    "PF",
    "RW",
    "SAMPLERS",
    "Alias",
    "Continued",
    "Followed",
    "ReD",
    "Sampler",
    "Source",
    "Uniform",
    "alias_table",
]

SAMPLERS: dict[str, type] = {
    "uniform": Uniform,
    "aw": AW,
    "pf": PF,
    "rw": RW,
    "red": ReD,
    "odpr-a": ODPRA,
    "continued": Continued,
    "followed": Followed,
    "source": Source,
}
