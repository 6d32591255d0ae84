"""What packs take: reckoned against real ones, and cut to a device's memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import pytest
from bench.tiny import planned

from winnow.bench.costs import MARGIN, ON_A_CPU, Costs, table_bytes
from winnow.bench.plan import How, Planned, grid
from winnow.bench.shelf import Shelf, make_ready
from winnow.bench.suites import entries
from winnow.pack import Pack
from winnow.runs import Run


def size(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


@dataclasses.dataclass
class Card:
    """An accelerator that has so much memory."""

    limit: int
    used: int = 0
    platform = "gpu"

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": self.limit, "bytes_in_use": self.used}


@pytest.fixture
def pack() -> list[Planned]:
    return planned(methods=["dw-aw", "dw-uniform"])


def test_bytes_are_those_of_a_real_pack(pack):
    make_ready(pack, say=print)
    with Shelf().opened(pack) as datasets:
        made = Pack(
            [Run(datasets[one.entry.text], one.algorithm, one.sampler, one.weighter, one.seed) for one in pack], 10, 8
        )
        assert len({id(arena) for data in datasets.values() for arena in data.arenas}) == 3  # shared by the mixtures
    kept = size((made.learners.weighter, made.learners.algorithm)) / len(pack)
    assert Costs(jax.devices()[0]).of_a_run(pack[0]) == pytest.approx(4 * kept, rel=0.01)


def test_what_runs_share_counts_once():
    runs = grid(
        entries(["hopper-random-expert-5%", "hopper-random-expert-10%"]), ["iql"], ["dw-uniform", "dw-aw"], 2, How()
    )
    million, source = 1_000_000, int(1.05 * 4 * (11 + 3 + 2) * 1_000_000)
    assert table_bytes(runs[:1]) == table_bytes(runs[:2]) == 2 * source + 8 * million + 8 * million
    assert table_bytes(runs[:4]) == table_bytes(runs[:1]) + 8 * million  # another sampler
    assert table_bytes(runs) == 2 * source + 2 * 8 * million + 4 * 8 * million


def test_a_programs_workings_are_asked_of_the_compiler(pack):
    assert 32 * 16 * 4 < Costs(jax.devices()[0])._workings(pack[0]) < 1_000_000  # more than a batch of activations


def test_an_accelerator_is_filled_up_to_a_margin(monkeypatch):
    runs = grid(entries(["mixed"]), ["iql"], ["dw-aw"], 3, How())[:24]
    monkeypatch.setattr(Costs, "_workings", lambda self, run: 10_000_000)
    one = Costs(Card(0)).of_a_run(runs[0])
    assert one > 10_000_000
    limit = int((table_bytes(runs) + 100.5 * one) / MARGIN)
    assert Costs(Card(limit)).fitting(runs) == 100
    assert Costs(Card(limit, used=50 * one)).fitting(runs) == 50
    assert Costs(Card(0)).fitting(runs) == 1
    assert Costs(Card(limit)).memory(runs) == table_bytes(runs) + 24 * one
    assert Costs(jax.devices()[0]).fitting(runs) <= ON_A_CPU


def test_weights_that_are_kept_for_every_row_count(monkeypatch):
    monkeypatch.setattr(Costs, "_workings", lambda self, run: 0)
    sweep = ["weighter.average=row,trajectory"]
    row, trajectory = grid(entries(["hopper-random-expert-5%"]), ["iql"], ["dual-aw"], 1, How(), sweep)
    more = Costs(Card(0)).of_a_run(trajectory) - Costs(Card(0)).of_a_run(row)
    assert more == 2 * 4 * 1_000_000
