"""Opening a dataset by what the file is: one small function a format, and all of them go through `from_arrays`.

No format is trusted: nothing is unpickled, no link leads out of the file, no environment is built to read its data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winnow.data import store
from winnow.data.arrow import arrow_array
from winnow.data.assemble import assemble
from winnow.data.choices import UNSAID, Actions
from winnow.data.columns import (
    Columns,
    FileContent,
    Progress,
    carried,
    read_selected,
    select,
)
from winnow.data.dataset import Dataset, Kind, Side
from winnow.data.foreign import check_layout, refuse_foreign
from winnow.data.hdf5 import hard_linked
from winnow.data.lerobot import is_lerobot, open_lerobot
from winnow.data.meta import Meta
from winnow.data.minari import is_minari, open_minari
from winnow.data.minari_files import METADATA
from winnow.data.robomimic import is_robomimic, open_robomimic
from winnow.data.size_limits import Budget, few_columns
from winnow.errors import BadInput

DAMAGE = Exception
"""What the libraries behind the openers raise when a file is cut short or is not what it claims to be: anything."""


ROWS_AT_ONCE = 1 << 16
"""Rows of a table after which it is looked at how much they have become."""


class Format(NamedTuple):
    name: str
    recognise: Callable[[str, Path], bool]
    open: Callable[[str, Path, Progress, Columns], FileContent]


def open_dataset(
    source: str | Path,
    *,
    kind: Kind | None = None,
    max_steps: int | None = None,
    action_bounds: tuple[Side, Side] | None = None,
    actions: Actions = UNSAID,
    name: str | None = None,
    environment: str | None = None,
    columns: Columns | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The dataset in a file, a Minari folder or `minari:ID`, checked; or one of the benchmark's by its name.

    `kind`, `max_steps`, `action_bounds` and `actions` say what a foreign file can't: that it has no episodes, its
    environment's time limit, the least and greatest action, and whether actions are choices (`Actions("discrete")`).
    What a file says of itself is used where they are not given.
    `columns` names the columns to use and says what to do about missing values: a `Columns`, or a dictionary of its
    fields, as {"observations": "temp_*, valve_1", "reward": "yield", "nan": "drop"}.
    """
    choice = columns if isinstance(columns, Columns) else Columns.of(columns or {})
    where = str(source)
    path = Path(source)
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
        if max_steps or action_bounds or changed or kind not in (None, ours.meta.kind) or choice != Columns():
            raise BadInput(
                f"{where}: is a winnow dataset already; give kind, steps, actions and columns with its first source"
            )
        given = {"name": name, "environment": environment}
        return ours.describe(**{key: value for key, value in given.items() if value})

    file_format = next((known for known in FORMATS if known.recognise(where, path)), None)
    if file_format is None:
        refuse_foreign(where, path)
        known = ", ".join(["a winnow dataset", *(known.name for known in FORMATS)])
        raise BadInput(f"{where}: is not a kind of file that winnow reads; it reads {known}")
    with readable(where, file_format.name):
        content = file_format.open(where, path, progress or (lambda done, total: None), choice)
        if content.own and choice.given:
            raise BadInput(f"{where}: was exported by winnow; name columns with its first source")
        dataset = assemble(content, where, kind, max_steps, action_bounds, actions, choice)
    given = {key: value for key, value in (("name", name), ("environment", environment)) if value}
    dataset = dataset.describe(**given)
    dataset.meta.check(where)
    again = where if where.startswith("minari:") else str(path.resolve())
    plain = kind is None and max_steps is None and action_bounds is None and actions == UNSAID and choice == Columns()
    return dataclasses.replace(dataset, path=again if plain else None)


def _table(
    names: Sequence[str],
    read: Callable[[str], np.ndarray],
    where: str,
    path: Path,
    choice: Columns,
    own: Meta | None = None,
) -> FileContent:
    """The columns of a table, with a note of what was used if the user named any or some are left."""
    if own is None:
        check_layout(names, choice, where)
    selection = select(names, choice, where, own is not None)
    columns, labels = read_selected(selection, read, where)
    notes = () if own or not (choice.given or selection.ignored) else (selection.note(),)
    return FileContent(
        columns,
        names,
        path.stem,
        own=own,
        labels=labels,
        notes=notes,
    )


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


# --------------------------------------------------------------------------------------------------- D4RL HDF5


def _is_hdf5(where: str, path: Path) -> bool:
    return path.is_file() and _magic(path, 8) == b"\x89HDF\r\n\x1a\n"


def _open_hdf5(where: str, path: Path, progress: Progress, choice: Columns) -> FileContent:
    """Flat arrays at the top of the file; groups (`infos`, `metadata`) are left alone."""
    import h5py

    budget = Budget(where, path)
    with h5py.File(path, "r") as file:
        names = list(file)
        if names and all(re.fullmatch(r"episode_\d+", name) for name in names):
            if (path.parent / METADATA).exists():
                return open_minari(where, path.parent, progress, choice)
            raise BadInput(f"{where}: is the inside of a Minari dataset; give the folder that holds it and {METADATA}")
        if is_robomimic(names):
            return open_robomimic(
                file, where, path, progress, choice, lambda group, name: _hdf5_array(group, name, where, budget)
            )
        infos = hard_linked(file, "infos", where) if "infos" in names else ()
        ours = isinstance(infos, h5py.Group) and "winnow" in list(infos)
        own = carried(_hdf5_array(infos, "winnow", where, budget).tobytes(), where) if ours else None
        arrays = [name for name in names if name not in GROUPS]
        content = _table(arrays, lambda name: _hdf5_array(file, name, where, budget), where, path, choice, own)
        if ours:
            inside = select(list(infos), Columns(), where, own=True)
            added, _ = read_selected(inside, lambda name: _hdf5_array(infos, name, where, budget), where)
            content.columns |= added
    return content


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


def _open_npz(where: str, path: Path, progress: Progress, choice: Columns) -> FileContent:
    budget = Budget(where, path)
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:

        def read(name: str) -> np.ndarray:
            inside = file.zip.NameToInfo
            budget.take(max(inside[key].file_size for key in (name, f"{name}.npy") if key in inside), name)
            try:
                return file[name]
            except ValueError as error:
                if "pickle" in str(error):
                    raise BadInput(f"{where}: {name} holds Python objects; save it as an array of numbers") from error
                raise

        names = [name for name in file.files if name != "winnow"]
        own = carried(str(read("winnow")) if "winnow" in file.files else None, where)
        return _table(names, read, where, path, choice, own)


def _is_parquet(where: str, path: Path) -> bool:
    return path.is_file() and _magic(path, 4) == b"PAR1"


def _open_parquet(where: str, path: Path, progress: Progress, choice: Columns) -> FileContent:
    from pyarrow import chunked_array, types
    from pyarrow.parquet import ParquetFile, read_schema

    budget = Budget(where, path)
    schema = read_schema(path)
    names = schema.names
    few_columns(len(names), where)
    # Text stays in its dictionary: a long one may occur millions of times.
    texts = [field.name for field in schema if types.is_string(field.type) or types.is_binary(field.type)]
    with ParquetFile(path, read_dictionary=texts) as file:
        own = carried((schema.metadata or {}).get(b"winnow"), where)

        def read(name: str) -> np.ndarray:
            parts = []
            for part in file.iter_batches(ROWS_AT_ONCE, columns=[name]):
                budget.take(part.nbytes, name)
                parts.append(part.column(0))
            return arrow_array(chunked_array(parts), name, where) if parts else np.zeros(0)

        return _table(names, read, where, path, choice, own)


def _is_csv(where: str, path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in (".csv", ".tsv")


def _open_csv(where: str, path: Path, progress: Progress, choice: Columns) -> FileContent:
    from pyarrow import csv

    tab = csv.ParseOptions(delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    with path.open("rb") as file:
        few_columns(file.readline(1 << 20).count(tab.delimiter.encode()) + 1, where)
    table = _read_csv(path, tab)
    names = table.schema.names
    return _table(names, lambda name: arrow_array(table[name], name, where), where, path, choice)


def _read_csv(path: Path, options: Any) -> Any:
    """A table. A column is text if any of its cells is not a number: that matters only if the column is used."""
    from pyarrow import ArrowInvalid, csv, string

    header = csv.open_csv(path, parse_options=options).schema.names
    texts: dict[str, Any] = {}
    while True:
        try:
            return csv.read_csv(path, parse_options=options, convert_options=csv.ConvertOptions(column_types=texts))
        except ArrowInvalid as error:
            match = re.match(r"In CSV column #(\d+)", str(error))
            name = header[int(match[1])] if match and int(match[1]) < len(header) else None
            if name is None or name in texts:
                raise
            texts[name] = string()


def _magic(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); check its permissions") from error


GROUPS = ("infos", "metadata")
"""Groups of a D4RL file that hold no columns."""
FORMATS = (
    Format("a Minari dataset (minari:ID or its folder)", is_minari, open_minari),
    Format("a LeRobot folder", is_lerobot, open_lerobot),
    Format("a D4RL HDF5 file or robomimic's", _is_hdf5, _open_hdf5),
    Format("an npz file", _is_npz, _open_npz),
    Format("a Parquet file", _is_parquet, _open_parquet),
    Format("a CSV file", _is_csv, _open_csv),
)
