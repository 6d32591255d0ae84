"""Plans: how many runs there are, what an id depends on, sweeps, packs and shards."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import typing
from typing import Any

import pytest

from winnow import envs
from winnow.bench import plan
from winnow.bench.plan import How, Planned, digest, grid, packs, shard
from winnow.bench.suites import entries
from winnow.data import d4rl, pools, store
from winnow.errors import BadInput
from winnow.evaluation.settings import Evaluation
from winnow.methods import make_algorithm, method

ALGORITHMS = ["iql", "cql", "td3bc"]
METHODS = ["uniform", "aw", "pf", "dw-aw", "dw-uniform", "dual-aw"]


@pytest.fixture(scope="module")
def paper() -> list[Planned]:
    return grid(entries(["paper"]), ALGORITHMS, METHODS, 3, How())


def one(**settings) -> Planned:
    (run,) = grid(entries(["hopper-random-expert-5%"]), ["iql"], ["dw-aw"], 1, How(**settings))
    return run


def test_the_papers_grid_is_planned_without_opening_anything(monkeypatch):
    for module, name in ((store, "load"), (d4rl, "open_named"), (pools, "pool"), (envs, "make")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("something was opened"))
    plan.identity.cache_clear()
    runs = grid(entries(["paper"]), ALGORITHMS, METHODS, 3, How())
    assert len(runs) == 113 * 3 * 6 * 3
    assert len({run.id for run in runs}) == len({run.name for run in runs}) == len(runs)
    assert sum(map(len, packs(runs))) == len(runs)


def test_settings_are_those_of_the_algorithm_the_method_and_the_environment(paper):
    found = {run.name: run for run in paper}
    maze = found["antmaze-umaze-v0.iql.dw-aw.seed0"]
    assert maze.algorithm == make_algorithm("iql", "antmaze-umaze") != make_algorithm("iql")
    assert (maze.sampler, maze.weighter) == method("dw-aw", "iql")
    small = found["ant-random-expert-10%-small.cql.aw.seed2"]
    assert small.config["sampler"] == {"name": "aw", "temperature": 5.0}
    assert found["ant-random-expert-10%.cql.aw.seed2"].config["sampler"] == {"name": "aw", "temperature": 0.2}
    assert found["hopper-medium-v2.td3bc.dw-uniform.seed0"].config["weighter"]["lambda_k"] == 0.2


def test_ids_are_the_same_in_another_process(paper):
    code = (
        "from winnow.bench.plan import *; from winnow.bench.suites import entries; "
        f"print(digest([run.id for run in grid(entries(['paper']), {ALGORITHMS}, {METHODS}, 3, How())]))"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.strip() == digest([run.id for run in paper])


def other(value, kind):
    """Another value of a setting."""
    if typing.get_origin(kind) is typing.Literal:
        return next(choice for choice in typing.get_args(kind) if choice != value)
    if isinstance(value, bool):
        return not value
    return (*value, 8) if isinstance(value, tuple) else value + 1


def test_every_setting_changes_the_id_and_names_do_not():
    run = one()
    seen, fields = {run.id}, 0
    for family in ("algorithm", "sampler", "weighter"):
        part = getattr(run, family)
        kinds = typing.get_type_hints(type(part))
        fields += len(dataclasses.fields(part))
        for field in dataclasses.fields(part):
            value = other(getattr(part, field.name), kinds[field.name])
            changed = dataclasses.replace(part, **{field.name: value})
            seen.add(dataclasses.replace(run, **{family: changed}).id)
    changes: list[dict[str, Any]] = [{"steps": 7}, {"batch_size": 7}, {"chunk": 7}]
    for name in ("episodes", "rounds", "spacing", "curve"):
        changes.append({"evaluation": dataclasses.replace(Evaluation(), **{name: 3})})
    seen |= {one(**change).id for change in changes}
    seen |= {dataclasses.replace(run, seed=5).id}
    seen |= {
        dataclasses.replace(run, entry=entries([name])[0]).id for name in ("hopper-random-expert-10%", "hopper-expert")
    }
    assert len(seen) == 1 + fields + len(changes) + 3
    assert dataclasses.replace(run, method="another", swept={"x": 1}).id == run.id
    assert one(evaluation=Evaluation(processes=3, keep=True)).id == run.id


def test_an_id_depends_on_the_policies_and_the_physics_behind_the_data(monkeypatch):
    before, file = one().id, grid(entries(["hopper-medium-v2"]), ["iql"], ["aw"], 1, How())[0].config["dataset"]
    assert file == {"name": "hopper-medium-v2", "file": d4rl.FILES["hopper-medium-v2"].sha256}
    monkeypatch.setattr(envs, "physics", lambda environment=None: "mujoco 9")
    plan.identity.cache_clear()
    plan._pool_key.cache_clear()
    assert one().id != before
    plan.identity.cache_clear()
    plan._pool_key.cache_clear()


# ----------------------------------------------------------------------------------------------------- sweeps


def swept(*sweeps, methods=("uniform", "dw-aw"), seeds=1):
    return grid(entries(["hopper-random-expert-5%"]), ["iql"], methods, seeds, How(), sweeps)


def test_sweeps_are_combined_and_hold_for_runs_that_have_the_field():
    runs = swept("weighter.lambda_k=0.2,1", "algorithm.beta=1,3,10", seeds=2)
    assert len(runs) == 2 * (3 + 3 * 2)
    name = "hopper-random-expert-5%.iql.dw-aw.weighter.lambda_k=0.2.algorithm.beta=10.0.seed1"
    found = {run.name: run for run in runs}[name]
    assert (found.config["weighter"]["lambda_k"], found.config["algorithm"]["beta"]) == (0.2, 10.0)
    assert len(packs(runs)) == 2  # swept numbers are packed like seeds


def test_a_swept_value_that_is_the_usual_one_is_the_same_run():
    assert {run.id for run in swept()} <= {run.id for run in swept("algorithm.beta=3,4")}


def test_a_name_with_many_changes_is_still_a_files_name():
    fields = ("algorithm.learning_rate", "algorithm.discount", "weighter.lambda_k", "weighter.lambda_f")
    sweeps = [f"{place}=0.1234567890123,0.1234567890124" for place in fields]
    runs = grid(entries(["hopper-random-expert-diverse-5%"]), ["iql"], ["dw-aw"], 2, How(), sweeps)
    names = {run.name for run in runs}
    assert len(names) == len(runs) == 32
    assert max(len(name.encode()) for name in names) < 200
    assert all(name.startswith("hopper-random-expert-diverse-5%.iql.dw-aw.") for name in names)


def test_sweeps_of_words_flags_and_layers():
    runs = swept("algorithm.hidden=8x8,16", "algorithm.standardise=true", "weighter.form=paper", methods=["dw-aw"])
    assert [run.config["algorithm"]["hidden"] for run in runs] == [(8, 8), (16,)]
    assert all(run.config["algorithm"]["standardise"] and run.config["weighter"]["form"] == "paper" for run in runs)
    assert len(packs(runs)) == 2


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("lambda_k=1", "--sweep must be FAMILY.FIELD=VALUE,…, got 'lambda_k=1'"),
        (
            "weighter.lambda=1",
            "there are weighter.form, weighter.hidden, weighter.initialisation, weighter.lambda_f, weighter.lambda_k",
        ),
        ("weighter.lambda_k=-1", "weighter.lambda_k is -1.0; it must be at least 0"),
        ("weighter.lambda_k=big", "--sweep weighter.lambda_k=big: must be a number"),
        ("weighter.lambda_k=nan", "must be a number"),
        ("weighter.form=papr", "choose one of 'paper', 'code'"),
        ("sampler.temperature=0", "sampler.temperature is 0.0; it must be above 0"),
        ("algorithm.standardise=yes", "must be true or false"),
        ("algorithm.hidden=8,a", "whole numbers joined with x"),
    ],
)
def test_wrong_sweeps_are_named(sweep, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        swept(sweep)


def test_the_same_field_twice_is_refused():
    with pytest.raises(BadInput, match="given twice"):
        swept("algorithm.beta=1", "algorithm.beta=2")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: grid(entries(["small"]), ["iql"], ["aw"], 0, How()), "seeds must be at least 1, got 0"),
        (lambda: grid(entries(["small"]), ["iql"], [], 1, How()), "--methods is empty"),
        (lambda: grid(entries(["small"]), ["iql"], ["wa"], 1, How()), "there is no method 'wa'"),
        (lambda: grid(entries(["small"]), ["sqp"], ["aw"], 1, How()), "there is no algorithm 'sqp'"),
        (lambda: one(steps=0), "steps must be at least 1, got 0"),
        (lambda: one(evaluation=Evaluation(episodes=0)), "evaluation.episodes must be at least 1, got 0"),
    ],
)
def test_wrong_plans_are_named(make, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        make()


# ------------------------------------------------------------------------------------------------------ packs


def test_packs_have_one_shape_and_an_environments_are_together(paper):
    made = packs(paper, largest=100)
    assert {id(run) for pack in made for run in pack} == {id(run) for run in paper}
    assert all(len({run.shape for run in pack}) == 1 and len(pack) <= 100 for pack in made)
    order = [pack[0].entry.environment for pack in made]
    assert order == sorted(order, key=order.index)
    sizes = [len(pack) for pack in made if pack[0].shape == paper[0].shape]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_shards_are_a_partition_and_about_as_large_as_each_other(paper, count):
    parts = [shard(paper, number, count) for number in range(1, count + 1)]
    ids = [run.id for part in parts for pack in part for run in pack]
    assert sorted(ids) == sorted(run.id for run in paper)
    if count == 7:
        loads = [sum(map(len, part)) for part in parts]
        assert max(loads) < 1.1 * min(loads)
        costly = [sum(len(pack) for pack in part if pack[0].config["algorithm"]["name"] == "cql") for part in parts]
        assert max(costly) < 1.2 * min(costly)


def test_a_shard_that_is_none_is_refused(paper):
    with pytest.raises(BadInput, match="--shard must be one of 1/2 to 2/2, got 3/2"):
        shard(paper, 3, 2)
