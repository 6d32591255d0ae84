"""Reading LeRobot datasets (v2 and v3): Parquet files of frames beside `meta/info.json`. LeRobot itself is not needed.

A frame keeps its number in the dataset (`index`), so that `winnow weights --format lerobot` can name it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.arrow import arrow_array
from winnow.data.columns import SUCCESS, Columns, FileContent, Progress, read_selected, select, shown
from winnow.data.size_limits import Budget, few_columns
from winnow.errors import BadInput
from winnow.system.files import parse_json

INFO = Path("meta") / "info.json"
VERSIONS = ("v2.", "v3.")
IMAGES = ("image", "video")
"""Types of features that are pictures."""
FRAME_KEYS = ("timestamp", "frame_index", "episode_index", "index", "task_index")
"""What LeRobot itself writes of every frame."""
USUAL = {
    "actions": "action",
    "reward": "next.reward",
    "terminal": "next.done",
    "timeout": "next.truncated",
    "episode": "episode_index",
}
"""The keys that are used where the user names none."""


def is_lerobot(where: str, path: Path) -> bool:
    return path.is_dir() and (path / INFO).is_file()


def open_lerobot(where: str, path: Path, progress: Progress, choice: Columns) -> FileContent:
    """The frames of all episodes. `next.done` is taken as the end of the task."""
    features = _features(where, path)
    files = sorted((path / "data").glob("**/*.parquet"))
    if not files:
        raise BadInput(f"{where}: must have Parquet files below data/, got none; fetch the whole dataset")
    numbers = [name for name, feature in features.items() if feature.get("dtype") not in (*IMAGES, "string")]
    chosen = _with_usual(choice, features, numbers, where)
    selection = select(numbers, chosen, where)
    selection = selection.guessed_where_not_named(choice)
    selection = selection._replace(ignored=[name for name in selection.ignored if name not in FRAME_KEYS])
    columns = sorted({name for names in selection.fields.values() for name in names} | {"index"})
    table = _read(where, files, columns, progress)
    arrays, labels = read_selected(
        selection,
        lambda name: arrow_array(table[name], name, where),
        where,
        lambda name: _element_names(features[name]),
    )
    index = arrow_array(table["index"], "index", where)
    order = np.argsort(index, kind="stable")
    if (order[1:] < order[:-1]).any():
        arrays = {field: values[order] for field, values in arrays.items()}
        index = index[order]
    _check_frames(index, arrays["episode"], where)
    notes = [selection.note()]
    pictures = [name for name, feature in features.items() if feature.get("dtype") in IMAGES]
    if pictures:
        notes.append(f"images are not read: {shown(pictures)}")
    if selection.fields.get("terminals") == ["next.done"] and not choice.terminal:
        notes.append(
            "`next.done` was taken as the end of the task; if it only marks where a recording stops, use --timeout "
            "next.done"
        )
    return FileContent(
        arrays | {"source_row": index},
        list(features),
        path.resolve().name,
        labels=labels,
        notes=tuple(notes),
    )


def _features(where: str, path: Path) -> dict[str, dict[str, Any]]:
    """What each key holds, as the dataset says."""
    info = parse_json((path / INFO).read_bytes())
    features = info.get("features") if isinstance(info, dict) else None
    if not isinstance(features, dict) or not all(isinstance(feature, dict) for feature in features.values()):
        raise BadInput(f"{where}: {INFO} must say the dataset's features; fetch the dataset again")
    version = str(info.get("codebase_version", "none"))
    if not version.startswith(VERSIONS):
        raise BadInput(
            f"{where}: codebase_version must be v2.x or v3.x, got {version[:20]}; convert it with LeRobot's own scripts"
        )
    few_columns(len(features), where)
    return features


def _with_usual(choice: Columns, features: dict[str, Any], numbers: list[str], where: str) -> Columns:
    """The user's choice, and LeRobot's usual keys for what was not chosen."""
    pictures = [name for name, feature in features.items() if feature.get("dtype") in IMAGES]
    states = [name for name in numbers if name.startswith("observation.")]
    instead = f"name others: --observations {','.join(states)}" if states else "it has no others that hold numbers"
    asked = [name for name in choice.observations if name in pictures]
    if asked or (pictures and not choice.observations):
        raise BadInput(f"{where}: {(asked or pictures)[0]} holds images, which winnow does not read; {instead}")
    if not choice.observations and not states:
        raise BadInput(f"{where}: has no observations of numbers (observation.…); it has {shown(list(features))}")
    taken = {*choice.actions, *(getattr(choice, name) for name in ("reward", "terminal", "timeout", "episode"))}
    missing: dict[str, Any] = {}
    for option, key in USUAL.items():
        if not getattr(choice, option) and key in numbers and key not in {*taken, *choice.drop}:
            missing[option] = (key,) if option == "actions" else key
    if choice.reward_from:
        missing.pop("reward", None)
    elif not choice.reward and "reward" not in missing:
        success = next((name for name in SUCCESS if name in numbers), None)
        hint = f"--reward success (from {success}), " if success else ""
        others = [name for name in numbers if name not in (*FRAME_KEYS, *states, "action")]
        raise BadInput(
            f"{where}: has no next.reward; give {hint}--reward KEY or --reward-from KEY (progress); it has "
            f"{shown(others) or 'no other keys'}"
        )
    return dataclasses.replace(choice, observations=choice.observations or tuple(states), **missing)


def _read(where: str, files: Sequence[Path], columns: list[str], progress: Progress) -> Any:
    from pyarrow import ArrowInvalid, concat_tables
    from pyarrow.parquet import ParquetFile

    tables = []
    for number, file in enumerate(files):
        progress(number, len(files))
        budget = Budget(where, file)
        with ParquetFile(file) as opened:
            absent = [name for name in columns if name not in opened.schema_arrow.names]
            if absent:
                raise BadInput(f"{where}: {file.name} must have the column {absent[0]}; fetch the dataset again")
            for batch in opened.iter_batches(1 << 16, columns=columns):
                budget.take(batch.nbytes, file.name)
                tables.append(batch)
    progress(len(files), len(files))
    import pyarrow as pa

    try:
        return concat_tables([pa.Table.from_batches([batch]) for batch in tables], promote_options="permissive")
    except ArrowInvalid as error:
        raise BadInput(f"{where}: its files must have the same columns ({error}); fetch the dataset again") from error


def _element_names(feature: dict[str, Any]) -> Sequence[str] | None:
    """What a feature calls its numbers: a list, or a list inside an object (motors), or names with their places."""
    names = feature.get("names")
    if isinstance(names, dict):
        values = list(names.values())
        if len(values) == 1 and isinstance(values[0], list):
            names = values[0]
        elif values and all(isinstance(value, int) for value in values):
            names = sorted(names, key=names.__getitem__)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return names


def _check_frames(index: np.ndarray, episode: np.ndarray, where: str) -> None:
    """Frames of an episode follow each other: a missing one would join what is apart."""
    gap = (np.diff(index) != 1) & (episode[1:] == episode[:-1])
    if gap.any():
        row = int(np.argmax(gap))
        raise BadInput(
            f"{where}: index: {index[row]} is followed by {index[row + 1]} in episode {episode[row]}; frames are "
            "missing or double, so fetch the dataset again"
        )
