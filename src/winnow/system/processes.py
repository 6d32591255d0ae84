"""Processes of our own that play and draw: how they are started, and what they do first.

Not multiprocessing's spawn: that runs the caller's main module again in the child, and jax with it. This module imports
nothing but the standard library, so that a child has only what its own module asks for.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from typing import Any, BinaryIO


def call(target: str) -> list[str]:
    """The command of a process that calls a function without arguments: `winnow.envs:serve`."""
    module, _, function = target.partition(":")
    return [sys.executable, "-c", f"from {module} import {function}; {function}()"]


def surroundings(**changes: str) -> dict[str, str]:
    """This process's environment variables with some changed, and the same places to import from."""
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    return {**os.environ, **changes, "PYTHONPATH": path}


def simulating() -> dict[str, str]:
    """The same for a process that steps environments: one thread, and nothing drawn unless the user says how."""
    drawing = os.environ.get("MUJOCO_GL", "disable")
    return surroundings(MUJOCO_GL=drawing, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


def hang_up(child: subprocess.Popen[Any]) -> None:
    """Close a child's pipes: one that serves ends when nobody listens any more."""
    for pipe in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):
            if pipe:
                pipe.close()


def answering() -> tuple[BinaryIO, BinaryIO]:
    """What a child that serves does first. Where its commands come from, and where its answers go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    commands, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an environment prints must not be taken for an answer
    return commands, answers


def address(thing: Any) -> str:
    """Where another process can import a function or a class from, as module:name."""
    found, where = None, f"{getattr(thing, '__module__', None)}:{getattr(thing, '__qualname__', '')}"
    with contextlib.suppress(ImportError, AttributeError):
        found = at_address(where)
    if found is not thing or where.startswith("__main__:"):
        raise ValueError(f"{where} is not there for other processes")
    return where


def at_address(where: str) -> Any:
    module, _, name = where.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
