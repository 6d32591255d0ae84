"""D4RL's datasets by name: where they are looked for, how they are fetched, and what their layouts become."""

from __future__ import annotations

import collections
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.datasets import columns, files_in, source, write_hdf5

from winnow.data import d4rl, store
from winnow.data.dataset import Dataset
from winnow.data.sources import open_dataset
from winnow.errors import BadInput

NAME, FILE = "hopper-medium-v2", "hopper_medium-v2.hdf5"
PATH = f"gym_mujoco_v2/{FILE}"


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, minari_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data anywhere, no proxy, and no waiting between tries."""
    for variable in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(variable)
    monkeypatch.delenv("D4RL_DATASET_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(d4rl, "PAUSE", 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where downloads go."""
    return tmp_path / "data" / "d4rl"


def refused(what: Any, *words: str) -> str:
    with pytest.raises(BadInput) as caught:
        what()
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------------------------------------- the table


def test_the_names_are_those_of_the_published_scores():
    suites = collections.Counter(re.split("-", name)[0] for name in d4rl.FILES)
    assert suites == {
        **dict.fromkeys(("hopper", "halfcheetah", "walker2d", "ant"), 6),
        "antmaze": 6,
        "kitchen": 3,
        **dict.fromkeys(("pen", "hammer", "door", "relocate"), 2),
    }
    assert len(d4rl.FILES) == 24 + 6 + 3 + 8
    assert all(re.fullmatch(r"[a-z0-9-]+-v[012]", name) for name in d4rl.FILES)


def test_sizes_and_sums_are_well_formed():
    assert len({file.path for file in d4rl.FILES.values()}) == len(d4rl.FILES)
    unknown = {name for name, file in d4rl.FILES.items() if file.sha256 is None}
    assert unknown == {name for name in d4rl.FILES if name.startswith(("kitchen", "relocate"))}
    for name, file in d4rl.FILES.items():
        assert re.fullmatch(r"\w+/[\w-]+\.hdf5", file.path)
        assert (file.size is None) == (file.sha256 is None)
        if name not in unknown:
            assert re.fullmatch("[0-9a-f]{64}", file.sha256 or "")
            assert 2_000_000 < (file.size or 0) < 750_000_000
    known = [file.sha256 for file in d4rl.FILES.values() if file.sha256]
    assert len(set(known)) == len(known) == 36
    assert d4rl.FILES["hopper-medium-expert-v2"] == (
        "gym_mujoco_v2/hopper_medium_expert-v2.hdf5",
        304537315,
        "9d51ad87f8c905be3880d84c6140bcdb7fbf39a19e046a237f238ba34fec9e26",
    )
    assert d4rl.FILES["antmaze-large-play-v0"].name.startswith(
        "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_F"
    )


def test_environments():
    assert d4rl.environment("walker2d-full-replay-v2") == "walker2d"
    assert d4rl.environment("antmaze-umaze-v0") == "antmaze-umaze"
    assert d4rl.environment("antmaze-large-diverse-v0") == "antmaze-large-diverse"
    assert d4rl.environment("kitchen-complete-v0") == "kitchen-complete"
    assert d4rl.environment("relocate-cloned-v1") == "relocate"
    for wrong in ("hopper-medium", "hopper-medium-v0", "mujoco/hopper/medium-v0"):
        refused(lambda wrong=wrong: d4rl.environment(wrong), wrong, "none of D4RL's names")
        refused(lambda wrong=wrong: d4rl.locate(wrong), wrong)
        refused(lambda wrong=wrong: d4rl.open_named(wrong), wrong)


# ------------------------------------------------------------------------------------------------- on the disk


def test_a_local_copy_is_found_in_every_place_and_in_order(tmp_path):
    data, theirs = tmp_path / "data", tmp_path / "user" / ".d4rl" / "datasets"
    places = [data / f"{NAME}.hdf5", data / "d4rl" / f"{NAME}.hdf5", data / FILE, data / "d4rl" / FILE, theirs / FILE]
    assert d4rl.locate(NAME) is None
    for place in reversed(places):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        assert d4rl.locate(NAME) == place
    assert d4rl.locate("hopper-medium-expert-v2") is None


def test_the_variables_name_the_folders(tmp_path, monkeypatch):
    for variable, place in {
        "D4RL_DATASET_DIR": tmp_path / "theirs" / FILE,
        "WINNOW_DATA": tmp_path / "elsewhere" / f"{NAME}.hdf5",
    }.items():
        place.parent.mkdir()
        place.touch()
        assert d4rl.locate(NAME) is None or variable == "WINNOW_DATA"
        monkeypatch.setenv(variable, str(place.parent))
        assert d4rl.locate(NAME) == place
    monkeypatch.delenv("WINNOW_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "cache" / "winnow" / f"{NAME}.hdf5"
    place.parent.mkdir(parents=True)
    place.touch()
    assert d4rl.locate(NAME) == place


def test_a_local_copy_opens_under_its_name_and_again(tmp_path, folder):
    folder.mkdir(parents=True)
    path = write_hdf5(folder / FILE, columns((100, 30, 70)))
    data = d4rl.open_named(NAME, download=False)
    assert (data.meta.name, data.meta.environment, data.path) == (NAME, "hopper", NAME)
    assert data.fingerprint == open_dataset(path).fingerprint
    assert open_dataset(NAME).fingerprint == data.fingerprint


def test_what_is_not_here_says_what_to_do(folder):
    text = refused(
        lambda: d4rl.open_named(NAME, download=False),
        f"winnow data make {NAME}",
        f"https://rail.eecs.berkeley.edu/datasets/offline_rl/{PATH}",
        f"into {folder} as {FILE}",
        "WINNOW_DATA",
        "--source FILE",
        "hopper-medium,",
        "hopper-random-expert-5%",
        "is not D4RL's",
    )
    assert "remake" not in text
    assert not folder.exists()
    assert "egenerated" not in refused(lambda: d4rl.open_named("pen-human-v1", download=False))


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("antmaze-umaze-v0", "D4RL/antmaze/umaze-v1"),
        ("antmaze-large-diverse-v0", "D4RL/antmaze/large-diverse-v1"),
        ("kitchen-complete-v0", "D4RL/kitchen/complete-v2"),
        ("pen-human-v1", "D4RL/pen/human-v2"),
        ("pen-human-v1", "pen-human-v1"),
    ],
)
def test_a_remake_of_minari_is_named_and_not_taken(name, identity, minari_home):
    place = minari_home / identity / "data"
    place.mkdir(parents=True)
    (minari_home / identity).with_name("nothing-in-it-v3").mkdir()
    assert d4rl.remakes(name) == []
    (place / "metadata.json").write_text("{}")
    assert d4rl.remakes(name) == [f"minari:{identity}"]
    assert d4rl.locate(name) is None
    refused(lambda: d4rl.open_named(name, download=False), f"--source minari:{identity}", "other data")


def test_minaris_own_locomotion_data_is_not_d4rls(minari_home):
    place = minari_home / "mujoco" / "hopper" / "medium-v0" / "data"
    place.mkdir(parents=True)
    (place / "metadata.json").write_text("{}")
    assert d4rl.remakes(NAME) == []
    assert "remake" not in refused(lambda: d4rl.open_named(NAME, download=False))


def test_a_source_is_opened_whatever_it_is_and_named_in_a_note(tmp_path):
    given = source(1.0)
    store.save(given, tmp_path / "mine.safetensors")
    data = d4rl.open_named(NAME, tmp_path / "mine.safetensors")
    assert data.fingerprint == given.fingerprint
    assert (data.meta.name, data.meta.environment) == (NAME, "hopper")
    assert f"opened from {tmp_path / 'mine.safetensors'}, which was given for {NAME}" in data.meta.notes
    assert data.path == str(tmp_path / "mine.safetensors")
    refused(lambda: d4rl.open_named(NAME, tmp_path / "none.hdf5"), "none.hdf5", "no such file")


# ----------------------------------------------------------------------------------------------------- layouts


def walk(lengths: tuple[int, ...], width: int, seed: int = 0) -> np.ndarray:
    """Observations of episodes one after another, each a random walk from near 0."""
    rng = np.random.default_rng(seed)
    return np.concatenate([np.cumsum(rng.normal(size=(n, width)), axis=0) for n in lengths]).astype(np.float32)


def recording(lengths: tuple[int, ...], width: int, actions: int) -> dict[str, Any]:
    """What every file of D4RL has, with the timeouts of its episodes and no terminal."""
    rng, rows = np.random.default_rng(1), sum(lengths)
    timeouts = np.zeros(rows, bool)
    timeouts[np.cumsum(lengths) - 1] = True
    return {
        "observations": walk(lengths, width),
        "actions": rng.uniform(-1, 1, (rows, actions)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminals": np.zeros(rows, bool),
        "timeouts": timeouts,
    }


def opened(name: str, made: dict[str, Any], folder: Path) -> Dataset:
    folder.mkdir(parents=True, exist_ok=True)
    write_hdf5(folder / d4rl.FILES[name].name, made)
    return d4rl.open_named(name, download=False)


def as_d4rl_loads(made: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """D4RL's rows without recorded next observations: each with the next one's observation, those at timeouts left out,
    and no last one."""
    keep = np.flatnonzero(np.ravel(made["timeouts"])[:-1] == 0)
    columns = [made[field][keep] for field in ("observations", "actions", "rewards", "terminals")]
    return (*columns, made["observations"][keep + 1])


def test_locomotion_with_and_without_timeouts(folder):
    made = columns((120, 60, 40), (True, False, False))
    extra = {
        "infos/qpos": np.zeros((220, 2)),
        "metadata/policy/fc0/weight": np.zeros((4, 3)),
        "metadata/algorithm": "SAC",
    }
    data = opened("hopper-medium-v2", made | extra, folder)
    assert data.episodes.length.tolist() == [120, 60, 40]
    assert data.episodes.terminated.tolist() == [True, False, False]
    np.testing.assert_array_equal(data.rows().next_obs, made["next_observations"])

    del made["timeouts"]
    assert opened("hopper-medium-v2", made, folder).fingerprint == data.fingerprint
    del made["next_observations"]
    refused(lambda: opened("hopper-medium-v2", made, folder), "no timeouts and no next_observations")


def test_replay_files_do_not_mark_every_timeout(folder):
    made = columns((120, 60, 40, 30), (True, False, False, False))
    made |= {k: v.astype(np.float64) for k, v in made.items() if k not in ("terminals", "timeouts")}
    made["rewards"] = made["rewards"][:, None]
    whole = opened("ant-full-replay-v2", made, folder)
    assert not any("marked" in note for note in whole.meta.notes)
    assert whole.fingerprint == open_dataset(folder / "ant_full_replay-v2.hdf5").fingerprint

    made["timeouts"][179] = False
    data = opened("ant-full-replay-v2", made, folder)
    assert data.fingerprint == whole.fingerprint
    assert "1 timeouts were not marked: the next observations show them" in data.meta.notes
    refused(lambda: opened("ant-medium-v2", made, folder), "row 179", "mark the end")

    del made["timeouts"]
    assert opened("ant-full-replay-v2", made, folder).fingerprint == whole.fingerprint


def test_antmaze_goes_on_at_the_goal_and_each_step_there_ends_an_episode(folder):
    made = recording((101, 101, 101), 29, 8)
    goal = np.zeros(303, np.float32)
    goal[[60, 61, 62, 63, 80, 250]] = 1
    made |= {"rewards": goal, "terminals": goal}
    made |= {"infos/goal": np.zeros((303, 2)), "infos/qpos": np.zeros((303, 15)), "infos/qvel": np.zeros((303, 14))}
    data = opened("antmaze-umaze-v0", made, folder)
    assert data.meta.environment == "antmaze-umaze"
    assert data.episodes.length.tolist() == [61, 1, 1, 1, 17, 19, 100, 49, 51]
    assert data.episodes.terminated.tolist() == [True] * 5 + [False, False, True, False]
    assert "3 episodes are single steps at the goal, where D4RL's recording goes on" in data.meta.notes

    obs, action, reward, terminal, following = as_d4rl_loads(made)
    rows = data.rows()
    for mine, theirs in ((rows.obs, obs), (rows.action, action), (rows.reward, reward), (rows.terminal, terminal)):
        np.testing.assert_array_equal(mine, theirs)
    going_on = ~rows.terminal  # what follows a terminal is never asked for
    np.testing.assert_array_equal(rows.next_obs[going_on], following[going_on])


@pytest.mark.parametrize("timeouts", [False, True])
def test_kitchens_demonstrations_end_in_terminals(timeouts, folder):
    lengths = (190, 160, 409)
    made = recording(lengths, 60, 9)
    made["terminals"] = made.pop("timeouts").astype(np.float32)
    made["infos"] = np.repeat([0, 1, 0], lengths)
    if timeouts:
        made["timeouts"] = np.zeros(sum(lengths), bool)
    data = opened("kitchen-partial-v0", made, folder)
    assert (data.meta.environment, data.path) == ("kitchen-partial", "kitchen-partial-v0")
    assert data.episodes.length.tolist() == list(lengths)
    assert data.episodes.terminated.all()
    assert any("no timeouts" in note for note in data.meta.notes) != timeouts
    np.testing.assert_array_equal(data.rows().reward, made["rewards"])

    again = d4rl.open_named("kitchen-partial-v0", d4rl.locate("kitchen-partial-v0"))
    assert again.fingerprint == data.fingerprint
    assert (again.path is not None) == timeouts  # without them the file alone does not open


def test_adroits_human_and_cloned_files(folder):
    lengths = (200, 100, 180)
    made = recording(lengths, 45, 24) | {"infos/qpos": np.zeros((480, 30)), "infos/desired_orien": np.zeros((480, 4))}
    data = opened("pen-human-v1", made, folder)
    assert data.meta.environment == "pen"
    assert data.episodes.length.tolist() == [199, 99, 179]
    assert not data.episodes.terminated.any()
    rows = data.rows()
    for mine, theirs in zip(
        (rows.obs, rows.action, rows.reward, rows.terminal, rows.next_obs), as_d4rl_loads(made), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)

    made["timeouts"][-1] = False  # human demonstrations, tiled and cut off, fill a cloned file up
    cloned = made | {"metadata/policy/nonlinearity": "tanh", "metadata/policy/fc0/weight": np.zeros((45, 256))}
    assert opened("pen-cloned-v1", cloned, folder).fingerprint == data.fingerprint


def test_human_demonstrations_with_terminals_alone(folder):
    made = recording((200, 100), 39, 28)
    made["terminals"] = made.pop("timeouts")
    assert opened("door-human-v1", made, folder).episodes.length.tolist() == [200, 100]
    refused(lambda: opened("door-cloned-v1", made, folder), "no timeouts and no next_observations")
    made["terminals"][-1] = False
    refused(lambda: opened("door-human-v1", made, folder), "no timeouts and no next_observations")


def test_a_damaged_file_is_refused_whatever_its_layout(folder):
    made = recording((50, 50), 11, 3)
    made["next_observations"] = np.roll(made["observations"], -1, axis=0)
    path = folder / d4rl.FILES["hopper-medium-replay-v2"].name
    opened("hopper-medium-replay-v2", made, folder)
    refused(
        lambda: opened("hopper-medium-replay-v2", made | {"actions": made["actions"][1:]}, folder), "actions has 99"
    )
    refused(
        lambda: opened("hopper-medium-replay-v2", {k: made[k] for k in ("rewards", "terminals")}, folder), "no column"
    )
    write_hdf5(path, made)
    path.write_bytes(path.read_bytes()[:-5000])
    refused(lambda: d4rl.open_named("hopper-medium-replay-v2"), str(path), "copy or download it again")


# --------------------------------------------------------------------------------------------------- downloads


class Server(ThreadingHTTPServer):
    """Serves one file, well or badly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = b""
        self.headers: dict[str, str] = {"ETag": '"1"'}
        self.ranges = True
        self.drops: list[int] = []
        """For each of the next requests, the bytes after which the connection is cut."""
        self.status = 200
        self.sends_to = ""
        self.holds: threading.Event | None = None
        """Set by the test to let the rest of the file go."""
        self.asked: list[str | None] = []
        """The range of every request."""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.asked.append(self.headers["Range"])
        if server.sends_to:
            self.send_response(302)
            self.send_header("Location", server.sends_to)
            return self.end_headers()
        if self.path != f"/{PATH}" or server.status != 200:
            return self.send_error(server.status if server.status != 200 else 404)
        begin, content = 0, server.content
        same = self.headers["If-Range"] in server.headers.values()
        if server.ranges and self.headers["Range"] and same:
            begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if begin and begin >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            return self.end_headers()
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        for name, value in {"Content-Length": str(len(content) - begin), **server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        body = content[begin:]
        if server.holds:
            self.wfile.write(body[: len(body) // 2])
            server.holds.wait(20)
            body = body[len(body) // 2 :]
        self.wfile.write(body[: server.drops.pop(0)] if server.drops else body)
        return None

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with the file of NAME, which the table knows."""
    made = Server()
    made.content = write_hdf5(tmp_path / "remote.hdf5", columns((200, 100, 300))).read_bytes()
    know(made, monkeypatch)
    monkeypatch.setattr(d4rl, "BASE", made.base)
    monkeypatch.setattr(d4rl, "BLOCK", 1000)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def know(server: Server, monkeypatch: pytest.MonkeyPatch, known: bool = True) -> None:
    digest = hashlib.sha256(server.content).hexdigest()
    file = d4rl.File(PATH, len(server.content), digest) if known else d4rl.File(PATH, None, None)
    monkeypatch.setitem(d4rl.FILES, NAME, file)


def test_a_file_is_downloaded_opened_and_then_found(server, folder):
    seen = []
    data = d4rl.open_named(NAME, progress=lambda done, total: seen.append((done, total)))
    size = len(server.content)
    assert seen[0] == (0, size)
    assert seen[-1] == (size, size)
    assert (folder / FILE).read_bytes() == server.content
    assert files_in(folder) == {FILE}
    assert data.episodes.length.tolist() == [200, 100, 300]
    assert open_dataset(NAME).fingerprint == data.fingerprint
    assert d4rl.fetch(NAME) == folder / FILE
    assert server.asked == [None]


def test_a_dropped_connection_goes_on_where_it_broke(server, folder):
    server.drops = [5000, 2500]
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert server.asked == [None, "bytes=5000-", "bytes=7500-"]
    assert files_in(folder) == {FILE}


def test_a_download_that_keeps_breaking_is_kept_for_the_next_call(server, folder):
    server.drops = [5000] + [0] * d4rl.TRIES
    refused(lambda: d4rl.fetch(NAME), "the connection was dropped", server.base + PATH, f"into {folder} as {FILE}")
    assert len(server.asked) == d4rl.TRIES
    assert (folder / f"{FILE}.part").stat().st_size == 5000
    server.drops = []
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert server.asked[-1] == "bytes=5000-"
    assert files_in(folder) == {FILE}


def test_an_interrupt_keeps_what_has_arrived(server, folder):
    def stop(done: int, total: int) -> None:
        if done >= 5000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        d4rl.fetch(NAME, stop)
    assert (folder / f"{FILE}.part").read_bytes() == server.content[:5000]
    assert not (folder / FILE).exists()
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert server.asked == [None, "bytes=5000-"]


def test_a_killed_process_leaves_what_has_arrived(server, folder):
    server.holds = threading.Event()
    code = "import sys; from winnow.data import d4rl; d4rl.BLOCK = 1000; d4rl.FILES[sys.argv[1]] = d4rl.File("
    code += "sys.argv[2], int(sys.argv[3]), None); d4rl.fetch(sys.argv[1], base=sys.argv[4])"
    arguments = [NAME, PATH, str(len(server.content)), server.base]
    part = folder / f"{FILE}.part"
    with subprocess.Popen([sys.executable, "-c", code, *arguments]) as process:
        while process.poll() is None and not (part.exists() and part.stat().st_size):
            time.sleep(0.02)
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    server.holds.set()
    server.holds = None
    have = part.stat().st_size
    assert 0 < have < len(server.content)
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert server.asked == [None, f"bytes={have}-"]


def test_a_file_that_changed_on_the_server_is_fetched_from_its_beginning(server, folder, monkeypatch):
    server.drops = [5000] + [0] * d4rl.TRIES
    refused(lambda: d4rl.fetch(NAME))
    server.drops, server.headers = [], {"ETag": '"2"'}
    server.content = bytes(reversed(server.content))
    know(server, monkeypatch)
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert server.asked[-1] == "bytes=5000-"


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"1"'}, {"ETag": 'W/"1"', "Last-Modified": "Sat, 1 Jan 2022"}])
def test_only_a_strong_mark_lets_a_download_go_on(headers, server):
    server.headers, server.drops = headers, [5000]
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert server.asked == [None, "bytes=5000-" if "Last-Modified" in headers else None]


def test_a_server_without_ranges_sends_all_again(server):
    server.ranges, server.drops = False, [5000]
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert server.asked == [None, "bytes=5000-"]

    server.asked, server.drops = [], [5000] * 20
    Path(d4rl.home() / "d4rl" / FILE).unlink()
    refused(lambda: d4rl.fetch(NAME), "the connection was dropped")
    assert len(server.asked) == d4rl.TRIES


@pytest.mark.parametrize("known", [True, False])
def test_a_complete_part_is_not_fetched_again(known, server, folder, monkeypatch, capsys):
    know(server, monkeypatch, known)
    folder.mkdir(parents=True)
    (folder / f"{FILE}.part").write_bytes(server.content)
    (folder / f"{FILE}.part.etag").write_text('"1"')
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert server.asked == ([] if known else [f"bytes={len(server.content)}-"])


def test_a_part_that_is_too_long_is_thrown_away(server, folder):
    folder.mkdir(parents=True)
    (folder / f"{FILE}.part").write_bytes(server.content + b"more")
    (folder / f"{FILE}.part.etag").write_text('"1"')
    assert d4rl.fetch(NAME).read_bytes() == server.content


def test_a_wrong_sum_removes_the_download(server, folder, monkeypatch):
    right = hashlib.sha256(server.content).hexdigest()
    server.content = server.content[:-1] + b"!"
    wrong = hashlib.sha256(server.content).hexdigest()
    refused(lambda: d4rl.fetch(NAME), NAME, right, wrong, "removed", "--source FILE")
    assert files_in(folder) == set()

    (folder / FILE).write_bytes(server.content)
    refused(lambda: d4rl.fetch(NAME), str(folder / FILE), right, wrong, "remove it")
    assert files_in(folder) == {FILE}


def test_a_file_of_another_size_is_refused_before_it_is_fetched(server, folder):
    server.content += b"more"
    refused(lambda: d4rl.fetch(NAME), f"{len(server.content):,} bytes", f"{len(server.content) - 4:,}", FILE)
    assert files_in(folder) == set()


def test_an_unknown_sum_is_noted_and_compared_with_later(server, folder, monkeypatch, capsys):
    know(server, monkeypatch, known=False)
    digest = hashlib.sha256(server.content).hexdigest()
    d4rl.fetch(NAME)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert digest in said
    assert (folder / f"{FILE}.sha256").read_text() == f"{digest}  {FILE}\n"
    d4rl.fetch(NAME)
    assert capsys.readouterr().err == ""

    (folder / FILE).unlink()
    server.content += b"more"
    refused(lambda: d4rl.fetch(NAME), digest, hashlib.sha256(server.content).hexdigest(), f"{FILE}.sha256")
    assert files_in(folder) == {f"{FILE}.sha256"}


def test_without_a_length_the_end_is_the_end(server, monkeypatch, capsys):
    know(server, monkeypatch, known=False)
    server.headers["Transfer-Encoding"] = "chunked"
    server.content = b"5\r\nhello\r\n0\r\n\r\n"
    assert d4rl.fetch(NAME).read_bytes() == b"hello"


def test_a_refusal_of_the_server_is_reported_at_once(server, folder):
    server.status = 503
    refused(lambda: d4rl.fetch(NAME), "503", server.base + PATH, f"into {folder} as {FILE}")
    server.status = 404
    refused(lambda: d4rl.open_named(NAME), "404", "--source FILE", "WINNOW_DATA")
    assert len(server.asked) == 2
    assert files_in(folder) == set()


def test_a_server_that_says_nothing_is_given_up(server, folder, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(d4rl, "TIMEOUT", 0.2)
        base = f"http://localhost:{silent.getsockname()[1]}/"
        refused(lambda: d4rl.fetch(NAME, base=base), "timed out", base + PATH)


def test_a_server_that_falls_silent_midway_is_asked_again(server, monkeypatch):
    monkeypatch.setattr(d4rl, "TIMEOUT", 0.3)
    server.holds = threading.Event()
    threading.Timer(0.5, server.holds.set).start()
    assert d4rl.fetch(NAME).read_bytes() == server.content
    assert len(server.asked) > 1
    assert all(asked and asked.startswith("bytes=") for asked in server.asked[1:])


@pytest.mark.parametrize("way", ["refused", "no such host"])
def test_without_a_network_the_message_says_what_to_do(way, folder, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        base = f"http://127.0.0.1:{gone.getsockname()[1]}/"
    if way == "no such host":

        def lookup(*_: Any, **__: Any) -> None:
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        base = d4rl.BASE
    monkeypatch.setattr(d4rl, "BASE", base)
    refused(
        lambda: d4rl.open_named(NAME),
        "can't be downloaded",
        "refused" if way == "refused" else "not known",
        base + PATH,
        f"into {folder} as {FILE}",
        f"the data folder is {folder.parent}",
        "WINNOW_DATA",
        "--source FILE",
        "hopper-random-expert-5%",
        "never taken for it",
    )
    assert files_in(folder) == set()


def test_a_full_disk_is_seen_before_it_fills(server, folder, monkeypatch):
    usage = collections.namedtuple("usage", "total used free")
    size = len(server.content)
    monkeypatch.setattr(d4rl.shutil, "disk_usage", lambda folder: usage(10**9, 10**9, 4999))
    refused(lambda: d4rl.fetch(NAME), str(folder), f"{size:,} bytes", "4,999 free", "WINNOW_DATA")
    assert files_in(folder) == set()

    monkeypatch.setattr(d4rl.shutil, "disk_usage", lambda folder: usage(10**9, 10**9, size))
    server.drops = [5000]
    monkeypatch.setattr(d4rl, "TRIES", 1)
    refused(lambda: d4rl.fetch(NAME))
    monkeypatch.setattr(d4rl.shutil, "disk_usage", lambda folder: usage(10**9, 10**9, size - 5000))
    assert d4rl.fetch(NAME).read_bytes() == server.content  # only what is missing needs room


def test_a_folder_that_cant_be_written_is_named(server, tmp_path):
    (tmp_path / "data").write_text("a file where a folder should be")
    refused(lambda: d4rl.fetch(NAME), str(tmp_path / "data"), "set WINNOW_DATA")


def test_two_processes_do_not_write_the_same_file(server, folder):
    fcntl = pytest.importorskip("fcntl")
    folder.mkdir(parents=True)
    with (folder / f"{FILE}.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        refused(lambda: d4rl.fetch(NAME), f"{FILE}.part", "another process is downloading it")
    assert d4rl.fetch(NAME).read_bytes() == server.content


def test_only_https_is_fetched_and_followed(server, folder):
    for base in ("http://rail.eecs.berkeley.edu/datasets/offline_rl/", "ftp://127.0.0.1/", "file:///etc/"):
        refused(lambda base=base: d4rl.fetch(NAME, base=base), base + PATH, "is not https")
    server.sends_to = "http://example.com/elsewhere.hdf5"
    refused(lambda: d4rl.fetch(NAME), server.sends_to, "only https is followed", FILE)
    assert files_in(folder) == set()
