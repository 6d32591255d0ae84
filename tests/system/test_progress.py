"""What whoever watches is told, in whole lines."""

from __future__ import annotations

import io
import threading
import time

from winnow.system.progress import say


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
