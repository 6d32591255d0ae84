"""Logs of metrics: always one JSON line for each run and chunk; TensorBoard and Weights & Biases on request."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from winnow.errors import BadInput, install_hint
from winnow.system.files import parse_json, replacing

Line = dict[str, Any]


class Log(Protocol):
    def write(self, line: Line) -> None:
        """Metrics of the run `run` after `step` updates."""
        ...

    def evaluated(self, line: Line) -> None:
        """Returns of the policy of `run` after `step` updates. May arrive after metrics of later steps."""
        ...

    def close(self) -> None: ...


class JsonLines:
    """metrics.jsonl: append-only, one object a line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, line: Line) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def evaluated(self, line: Line) -> None:
        """Writes nothing: returns.jsonl has every episode."""

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """One event file for each run, under OUT/tensorboard."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError as error:
            raise BadInput(f"logging to TensorBoard needs it installed: {install_hint('tensorboard')}") from error
        self._make: Callable[[str], Any] = lambda run: Writer(str(folder / "tensorboard" / run))
        self._writers: dict[str, Any] = {}

    def write(self, line: Line) -> None:
        writer = self._writers.setdefault(line["run"], None) or self._make(line["run"])
        self._writers[line["run"]] = writer
        for name, value in line.items():
            if isinstance(value, float):
                writer.add_scalar(name, value, line["step"])

    evaluated = write

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class WeightsAndBiases:
    """One W&B run for each winnow run, grouped by output folder. WANDB_MODE=offline works."""

    def __init__(self, folder: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise BadInput(f"logging to Weights & Biases needs it installed: {install_hint('wandb')}") from error
        self._wandb = wandb
        self._folder = folder
        self._runs: dict[str, Any] = {}

    def write(self, line: Line) -> None:
        name = line["run"]
        if name not in self._runs:
            self._runs[name] = self._wandb.init(
                project="winnow",
                group=self._folder.name,
                name=name,
                dir=str(self._folder),
                reinit="create_new",
            )
            self._runs[name].define_metric("*", step_metric="updates")  # W&B's own step can't go back
        values = {key: value for key, value in line.items() if isinstance(value, float)}
        self._runs[name].log(values | {"updates": line["step"]})

    evaluated = write

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()


LOGS: dict[str, Callable[[Path], Log]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def open_logs(folder: Path, names: Sequence[str]) -> list[Log]:
    """Opens the named logs, and metrics.jsonl."""
    for name in names:
        if name not in LOGS:
            raise BadInput(f"there is no log {name!r}; choose from {', '.join(LOGS)}")
    return [*(LOGS[name](folder) for name in names), JsonLines(folder / "metrics.jsonl")]


def read_metrics(path: Path) -> list[Line]:
    """The lines of a metrics.jsonl. A last line cut short by a crash is left out, and so is any line that is not JSON
    or lacks `run` or `step`."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError):
            line = parse_json(text)
            if isinstance(line, dict) and isinstance(line.get("run"), str) and type(line.get("step")) is int:
                lines.append(line)
    return lines


def keep_lines(path: Path, keep: Callable[[Line], bool]) -> None:
    """Rewrite a metrics.jsonl with only these lines; a resumed run is about to write the others again."""
    kept = [line for line in read_metrics(path) if keep(line)]
    with replacing(path) as temporary:
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
