"""Scenes, what each leaves when nobody disturbs it (done once, when it is first asked for), and faults in them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from helpers.faults.injuries import Blow, Course, Moment, Target, any_moment, strike, undisturbed
from helpers.faults.scenes import CHUNK, Scene, stage


class Company:
    def __init__(self, base: Path) -> None:
        self.base, self.scenes = base, stage(base)
        self._known: dict[str, tuple[Course, dict[str, Any]]] = {}

    def scene(self, name: str) -> Scene:
        if name == "evaluate":
            self._watched("train")  # whose runs it plays
        return self.scenes[name]

    def expected(self, name: str) -> dict[str, Any]:
        """What the scene leaves."""
        return self._watched(name)[1]

    def _watched(self, name: str) -> tuple[Course, dict[str, Any]]:
        if name not in self._known:
            scene, out = self.scene(name), self.base / name.replace(" ", "-")
            course = undisturbed(scene, out)
            self._known[name] = course, scene.left(out)
        return self._known[name]

    def injure(self, name: str, out: Path, target: Target, rng: random.Random) -> Blow:
        """Strike until a blow hits, each time earlier. Where the command is done all the same, its folder goes."""
        scene, moment = self.scene(name), any_moment(self._watched(name)[0], rng)
        while True:
            blow = strike(scene, out, moment, target, rng)
            self.check(name, out, done=not blow.again)
            assert blow.behind <= CHUNK, f"{blow.behind} updates are lost"
            if not blow.again:
                shutil.rmtree(out)
            if blow.hit:
                return blow
            moment = Moment(moment.changes // 2, moment.seconds / 2)

    def check(self, name: str, out: Path, done: bool) -> None:
        """What has its final name is final; in the end nothing is missing, and nothing is there beside it."""
        scene, expected = self.scene(name), self.expected(name)
        assert scene.files(out).items() <= expected["files"].items(), f"{name}: a file is not whole, or another one"
        if done:
            assert scene.left(out) == expected

    def finish(self, name: str, out: Path) -> None:
        """The same command once more, undisturbed, if its folder is still there: now all must be in it."""
        if out.exists():
            self.scene(name).run(out)
            self.check(name, out, done=True)
