"""Injects faults into commands and checks what they leave against an undisturbed run of the same command."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from helpers.faults.cases import CHUNK, Case, make_cases
from helpers.faults.kills import Kill, Moment, Target, Timeline, any_moment, kill_at, run_undisturbed


class FaultInjector:
    """The commands, and what each leaves undisturbed (run once, when first needed)."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.cases = make_cases(base)
        self._known: dict[str, tuple[Timeline, dict[str, Any]]] = {}

    def case(self, name: str) -> Case:
        if name == "evaluate":
            self._watched("train")  # `evaluate` plays the runs of `train`
        return self.cases[name]

    def expected(self, name: str) -> dict[str, Any]:
        """What the command leaves when nothing disturbs it."""
        return self._watched(name)[1]

    def _watched(self, name: str) -> tuple[Timeline, dict[str, Any]]:
        if name not in self._known:
            case = self.case(name)
            out = self.base / name.replace(" ", "-")
            timeline = run_undisturbed(case, out)
            self._known[name] = timeline, case.left(out)
        return self._known[name]

    def kill_once(self, name: str, out: Path, target: Target, rng: random.Random) -> Kill:
        """Kill the command, earlier each time until it was still running. A folder in which it finished is deleted."""
        case = self.case(name)
        moment = any_moment(self._watched(name)[0], rng)
        while True:
            kill = kill_at(case, out, moment, target, rng)
            self.check(name, out, done=not kill.again)
            assert kill.behind <= CHUNK, f"{kill.behind} updates are lost"
            if not kill.again:
                shutil.rmtree(out)
            if kill.hit:
                return kill
            moment = Moment(moment.changes // 2, moment.seconds / 2)

    def check(self, name: str, out: Path, done: bool) -> None:
        """Files with final names are complete; when the command is done, exactly the expected files are there."""
        case = self.case(name)
        expected = self.expected(name)
        assert case.files(out).items() <= expected["files"].items(), f"{name}: a file is incomplete or differs"
        if done:
            assert case.left(out) == expected

    def finish(self, name: str, out: Path) -> None:
        """Run the same command once more, undisturbed, if its folder is still there: now it must be complete."""
        if out.exists():
            self.case(name).run(out)
            self.check(name, out, done=True)
