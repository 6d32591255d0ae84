"""Opening a dataset by what the file is: one small function a format, and all of them go through `from_arrays`.

No format is trusted: nothing is unpickled, no link leads out of the file, no environment is built to read its data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winnow.data import store
from winnow.data.arrays import from_arrays
from winnow.data.choices import Actions
from winnow.data.columns import ALIASES, Found, Progress, carried, gather
from winnow.data.dataset import LONGEST, MOST_SOURCES, Dataset, Kind, Side
from winnow.data.minari import is_minari, open_minari
from winnow.data.minari_files import METADATA, hard_linked
from winnow.data.size_limits import Budget, few_columns
from winnow.errors import BadInput

DAMAGE = Exception
"""What the libraries behind the openers raise when a file is cut short or is not what it claims to be: anything."""


UNSAID = Actions()
ROWS_AT_ONCE = 1 << 16
"""Rows of a table after which it is looked at how much they have become."""


class Format(NamedTuple):
    name: str
    recognise: Callable[[str, Path], bool]
    open: Callable[[str, Path, Progress], Found]


def open_dataset(
    source: str | Path,
    *,
    kind: Kind | None = None,
    max_steps: int | None = None,
    action_bounds: tuple[Side, Side] | None = None,
    actions: Actions = UNSAID,
    name: str | None = None,
    environment: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset in a file, a Minari folder or `minari:ID`, checked; or one of the benchmark's by its name.

    `kind`, `max_steps`, `action_bounds` and `actions` say what a foreign file can't: that it has no episodes, its
    environment's time limit, the least and greatest action, and whether actions are choices (`Actions("discrete")`).
    What a file says of itself is used where they are not given.
    """
    where, path = str(source), Path(source)
    ours = None
    if not where.startswith("minari:") and not _exists(path):
        from winnow.data.catalogue import open_named  # it opens files with this function
        from winnow.data.names import is_name

        if not is_name(where):
            raise BadInput(
                f"{where}: there is no such file; check the name (a Minari dataset is minari:ID, and `winnow data "
                "list` shows those with a name of their own)"
            )
        ours = open_named(where)
    elif store.is_dataset(path) or path.suffix == ".safetensors":
        ours = store.load(path)
    if ours is not None:
        changed = actions.kind not in (None, ours.action_kind) or actions.choices or actions.names
        if max_steps or action_bounds or changed or kind not in (None, ours.meta.kind):
            raise BadInput(f"{where}: is a winnow dataset already; give kind, steps and actions with its first source")
        given = {"name": name, "environment": environment}
        return ours.describe(**{key: value for key, value in given.items() if value})

    chosen = next((one for one in FORMATS if one.recognise(where, path)), None)
    if chosen is None:
        known = ", ".join(["a winnow dataset", *(one.name for one in FORMATS)])
        raise BadInput(f"{where}: is not a kind of file that winnow reads; it reads {known}")
    with readable(where, chosen.name):
        found = chosen.open(where, path, progress or (lambda done, total: None))
        dataset = assemble(found, where, kind, max_steps, action_bounds, actions)
    given = {key: value for key, value in (("name", name), ("environment", environment)) if value}
    dataset = dataset.describe(**given)
    dataset.meta.check(where)
    again = where if where.startswith("minari:") else str(path.resolve())
    plain = kind is None and max_steps is None and action_bounds is None and actions == UNSAID
    return dataclasses.replace(dataset, path=again if plain else None)


def _exists(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):  # no system has a file of such a name
        return path.exists()
    return False


@contextlib.contextmanager
def readable(where: str, kind: str) -> Iterator[None]:
    """Damage to a file that is read inside, in words."""
    try:
        yield
    except BadInput:
        raise
    except DAMAGE as error:
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise BadInput(f"{where}: can't be read as {kind} ({reason[0]}); copy or make it again") from error


def assemble(
    found: Found,
    where: str,
    kind: Kind | None,
    max_steps: int | None,
    bounds: tuple[Side, Side] | None,
    actions: Actions = UNSAID,
) -> Dataset:
    """Columns into a checked dataset."""
    columns, own = found.columns, found.own
    for name in ("observations", "actions", "rewards"):
        if name not in columns:
            usual = ", ".join(ALIASES[name])
            there = ", ".join(found.names) or "nothing"
            raise BadInput(f"{where}: has no column for {name} ({usual}); found: {there}")
    meta: dict[str, Any] = {"name": found.name, "environment": found.environment}
    if own:
        copied = ("name", "environment", "physics", "sources", "return_range", "recipe")
        meta |= {name: getattr(own, name) for name in copied}
        kind = kind or own.kind
        if own.action_choices:
            found.actions = Actions("discrete", own.action_choices, own.choice_names)
        else:
            bounds = bounds or (own.action_low, own.action_high)
    names = {"seed": "seed", "origin": "origin", "offset": "step", "row": "source_row", "id": "source_episode"}
    per_row = {field: columns.get(name) for field, name in names.items()}
    if per_row["id"] is None and "episode" in columns:
        per_row["id"] = episode_ids(columns["episode"], where)
    if "source" in columns:
        meta["sources"], per_row["source"] = _labels(columns["source"], own.sources if own else (), where)
    ends = None
    if "episode" in columns and kind != "bag":
        ends = _changes(columns["episode"], np.size(columns["rewards"]), where)
    if actions == UNSAID and bounds is None:
        actions = found.actions
    dataset = from_arrays(
        columns["observations"],
        columns["actions"],
        columns["rewards"],
        columns.get("terminals"),
        columns.get("timeouts"),
        columns.get("next_observations"),
        ends=ends,
        kind=kind,
        max_steps=max_steps,
        action_bounds=bounds or (None if actions.is_discrete else found.bounds),
        action_kind=actions.kind,
        action_choices=actions.choices,
        choice_names=actions.names,
        propensities=columns.get("propensities"),
        where=where,
        per_row={name: column for name, column in per_row.items() if column is not None},
        **meta,
    )
    notes = (own.notes if own else ()) + dataset.meta.notes + _done_notes(found)
    return dataset.describe(notes=tuple(dict.fromkeys(notes)))


def _done_notes(found: Found) -> tuple[str, ...]:
    """What `done` was taken for: old gym wrote it for a timeout too, and that can't be seen afterwards."""
    done = next((name for name in ("done", "dones") if name in found.names), None)
    if done is None:
        return ()
    if "timeouts" not in found.columns:
        return (f"`{done}` was taken as terminal; if it also marks time limits, add a `truncated` column",)
    terminal, timeout = (np.ravel(found.columns[name]).astype(bool) for name in ("terminals", "timeouts"))
    both = int((terminal & timeout).sum())
    return (f"{both} row(s) are both `{done}` and timed out: taken as terminal",) if both else ()


def episode_ids(values: Any, where: str) -> np.ndarray:
    """The source's ids of episodes: whole numbers as int64, anything else as strings."""
    ids = np.ravel(values)
    if ids.dtype.kind in "iub":
        return ids.astype(np.int64)
    if ids.dtype.kind == "f" and (ids == np.floor(ids)).all() and np.abs(ids).max(initial=0) < 2**53:
        return ids.astype(np.int64)
    text = ids.astype(str)
    if text.dtype.itemsize > 4 * LONGEST or not all(map(str.isprintable, np.unique(text).tolist())):
        raise BadInput(f"{where}: an episode's id must be one line of at most {LONGEST} characters; shorten the ids")
    return text


def _changes(episode: Any, rows: int, where: str) -> np.ndarray:
    """Rows after which the episode's id is another one."""
    episode = np.ravel(episode)
    if len(episode) != rows:
        raise BadInput(f"{where}: episode has {len(episode)} rows, rewards has {rows}; they must agree")
    end = np.ones(len(episode), bool)
    end[:-1] = episode[1:] != episode[:-1]
    first = np.flatnonzero(np.roll(end, 1))
    ids, earliest = np.unique(episode[first], return_index=True)
    if len(ids) < len(first):
        row = int(first[np.setdiff1d(np.arange(len(first)), earliest)[0]])
        raise BadInput(
            f"{where}: episode, row {row}: id {episode[row]} comes back after other episodes; sort the rows by "
            "episode and step, or say that they are unordered (--kind bag)"
        )
    return end


def _labels(values: Any, known: Sequence[str], where: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Source labels and each row's index into them. Numbers are indices already where the labels are known."""
    values = np.ravel(values)
    if known and values.dtype.kind in "iu":
        outside = (values < 0) | (values >= len(known))
        if outside.any():
            row = int(np.argmax(outside))
            raise BadInput(f"{where}: source, row {row}: {values[row]} is none of its {len(known)} sources")
        return tuple(known), values
    found, code = np.unique(values, return_inverse=True)
    if len(found) > MOST_SOURCES:
        raise BadInput(f"{where}: source has {len(found):,} different labels; there may be {MOST_SOURCES:,}")
    labels = tuple(dict.fromkeys([*known, *map(str, found)]))
    return labels, np.array([labels.index(str(label)) for label in found], np.int32)[code]


# --------------------------------------------------------------------------------------------------- D4RL HDF5


def _is_hdf5(where: str, path: Path) -> bool:
    return path.is_file() and _magic(path, 8) == b"\x89HDF\r\n\x1a\n"


def _open_hdf5(where: str, path: Path, progress: Progress) -> Found:
    """Flat arrays at the top of the file; groups (`infos`, `metadata`) are left alone."""
    import h5py

    budget = Budget(where, path)
    with h5py.File(path, "r") as file:
        names = list(file)
        if names and all(re.fullmatch(r"episode_\d+", name) for name in names):
            if (path.parent / METADATA).exists():
                return open_minari(where, path.parent, progress)
            raise BadInput(f"{where}: is the inside of a Minari dataset; give the folder that holds it and {METADATA}")
        infos = hard_linked(file, "infos", where) if "infos" in names else ()
        ours = isinstance(infos, h5py.Group) and "winnow" in list(infos)
        own = carried(_hdf5_array(infos, "winnow", where, budget).tobytes(), where) if ours else None
        columns = gather(names, lambda name: _hdf5_array(file, name, where, budget), where)
        if ours:
            columns |= gather(list(infos), lambda name: _hdf5_array(infos, name, where, budget), where, True)
    return Found(columns, names, path.stem, own=own)


def _hdf5_array(group: Any, name: str, where: str, budget: Budget) -> np.ndarray:
    import h5py

    array = hard_linked(group, name, where)
    if not isinstance(array, h5py.Dataset):
        raise BadInput(f"{where}: {name} is a group; it must be one array (flatten it first)")
    if array.external or array.is_virtual:
        raise BadInput(f"{where}: {name} is kept in another file; winnow reads one file only: copy the data into it")
    text = array.dtype.kind == "S" and array.ndim == 1
    if array.dtype.kind not in "fiub" and not text:
        raise BadInput(f"{where}: {name} holds {array.dtype}; it must hold numbers, the same count in each row")
    budget.array(array.shape, array.dtype.itemsize, name, array.chunks)
    values = array[()]
    return np.char.decode(values, "utf-8") if text else values


# ------------------------------------------------------------------------------------------- npz, Parquet, CSV


def _is_npz(where: str, path: Path) -> bool:
    return path.is_file() and _magic(path, 4) == b"PK\x03\x04"


def _open_npz(where: str, path: Path, progress: Progress) -> Found:
    budget = Budget(where, path)
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:

        def read(name: str) -> np.ndarray:
            inside = file.zip.NameToInfo
            budget.take(max(inside[one].file_size for one in (name, f"{name}.npy") if one in inside), name)
            try:
                return file[name]
            except ValueError as error:
                if "pickle" in str(error):
                    raise BadInput(f"{where}: {name} holds Python objects; save it as an array of numbers") from error
                raise

        names = [name for name in file.files if name != "winnow"]
        own = carried(str(read("winnow")) if "winnow" in file.files else None, where)
        columns = gather(names, read, where, own is not None)
    return Found(columns, names, path.stem, own=own)


def _is_parquet(where: str, path: Path) -> bool:
    return path.is_file() and _magic(path, 4) == b"PAR1"


def _open_parquet(where: str, path: Path, progress: Progress) -> Found:
    from pyarrow import chunked_array, types
    from pyarrow.parquet import ParquetFile, read_schema

    budget, schema = Budget(where, path), read_schema(path)
    names = schema.names
    few_columns(len(names), where)
    # Words stay in their dictionary: a long one may be meant millions of times.
    words = [field.name for field in schema if types.is_string(field.type) or types.is_binary(field.type)]
    with ParquetFile(path, read_dictionary=words) as file:
        own = carried((schema.metadata or {}).get(b"winnow"), where)

        def read(name: str) -> np.ndarray:
            parts = []
            for part in file.iter_batches(ROWS_AT_ONCE, columns=[name]):
                budget.take(part.nbytes, name)
                parts.append(part.column(0))
            return arrow_array(chunked_array(parts), name, where) if parts else np.zeros(0)

        columns = gather(names, read, where, own is not None)
    return Found(columns, names, path.stem, own=own)


def _is_csv(where: str, path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in (".csv", ".tsv")


def _open_csv(where: str, path: Path, progress: Progress) -> Found:
    from pyarrow import csv

    tab = csv.ParseOptions(delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    with path.open("rb") as file:
        few_columns(file.readline(1 << 20).count(tab.delimiter.encode()) + 1, where)
    table = csv.read_csv(path, parse_options=tab)
    names = table.schema.names
    return Found(gather(names, lambda name: arrow_array(table[name], name, where), where), names, path.stem)


def arrow_array(column: Any, name: str, where: str) -> np.ndarray:
    """A column of numbers, or of lists that are all equally long, as an array."""
    from pyarrow import types

    column = column.combine_chunks()
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise BadInput(f"{where}: {name}, row {row}: is empty; fill it in or remove the row")
    if types.is_dictionary(column.type):
        labels = column.dictionary.to_numpy(zero_copy_only=False)
        return labels[column.indices.to_numpy()]
    if not (types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)):
        return column.to_numpy(zero_copy_only=False)
    fixed = types.is_fixed_size_list(column.type)
    length = np.full(len(column), column.type.list_size) if fixed else column.value_lengths().to_numpy()
    odd = length != (length[0] if len(length) else 0)
    if odd.any():
        row = int(np.argmax(odd))
        raise BadInput(f"{where}: {name}, row {row}: has {length[row]} numbers, row 0 has {length[0]}; they must agree")
    inside = column.flatten()
    if inside.null_count or types.is_nested(inside.type):
        raise BadInput(f"{where}: {name} must be a plain list of numbers in each row, none of them empty")
    return inside.to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _magic(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); check its permissions") from error


FORMATS = (
    Format("a Minari dataset (minari:ID or its folder)", is_minari, open_minari),
    Format("a D4RL HDF5 file", _is_hdf5, _open_hdf5),
    Format("an npz file", _is_npz, _open_npz),
    Format("a Parquet file", _is_parquet, _open_parquet),
    Format("a CSV file", _is_csv, _open_csv),
)
