"""A real Chromium, controlled over a pipe with its DevTools protocol. It needs no other package."""

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
TIMEOUT_SECONDS = 60.0


class Browser:
    """One page at a time. `complaints` are errors and warnings of its console."""

    def __init__(self, profile: Path) -> None:
        self._number = 0
        self._left = b""
        self.complaints: list[str] = []
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        command = [str(CHROMIUM), "--headless", "--no-sandbox", *QUIET.split(), f"--user-data-dir={profile}"]
        shell = f'exec 3<&{read} 4>&{write}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(read, write),
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        page = next(target for target in self._ask("Target.getTargets")["targetInfos"] if target["type"] == "page")
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

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._ask(method, self._session, **params)

    def _ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            reply = self._hear()
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def _hear(self) -> dict[str, Any]:
        end = time.monotonic() + TIMEOUT_SECONDS
        while b"\0" not in self._left:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self._left += data
        line, _, self._left = self._left.partition(b"\0")
        message = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a page and wait until it is complete."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=page.resolve().as_uri() + fragment)
        end = time.monotonic() + TIMEOUT_SECONDS
        while self.run("location.protocol !== 'about:' && document.readyState") != "complete":
            assert time.monotonic() < end, "the page does not load"
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

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
        """Set the colour scheme, window size and medium."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        # The page learns its new size with the next frame.
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def picture(self, path: Path, whole: bool = False) -> Path:
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path
