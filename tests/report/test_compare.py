"""`winnow report` over several folders: runs taken together, one method against another, and links to raw results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from helpers.made_results import planned, result, write

from winnow import stats
from winnow.bench.packed import pack
from winnow.cli import main

RESULTS = Path(__file__).parents[2] / "results"
FIRST = ("hopper-random-expert-5%", "walker2d-random-medium-10%")
SECOND = ("ant-random-expert-diverse-50%",)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    """Two grids of other datasets, the second one packed."""
    folder = tmp_path_factory.mktemp("grids")
    write(folder / "a", planned(FIRST))
    write(folder / "b", planned(SECOND))
    pack(folder / "b")
    return [folder / "a", folder / "b.jsonl.gz"]


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["report", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_gain_over_several_folders_is_that_of_all_their_runs(folders, capsys):
    shown = answered(capsys, *map(str, folders), "--compare", "dw-aw", "aw")
    by_suite = {gain["suite"]: gain for gain in shown["gains"]}
    assert set(by_suite) == {"mixed", "diverse", "all suites"}
    scores = {}
    for run in (result(run) for run in planned((*FIRST, *SECOND))):
        scores.setdefault(run.method, {}).setdefault(run.config["dataset"]["name"], []).append(run.score)
    expected = stats.compare(scores["dw-aw"], scores["aw"])
    pooled = by_suite["all suites"]
    assert pooled["gain_of_mean"]["value"] == pytest.approx(expected.mean.value)
    assert pooled["gain_of_iqm"]["value"] == pytest.approx(expected.iqm.value)
    assert pooled["gain_of_mean"]["low"] == pytest.approx(expected.mean.low, abs=0.3)
    assert (pooled["better_on"], pooled["runs"]) == (expected.wins, 18)
    assert main(["report", *map(str, folders), "--compare", "dw-aw", "aw"]) == 0
    assert "dw-aw over aw" in capsys.readouterr().out


def test_a_run_that_two_folders_have_counts_once(folders, tmp_path, capsys):
    write(tmp_path / "again", planned(FIRST))
    assert main(["report", str(folders[0]), str(tmp_path / "again"), "--json"]) == 0
    shown = capsys.readouterr()
    assert "18 runs are in more than one of these folders; each counts once" in shown.err
    assert {line["runs"] for line in json.loads(shown.out)["iqms"]} == {6}


def test_the_readmes_number_is_one_command(capsys):
    shown = answered(capsys, str(RESULTS / "as_published" / "iql-200k.jsonl.gz"), "--compare", "dw-aw", "aw")
    (gain,) = [gain["gain_of_mean"] for gain in shown["gains"] if gain["suite"] == "diverse"]
    text = f"{gain['value']:+.1f} [{gain['low']:+.1f}, {gain['high']:+.1f}]".replace("-", "−")
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert text in readme.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--compare", "dw-aw", "fw"], "--compare fw: no run here is of this method; there are uniform, aw, dw-aw"),
        (["--compare", "aw", "aw"], "must be two different methods"),
        (["--compare", "dw-aw", "aw", "--csv", "a.csv"], "--compare prints a table and writes no file"),
    ],
)
def test_wrong_comparisons_are_refused(folders, capsys, words, message):
    assert main(["report", str(folders[0]), *words]) == 2
    assert message in capsys.readouterr().err


def test_every_score_on_the_page_links_to_its_raw_results(folders, tmp_path, capsys):
    page = tmp_path / "deep" / "er" / "page.html"
    page.parent.mkdir(parents=True)
    assert main(["report", *map(str, folders), "--html", str(page)]) == 0
    text = page.read_text()
    links = re.findall(r'<a href="([^"#]+)" title="raw result of seed ([\d, ]+):', text)
    linked = {(page.parent / unquote(href)).resolve() for href, _ in links}
    loose = set((folders[0] / "results").resolve().iterdir())
    assert linked == loose | {folders[1].resolve()}
    table = text[text.index('id="scores"') :]
    cells = re.findall(r"<small>n=\d+(.*?)</small>", table)
    assert cells
    assert all("href=" in cell for cell in cells)
