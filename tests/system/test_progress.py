"""What whoever watches is told, in whole lines."""

from __future__ import annotations

import io
import threading
import time

from winnow.system import progress
from winnow.system.progress import Progress, quietly, say, warn


class Slow(io.StringIO):
    """Lets other threads in between any two pieces that are written."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        finally:
            time.sleep(0.001)


def test_lines_of_several_threads_are_whole(monkeypatch):
    stream = Slow()
    monkeypatch.setattr("sys.stderr", stream)
    together = threading.Barrier(4)

    def tell(name: str) -> None:
        together.wait()
        for number in range(10):
            say(f"{name} {number}")

    threads = [threading.Thread(target=tell, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {f"{name} {number}" for name in "abcd" for number in range(10)}
    assert set(stream.getvalue().splitlines()) == expected


def test_quietly_keeps_warnings_alone(capsys):
    with quietly(), Progress(10, shown=True) as bar:
        say("a word")
        warn("a warning")
        bar.say("another word")
        bar.warn("another warning")
    say("loud again")
    assert capsys.readouterr().err == "a warning\nanother warning\nloud again\n"


def test_the_time_left_is_estimated_without_the_compilation(monkeypatch, capsys):
    now = 0.0

    def tick(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with Progress(1_000, shown=True, unit="steps") as bar:
        bar.compiling("pack 1")
        tick(60.0)
        bar.count(1)  # the program is compiled with its first step
        assert capsys.readouterr().err == "pack 1: 0%\n"
        tick(20.0)
        bar.count(200)
        assert capsys.readouterr().err == "pack 1: 20%, 10 steps/s, 80 s left\n"
        bar.compiling("pack 2")
        tick(60.0)
        bar.count(1)
        tick(20.0)
        bar.count(200)
        assert capsys.readouterr().err.endswith("pack 2: 40%, 10 steps/s, 60 s left\n")


def test_a_bar_inside_a_bar_takes_its_place_for_a_while(monkeypatch):
    """As when a sampler fits networks while another bar is shown."""
    started: list[str] = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(2, shown=True) as outer:
        outer.describe("outer")
        started.append(f"outer {outer._bar.live.is_started}")
        with Progress(2, shown=True) as inner:
            inner.describe("inner")
            started.append(f"outer {outer._bar.live.is_started}, inner {inner._bar.live.is_started}")
            outer.count(1)
            inner.count(2)
        started.append(f"outer {outer._bar.live.is_started}, inner {inner._bar.live.is_started}")
    assert started == ["outer True", "outer False, inner True", "outer True, inner False"]
    assert not progress._shown
