"""The report: its numbers are those of `stats`, unlike runs stay apart, and its page works in a real browser."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from helpers.made_results import SHORT, failed, formula, noise, planned, result, write

from winnow import stats
from winnow.bench import plan, results
from winnow.bench.study_list import STUDIES
from winnow.cli import main
from winnow.data.names import all_names, suites
from winnow.plugins import record
from winnow.report import gain_vs_imbalance, provenance, published, statistics, studies, tables
from winnow.report.runs import Run, read

TWO = ("hopper-random-expert-5%", "walker2d-random-medium-10%")
THREE = (*TWO, "ant-random-expert-diverse-50%")
SCRIPT = "<script>alert(1)</script>"


def runs_in(folder: Path) -> list[Run]:
    said: list[str] = []
    runs = read(folder, said.append)
    assert not said
    return runs


def line_of(runs: list[Run], label: str, suite: str = "mixed", algorithm: str = "iql") -> statistics.Line:
    (found,) = [x for x in statistics.lines(runs) if (x.suite, x.algorithm, x.label) == (suite, algorithm, label)]
    return found


# ---------------------------------------------------------------------------------------------------------- published


def test_every_dataset_of_the_benchmark_has_its_published_scores():
    for dataset in all_names():
        for algorithm in ("cql", "iql", "td3bc"):
            for method in ("uniform", "aw", "pf", "dw-aw", "dw-uniform"):
                assert published.score(dataset, algorithm, method) is not None
    assert len(published._table()) == 1695
    assert published.score("hopper-random-v2", "cql", "uniform") == 9.2
    assert published.score("hopper-random-expert-5%-v2", "iql", "aw") == 111.3
    assert published.score("hopper-random-expert-5%@300", "iql", "aw") == 111.3
    assert published.score("hopper-random-expert-5%", "iql", "aw sampler.temperature=5.0") is None


@pytest.mark.parametrize(
    ("suite", "algorithm", "expected"),
    [
        ("mixed", "cql", (25.5, 76.6, 53.0, 81.3, 54.8)),
        ("mixed", "iql", (50.4, 74.4, 40.9, 72.4, 63.6)),
        ("diverse", "td3bc", (22.5, 34.2, 20.0, 44.4, 41.3)),
        ("small", "cql", (9.3, 10.8, 8.8, 31.1, 39.8)),
        ("small", "iql", (4.4, 21.9, 3.2, 26.5, 9.4)),
    ],
)
def test_published_iqms_are_those_of_the_papers_figures(suite, algorithm, expected):
    found = [published.iqm(suites()[suite], algorithm, m) for m in ("uniform", "aw", "pf", "dw-aw", "dw-uniform")]
    assert found == pytest.approx(expected, abs=0.051)


def test_a_published_iqm_needs_all_datasets():
    assert published.iqm([*TWO, "mine"], "iql", "aw") is None
    assert published.iqm([], "iql", "aw") is None


def test_the_papers_smaller_tables():
    """Sums of the columns of its tables, and its words: OptiDICE's brackets are all less the same score of a set."""
    lines = list(published._lines("published_studies.csv"))
    assert Counter(line["table"] for line in lines) == {"1": 12, "2": 48, "3": 4}
    assert all(line["variant"] in {one.label for one in STUDIES[line["study"]].variants} for line in lines)
    assert all(line["dataset"] in all_names() for line in lines)

    def total(study: str, algorithm: str, variant: str) -> float:
        same = [x for x in lines if (x["study"], x["algorithm"], x["variant"]) == (study, algorithm, variant)]
        return round(sum(float(one["score"]) for one in same if one["score"]), 1)

    grid = [f"λK={k}, λF={f}" for k in ("0.2", "1.0") for f in ("0.1", "1.0", "5.0")]
    assert [total("lambda", "cql", one) for one in grid] == [192.2, 166.6, 189.8, 40.3, 30.0, 45.9]
    assert [total("lambda", "iql", one) for one in grid] == [128.1, 223.8, 209.7, 188.7, 234.1, 246.0]
    assert [total("optidice-w", "cql", f"OptiDICE-W α={a}") for a in (0.1, 1, 5)] == [7.0, 105.3, 114.2]
    assert [total("reg-only", "cql", one) for one in ("Reg. only (literal)", "All")] == [58.5, 73.1]
    less = {(x["dataset"], round(float(x["score"]) - float(x["difference"]), 1)) for x in lines if x["difference"]}
    assert {score for _, score in less} == {20.8, 57.9, 64.9, 55.1}
    assert len(less) == 4
    (lost,) = [(line["dataset"], line["variant"]) for line in lines if not line["score"]]
    assert lost == ("hopper-random-medium-diverse-5%", "OptiDICE-W α=0.1")


# ----------------------------------------------------------------------------------------------------------- numbers


def test_numbers_are_those_of_stats(tmp_path):
    runs = runs_in(write(tmp_path, planned(THREE, ("iql", "cql"), seeds=4)))
    scores: dict[str, dict[str, Any]] = {
        method: {d: [r.score for r in runs if (r.dataset, r.algorithm, r.method) == (d, "iql", method)] for d in TWO}
        for method in ("uniform", "aw", "dw-aw")
    }
    line = line_of(runs, "aw")
    assert line.iqm == stats.interval(scores["aw"], resamples=statistics.RESAMPLES)
    assert line.gain == stats.compare(scores["aw"], scores["uniform"], resamples=statistics.RESAMPLES)
    assert line.published == pytest.approx((111.3 + 65.8) / 2)
    assert line.published_gain == pytest.approx((111.3 + 65.8) / 2 - (22.7 + 63.4) / 2)
    assert line_of(runs, "uniform").gain is None
    assert line_of(runs, "uniform").published_gain is None
    (row,) = [row for row in statistics.rows(runs) if (row.dataset, row.algorithm) == (TWO[0], "iql")]
    assert row.cells["aw"].mean == pytest.approx(np.mean(scores["aw"][TWO[0]]))
    assert row.cells["aw"].spread == pytest.approx(np.std(scores["aw"][TWO[0]], ddof=1))


def test_only_a_lead_beyond_chance_is_bold(tmp_path):
    def scored(run):
        lead = {"ahead": 30.0, "level": 0.0}["ahead" if "hopper" in run.entry.text else "level"]
        return 40 + lead * (run.method == "aw") + noise(run, 3.0)

    runs = runs_in(write(tmp_path, planned(TWO), scored))
    best = {row.dataset: [label for label, cell in row.cells.items() if cell.best] for row in statistics.rows(runs)}
    assert best == {TWO[0]: ["aw"], TWO[1]: []}


@pytest.mark.parametrize(("seeds", "failure"), [(2, False), (1, False), (3, True)])
def test_few_seeds_and_failed_runs_are_never_bold(tmp_path, seeds, failure):
    grid = planned(TWO[:1], seeds=seeds)
    for run in grid:
        broken = failure and run.method == "dw-aw" and run.seed == 0
        (failed(run) if broken else result(run, lambda run: 90.0 * (run.method == "dw-aw") + run.seed)).save(tmp_path)
    runs = runs_in(tmp_path)
    assert not any(cell.best for row in statistics.rows(runs) for cell in row.cells.values())
    assert not any(line.best for line in statistics.lines(runs))


def test_one_seed_has_no_interval_and_says_so(tmp_path):
    runs = runs_in(write(tmp_path, planned(TWO, seeds=1)))
    line = line_of(runs, "aw")
    assert not line.has_interval
    assert tables.fields(line)[4] == ""
    assert any("have 1 seed" in note for note in tables.notes(statistics.lines(runs)))


def test_failed_runs_are_left_out_and_named(tmp_path):
    grid = planned(TWO, seeds=3)
    for run in grid:
        broken = run.method == "aw" and run.seed == 1 and run.entry.text == TWO[0]
        (failed(run) if broken else result(run)).save(tmp_path)
    runs = runs_in(tmp_path)
    line = line_of(runs, "aw")
    assert (line.failed, len(line.scores[TWO[0]]), len(line.scores[TWO[1]])) == (1, 2, 3)
    zero = {TWO[0]: [*line.scores[TWO[0]], 0.0], TWO[1]: line.scores[TWO[1]]}
    assert line.with_zeros == pytest.approx(stats.iqm(zero))
    assert any("1 run failed and is left out; counted as 0" in note for note in tables.notes(statistics.lines(runs)))
    assert line_of(runs, "uniform").with_zeros is None


def test_what_speaks_against_a_grid_comes_first(tmp_path, capsys):
    """An oracle far below its source, and runs that raised an alarm: on the page, on the terminal and in the CSV."""
    own = {"source_scores": {"random": 1.0, "expert": 100.0, "medium": 40.0}}
    grid = planned(TWO[:1], methods=("uniform", "aw", "best-source"))
    for run in grid:
        one = result(run, scored=lambda run: 30.0 if run.method == "best-source" else 20.0)
        diverged = ["its critic diverges: |Q| is 900, and no policy can earn more than 100"] * (run.method == "aw")
        dataclasses.replace(one, dataset=one.dataset | own, warnings=diverged).save(tmp_path)
    page, table = tmp_path / "page.html", tmp_path / "scores.csv"
    assert main(["report", str(tmp_path), "--html", str(page), "--csv", str(table)]) == 0
    text = page.read_text()
    weak = f"{TWO[0]}, iql: best-source scores 30.0, the policy that made its rows 100.0 (30%)"
    assert text.index("Warnings about these numbers") < text.index("In short")
    assert weak in text.replace("&#39;", "'")
    assert "3 of 9 runs have a critic that diverged" in text
    assert "3 with warnings" in text
    assert table.read_text().count("its critic diverges") == 3
    capsys.readouterr()
    assert main(["report", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.index("best-source scores 30.0") < said.index("IQM")


def test_a_grid_without_doubts_says_nothing_of_them(tmp_path):
    """An oracle with three quarters of its source's score is not in doubt, nor is one whose source is unknown."""
    grid = planned(TWO, methods=("uniform", "best-source"))
    for run in grid:
        one = result(run, scored=lambda run: 80.0)
        known = {"source_scores": {"random": 1.0, "expert": 100.0}} if run.entry.text == TWO[0] else {}
        dataclasses.replace(one, dataset=one.dataset | known).save(tmp_path)
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--html", str(page)]) == 0
    assert "Warnings about" not in page.read_text()


def test_a_grid_in_which_everything_failed_is_still_a_report(tmp_path, capsys):
    for run in planned(TWO[:1], seeds=2):
        failed(run).save(tmp_path)
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--html", str(page), "--markdown", str(tmp_path / "a.md")]) == 0
    assert "6 of 6 runs failed" in page.read_text()
    assert main(["report", str(tmp_path)]) == 0
    assert "2 runs failed and are left out" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------- unlike runs


def test_runs_of_other_lengths_are_not_averaged(tmp_path):
    write(tmp_path, planned(TWO))
    write(tmp_path, planned(TWO[:1], how=plan.How(steps=2_000, chunk=200, evaluation=SHORT)))
    assert {run.suite for run in runs_in(tmp_path)} == {"mixed, 1,000 updates", "mixed, 2,000 updates"}


def test_data_of_other_kinds_is_not_averaged(tmp_path):
    names = ("hopper-random-expert-5%", "hopper-random-expert-5%-v2", "hopper-random-expert-5%@300", "hopper-medium-v2")
    runs = runs_in(write(tmp_path, planned(names, seeds=1)))
    assert {run.dataset: run.suite for run in runs} == {
        names[0]: "mixed",
        names[1]: "mixed (D4RL's data)",
        names[2]: "mixed (trial, 300 rows)",
        names[3]: "d4rl-mujoco",
    }
    said = " ".join(published.comparable(runs))
    assert "2 datasets here are regenerated" in said
    assert "1 dataset here is reduced to fewer rows" in said
    assert "Updates: 1,000 here, 1,000,000 in the paper." in said
    assert "Seeds of a dataset and method: 1 here, 3 in the paper." in said


def test_swept_settings_are_methods_of_their_own(tmp_path):
    runs = runs_in(write(tmp_path, planned(TWO[:1], methods=("uniform", "aw"), sweeps=["sampler.temperature=0.5,2"])))
    assert list(dict.fromkeys(run.label for run in runs)) == [
        "uniform",
        "aw sampler.temperature=0.5",
        "aw sampler.temperature=2.0",
    ]


def test_runs_of_one_name_with_other_settings_are_told_apart(tmp_path):
    grid = planned(TWO[:1], methods=("uniform",), seeds=2)
    write(tmp_path, grid)
    changed(grid[0], lambda config: config["algorithm"].update(expectile=0.8)).save(tmp_path)
    runs = runs_in(tmp_path)
    labels = sorted(run.label for run in runs)
    assert labels == ["uniform (algorithm.expectile=0.7)"] * 2 + ["uniform (algorithm.expectile=0.8)"]


def changed(run: plan.Planned, change: Any, **more: Any) -> results.Result:
    """A result with other settings in it."""
    config = json.loads(json.dumps(run.config))
    change(config)
    return result(run, config=config, id=plan.digest(config), **more)


# ------------------------------------------------------------------------------------------------------------- origin


def test_the_command_plans_exactly_these_runs(tmp_path, capsys):
    grid = planned([*suites()["small"], "hopper-medium-v2"], ("iql", "cql"), sweeps=["sampler.temperature=0.5,2"])
    write(tmp_path, grid)
    (command,) = provenance.commands(runs_in(tmp_path), tmp_path)
    assert (command.here, command.missing, command.others) == (len(grid), [], 0)
    assert shlex.split(command.text)[3:5] == ["small", "hopper-medium-v2"]
    assert main([*shlex.split(command.text)[1:], "--dry-run"]) == 0
    assert f"{len(grid)} runs, {len(grid)} done; 0 left" in capsys.readouterr().out


@pytest.mark.parametrize(
    "names", [("mixed",), ("hopper-random-expert-5%@300",), ("diverse", "d4rl-kitchen"), ("paper",)]
)
def test_suites_and_trials_are_named_in_the_command(names, tmp_path):
    write(tmp_path, planned(names, methods=("uniform",), seeds=1))
    (command,) = provenance.commands(runs_in(tmp_path), tmp_path)
    assert not command.missing
    assert command.others == 0
    words = shlex.split(command.text)
    assert words[3] == names[0].split("@")[0]
    assert ("--rows" in words) == ("@" in names[0])


def test_grids_of_several_calls_get_a_command_each(tmp_path):
    write(tmp_path, planned(TWO, ("iql", "cql")))
    write(tmp_path, planned(TWO[:1], methods=("aw",), seeds=2, sweeps=["sampler.temperature=0.5,2"]))
    write(tmp_path, planned(["hopper-medium-v2"], methods=("uniform",)))
    found = provenance.commands(runs_in(tmp_path), tmp_path)
    assert [(command.here, command.missing, command.others) for command in found] == [
        (18 * 2, [], 0),
        (3, [], 0),
        (4, [], 0),
    ]


def test_missing_runs_and_other_versions_are_said(tmp_path):
    grid = planned(TWO)
    write(tmp_path, grid[1:])
    changed(grid[1], lambda config: config["algorithm"].update(expectile=0.8)).save(tmp_path)
    other = dict(result(grid[2]).made_with) | {"jax": "0.11.0"}
    result(grid[2], made_with=other).save(tmp_path)
    runs = runs_in(tmp_path)
    (command,) = provenance.commands(runs, tmp_path)
    assert command.missing == [grid[0].name]
    assert command.others == 1
    assert provenance.versions(runs)["jax"] == {"0.10.0": len(runs) - 1, "0.11.0": 1}
    assert provenance.odd_data(runs) == []


def test_what_was_typed_is_told(tmp_path):
    for number, run in enumerate(planned(TWO)):
        result(run, command="" if number < 3 else "winnow bench run <mine> --out a").save(tmp_path)
    assert provenance.typed(runs_in(tmp_path)) == {"winnow bench run <mine> --out a": 15}
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--html", str(page)]) == 0
    assert "<code>winnow bench run &lt;mine&gt; --out a</code> (15 runs)" in page.read_text()


# ------------------------------------------------------------------------------------------------------------ studies


def study(folder: Path, name: str, scored: Any = formula, **options: Any) -> Path:
    """The results of a study, made up."""
    one = STUDIES[name]
    how = plan.How(steps=1_000, chunk=200, evaluation=SHORT)
    return write(folder, one.runs(one.entries(), 3, how, **options), scored)


def strong(run: plan.Planned) -> float:
    """A score that depends on λK and λF, where there are any."""
    said = record(run.weighter)
    return 50 - 20 * said.get("lambda_k", 0.0) + 2 * said.get("lambda_f", 0.0) + noise(run, 1.0)


def test_a_study_is_told_by_its_variants(tmp_path):
    runs = runs_in(study(tmp_path, "lambda", strong))
    assert [one.name for one in studies.complete_studies(runs)] == ["lambda"]
    told = studies.study_report(STUDIES["lambda"], runs)
    assert len(told.runs) == len(runs) == 168
    assert told.missing == {}
    line = next(x for x in told.lines if (x.algorithm, x.label) == ("cql", "λK=0.2, λF=5.0"))
    mine = [r for r in runs if r.algorithm == "cql" and r.swept == {"weighter.lambda_f": 5.0}]
    scores = {d: [float(r.score or 0) for r in mine if r.dataset == d] for d in line.scores}
    assert len(mine) == 12
    assert line.iqm is not None
    assert line.iqm == stats.interval(scores, resamples=statistics.RESAMPLES)
    assert line.published == pytest.approx(stats.iqm([[22.1], [42.1], [60.3], [65.3]]))
    (base,) = [x for x in told.lines if (x.algorithm, x.label) == ("cql", "uniform")]
    assert base.published == pytest.approx(stats.iqm([[24.5], [7.2], [5.2], [5.4]]))  # that of the large table
    (cql,) = [one for one in studies.maps(told) if one.algorithm == "cql"]
    assert (cql.rows, cql.columns) == ([0.2, 1.0], [0.1, 1.0, 5.0])
    assert cql.ours[0, 2] == line.iqm.value == np.max(cql.ours)
    assert cql.paper[0, 2] == line.published
    assert np.all(np.abs(cql.ours - (50 - 20 * np.array([[0.2], [1]]) + 2 * np.array([0.1, 1, 5]))) < 1.5)


def test_a_grids_runs_are_part_of_a_study_and_another_studys_are_not(tmp_path):
    write(tmp_path, planned(STUDIES["lambda"].datasets, ("cql",), ("uniform", "aw", "dw-uniform"), seeds=3))
    runs = runs_in(tmp_path)
    assert studies.complete_studies(runs) == []
    told = studies.study_report(STUDIES["lambda"], runs)
    assert {run.label for run in told.runs} == {"uniform", "λK=0.2, λF=0.1"}
    assert told.missing == {"cql": [one.label for one in STUDIES["lambda"].variants[2:]]}
    study(tmp_path, "forms", algorithms=["cql"])
    runs = runs_in(tmp_path)
    assert [one.name for one in studies.complete_studies(runs)] == [
        "lambda",
        "forms",
    ]  # the code's form is the grid of λ
    told = [studies.study_report(one, runs) for one in studies.complete_studies(runs)]
    assert [len(one.runs) for one in told] == [4 * 7 * 3, 4 * 25 * 3]
    assert {run.label for run in studies.grid_runs(runs, told)} == {"uniform", "aw", "dw-uniform"}
    groups = studies.groups(told[1])
    assert [(group.name, group.tried) for group in groups] == [
        ("paper", 6),
        ("code", 6),
        ("dual, λ", 6),
        ("dual, ε", 6),
    ]
    for group in groups:
        mine = [x.iqm.value for x in told[1].lines if x.iqm and x.label.startswith(group.name.split(",")[0])]
        assert group.best.iqm is not None
        assert group.best.iqm.value <= max(mine)
        assert min(mine) <= group.mean <= group.best.iqm.value


def test_a_study_of_smaller_networks_has_no_published_numbers(tmp_path):
    runs = runs_in(study(tmp_path, "lambda", algorithms=["iql"], sweeps=["algorithm.hidden=16x16"]))
    (found,) = studies.complete_studies(runs)
    told = studies.study_report(found, runs)
    assert {run.label for run in told.runs} == {one.label for one in STUDIES["lambda"].variants}
    assert all(line.published is None for line in told.lines)
    (command,) = provenance.commands(runs, tmp_path, [found])
    assert (command.here, command.missing, command.others) == (len(runs), [], 0)


def test_the_command_of_a_study_plans_exactly_its_runs(tmp_path, capsys):
    study(tmp_path, "reg-only")
    write(tmp_path, planned(TWO))
    runs = runs_in(tmp_path)
    first, second = provenance.commands(runs, tmp_path, [STUDIES["reg-only"]])
    assert (first.here, first.missing, first.others) == (24, [], 0)
    assert (second.here, second.missing, second.others) == (18, [], 0)
    assert main([*shlex.split(first.text)[1:], "--dry-run"]) == 0
    assert "24 runs, 24 done; 0 left" in capsys.readouterr().out


def test_a_study_in_all_forms(tmp_path, capsys):
    folder = study(tmp_path / "grid", "lambda", strong)
    out = {option: tmp_path / f"study.{option}" for option in ("csv", "markdown", "latex")}
    options = [part for option, path in out.items() for part in (f"--{option}", str(path))]
    assert main(["report", str(folder), "--study", "study:lambda", *options]) == 0
    with out["csv"].open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert Counter(line["label"] for line in lines) == {one.label: 24 for one in STUDIES["lambda"].variants}
    assert {x["published"] for x in lines if x["label"] == "λK=1.0, λF=5.0" and x["algorithm"] == "cql"} == {
        "7.9", "5.3", "25.4", "7.3"
    }  # fmt: skip
    told = studies.study_report(STUDIES["lambda"], runs_in(folder))
    (row,) = [r for r in told.rows if (r.dataset, r.algorithm) == ("hopper-random-expert-diverse-5%", "iql")]
    cell = row.cells["λK=1.0, λF=5.0"]
    markdown, latex = out["markdown"].read_text(), out["latex"].read_text()
    assert f"{cell.mean:.1f} ± {cell.spread:.1f} (3)" in markdown
    assert "<sub>paper 75.1</sub>" in markdown
    assert STUDIES["lambda"].question in markdown
    assert r"$\lambda$K=1.0, $\lambda$F=5.0 & " in latex
    for opening, closing in ("{}", "[]"):
        assert latex.count(opening) == latex.count(closing)
    assert latex.count("$") % 2 == 0
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    assert not re.search(r"(?<!\\)[%#]", latex.split("\n", 1)[1])
    assert all(ord(letter) < 0x370 for letter in latex)  # Greek letters are commands
    capsys.readouterr()
    assert main(["report", str(folder), "--study", "lambda"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert STUDIES["lambda"].question in shown
    assert main(["report", str(folder), "--study", "lamda"]) == 2
    assert "did you mean study:lambda?" in capsys.readouterr().err
    assert main(["report", str(folder), "--study", "optidice", "--csv", str(out["csv"])]) == 0


def test_results_that_are_no_part_of_a_study_get_a_line(tmp_path, capsys):
    write(tmp_path, planned(TWO, methods=("pf",)))
    assert main(["report", str(tmp_path), "--study", "lambda"]) == 2
    assert "no run here is part of it; `winnow bench run study:lambda` trains its runs" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------------- gains


def test_imbalance_and_gain_are_compared_by_rank():
    points = [(0.1, 5.0), (0.2, 9.0), (0.3, 7.0), (0.4, 20.0), (0.5, 30.0)]
    assert gain_vs_imbalance.agreement(points) == pytest.approx(1 - 6 * 2 / (5 * 24))
    assert gain_vs_imbalance.agreement(points[:4]) is None
    assert gain_vs_imbalance.agreement([(0.1, gain) for _, gain in points]) is None


def test_imbalance_comes_from_the_result_or_from_pools_on_disk(tmp_path, monkeypatch):
    from winnow.data.catalogue import open_named
    from winnow.data.imbalance import imbalance

    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))
    name = "hopper-random-medium-10%@300"
    made = open_named(name, make=True)
    for run in planned((name, *TWO), seeds=1):
        facts = {"rows": 1, "rpsv_scaled": 0.25} if run.entry.text == TWO[0] else {"rows": 1}
        result(run, dataset=facts).save(tmp_path)
    runs = runs_in(tmp_path)
    known = gain_vs_imbalance.imbalance(runs)
    assert known == {name: pytest.approx(imbalance(made).rpsv_scaled), TWO[0]: 0.25}
    found = gain_vs_imbalance.gains(statistics.rows(runs), known)
    assert {(one.dataset, one.label) for one in found} == {(d, m) for d in (name, TWO[0]) for m in ("aw", "dw-aw")}
    scores = {run.method: run.score for run in runs if run.dataset == TWO[0]}
    assert next(one.gain for one in found if one.dataset == TWO[0] and one.label == "aw") == pytest.approx(
        (scores["aw"] or 0) - (scores["uniform"] or 0)
    )


# ------------------------------------------------------------------------------------------------------------- tables


def test_csv_has_a_line_for_each_run(tmp_path):
    grid = planned(TWO, ("iql", "cql"))
    for number, run in enumerate(grid):
        (failed(run, 'lost, "badly"') if number == 3 else result(run)).save(tmp_path)
    out = tmp_path / "scores.csv"
    assert main(["report", str(tmp_path), "--csv", str(out)]) == 0
    with out.open(encoding="utf-8", newline="") as file:
        lines = {line["id"]: line for line in csv.DictReader(file)}
    assert len(lines) == len(grid)
    for number, run in enumerate(grid):
        line = lines[run.id]
        assert (line["dataset"], line["seed"], line["method"]) == (run.entry.text, str(run.seed), run.method)
        assert (line["failure"], line["score"]) == (('lost, "badly"', "") if number == 3 else ("", str(formula(run))))
    assert lines[grid[0].id]["published"] == str(published.score(TWO[0], "iql", "uniform"))


def test_markdown_and_latex_have_the_numbers_of_the_report(tmp_path):
    def scored(run):
        return 20 + 50 * (run.method == "aw") + noise(run, 1.0)

    runs = runs_in(write(tmp_path, planned(TWO), scored))
    out = {kind: tmp_path / f"report.{kind}" for kind in ("md", "tex")}
    assert main(["report", str(tmp_path), "--markdown", str(out["md"]), "--latex", str(out["tex"])]) == 0
    line = line_of(runs, "aw")
    assert line.iqm is not None
    low, high = (f"{end:.1f}" for end in line.iqm[1:3])
    markdown, latex = out["md"].read_text(), out["tex"].read_text()
    assert f"| mixed | iql | aw | **{line.iqm.value:.1f}** | \\[{low}, {high}\\] | {line.published:.1f} |" in markdown
    assert f"mixed & iql & aw & \\textbf{{{line.iqm.value:.1f}}} & [{low}, {high}] & {line.published:.1f} &" in latex
    cell = next(row for row in statistics.rows(runs) if row.dataset == TWO[0]).cells["aw"]
    assert f"**{cell.mean:.1f} ± {cell.spread:.1f} (3)** <sub>paper 111.3</sub>" in markdown
    assert f"\\textbf{{{cell.mean:.1f} $\\pm$ {cell.spread:.1f} (3)}} {{\\scriptsize (paper 111.3)}}" in latex
    assert "hopper-random-expert-5\\% & iql" in latex
    for text in (markdown, latex):
        assert "regenerated, with other behaviour policies" in text
    assert latex.count("{") == latex.count("}")
    assert not re.search(r"(?<!\\)%", latex.split("\n", 1)[1])


def test_without_an_option_the_iqms_are_printed(tmp_path, capsys):
    runs = runs_in(write(tmp_path, planned(TWO)))
    assert main(["report", str(tmp_path)]) == 0
    shown, line = capsys.readouterr().out, line_of(runs, "aw")
    assert line.iqm is not None
    assert f"{line.iqm.value:.1f}  [{line.iqm.low:.1f}, {line.iqm.high:.1f}]" in shown
    assert "paper (D4RL data)" in shown


# ------------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (None, "there is no such folder"),
        ("", "has no folder `results`"),
        ("results", "holds no results"),
    ],
)
def test_folders_without_results_get_a_line(tmp_path, capsys, make, message):
    folder = tmp_path / "grid"
    if make is not None:
        (folder / make).mkdir(parents=True)
    assert main(["report", str(folder), "--html", str(tmp_path / "page.html")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_files_that_are_no_results_are_named_and_not_moved(tmp_path, capsys):
    grid = planned(TWO)
    write(tmp_path, grid)
    junk = tmp_path / "results" / "junk.json"
    junk.write_text("{")
    changed(grid[0], lambda config: config.update(steps="many")).save(tmp_path)
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--html", str(page)]) == 0
    said = capsys.readouterr().err
    assert f"{junk}: is damaged or cut short" in said
    assert "lacks what a report needs (ValueError: config.steps is not a whole number)" in said
    assert junk.exists()
    assert "2 files are not results and do not count" in page.read_text()


def test_outputs_are_files_of_their_own(tmp_path, capsys):
    write(tmp_path, planned(TWO[:1], seeds=1))
    same = str(tmp_path / "out")
    assert main(["report", str(tmp_path), "--csv", same, "--markdown", same]) == 2
    assert "--markdown and --csv are the same file" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--csv", str(tmp_path / "results" / "a.csv")]) == 2
    assert "lies among the results" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------- the page


class Outline(HTMLParser):
    """Headings, pictures, ids, links and event handlers of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.alts: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.handlers: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "img":
            self.alts.append(said["alt"] or "")
        self.scripts += tag == "script"
        self.ids += [said["id"] or ""] if "id" in said else []
        self.targets += [value or "" for name, value in attrs if name in ("src", "href")]
        self.handlers += [name for name in said if name.startswith("on")]


@pytest.fixture(scope="module")
def grid_page(tmp_path_factory) -> tuple[Path, list[Run]]:
    """A page of a grid with several suites, a failed run, and numbers that lie apart."""
    folder = tmp_path_factory.mktemp("grid")
    for number, run in enumerate(planned([*suites()["small"], *TWO, *THREE, "kitchen-mixed-v0"], ("iql", "cql"))):
        (failed(run) if number == 1 else result(run, dataset={"rows": 9, "rpsv_scaled": 0.1})).save(folder)
    page = folder / "page.html"
    assert main(["report", str(folder), "--html", str(page)]) == 0
    return page, runs_in(folder)


def test_the_page_is_whole_in_itself(grid_page):
    page, _ = grid_page
    outline = Outline(page.read_text())
    raw = {target for target in outline.targets if target.startswith("results/")}
    assert raw == {f"results/{file.name}" for file in (page.parent / "results").iterdir()}
    others = [target for target in outline.targets if target not in raw]
    assert all(target.startswith(("data:image/svg+xml;base64,", "#")) for target in others)
    assert {target[1:] for target in outline.targets if target.startswith("#")} <= set(outline.ids)
    assert len(set(outline.ids)) == len(outline.ids)
    assert outline.handlers == []
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in zip(outline.headings, outline.headings[1:], strict=False))


def test_figures_say_their_numbers(grid_page):
    page, runs = grid_page
    alts = Outline(page.read_text()).alts
    line = line_of(runs, "aw")
    assert line.iqm is not None
    (bars,) = [alt for alt in alts if alt.startswith("Bars of the IQM for mixed.")]
    value, low, high = (f"{one:.1f}" for one in line.iqm[:3])
    assert f"iql aw {value} [{low}, {high}], paper {line.published:.1f}" in bars
    assert all(re.search(r"\d", alt) for alt in alts)
    kinds = ("Bars", "Performance profiles", "Learning curves", "Share of the weight", "Effective", "Gain over uniform")
    assert all(any(alt.startswith(kind) for alt in alts) for kind in kinds)


def test_the_same_results_give_the_same_page(grid_page):
    page, _ = grid_page
    before = page.read_bytes()
    assert main(["report", str(page.parent), "--html", str(page)]) == 0
    assert page.read_bytes() == before


def test_names_in_results_are_escaped(tmp_path):
    def change(config):
        config["dataset"]["name"] = SCRIPT
        config["environment"] = '"><img src=x onerror=alert(1)>'
        config["algorithm"]["name"] = "_<b>$\\alg{{ 7 * 7 }}"

    run = planned(TWO[:1])[0]
    words: dict[str, Any] = {"name": SCRIPT, "method": "'" + SCRIPT, "made_with": {SCRIPT: SCRIPT}}
    changed(run, change, **words).save(tmp_path)
    changed(run, lambda config: (change(config), config.update(seed=7)), **words, failure=SCRIPT).save(tmp_path)
    page, latex = tmp_path / "page.html", tmp_path / "a.tex"
    assert main(["report", str(tmp_path), "--html", str(page), "--latex", str(latex)]) == 0
    text = page.read_text()
    outline = Outline(text)
    assert outline.scripts == 1
    assert outline.handlers == []
    assert SCRIPT not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "7 * 7" in text
    others = [target for target in outline.targets if not re.fullmatch(r"results/[0-9a-f]+\.json", target)]
    assert all(target.startswith(("data:image/svg", "#")) for target in others)


# ------------------------------------------------------------------------------------------------ in a real browser

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine; .ci/run installs Debian's")


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        opened.look()
        yield opened


SHOWN = "[...document.querySelectorAll('#scores tbody tr')].filter(row => !row.hidden)"


def names(browser: Browser) -> list[str]:
    return browser.run(f"{SHOWN}.map(row => row.cells[0].firstChild.textContent.trim())")


def values(browser: Browser, label: str) -> list[float]:
    column = f"[...document.querySelectorAll('#scores thead th')].findIndex(th => th.dataset.key === {label!r})"
    return browser.run(f"{SHOWN}.map(row => Number(row.cells[{column}].dataset.value))")


@needs_chromium
def test_the_page_opens_without_complaints(browser, grid_page):
    page, runs = grid_page
    browser.complaints.clear()
    for dark in (False, True):
        browser.look(dark)
        browser.open(page)
        colour = browser.run("getComputedStyle(document.body).backgroundColor")
        light = np.mean([int(part) for part in re.findall(r"\d+", colour)[:3]]) > 128
        assert light != dark
        assert browser.run("[...document.images].every(one => one.complete && one.naturalWidth > 100)")
    assert len(names(browser)) == len({(run.dataset, run.algorithm) for run in runs})
    assert browser.complaints == []


@needs_chromium
def test_headers_sort_by_mouse_and_by_keyboard(browser, grid_page):
    page, _ = grid_page
    browser.open(page)
    written = names(browser)
    head = "#scores th[data-key='aw']"
    browser.click(f"{head} button")
    down = values(browser, "aw")
    assert down == sorted(down, reverse=True)
    assert browser.run(f'document.querySelector("{head}").ariaSort') == "descending"
    browser.run(f'document.querySelector("{head} button").focus()')
    browser.press("Enter", "\r")
    assert values(browser, "aw") == down[::-1]
    browser.press(" ", " ")
    assert values(browser, "aw") == down
    browser.click("#scores th[data-key='dataset'] button")
    assert names(browser) == sorted(written, key=natural)
    assert browser.run("document.querySelectorAll('#scores [aria-sort]').length") == 1
    browser.click("#filters button")
    browser.run("new Promise(done => setTimeout(done, 50))")
    assert names(browser) == written


def natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


@needs_chromium
def test_filters_and_the_address(browser, grid_page):
    page, _ = grid_page
    browser.open(page)
    total = len(names(browser))
    browser.run(
        "(f => { f.environment.value = 'hopper'; f.algorithm.value = 'iql';"
        " f.dispatchEvent(new Event('input')); })(document.getElementById('filters'))"
    )
    assert names(browser) == [
        "hopper-random-expert-5%",
        "hopper-random-medium-10%-small",
        "hopper-random-expert-10%-small",
    ]
    assert browser.run("document.getElementById('shown').textContent") == f"3 of {total} rows"
    browser.click("#scores th[data-key='uniform'] button")
    shared, before = browser.run("location.hash"), names(browser)
    assert "environment=hopper" in shared
    assert "sort=uniform" in shared

    browser.open(page, shared)
    assert names(browser) == before
    assert browser.run("document.getElementById('filters').environment.value") == "hopper"
    browser.open(page, "#sort=nothing&environment=moon&share=50&text=DIVERSE")
    assert names(browser) == ["ant-random-expert-diverse-50%"] * 2
    browser.click("#filters input")
    browser.press("x", "x")
    assert browser.run("document.getElementById('shown').textContent") == f"0 of {total} rows"
    assert browser.complaints == []


@needs_chromium
def test_a_reader_with_a_keyboard_gets_everywhere(browser, grid_page):
    page, _ = grid_page
    browser.open(page)
    browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "skip to the content"
    assert browser.run("document.activeElement.getBoundingClientRect().x") >= 0
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    roles = {(node.get("role", {}).get("value"), node.get("name", {}).get("value")) for node in nodes}
    assert (
        "table",
        "Mean score and standard deviation over seeds for each dataset, algorithm and method. The headers sort.",
    ) in roles
    assert ("combobox", "environment") in roles
    assert ("searchbox", "name contains") in roles
    assert not [node for node in nodes if node.get("role", {}).get("value") == "image" and not node["name"]["value"]]
    browser.look(width=390, height=800)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run("document.querySelector('figure .wide').tabIndex") == 0
    browser.look()


@needs_chromium
def test_the_page_of_a_study_opens(browser, tmp_path):
    folder = study(tmp_path / "grid", "lambda", strong)
    alone, beside = tmp_path / "alone.html", tmp_path / "beside.html"
    assert main(["report", str(folder), "--study", "lambda", "--html", str(alone)]) == 0
    write(folder, planned(TWO))
    assert main(["report", str(folder), "--html", str(beside)]) == 0
    for page, others in ((alone, False), (beside, True)):
        outline = Outline(page.read_text())
        assert {target[1:] for target in outline.targets if target.startswith("#")} <= set(outline.ids)
        assert len(set(outline.ids)) == len(outline.ids)
        (said,) = [alt for alt in outline.alts if alt.startswith("Map of the IQM on diverse.")]
        assert re.search(r"cql λK 0\.2, λF 5: \d+\.\d \(paper 51\.2\)", said)
        browser.complaints.clear()
        browser.open(page)
        browser.run("document.getElementById('study-lambda').scrollIntoView()")
        assert browser.run("[...document.images].every(one => one.complete && one.naturalWidth > 100)")
        assert browser.complaints == []
        assert browser.run("document.getElementById('iqm') !== null") is others
        tables_of = "document.querySelector('[aria-labelledby=study-lambda]').querySelectorAll('table')"
        assert browser.run(f"{tables_of}.length") == 3  # the IQMs, and each algorithm's datasets
        assert browser.run(f"{tables_of}[1].tBodies[0].rows.length") == 7
        assert browser.run(f"{tables_of}[1].tHead.rows[0].cells.length") == 1 + 4
        browser.look(width=390, height=800)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        browser.look()
    assert len(values(browser, "uniform")) == 4 * 2 + 2
    assert browser.run("document.querySelectorAll('#scores thead th').length") == 3 + 4  # no variants among the methods


@needs_chromium
def test_printing_shows_the_whole_table(browser, grid_page):
    page, _ = grid_page
    browser.look(dark=True, media="print")
    browser.open(page)
    assert browser.run("getComputedStyle(document.body).backgroundColor") in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert browser.run("(b => b.scrollHeight <= b.clientHeight + 1)(document.getElementById('scores-box'))")
    browser.look()
