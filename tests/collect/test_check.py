"""The acceptance test of behaviour policies."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from winnow.cli import main
from winnow.collect.check import Report, Settings, check, locate
from winnow.data import pools
from winnow.errors import BadInput

TRIAL = Settings(rows=3_000, updates=200, seeds=2, episodes=2)


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_check_plays_clones_and_disturbs_a_shipped_policy(data_folder: Path) -> None:
    stages: dict[str, list[tuple[int, int]]] = {}
    report = check(
        "hopper-expert", TRIAL, step=lambda title, done, total: stages.setdefault(title, []).append((done, total))
    )
    assert 90 < report.score < 112
    assert sum(report.sampled) > 3 * 3_000  # an expert hops for its thousand steps
    assert [len(returns) for returns in report.clones] == [2, 2]
    assert np.mean(report.noise["0.3"]) < 0.9 * np.mean(report.mean_action)
    assert report.kept_by_clones < 0.5, "200 updates can't clone a hopper: the test must be able to fail"
    assert not report.passed
    assert stages["training its clones"][-1] == (400, 400)
    assert not list(data_folder.rglob("*.parts")), "finished work leaves nothing behind"


def report(level: str = "expert", **given: object) -> Report:
    """A policy of hopper that passes, but for what is given."""
    returns = {
        "sampled": [3_300.0] * 40,
        "mean_action": [3_400.0] * 4,
        "noise": {"0.1": [3_000.0], "0.2": [2_000.0], "0.3": [900.0]},
        "clones": [[3_400.0, 3_350.0]] * 3,
    }
    if level == "medium":
        returns = {"sampled": [1_300.0] * 40, "mean_action": [1_300.0] * 4, "noise": {}, "clones": [[1_300.0]] * 3}
    values = returns | given
    return Report("mine", "hopper", level, "physics", Settings(), **values)  # pyright: ignore


@pytest.mark.parametrize(
    ("level", "given", "failed"),
    [
        ("expert", {}, []),
        ("medium", {}, []),
        ("expert", {"sampled": [4_000.0] * 40}, ["score"]),  # 123 points: better than its level
        ("medium", {"sampled": [3_300.0] * 40}, ["score"]),
        ("expert", {"sampled": [3_300.0] * 36 + [1_000.0] * 4}, ["collapses"]),
        ("medium", {"sampled": [1_600.0] * 30 + [400.0] * 10}, []),  # D4RL's medium policies fall too
        ("expert", {"clones": [[3_400.0], [3_400.0], [2_000.0]]}, ["clone"]),
    ],
)
def test_criteria_name_what_fails(level: str, given: dict[str, object], failed: list[str]) -> None:
    made = report(level, **given)
    assert [criterion.name for criterion in made.criteria if not criterion.passed] == failed
    assert made.passed == (not failed)


def test_noise_is_reported_and_decides_nothing() -> None:
    made = report(noise={"0.3": [10.0]})
    assert made.kept_under_noise == {"0.3": pytest.approx(10 / 3_400)}
    assert made.passed


def test_command_fails_with_code_1_and_writes_raw_returns(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--rows", "500", "--updates", "5", "--seeds", "1", "--episodes", "1"]
    words = ["collect", "check", "hopper-medium", *size, "--json", "--out"]
    with pytest.raises(SystemExit) as stopped:
        main([*words, str(tmp_path / "check.json")])
    assert stopped.value.code == 1
    (record,) = json.loads(capsys.readouterr().out)["policies"]
    assert record == json.loads((tmp_path / "check.json").read_text())[0]
    assert record["summary"]["passed"] is False
    assert len(record["clones"][0]) == 1
    assert record["settings"]["updates"] == 5


@pytest.mark.parametrize(
    ("policy", "level", "text"),
    [
        ("hopper-random", None, "there is no behaviour policy hopper-random"),
        ("nothing.safetensors", None, "must be a file that `winnow collect train` wrote"),
        ("swimmer-expert", None, "there is no behaviour policy swimmer-expert"),
        ("hopper-expert", "random", "level must be one of medium, expert, got 'random'"),
    ],
)
def test_policies_that_are_not_there_are_named(policy: str, level: str | None, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        locate(policy, level)


def test_a_file_needs_a_level(tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    file.write_bytes(pools.policy_file("hopper", "medium").read_bytes())
    with pytest.raises(BadInput, match="give --level medium or --level expert"):
        locate(file)
    assert locate(file, "medium") == (file, "medium")


def test_settings_are_checked() -> None:
    with pytest.raises(BadInput, match="seeds must be at least 1, got 0"):
        check("hopper-expert", Settings(seeds=0))
