"""A real Chromium, driven over a pipe with its DevTools protocol: nothing but the browser is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = "--no-first-run --disable-background-networking --disable-component-update --disable-sync --disable-gpu"
PATIENCE = 60.0


class Browser:
    """One page at a time. `complaints` are errors and warnings of its console."""

    def __init__(self, profile: Path) -> None:
        self._number, self._left = 0, b""
        self.complaints: list[str] = []
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        # It reads commands from 3 and answers on 4.
        words = [str(CHROMIUM), "--headless", "--no-sandbox", *QUIET.split(), f"--user-data-dir={profile}"]
        shell = f'exec 3<&{read} 4>&{write}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(read, write),
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        page = next(one for one in self._ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log"):
            self.ask(f"{part}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def ask(self, method: str, **words: Any) -> dict[str, Any]:
        return self._ask(method, self._session, **words)

    def _ask(self, method: str, session: str | None = None, **words: Any) -> dict[str, Any]:
        self._number += 1
        said: dict[str, Any] = {"id": self._number, "method": method, "params": words}
        os.write(self._write, json.dumps(said | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']}")
                return heard["result"]

    def _hear(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._left:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            some = os.read(self._read, 1 << 16)
            if not some:
                raise RuntimeError("the browser has gone")
            self._left += some
        one, _, self._left = self._left.partition(b"\0")
        heard = json.loads(one)
        self._note(heard)
        return heard

    def _note(self, heard: dict[str, Any]) -> None:
        said = heard.get("params", {})
        match heard.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(said["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if said["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(said["args"]))
            case "Log.entryAdded" if said["entry"]["level"] in ("error", "warning"):
                self.complaints.append(said["entry"]["text"])

    def open(self, page: Path, fragment: str = "") -> None:
        """Open a page anew, and wait until it is there."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=page.resolve().as_uri() + fragment)
        end = time.monotonic() + PATIENCE
        while self.run("location.protocol !== 'about:' && document.readyState") != "complete":
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        said = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        code = {"Enter": 13, " ": 32, "Tab": 9}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

    def click(self, selector: str) -> None:
        where = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{where}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({where}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def look(self, dark: bool = False, width: int = 1280, height: int = 900, media: str = "") -> None:
        """How the reader looks at the page."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        # The page hears of its new size with the next frame.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def picture(self, path: Path, whole: bool = False) -> Path:
        said = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(said["data"]))
        return path
