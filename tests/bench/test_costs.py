"""Memory and time of packs: estimates compared with real packs, and divided to fit a device's memory."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import pytest
from helpers.made_results import result
from helpers.tiny_grids import planned

from winnow.bench.costs import MAX_CPU_PACK, MEMORY_SHARE, Costs, _steps_per_second, evaluation_time, table_bytes
from winnow.bench.datasets import OpenDatasets, make_ready
from winnow.bench.plan import LARGEST, How, Planned, grid, shard
from winnow.bench.recorded import Rates, estimate
from winnow.bench.suites import entries
from winnow.envs import lookup
from winnow.errors import BadInput
from winnow.evaluation.candidates import resolve_environment
from winnow.packs.pack import Pack
from winnow.packs.run import Run


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
    with OpenDatasets().opened(pack) as datasets:
        made = Pack(
            [Run(datasets[one.entry.text], one.algorithm, one.sampler, one.weighter, one.seed) for one in pack], 10, 8
        )
        assert len({id(arena) for data in datasets.values() for arena in data.arenas}) == 3  # shared by the mixtures
    kept = size((made.learners.weighter, made.learners.algorithm)) / len(pack)
    estimated = Costs(jax.devices()[0]).memory(pack) - table_bytes(pack)
    assert estimated / len(pack) == pytest.approx(4 * kept, rel=0.01)


def test_what_runs_share_counts_once():
    runs = grid(
        entries(["hopper-random-expert-5%", "hopper-random-expert-10%"]), ["iql"], ["dw-uniform", "dw-aw"], 2, How()
    )
    million, source = 1_000_000, int(1.05 * 4 * (11 + 3 + 2) * 1_000_000)
    assert table_bytes(runs[:1]) == table_bytes(runs[:2]) == 2 * source + 8 * million + 8 * million
    assert table_bytes(runs[:4]) == table_bytes(runs[:1]) + 8 * million  # another sampler
    assert table_bytes(runs) == 2 * source + 2 * 8 * million + 4 * 8 * million


def test_a_programs_workings_are_asked_of_the_compiler(pack):
    assert 32 * 16 * 4 < Costs(jax.devices()[0])._step_bytes(pack[0]) < 1_000_000  # more than a batch of activations


@pytest.mark.parametrize("algorithm", ["iql", "cql"])
def test_no_program_works_with_more_than_is_thought_at_first(algorithm):
    costs = Costs(jax.devices()[0])
    run = planned(algorithm, methods=["dw-aw"], sweeps=[])[0]
    assert costs._step_bytes(run) < costs._step_bytes_bound(run) < 100 * costs._step_bytes(run)


def fixed(monkeypatch: pytest.MonkeyPatch, workings: int, most: int = 10**12) -> None:
    monkeypatch.setattr(Costs, "_step_bytes", lambda self, run, count=4: workings)
    monkeypatch.setattr(Costs, "_step_bytes_bound", lambda self, run, count: most)


def test_an_accelerator_is_filled_up_to_a_margin(monkeypatch):
    runs = grid(entries(["mixed"]), ["iql"], ["dw-aw"], 3, How())[:24]
    fixed(monkeypatch, 10_000_000)
    one = Costs(Card(0))._state_bytes(runs[0]) + 10_000_000
    limit = int((table_bytes(runs) + 100.5 * one) / MEMORY_SHARE)
    assert Costs(Card(limit)).fitting(runs) == 100
    assert Costs(Card(limit, used=50 * one)).fitting(runs) == 50
    assert Costs(Card(0)).fitting(runs) == 1
    assert Costs(Card(limit)).memory(runs) == table_bytes(runs) + 24 * one
    assert Costs(jax.devices()[0]).fitting(runs) <= MAX_CPU_PACK


def test_where_there_is_room_enough_the_compiler_is_not_asked(monkeypatch):
    runs = grid(entries(["mixed"]), ["iql"], ["dw-aw"], 3, How())[:24]
    fixed(monkeypatch, 10_000_000, most=50_000_000)
    one = Costs(Card(0))._state_bytes(runs[0]) + 50_000_000
    monkeypatch.setattr(Costs, "_step_bytes", lambda self, run, count=4: pytest.fail("asked"))
    assert Costs(Card(int((table_bytes(runs) + 24.5 * one) / MEMORY_SHARE))).fitting(runs) == 24


def test_weights_that_are_kept_for_every_row_count():
    sweep = ["weighter.average=row,trajectory"]
    row, trajectory = grid(entries(["hopper-random-expert-5%"]), ["iql"], ["dual-aw"], 1, How(), sweep)
    assert Costs(Card(0))._state_bytes(trajectory) - Costs(Card(0))._state_bytes(row) == 2 * 4 * 1_000_000


def test_an_environment_that_is_not_here_is_named_and_the_others_are_counted(monkeypatch):
    def missing(environment: str, spec: Any) -> Any:
        if environment == "ant":
            raise BadInput("ant: is not here")
        return resolve_environment(environment, spec)

    monkeypatch.setattr("winnow.bench.costs.resolve_environment", missing)
    monkeypatch.setattr("winnow.bench.costs._steps_per_second", lambda entry: 500.0)
    sets = ["hopper-random-expert-5%", "ant-random-expert-5%"]
    told: list[str] = []
    found = evaluation_time([grid(entries(sets), ["bc"], ["uniform"], 3, How(100))], told.append)
    assert found.unknown == {"ant": "ant: is not here"}
    assert told == ["hopper", "ant"]
    assert found.seconds == 3 * 20 * 1000 / 500  # runs, episodes of the one round that 100 updates have, steps


def test_an_environment_is_played_for_a_moment():
    assert 10 < _steps_per_second(lookup("hopper")) < 10**7


# ------------------------------------------------------------------------------------------------ recorded rates


def test_recorded_rates_are_those_of_the_measured_dry_run():
    results = Path(__file__).parents[2] / "results" / "speed"
    measured = json.loads((results / "dry-run-h200.json").read_text())
    assert [tuple(point) for point in Rates().points] == [tuple(line.values()) for line in measured]


def test_the_papers_grid_takes_what_its_measured_dry_run_said():
    runs = grid(entries(["paper"]), ["iql", "cql", "td3bc"], ["uniform", "aw", "pf", "dw-aw", "dw-uniform"], 3, How())
    known = estimate(shard(runs, 1, 1, LARGEST), [])
    assert known.total / 3600 == pytest.approx(22.8, abs=0.1)
    assert "H200" in known.source


def test_finished_runs_of_a_grid_say_how_long_the_rest_takes():
    runs = planned(methods=["uniform"])
    results = [dataclasses.replace(result(run), seconds=3.0) for run in runs[:2]]
    known = estimate([runs], results)
    assert known.seconds == [pytest.approx(3.0 / results[0].steps * sum(run.how.steps for run in runs))]
    assert known.source.startswith("the 2 finished runs there, made on ")
