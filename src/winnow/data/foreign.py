"""Data of other projects that winnow does not read as it is: recognised by its names, with what to do instead."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from winnow.data.columns import Columns
from winnow.errors import BadInput

AS_A_TABLE = "one row a step with the columns observation, action, reward, terminated, truncated and episode"
START_BYTES = 4_096


def refuse_foreign(where: str, path: Path) -> None:
    """Say what to do with RLDS and RLlib data, which no opener reads."""
    with contextlib.suppress(OSError):  # what can't be listed or read is nothing that is known
        _refuse_by_names(where, path)


def _refuse_by_names(where: str, path: Path) -> None:
    if not path.is_dir() and not path.is_file():  # a pipe would have to be waited for
        return
    names = [child.name for child in path.iterdir()] if path.is_dir() else [path.name]
    if path.is_dir() and not any(".tfrecord" in name for name in names):
        names += [child.name for folder in path.iterdir() if folder.is_dir() for child in folder.iterdir()]
    if any(".tfrecord" in name for name in names):
        raise BadInput(
            f"{where}: is an RLDS dataset (TensorFlow records), which winnow does not read; write its steps to "
            f"Parquet, {AS_A_TABLE}"
        )
    logs = [path] if path.is_file() else [child for child in path.iterdir() if child.suffix == ".json"]
    for file in logs[:1]:
        with file.open("rb") as opened:
            start = opened.read(START_BYTES)
        if b'"SampleBatch"' in start or (b'"obs"' in start and b'"eps_id"' in start):
            raise BadInput(
                f"{where}: is RLlib's JSON output, which winnow does not read (its columns are packed); write its "
                f"samples to Parquet, {AS_A_TABLE}"
            )


def check_layout(names: Sequence[str], choice: Columns, where: str) -> None:
    """Refuse tables whose columns mean something else than their names say, until the user names them."""
    have = set(names)
    if choice.given:
        return
    without_rewards = not have & {"rewards", "reward"} and bool(have & {"qpos", "qvel"})
    if {"observations", "actions", "terminals"} <= have and ("masks" in have or without_rewards):
        raise BadInput(
            f"{where}: is laid out as OGBench's files, where `terminals` marks where a recording ends and rewards "
            "belong to a task; load a singletask dataset with OGBench, save its observations, actions, rewards and "
            "next_observations with terminals = 1 - masks and timeouts = the end of each recording"
        )
    if "item" in have and len(have) == 1:
        raise BadInput(
            f"{where}: is RLlib's output of packed episodes, which winnow does not read; write it with "
            f"`output_write_episodes=False`, or to Parquet, {AS_A_TABLE}"
        )
    if {"obs", "new_obs", "eps_id"} <= have:
        done = "terminateds" if "terminateds" in have else "dones"
        cut = " --timeout truncateds" if "truncateds" in have else ""
        raise BadInput(
            f"{where}: is laid out as RLlib's sample batches; name its columns: --observations obs --actions actions "
            f"--reward rewards --next-observations new_obs --terminal {done}{cut} --episode eps_id"
        )
