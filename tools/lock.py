"""Writes requirements/ci.txt: the installed version of every package that winnow and the given extras need.

    .venv/bin/python tools/lock.py d3rlpy dev onnx ray robotics tensorboard torch wandb

The local part of a version (`+cpu`) is left out, so that the package index decides which build is installed.
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
    """The requirements of pyproject.toml with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in extras for line in optional[name])]
    return [Requirement(line) for line in lines]


def needed(extras: Iterable[str]) -> dict[str, str]:
    """Every package that these extras bring, by name, and its installed version."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    todo = declared(extras)
    while todo:
        requirement = todo.pop()
        installed = distribution(requirement.name)
        versions[canonicalize_name(requirement.name)] = Version(installed.version).public
        for extra in {"", *requirement.extras}:
            if (requirement.name, extra) not in seen:
                seen.add((requirement.name, extra))
                todo += _of(installed.requires or [], extra)
    return versions


def _of(lines: Iterable[str], extra: str) -> Iterator[Requirement]:
    """Requirements of a package that apply here, with one of its extras or without ('')."""
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def locked(path: Path = LOCK) -> dict[str, str]:
    """The versions in a file of `name==version` lines."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def main(extras: list[str]) -> None:
    versions = "".join(f"{name}=={version}\n" for name, version in sorted(needed(extras).items()))
    python = f"{sys.version_info.major}.{sys.version_info.minor} on {sys.platform}"
    LOCK.write_text(f"# Made by `python tools/lock.py {' '.join(extras)}` with Python {python}.\n{versions}", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
