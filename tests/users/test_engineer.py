"""An engineer with the log of a plant: 60 columns, most of them noise, text, missing values, batches with names.

From the CSV file to weights beside its own rows, estimates without a simulator and a policy in ONNX.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv

from winnow.cli import main

BATCHES = 60
GOOD = 9
STEPS = 50
SENSORS = 8
NOISE = 44
TINY = ["--steps", "60", "--batch-size", "32", "--chunk", "30", "--algorithm.hidden", "16", "16"]
FAST = ["--fqe.steps", "100", "--fqe.fits", "2", "--fqe.hidden", "16", "--fqe.batch-size", "32"]


def write_log(path: Path) -> Path:
    """A plant that two set points heat and cool; 9 of its 60 batches were run well. Sensors of noise have another
    spread in every batch, one valve has gaps, and some columns are text."""
    rng = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {}

    def add(name: str, values: Any) -> None:
        columns.setdefault(name, []).extend(values)

    for batch in range(BATCHES):
        state = np.zeros((STEPS, SENSORS))
        action = np.zeros((STEPS, 2))
        state[0] = rng.normal(size=SENSORS)
        for step in range(STEPS):
            wanted = -0.8 * state[step, :2] if batch % 7 == 0 else rng.uniform(-1, 1, 2)
            action[step] = np.clip(wanted + 0.1 * rng.normal(size=2), -1, 1)
            if step + 1 < STEPS:
                push = np.concatenate([action[step], np.zeros(SENSORS - 2)])
                state[step + 1] = 0.9 * state[step] + 0.5 * push + 0.05 * rng.normal(size=SENSORS)
        add("batch", [f"night-{batch:03d}"] * STEPS)
        add("time", [f"2026-01-01 {step // 60:02d}:{step % 60:02d}" for step in range(STEPS)])
        add("operator", [("Ann", "Bo")[batch % 2]] * STEPS)
        for sensor in range(SENSORS - 1):
            add(f"temp_{sensor}", state[:, sensor])
        valve = state[:, -1].copy()
        valve[rng.random(STEPS) < 0.01] = np.nan
        add("valve_1", valve)
        for sensor in range(NOISE):
            add(f"noise_{sensor}", rng.normal(size=STEPS) * rng.lognormal(0, 1.5))
        add("set_heat", action[:, 0])
        add("set_cool", action[:, 1])
        add("yield", 1 - (state[:, :2] ** 2).sum(axis=1))
        add("tripped", np.zeros(STEPS, int))
        add("shift", [batch % 3] * STEPS)
    arrow_csv.write_csv(pa.table(columns), path)
    return path


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a command answers with --json."""
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_from_a_log_of_60_columns_to_weights_and_a_policy(tmp_path, capsys):
    log = write_log(tmp_path / "plant.csv")
    with log.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == BATCHES * STEPS
    assert len(rows[0]) == 60
    data = tmp_path / "plant.safetensors"

    # Her first try names the columns and says nothing of the gaps: the message names the column.
    words = ["data", "import", str(log), "--out", str(data), "--observations", "temp_*,valve_1,noise_*"]
    words += ["--actions", "set_*", "--reward", "yield", "--episode", "batch", "--terminal", "tripped"]
    words += ["--drop", "time,operator,shift"]
    assert main(words) == 2
    refused = capsys.readouterr().err
    assert "valve_1" in refused
    assert "--nan" in refused
    assert not data.exists()
    imported = answered(capsys, *words, "--nan", "forward-fill")
    assert imported["observation"] == SENSORS + NOISE
    assert imported["episodes"] == BATCHES

    # What kind of data is it, and what does it recommend?
    told = answered(capsys, "inspect", str(data))
    assert told["recommended"]["method"]
    train, held_out = tmp_path / "train.safetensors", tmp_path / "held-out.safetensors"
    assert main(["data", "split", str(data), "--train", str(train), "--held-out", str(held_out)]) == 0

    # The default method, beside uniform sampling.
    runs = tmp_path / "runs"
    trained = answered(capsys, "train", str(train), "--out", str(runs), "--seeds", "1", "--no-evaluate", *TINY)
    (run,) = trained["runs"]
    assert run["failure"] is None
    uniform = ["train", str(train), "--out", str(tmp_path / "uniform"), "--method", "uniform", "--seeds", "1"]
    assert main([*uniform, "--no-evaluate", *TINY, "--quiet"]) == 0

    # Weights go back to the rows of her own file, by number and by batch.
    table = tmp_path / "weights.csv"
    answered(capsys, "weights", run["file"], "--out", str(table), "--figure", str(tmp_path / "weights.svg"))
    with table.open(newline="") as file:
        weights = list(csv.DictReader(file))
    joined = [(rows[int(line["source_row"])], line) for line in weights]
    assert all(row["batch"] == line["source_episode"] for row, line in joined)
    assert len({line["source_row"] for line in weights}) == len(weights) > 0.7 * len(rows)
    assert np.mean([float(line["weight"]) for line in weights]) == pytest.approx(1, abs=1e-6)
    good = {f"night-{batch:03d}" for batch in range(0, BATCHES, 7)}
    assert len(good) == GOOD
    share = np.mean([line["source_episode"] in good for line in weights])
    mass = sum(float(line["weight"]) for line in weights if line["source_episode"] in good) / len(weights)
    assert mass >= 0.9 * share  # the default never turns away from the good batches

    # What are the policies worth, without a plant?
    judged = answered(capsys, "ope", str(runs), str(tmp_path / "uniform"), *FAST)
    assert {estimate["run"] for estimate in judged["estimates"][0]["runs"]} >= {run["name"]}

    # A policy for the controller, in her units.
    graph = tmp_path / "policy.onnx"
    assert main(["export", run["file"], "--onnx", str(graph)]) == 0
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    observation = np.zeros((3, SENSORS + NOISE), np.float32)
    (action,) = session.run(None, {session.get_inputs()[0].name: observation})
    assert np.asarray(action).shape == (3, 2)
    assert np.abs(np.asarray(action)).max() <= 1.001
