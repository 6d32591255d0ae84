"""Writes requirements/ci.txt: the exact version of all that winnow and some of its extras need, as installed here.

    .venv/bin/python tools/lock.py d3rlpy dev onnx ray robotics tensorboard torch wandb

A version's local part (`+cpu`) is left out: which build of it is taken is the index's to say.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "ci.txt"


def declared(extras: Iterable[str]) -> list[Requirement]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [
        Requirement(line) for line in [*project["dependencies"], *(one for name in extras for one in optional[name])]
    ]


def needed(extras: Iterable[str]) -> dict[str, str]:
    """Every package that comes with them, by name, and its version here."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    todo = declared(extras)
    while todo:
        one = todo.pop()
        held = distribution(one.name)
        found[canonicalize_name(one.name)] = Version(held.version).public
        for extra in {"", *one.extras}:
            if (one.name, extra) not in seen:
                seen.add((one.name, extra))
                todo += _of(held.requires or [], extra)
    return found


def _of(lines: Iterable[str], extra: str) -> Iterator[Requirement]:
    """Requirements of a package that hold here, without an extra of it or with one."""
    for one in map(Requirement, lines):
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            yield one


def locked(path: Path = LOCK) -> dict[str, str]:
    """The versions that a file of `name==version` lines holds."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def main(extras: list[str]) -> None:
    versions = "".join(f"{name}=={version}\n" for name, version in sorted(needed(extras).items()))
    said = f"{sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"
    LOCK.write_text(f"# Made by `python tools/lock.py {' '.join(extras)}` with Python {said}.\n{versions}", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
