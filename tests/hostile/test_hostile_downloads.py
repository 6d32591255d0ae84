"""Downloads come over https with a checksum, or not at all. tests/data/test_d4rl.py has broken and changed files."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from helpers.datasets import files_in

from winnow.data import d4rl
from winnow.errors import BadInput

SRC = Path(__file__).parents[2] / "src"
NAME, PATH = "hopper-medium-v2", "x/hopper.hdf5"


class Handler(BaseHTTPRequestHandler):
    content, sends_to, asked = b"evil", "", 0

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.sends_to:
            self.send_response(302)
            self.send_header("Location", self.sends_to)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(b"" if self.sends_to else self.content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Handler]]:
    """A server on this machine, from which alone http is taken; its file is not what the table says."""
    handler = type("Mine", (Handler,), {"asked": 0})
    made = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(d4rl, "BASE", f"http://127.0.0.1:{made.server_address[1]}/")
    monkeypatch.setattr(d4rl, "PAUSE", 0.0)
    right = d4rl.File(PATH, len(handler.content), hashlib.sha256(b"good").hexdigest())
    monkeypatch.setitem(d4rl.FILES, NAME, right)
    yield handler
    made.shutdown()
    made.server_close()
    thread.join()


def test_all_addresses_are_https_and_their_sums_are_known():
    assert d4rl.BASE.startswith("https://")
    assert not any(":" in file.path or file.path.startswith("/") or ".." in file.path for file in d4rl.FILES.values())
    assert all(re.fullmatch(r"[\w.+-]+", file.name) for file in d4rl.FILES.values())
    unknown = {name for name, file in d4rl.FILES.items() if file.sha256 is None}
    assert all(name.startswith(("kitchen", "relocate")) for name in unknown)
    found = [one for path in SRC.rglob("*.py") for one in re.findall(r"http://[^\s\"')]*", path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "base", ["http://example.com/", "ftp://127.0.0.1/", "file:///etc/", "HTTP://127.0.0.2/", "//x/"]
)
def test_nothing_but_https_is_asked(base, server, tmp_path):
    with pytest.raises(BadInput, match="is not https"):
        d4rl.fetch(NAME, base=base)
    assert server.asked == 0
    assert files_in(tmp_path) == set()


def test_a_file_with_another_sum_is_not_kept(server, tmp_path):
    with pytest.raises(BadInput, match="the download was damaged and removed"):
        d4rl.fetch(NAME)
    assert server.asked == 1
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("place", ["http://example.com/x", "file:///etc/passwd", "ftp://example.com/x"])
def test_nobody_is_followed_away_from_https(place, server, tmp_path):
    server.sends_to = place
    with pytest.raises(BadInput, match="can't be downloaded"):
        d4rl.fetch(NAME)
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("place", ["http://127.0.0.1/x", "http://localhost/x", "http://rail.eecs.berkeley.edu/x"])
def test_https_does_not_lead_back_to_http(place):
    asked = urllib.request.Request("https://rail.eecs.berkeley.edu/x")
    with pytest.raises(urllib.error.URLError, match="only https is followed"):
        d4rl._Redirects().redirect_request(asked, io.BytesIO(), 302, "", {}, place)


@pytest.mark.parametrize("tag", [b'"1"\r\nX-Evil: 1', b"\xff\xfe", b"\0", b""])
def test_a_mark_that_was_tampered_with_is_no_header(tag, server, tmp_path):
    """What a server called its file is kept beside what has arrived of it."""
    server.content = b"good"
    folder = tmp_path / "data" / "d4rl"
    folder.mkdir(parents=True)
    (folder / "hopper.hdf5.part").write_bytes(b"go")
    (folder / "hopper.hdf5.part.etag").write_bytes(tag)
    assert d4rl.fetch(NAME).read_bytes() == b"good"
    assert files_in(folder) == {"hopper.hdf5"}


def test_a_sum_that_was_tampered_with_is_a_wrong_one(server, tmp_path, monkeypatch):
    monkeypatch.setitem(d4rl.FILES, NAME, d4rl.File(PATH, None, None))
    folder = tmp_path / "data" / "d4rl"
    folder.mkdir(parents=True)
    (folder / "hopper.hdf5.sha256").write_bytes(b"\xff\xfe\0")
    with pytest.raises(BadInput, match=r"its sha256 is .* says"):
        d4rl.fetch(NAME)
    assert files_in(folder) == {"hopper.hdf5.sha256"}
