"""Studies: what they plan, which of their runs are a grid's, and one of them from its command to its report."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from winnow.bench import plan, run_local
from winnow.bench.plan import How, grid
from winnow.bench.results import collect
from winnow.bench.study_list import HOPPER, STUDIES, divided, named
from winnow.bench.suites import ALGORITHMS, METHODS, entries
from winnow.cli import main
from winnow.errors import BadInput
from winnow.evaluation.settings import Evaluation

COUNTS = {
    "lambda": 4 * 2 * (6 + 1),
    "temperature": 40 * 2 * (4 + 2),
    "filtering": 40 * 2 * (3 + 1),
    "reg-only": 2 * 4,
    "state-weight": 4 * 3 * (4 + 1),
    "forms": 4 * 2 * (24 + 1),
    "terminal": 4 * 2 * (4 + 1),
    "conservatism": 4 * 3 * (4 + 4),
    "optidice-w": 4 * (3 + 2),
    "optidice": 32 * (2 + 2 * 5),
    "baselines": 8 * (3 * 12 + 3),
}
"""Datasets × algorithms × variants."""


def runs_of(name: str, seeds: int = 3, **options: Any) -> list[plan.Planned]:
    study = named(name)
    return study.runs(study.entries(), seeds, How(), **options)


# ---------------------------------------------------------------------------------------------------------- the plans


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_planned_with_runs_that_all_differ(name):
    study, runs = named(name), runs_of(name)
    assert len(runs) == 3 * COUNTS[name] == 3 * len(study.entries()) * len(study.cells())
    assert len({run.name for run in runs}) == len(runs)
    for algorithm in study.algorithms:
        labels = [variant.label for variant in study.compared(algorithm)]
        assert labels[0] == "uniform"
        assert len(set(labels)) == len(labels) > 1
    assert study.question.endswith("?")


def test_runs_with_a_grids_settings_are_the_grids_runs():
    """Same file, and the same name: so a study does only what a grid has not done, and the other way round."""
    main_grid = {run.id: run for run in grid(entries(["paper"]), ALGORITHMS, METHODS, 3, How())}
    shared = {name: [run for run in runs_of(name) if run.id in main_grid] for name in STUDIES}
    assert {name: len(runs) // 3 for name, runs in shared.items()} == {
        "lambda": 4 * 2 * 2,  # uniform, and the λ that the grid has
        "temperature": 40 * 2 * 3,  # uniform, DW-AW, and AW-M or on small sets AW-XH
        "filtering": 40 * 2 * 2,
        "reg-only": 2 * 2,
        "state-weight": 4 * 3 * 2,  # the grid has dual-aw, not dual-uniform
        "forms": 4 * 2 * 2,
        "terminal": 4 * 2 * 2,
        "conservatism": 4 * 3 * 4,
        "optidice-w": 4 * 2,
        "optidice": 32 * 2 * 5,
        "baselines": 8 * 3 * 6,
    }
    for runs in shared.values():
        assert all(run.name == main_grid[run.id].name and not run.swept for run in runs)


def setting(name: str, label: str, family: str, field: str, algorithm: str) -> Any:
    (variant,) = [one for one in named(name).compared(algorithm) if one.label == label]
    parts, _ = variant.kind(algorithm).parts(entries(["hopper-random-expert-diverse-5%"])[0])
    return getattr(parts[family], field)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("lambda", "λK=1.0, λF=5.0", "weighter", "lambda_f", "cql"), 5.0),
        (("temperature", "AW-M", "sampler", "temperature", "cql"), 0.2),
        (("temperature", "AW-M", "sampler", "temperature", "iql"), 0.1),
        (("temperature", "AW-XH", "sampler", "temperature", "iql"), 5.0),
        (("filtering", "PF-20%", "sampler", "share", "iql"), 0.2),
        (("reg-only", "All", "algorithm", "reg_only", "cql"), "none"),
        (("reg-only", "Reg. only (literal)", "algorithm", "reg_only", "cql"), "literal"),
        (("state-weight", "dual-uniform, marginal", "weighter", "state_weight", "td3bc"), "marginal"),
        (("forms", "paper λK=0.2, λF=0.1", "weighter", "form", "iql"), "paper"),
        (("forms", "dual ε=0.25", "weighter", "budget", "iql"), 0.25),
        (("forms", "dual λ=0.003", "weighter", "control", "iql"), "temperature"),
        (("terminal", "DW-Uniform, mask", "weighter", "terminal", "cql"), "mask"),
        (("conservatism", "uniform κ=0.5", "algorithm", "penalty", "cql"), 0.5),
        (("conservatism", "uniform α=40", "algorithm", "alpha", "td3bc"), 40.0),
        (("optidice-w", "OptiDICE-W α=5", "weighter", "alpha", "cql"), 5.0),
    ],
)
def test_labels_say_what_is_set(place, expected):
    found = setting(*place)
    assert (found, type(found)) == (expected, type(expected))


def test_each_form_is_tuned_equally():
    groups = Counter(variant.group for variant in named("forms").variants)
    assert groups == {"": 1, "paper": 6, "code": 6, "dual, λ": 6, "dual, ε": 6}


def test_the_papers_four_sets():
    assert set(HOPPER) == {
        f"hopper-random-{good}-diverse-{share}%" for good in ("medium", "expert") for share in (5, 10)
    }
    assert [entry.text for entry in named("lambda").entries(version="v2")] == [f"{text}-v2" for text in HOPPER]
    assert len(named("temperature").entries(version="v2")) == 40


# ------------------------------------------------------------------------------------------------- words and filters


def test_studies_among_the_words():
    studies, others = divided(["study:lambda", "small", "optidice-w", "study:lambda"])
    assert [study.name for study in studies] == ["lambda", "optidice-w"]
    assert others == ["small"]


def count(capsys: pytest.CaptureFixture[str], *words: str) -> int:
    assert main(["bench", "run", *words, "--out", "nowhere", "--dry-run"]) == 0
    return int(re.findall(r"([\d,]+) runs, 0 done", capsys.readouterr().out)[0].replace(",", ""))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["study:lambda"], 168),
        (["study:lambda", "--algorithms", "iql", "--shares", "5", "--seeds", "1"], 2 * 7),
        (["study:lambda", "--algorithms", "td3bc", "--levels", "expert", "--rows", "300", "--seeds", "1"], 2 * 7),
        (["study:lambda", "--methods", "dw-uniform", "--seeds", "2"], 4 * 2 * 6 * 2),
        (["study:lambda", "small", "--seeds", "1"], 8 * 2 * 7),
        (["study:lambda", "study:forms"], 3 * (4 * 2 * (24 + 1))),  # the code's form is the grid of λ
        (["study:temperature", "--environments", "hopper", "--algorithms", "cql", "--seeds", "1"], 10 * 6),
        (["optidice-w"], 60),
        (["study:lambda", "study:baselines", "--shares", "10", "--algorithms", "iql", "--seeds", "1"], 2 * 7),
        (["study:reg-only", "--sweep", "weighter.hidden=16x16,32x32", "--seeds", "1"], 2 * (1 + 3 * 2)),
    ],
)
def test_filters_narrow_a_study(words, expected, capsys):
    assert count(capsys, *words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study:lamda"], "there is no study 'lamda'; did you mean study:lambda?"),
        (["study:"], "there is no study ''"),
        (["study:lambda", "--shares", "50"], "--shares 50.0: matches none of these datasets; choose from 5, 10"),
        (
            ["study:lambda", "--methods", "aw"],
            "--methods aw: is not part of study:lambda; there are uniform, dw-uniform",
        ),
        (["study:reg-only", "--algorithms", "iql"], "--algorithms iql: study:reg-only has nothing to compare there"),
        (["study:lambda", "--sweep", "weighter.lambda_k=3"], "--sweep weighter.lambda_k: the study sets it itself"),
        (["study:optidice", "--algorithms", "bc", "--methods", "aw"], "has none of these --methods"),
        (["lambda-x"], "there is no dataset called 'lambda-x'"),
    ],
)
def test_wrong_words_are_named(words, message, capsys):
    assert main(["bench", "run", *words, "--out", "nowhere", "--dry-run"]) == 2
    assert message in capsys.readouterr().err


def test_a_variant_of_settings_that_there_are_not_is_refused():
    from winnow.bench.study import Variant

    wrong = Variant("wrong", "uniform", ("weighter.lambda_k=1",)).kind("iql")
    with pytest.raises(BadInput, match=r"uniform with iql: has no weighter.lambda_k; there are none"):
        wrong.parts(entries(["hopper-random"])[0])


def test_the_list_says_what_each_study_asks(capsys):
    assert main(["bench", "list"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, study in STUDIES.items():
        assert (
            f"study:{name} {len(study.entries())} datasets, {', '.join(study.algorithms)}, {3 * COUNTS[name]:,} runs"
            in shown
        )
        assert study.question in shown
    assert "paper 113 6,102" in shown


def test_the_page_about_the_paper_has_every_study_and_its_hours():
    """A row with the command for each, and the hours that experiments/paper/hours.py estimates: claims of now, and of
    the grids that are withdrawn."""
    root = Path(__file__).parents[2]
    hours = json.loads((root / "results" / "paper" / "hours.json").read_text(encoding="utf-8"))
    assert {name: said["runs"] for name, said in hours.items() if name.startswith("study:")} == {
        f"study:{name}": 3 * cells for name, cells in COUNTS.items()
    }
    pages = [root / "docs" / "paper.md", root / "docs" / "log" / "paper.md"]
    rows = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines() if "| " in line]
    seen = set()
    for row in rows:
        for words in re.findall(r"`winnow bench run ([^`]*?) --out grid`", row):
            names = [f"study:{word}" if word in STUDIES else word for word in words.split()]
            seen.update(names)
            for text, key in re.findall(r"([\d.]+) h( after the grid)?", row):
                found = sum(hours[name]["hours of those" if key else "hours"] for name in names)
                assert float(text) == pytest.approx(found, rel=0.05, abs=0.05), row
    assert {f"study:{name}" for name in STUDIES} <= seen


# ----------------------------------------------------------------------------------------------- from end to end

TINY = {"--rows": 300, "--levels": "expert", "--shares": 5, "--algorithms": "bc", "--seeds": 1, "--steps": 20}
TINY |= {"--batch-size": 16, "--chunk": 10, "--sweep": "algorithm.hidden=8x8"}
TINY |= {
    f"--evaluation.{name}": number for name, number in {"episodes": 1, "rounds": 1, "spacing": 10, "curve": 0}.items()
}
"""One set of a study, cut to 300 rows."""


def line(word: str, out: Path, **changes: str) -> list[str]:
    options = [str(part) for pair in (TINY | changes).items() for part in pair]
    return ["bench", "run", word, *options, "--out", str(out), "--sweep", "weighter.hidden=8x8"]


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("study") / "out"
    assert main(line("study:lambda", out)) == 0
    return out


def test_a_study_from_end_to_end(done, capsys):
    found = list(collect(done, pytest.fail))
    assert {result.config["weighter"].get("lambda_f") for result in found} == {None, 0.1, 1.0, 5.0}
    assert len(found) == 7
    assert all(result.finished and 0 < result.dataset["rpsv_scaled"] < 1 for result in found)
    (command,) = {result.command for result in found}
    assert main(shlex.split(command)[1:]) == 0  # the command that the results name is the one that made them
    assert "0 runs are done and 7 were done before" in capsys.readouterr().out


def test_a_grid_does_not_do_again_what_a_study_has_done(done, capsys, monkeypatch):
    monkeypatch.setattr(run_local, "run_pack", lambda *_, **__: pytest.fail("something was trained"))
    words = line("hopper-random-expert-diverse-5%", done)
    assert main([*words, "--methods", "uniform,dw-uniform"]) == 0
    assert "0 runs are done and 2 were done before" in capsys.readouterr().out


def test_the_report_of_a_study(done, tmp_path, capsys):
    page, table = tmp_path / "page.html", tmp_path / "table.md"
    assert main(["report", str(done), "--study", "lambda", "--html", str(page), "--markdown", str(table)]) == 0
    text = page.read_text()
    assert "Study: lambda" in text
    assert "λK=0.2, λF=5.0" in text
    assert "winnow bench run study:lambda" in text
    assert "Map of the IQM" in text
    assert "| variant | hopper-random-expert-diverse-5%@300 |" in table.read_text()
    capsys.readouterr()
    assert main(["report", str(done), "--study", "forms"]) == 0
    assert "Variants without a run here: bc paper λK=0.2, λF=0.1" in " ".join(capsys.readouterr().out.split())
    assert main(["report", str(done), "--study", "optidice"]) == 0
    assert main(["report", str(done), "--study", "lamda"]) == 2


def test_what_is_typed_is_written_as_it_is_read(tmp_path):
    from winnow.commands import bench

    asked = bench.Options(
        ("study:lambda", "small"),
        tmp_path,
        seeds=5,
        measure=True,
        json=True,
        sweep=("algorithm.beta=1,2", "weighter.hidden=8x8"),
        evaluation=Evaluation(episodes=3),
    )
    assert asked.command() == (
        f"winnow bench run study:lambda small --out {tmp_path} --seeds 5 --evaluation.episodes 3 "
        "--sweep algorithm.beta=1,2 --sweep weighter.hidden=8x8 --measure"
    )
