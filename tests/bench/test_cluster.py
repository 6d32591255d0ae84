"""Grids on a real Ray cluster of two nodes, both on this machine: the same results, also when one of them dies."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import signal
import socket
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.tiny_grids import DATASETS, HOW, command_line, outcomes, planned

import winnow.bench
from winnow.bench import run_local
from winnow.bench.plan import packs
from winnow.bench.results import file_of, load
from winnow.cli import main
from winnow.errors import BadInput, install_hint

library = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
cluster = importlib.import_module("winnow.bench.run_ray")

pytestmark = pytest.mark.filterwarnings(
    "ignore:os.fork:RuntimeWarning",  # a node that is added is a fork of this process
    "ignore:unclosed file <_io.* name='/dev/null':ResourceWarning",  # Ray 2.55's own
)


@pytest.fixture(scope="module")
def two(shared_folders) -> Iterator[Any]:
    """A cluster: a head and one node more, each with one core to lend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        for name, value in {
            "initial_delay_ms": 0,
            "period_ms": 500,
            "timeout_ms": 1000,
            "failure_threshold": 3,
        }.items():
            patch.setenv(f"RAY_health_check_{name}", str(value))  # how soon a node counts as dead
        size = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False}
        made = cluster_utils.Cluster(initialize_head=True, head_node_args=size)
        del size["include_dashboard"]
        made.size = size
        made.add_node(**size)
        yield made
        library.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The grid, done on this machine without Ray."""
    folder = tmp_path_factory.mktemp("grid") / "out"
    run_local.run(packs(planned()), folder, progress=False)
    return folder


def other(two) -> Any:
    """The node that is not the head."""
    return next(node for node in two.list_all_nodes() if node is not two.head_node)


def dies(two, node) -> None:
    """All processes of a node end at once, as if its power was cut."""
    raylet = node.all_processes["raylet"][0].process.pid
    lists = Path(f"/proc/{raylet}/task").glob("*/children")
    workers = [int(word) for path in lists for word in path.read_text().split()]
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    two.remove_node(node, allow_graceful=False)
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


@pytest.fixture
def looks_often(monkeypatch) -> None:
    """So that tiny packs are seen at work."""
    monkeypatch.setattr(cluster, "POLL_SECONDS", 0.1)


@pytest.mark.usefixtures("looks_often")
@pytest.mark.parametrize("shared", [False, True])
def test_a_node_that_dies_in_the_middle_changes_nothing(two, whole, tmp_path, monkeypatch, shared):
    runs = planned(datasets=DATASETS[:1], methods=["uniform"]) if shared else planned()
    seen: dict[int, set[str]] = {}
    killed: list[int] = []
    show = cluster._Grid._show

    def kills(grid, told):
        for number, (node, steps) in told.items():
            seen.setdefault(number, set()).add(node)
            if not killed and node == other(two).node_id and steps and number in dict(grid.tasks.values()):
                dies(two, other(two))
                killed.append(number)
        show(grid, told)

    monkeypatch.setattr(cluster._Grid, "_show", kills)
    done = cluster.run(packs(runs), tmp_path, address=two.address, shared=shared, progress=False)
    assert len(killed) == 1
    assert len(seen[killed[0]]) == 2, "the pack was not done again"
    assert (done.before, len(done.results)) == (0, len(runs))
    assert outcomes(tmp_path) == {one.id: outcomes(whole)[one.id] for one in runs}
    two.add_node(**two.size)


@pytest.mark.usefixtures("looks_often")
def test_a_grid_that_is_stopped_goes_on_from_its_checkpoints_and_is_then_done(
    two, whole, tmp_path, monkeypatch, capsys
):
    def stops(grid, told):
        if any(steps for _, steps in told.values()):
            raise KeyboardInterrupt

    runs = planned(datasets=DATASETS[:1])
    line = [*command_line(tmp_path, datasets=DATASETS[:1]), "--on", "ray", "--ray-address", two.address, "--ray-shared"]
    with monkeypatch.context() as patch:
        patch.setattr(cluster._Grid, "_show", stops)
        assert main(line) == 130
    assert "stopping after a checkpoint" in capsys.readouterr().err
    assert not library.is_initialized()
    before = len(outcomes(tmp_path))
    assert list(tmp_path.glob("work/*/*.safetensors"))
    assert main(line) == 0
    assert f"{len(runs) - before} runs are done and {before} were done before" in capsys.readouterr().out
    assert outcomes(tmp_path) == {one.id: outcomes(whole)[one.id] for one in runs}
    assert not list(tmp_path.glob("work/*"))
    monkeypatch.setattr(cluster, "connected", lambda *_: pytest.fail("nothing was missing"))
    assert main(line) == 0
    assert f"0 runs are done and {len(runs)} were done before" in capsys.readouterr().out


def test_an_error_on_a_node_is_told_in_its_own_words(two, tmp_path):
    runs = planned(methods=["uniform"], seeds=1, datasets=DATASETS[:1])
    broken = dataclasses.replace(runs[0], how=dataclasses.replace(HOW, batch_size=0))
    with pytest.raises(BadInput, match=r"^batch_size must be at least 1, got 0"):
        cluster.run([[broken]], tmp_path, address=two.address, progress=False)
    assert not library.is_initialized()


def test_a_dry_run_measures_on_the_clusters_devices(two, tmp_path, capsys):
    line = [*command_line(tmp_path / "new"), "--on", "ray", "--ray-address", two.address, "--dry-run", "--measure"]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "12 runs, 0 done; 12 left in 2 packs" in said
    assert "of training on 2 × cpu of the cluster (measured on one of them); checkpoints are not counted" in said
    assert not (tmp_path / "new").exists()
    assert not library.is_initialized()


# ---------------------------------------------------------------------------------------------- without a cluster


class Instant(cluster._Grid):
    """A grid whose packs are only counted, and not sent."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tasks, self.results, self.steps, self.sent = folder, {}, [], 0, []

    def _submit(self, pack) -> None:
        self.sent.append(pack)
        self.tasks[len(self.sent)] = len(self.sent), pack


def test_what_does_not_fit_a_device_is_sent_again(whole, tmp_path, monkeypatch):
    pack, grid = packs(planned())[0], Instant(tmp_path)

    def two_fit(task):
        return [load(file_of(whole, one.id)) for one in grid.sent[task - 1][:2]]

    monkeypatch.setattr(cluster.ray, "get", two_fit)
    grid._submit(pack[:5])
    while grid.tasks:
        grid._take(next(iter(grid.tasks)))
    assert [len(one) for one in grid.sent] == [5, 1, 2]
    assert outcomes(tmp_path).keys() == {one.id for one in pack[:5]}
    assert grid.steps == 5 * HOW.steps


def test_results_of_other_runs_are_refused(whole, tmp_path, monkeypatch):
    runs = planned()
    grid = Instant(tmp_path)
    grid._submit(runs[:1])
    monkeypatch.setattr(cluster.ray, "get", lambda task: [load(file_of(whole, runs[1].id))])
    with pytest.raises(BadInput, match="install the same winnow on all nodes"):
        grid._take(1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("nodes", "asked", "places"),
    [
        ([{"CPU": 0}, {"CPU": 4}, {"CPU": 8}], {"num_gpus": 0, "num_cpus": 4}, 3),
        ([{"CPU": 64}, {"CPU": 16, "GPU": 2}, {"CPU": 32, "GPU": 8}], {"num_gpus": 1, "num_cpus": 4}, 10),
        ([{}], {"num_gpus": 0, "num_cpus": 1}, 0),  # one that grows when it is asked to
    ],
)
def test_a_task_asks_for_a_gpu_or_for_a_small_nodes_cores(nodes, asked, places):
    dead = {"Alive": False, "Resources": {"CPU": 1, "GPU": 4}}
    assert cluster.share_of_a_node([dead, *({"Alive": True, "Resources": one} for one in nodes)]) == (asked, places)


def test_one_bar_goes_back_when_a_node_has_died(tmp_path):
    grid = Instant(tmp_path)
    shown: list[tuple[str, int]] = []
    titles: list[str] = []
    grid.total = 1000
    grid.bar = types.SimpleNamespace(describe=titles.append, reach=lambda done, total: shown.append((done, total)))
    for pack in packs(planned()):
        grid._submit(pack)
    grid._show({1: ("a", 70), 2: ("b", 30)})
    grid._show({1: ("b", 0)})
    assert shown == [(100, 1000), (0, 1000)]
    assert titles == ["2 packs on 2 nodes, 0 wait", "1 packs on 1 nodes, 1 wait"]


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "nowhere.invalid:6379", "here:port"])
def test_a_wrong_address_is_named(address, tmp_path, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        wrong = address.format(port=free.getsockname()[1])  # taken, and nobody listens
        assert main([*command_line(tmp_path), "--on", "ray", "--ray-address", wrong]) == 2
    said = capsys.readouterr().err
    assert f"--ray-address {wrong}: nothing answers there" in said
    assert "ray start --head" in said


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "winnow.bench.run_ray")
    monkeypatch.delitem(sys.modules, "winnow.system.ray")
    monkeypatch.delattr(winnow.bench, "run_ray")
    assert main([*command_line(tmp_path), "--on", "ray"]) == 2
    assert install_hint("ray") in capsys.readouterr().err
