"""D4RL's datasets by name: `hopper-medium-v2` is the user's own copy of D4RL's file, or else that file downloaded.

Nothing else is ever taken for it. Regenerated data has names of its own, without the version. Minari's datasets under
`D4RL/` are remakes for newer environments with versions of their own, and those under `mujoco/` come from other
policies: they are opened under a name of D4RL only when the user says so (`--source minari:ID`).

An episode ends at a terminal or at a timeout, as for any file. Three layouts need a word, and leave a note in the
dataset where it matters:

- AntMaze marks every step at the goal as terminal, and the recording goes on. Each such step ends an episode, so what
  the ant does at the goal becomes episodes of a single step with return 1. D4RL's `sequence_dataset`, IQL's loader and
  the code behind the published scores split there too.
- Replay files do not mark every timeout. A recorded next observation that is not the next row's observation is one.
- Demonstrations (Kitchen, Adroit's human ones) may come without timeouts: each then ends in a terminal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from winnow.data.arrays import from_arrays
from winnow.data.columns import Columns, Progress
from winnow.data.dataset import Dataset
from winnow.data.folder import home
from winnow.data.minari import is_minari, minari_root
from winnow.data.names import ENVIRONMENTS
from winnow.data.sources import DAMAGE, FORMATS, open_dataset
from winnow.errors import BadInput
from winnow.system.files import write_text
from winnow.system.progress import say

BASE = "https://rail.eecs.berkeley.edu/datasets/offline_rl/"
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as dropped."""
TRIES = 5
"""Connections in a row that may bring nothing new."""
PAUSE = 1.0
"""Seconds before the second try, doubled for each one after it."""
BLOCK = 1 << 17

NEEDED = {"observations", "actions", "rewards", "terminals"}
MORE = {"next_observations", "timeouts"}
"""Columns that every file of D4RL has, and those that some have."""
HDF5 = next(known for known in FORMATS if "HDF5" in known.name)


class File(NamedTuple):
    """A file on D4RL's server."""

    path: str
    """Below the base address."""
    size: int | None
    sha256: str | None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def _table() -> dict[str, File]:
    text = (resources.files("winnow.data") / "d4rl.tsv").read_text(encoding="utf-8")
    lines = [line.split("\t") for line in text.splitlines()]
    return {
        name: File(path, None if size == "-" else int(size), None if digest == "-" else digest)
        for name, path, size, digest in lines
    }


FILES = _table()
"""The benchmark's files of D4RL by name. Sizes and sums are those that TensorFlow Datasets pins for the same files; it
has none for Kitchen and for Relocate's first version."""


def environment(name: str) -> str:
    """The environment of a dataset: hopper, ant-v2 (with contact forces), antmaze-umaze, kitchen-complete, pen, …"""
    _file(name)
    whole = name.rpartition("-v")[0]
    task = whole.split("-")[0]
    if task == "ant":
        return "ant-v2"
    return whole if task in ("antmaze", "kitchen") else task


def _file(name: str) -> File:
    if name not in FILES:
        raise BadInput(f"{name}: is none of D4RL's names; `winnow data list` shows them")
    return FILES[name]


# ------------------------------------------------------------------------------------------------------ opening


def open_named(
    name: str, source: str | Path | None = None, download: bool = True, progress: Progress | None = None
) -> Dataset:
    """D4RL's dataset from `source` if it is given, else from a local file, else downloaded.

    source: anything that `open_dataset` reads; the user vouches for it, and a note in the dataset names it
    download: fetch a file that is not here; without it an error says how to get it
    """
    _file(name)
    file = source or locate(name)
    if file is None:
        if not download:
            raise BadInput(_advice(name, f"is not on this machine; `winnow data make {name}` downloads it", BASE))
        file = fetch(name, progress)
    dataset = _read(name, file, progress)
    notes = dataset.meta.notes
    if name.startswith("antmaze"):
        single = int(((dataset.episodes.length == 1) & dataset.episodes.terminated).sum())
        if single:
            notes += (f"{single} episodes are single steps at the goal, where D4RL's recording goes on",)
    if source:
        notes += (f"opened from {source}, which was given for {name}",)
    dataset = dataset.describe(name=name, environment=environment(name), notes=notes)
    return dataset if source else dataclasses.replace(dataset, path=name)


def locate(name: str) -> Path | None:
    """The user's own copy of D4RL's file, under the dataset's name or the file's own.

    It may lie in the data folder, in `d4rl` in it, or where D4RL itself keeps its files.
    """
    file = _file(name)
    theirs = Path(os.environ.get("D4RL_DATASET_DIR") or Path.home() / ".d4rl" / "datasets")
    folders = (home(), home() / "d4rl")
    paths = [folder / f"{name}.hdf5" for folder in folders] + [folder / file.name for folder in (*folders, theirs)]
    return next((path for path in paths if path.is_file()), None)


def remakes(name: str) -> list[str]:
    """Local Minari datasets that were made after this one. They are not the same data."""
    _file(name)
    task, _, rest = name.rpartition("-v")[0].partition("-")
    if task in ENVIRONMENTS:
        return []
    root = minari_root()
    folders = sorted([*root.glob(f"D4RL/{task}/{rest}-v*"), *root.glob(f"{task}-{rest}-v*")])
    return [f"minari:{folder.relative_to(root).as_posix()}" for folder in folders if is_minari("", folder)]


def _read(name: str, file: str | Path, progress: Progress | None) -> Dataset:
    """The dataset in a file. Ends that D4RL's replays and demonstrations leave out are marked before it is checked."""
    path = Path(file)
    mark_ends = _mark_jumps if "-replay-" in name else _end_at_terminals if re.search("kitchen|human", name) else None
    if mark_ends is None or not HDF5.recognise(str(file), path):
        return open_dataset(file, progress=progress)
    try:
        content = HDF5.open(str(file), path, progress or (lambda done, total: None), Columns())
        if content.own or not NEEDED <= set(content.columns) <= NEEDED | MORE:
            return open_dataset(file, progress=progress)  # not D4RL's layout
        same = len({len(column) for column in content.columns.values()}) == 1
        notes = mark_ends(content.columns) if same else ()  # what does not fit together is for the check to name
        dataset = from_arrays(**content.columns, where=str(file))
    except BadInput:
        raise
    except DAMAGE as error:
        raise BadInput(f"{file}: can't be read as {HDF5.name} ({error}); copy or download it again") from error
    dataset = dataset.describe(notes=dataset.meta.notes + notes)
    return dataset if notes else dataclasses.replace(dataset, path=str(path.resolve()))


def _mark_jumps(columns: dict[str, Any]) -> tuple[str, ...]:
    """A timeout wherever the recorded next observation is not the next row's; a note if some were not marked."""
    if not columns.keys() >= MORE:
        return ()
    obs, following = (columns[field].astype(np.float32) for field in ("observations", "next_observations"))
    jump = ~np.isclose(following[:-1], obs[1:], rtol=1e-4, atol=1e-5).all(axis=1)
    terminal, timeout = (np.ravel(columns[field]) != 0 for field in ("terminals", "timeouts"))
    unmarked = np.append(jump, False) & ~terminal & ~timeout
    columns["timeouts"] = timeout | unmarked
    return (f"{unmarked.sum()} timeouts were not marked: the next observations show them",) if unmarked.any() else ()


def _end_at_terminals(columns: dict[str, Any]) -> tuple[str, ...]:
    """No timeouts where a file of demonstrations says nothing of them but ends in a terminal."""
    if columns.keys() & MORE or not np.ravel(columns["terminals"])[-1:].any():
        return ()
    columns["timeouts"] = np.zeros(len(columns["terminals"]), bool)
    return ("the file has no timeouts: episodes end at terminals alone",)


# -------------------------------------------------------------------------------------------------- downloading


def fetch(name: str, progress: Progress | None = None, base: str | None = None) -> Path:
    """Download a file to `d4rl` in the data folder, or go on where an earlier download stopped.

    What has arrived is kept in FILE.part, whatever happens. FILE appears when its checksum is right. Where no checksum
    is known, that of the first download is kept in FILE.sha256 and later ones are compared with it.
    """
    file = _file(name)
    address = (base or BASE) + file.path
    if not _is_safe(address):
        raise BadInput(f"{address}: is not https; D4RL's files are fetched by https alone")
    target = home() / "d4rl" / file.name
    if target.is_file():
        if wrong := _wrong_sum(file, target, target):
            raise BadInput(f"{target}: {wrong}; remove it to download it again")
        return target
    with _part_of(target) as part:
        path = Path(part.name)
        try:
            if not target.is_file():  # another process may have just finished
                _download(address, part, file.size, progress or (lambda done, total: None))
                os.fsync(part.fileno())
                if wrong := _wrong_sum(file, path, target):
                    part.truncate(0)
                    raise BadInput(
                        f"{name}: the download was damaged and removed: {wrong}; try again, or --source FILE"
                    )
                path.replace(target)
                _tag(path).unlink(missing_ok=True)
        except (OSError, http.client.HTTPException) as error:
            raise BadInput(_advice(name, f"can't be downloaded ({_reason(error)})", base or BASE)) from error
        finally:
            if not _length(part):
                path.unlink(missing_ok=True)
                _tag(path).unlink(missing_ok=True)
    return target


@contextlib.contextmanager
def _part_of(target: Path) -> Iterator[BinaryIO]:
    """The file that a download grows in, for one process at a time."""
    path = target.with_name(f"{target.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror}); set WINNOW_DATA to another folder") from error
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on Windows
            pass
        except OSError as error:
            raise BadInput(f"{path}: another process is downloading it; wait until it is done") from error
        yield file


def _tag(part: Path) -> Path:
    """Where the server's mark of the file's version is kept: bytes of two versions must not be joined."""
    return part.with_name(f"{part.name}.etag")


def _download(address: str, part: BinaryIO, size: int | None, progress: Progress) -> None:
    """Try until all is there, or until several tries in a row brought nothing new."""
    begun = most = _length(part)
    tries = 0
    while True:
        why: Exception = ConnectionError("the connection was dropped")
        try:
            if _receive(address, part, size, progress):
                return
        except (http.client.HTTPException, ConnectionError, ssl.SSLError) as error:
            why = error
        except (urllib.error.URLError, TimeoutError) as error:
            if isinstance(error, urllib.error.HTTPError) or _length(part) == begun:  # refused, or no way there
                raise
            why = error
        tries = 1 if _length(part) > most else tries + 1
        most = max(most, _length(part))
        if tries == TRIES:
            raise why
        time.sleep(PAUSE * 2 ** (tries - 1))


def _receive(address: str, part: BinaryIO, size: int | None, progress: Progress) -> bool:
    """One connection: what is missing, or all of it where the server has another version. Whether it is complete."""
    tag_file = _tag(Path(part.name))
    if (have := _length(part)) == size:
        return True
    tag = tag_file.read_text(encoding="ascii", errors="replace") if have and tag_file.exists() else ""
    known = {"Range": f"bytes={have}-", "If-Range": tag} if tag.isascii() and tag.isprintable() and tag else {}
    request = urllib.request.Request(address, headers=known)
    try:
        response = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        complete = error.headers.get("Content-Range") == f"bytes */{have}"
        if not complete:
            part.truncate(0)
        return complete
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT or not _begins_at(response, have):
            have = 0
            part.truncate(0)  # before the mark is written, so that it never stands beside an older version's bytes
            write_text(tag_file, _mark(response))
        total = size if response.length is None else have + response.length
        if size is not None and total != size:
            part.truncate(0)
            raise OSError(f"the server's file has {total:,} bytes, D4RL's has {size:,}")
        _need_room(Path(part.name).parent, (total or 0) - have)
        progress(have, total or 0)
        while block := response.read(BLOCK):
            part.write(block)
            part.flush()  # the file's length is where the next try goes on
            have += len(block)
            progress(have, total or have)
        return total is None or have == total


def _begins_at(response: Any, byte: int) -> bool:
    return re.match(rf"bytes {byte}-", response.headers.get("Content-Range", "")) is not None


def _mark(response: Any) -> str:
    """What the server calls this version: a strong ETag, or its date; nothing where it has neither."""
    tag = response.headers.get("ETag", "")
    return response.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag


def _length(part: BinaryIO) -> int:
    return os.fstat(part.fileno()).st_size


def _need_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise BadInput(
            f"{folder}: needs {size:,} bytes and has {free:,} free; make room, or set WINNOW_DATA to another folder"
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows the server elsewhere, but from https to https only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not _is_safe(newurl) or urlsplit(newurl).scheme != urlsplit(req.full_url).scheme:
            fp.close()
            raise urllib.error.URLError(f"the server leads to {newurl}, and only https is followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_safe(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost"))


# ----------------------------------------------------------------------------------------------------- checking


def _wrong_sum(file: File, path: Path, target: Path) -> str | None:
    """What is wrong with a file's sum, against the one that is known or else that of the first download."""
    noted = target.with_name(f"{target.name}.sha256")
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    known = file.sha256
    if known is None and noted.exists():
        known = noted.read_text(encoding="utf-8", errors="replace").partition(" ")[0]
    if known is None:
        say(f"{target}: no checksum is known for it; its sha256 {digest} is kept in {noted.name}")
        write_text(noted, f"{digest}  {target.name}\n")
        return None
    return None if digest == known else f"its sha256 is {digest}, and {'D4RL' if file.sha256 else noted} says {known}"


def _reason(error: Exception) -> str:
    """An error of the network in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server says {error.code} {error.reason}"
    return str(getattr(error, "reason", None) or error) or type(error).__name__


def _advice(name: str, why: str, base: str) -> str:
    """What is wrong, and every way to the data."""
    file = _file(name)
    lines = [
        f"{name}: {why}.",
        f"By hand: put {base}{file.path} into {home() / 'd4rl'} as {file.name}",
        f"(the data folder is {home()}; WINNOW_DATA names another), or say where a copy lies with --source FILE.",
    ]
    if others := remakes(name):
        lines.append(f"Minari's remake {others[-1]} is here: other data, taken only if you give --source {others[-1]}.")
    if (task := environment(name)) in ENVIRONMENTS:
        lines.append(f"Regenerated data has names without the version ({task}-medium, {task}-random-expert-5%):")
        lines.append("it is not D4RL's and is never taken for it.")
    return "\n  ".join(lines)
