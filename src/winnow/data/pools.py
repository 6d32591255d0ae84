"""Pools: episodes of a behaviour policy, played on all cores, kept on disk and shared by every mixture of them.

Episode n of a pool has its own seeds, for the environment and for the policy's noise, and one process plays it from
start to end (`winnow.envs.episodes`). So a pool does not depend on the number of processes or on interruptions, and a
pool of fewer rows is the beginning of one of more. (Bit for bit on one kind of machine, under one version of the
physics: the file's name has a hash of everything that decides.)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from winnow import envs
from winnow.data import store
from winnow.data.columns import Progress
from winnow.data.dataset import Arena, Dataset, Episodes, Meta
from winnow.data.folder import home
from winnow.data.names import ROWS
from winnow.envs.episodes import EpisodeWorkers, Played, Task
from winnow.errors import BadInput
from winnow.system.cores import cores_here
from winnow.system.files import sweep

FORMAT = 1
"""Raised when the same seeds would give other rows."""
SAVE_SECONDS = 20.0
"""Finished episodes are written down about this often, and when the work is interrupted."""


def pool(
    environment: str,
    level: str,
    rows: int = ROWS,
    *,
    make: bool = True,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The first episodes of a behaviour policy that reach `rows` rows, from disk or played now.

    Level `random` draws actions uniformly in their bounds; `medium` and `expert` are policies that come with winnow,
    sampled as they explored. Without `make`, an error says how to make a pool that is not on disk.
    """
    if rows < 1:
        raise BadInput(f"rows is {rows}; it must be at least 1")
    job = Job(environment, level)
    name = job.name if rows == ROWS else f"{job.name}@{rows}"
    if file := job.on_disk(rows):
        dataset = store.load(file)
        enough = int(np.searchsorted(np.cumsum(dataset.episodes.length), rows)) + 1
        whole = dataset if enough == len(dataset.episodes) else dataset.select(np.arange(enough))
        return dataclasses.replace(whole.describe(name=name), path=name)
    if not make:
        raise BadInput(f"{name}: is not made yet; make it with `winnow data make '{name}'`")
    _free_space(job, rows)
    episodes = play(job, rows, processes, progress)
    store.save(as_dataset(job, episodes), job.kept(rows))
    shutil.rmtree(job.parts, ignore_errors=True)
    return pool(environment, level, rows, make=False)


@dataclasses.dataclass(frozen=True)
class Job:
    """Who plays where, with everything that decides what comes out."""

    environment: str
    level: str
    file: Path | None = None
    """The policy, in place of the shipped one of that level."""

    @property
    def name(self) -> str:
        return f"{self.environment}-{self.level}"

    @property
    def policy(self) -> Path | None:
        if self.file is not None:
            return self.file
        return None if self.level == "random" else policy_file(self.environment, self.level)

    @property
    def base(self) -> int:
        """The base seed: another one for every pool."""
        return zlib.crc32(self.name.encode())

    @property
    def key(self) -> str:
        entry = envs.lookup(self.environment)
        facts = [FORMAT, self.name, entry.source, entry.options, entry.time_limit, envs.physics(self.environment)]
        policy = self.policy.read_bytes() if self.policy else b""
        return hashlib.sha256(json.dumps(facts).encode() + policy).hexdigest()[:12]

    @property
    def folder(self) -> Path:
        return home() / "pools"

    def kept(self, rows: int) -> Path:
        """Where a finished pool of so many rows lies."""
        return self.folder / f"{self.name}-{self.key}-{rows}.safetensors"

    @property
    def parts(self) -> Path:
        """Where finished episodes of an unfinished pool lie."""
        return self.folder / f"{self.name}-{self.key}.parts"

    def made(self) -> dict[int, Path]:
        """Finished pools on disk by their rows."""
        files = self.folder.glob(f"{self.name}-{self.key}-*.safetensors")
        sizes = {file: file.stem.rpartition("-")[2] for file in files}
        return {int(size): file for file, size in sizes.items() if size.isdigit()}

    def on_disk(self, rows: int) -> Path | None:
        """A pool with at least so many rows: the smallest of them."""
        enough = {size: file for size, file in self.made().items() if size >= rows}
        return enough[min(enough)] if enough else None


def policy_file(environment: str, level: str) -> Path:
    """A behaviour policy that comes with winnow."""
    path = Path(__file__).parent / "behaviour" / f"{environment}-{level}.safetensors"
    if not path.exists():
        there = ", ".join(sorted(file.stem for file in path.parent.glob("*.safetensors")))
        raise BadInput(f"there is no behaviour policy {path.stem}; there are {there}")
    return path


def _free_space(job: Job, rows: int) -> None:
    """Refuse work whose result would not fit on the disk; the pool and its parts are there together for a moment."""
    shape = envs.shape(job.environment)
    needed = int(2.2 * rows * 4 * (shape.obs_dim * 1.05 + shape.action_dim + 2))
    job.folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(job.folder).free
    if free < needed:
        raise BadInput(
            f"{job.folder}: has {free / 1e6:,.0f} MB free and a pool of {rows:,} rows needs {needed / 1e6:,.0f}; "
            "make room, or set WINNOW_DATA to a folder on another disk"
        )


def as_dataset(job: Job, episodes: list[Played]) -> Dataset:
    """Episodes, in their order, as a dataset."""
    shape = envs.shape(job.environment)
    length = np.array([episode.steps for episode in episodes], np.int64)
    slot = np.concatenate([[0], np.cumsum(length + 1)[:-1]])
    slots = int((length + 1).sum())
    discrete = shape.action_kind == "discrete"
    arena = Arena(
        np.concatenate([episode.obs for episode in episodes]),
        np.zeros((slots, 1), np.int32) if discrete else np.zeros((slots, shape.action_dim), np.float32),
        np.zeros(slots, np.float32),
        np.zeros(slots, bool),
    )
    for low, episode in zip(slot, episodes, strict=True):
        arena.action[low : low + episode.steps] = episode.action
        arena.reward[low : low + episode.steps] = episode.reward
        arena.terminal[low + episode.steps - 1] = episode.terminated
    number = np.array([episode.number for episode in episodes], np.int64)
    table = Episodes.make(
        slot,
        length,
        np.array([episode.terminated for episode in episodes]),
        origin=number,
        seed=np.array([envs.episode_seed(job.base, 0, int(n)) for n in number]),
    )
    meta = Meta(
        name=job.name,
        environment=job.environment,
        physics=envs.physics(job.environment),
        sources=(job.level,),
        action_low=() if discrete else tuple(shape.low.tolist()),
        action_high=() if discrete else tuple(shape.high.tolist()),
        action_choices=shape.action_dim if discrete else None,
        recipe={"pool": job.name, "key": job.key},
    )
    return Dataset((arena,), table, meta)


def _episodes(dataset: Dataset) -> Iterable[Played]:
    table = dataset.episodes
    arena = dataset.arenas[0]
    for number, low, steps, over in zip(table.origin, table.slot, table.length, table.terminated, strict=True):
        rows = slice(low, low + steps)
        yield Played(int(number), arena.obs[low : low + steps + 1], arena.action[rows], arena.reward[rows], bool(over))


# ---------------------------------------------------------------------------------------------------- playing


def play(job: Job, rows: int, processes: int | None = None, progress: Progress | None = None) -> list[Played]:
    """Episodes 0, 1, 2, … until they reach `rows` rows. What was finished before is taken up again."""
    done = _taken_up(job)
    saved = set(done)
    unsaved = 0
    marked = time.monotonic()
    report = progress or (lambda played, wanted: None)
    rows_done = sum(episode.steps for episode in done.values())
    whole = 0  # episodes without a gap from the first on, and their rows
    reached = 0
    task = Task(job.name, job.environment, job.policy, job.base)
    with EpisodeWorkers(task, processes or cores_here(), lambda number: number not in done) as workers:
        try:
            while True:
                while whole in done:
                    reached += done[whole].steps
                    whole += 1
                    if reached >= rows:
                        report(rows, rows)
                        return [done[number] for number in range(whole)]
                mean = rows_done / len(done) if done else 0
                report(min(rows_done, rows), rows)
                while workers.idle and (
                    workers.pending == 0 or rows_done + workers.pending * mean < rows or whole in workers.unplayed
                ):
                    workers.begin()
                episode = workers.finished()
                done[episode.number] = episode
                rows_done = rows_done + episode.steps
                unsaved = unsaved + 1
                if time.monotonic() - marked > SAVE_SECONDS:
                    saved = _save_part(job, done, saved)
                    unsaved = 0
                    marked = time.monotonic()
        except BaseException:
            if unsaved:
                _save_part(job, done, saved)
            raise


def _taken_up(job: Job) -> dict[int, Played]:
    """Finished episodes on disk: those of a smaller pool and those of interrupted work."""
    done: dict[int, Played] = {}
    made = job.made()
    files = [made[max(made)]] if made else []
    if job.parts.exists():
        sweep(job.parts)
        files += sorted(job.parts.glob("*.safetensors"))
    for file in files:
        done |= {episode.number: episode for episode in _episodes(store.load(file))}
    return done


def _save_part(job: Job, done: dict[int, Played], saved: set[int]) -> set[int]:
    fresh = [done[number] for number in sorted(set(done) - saved)]
    if fresh:
        store.save(as_dataset(job, fresh), job.parts / f"{uuid.uuid4().hex}.safetensors")
    return set(done)
