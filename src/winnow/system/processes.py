"""Child processes that step environments or render: how they are started, and what they do first.

Not multiprocessing's spawn: that runs the caller's main module again in the child, and imports jax with it. This module
imports only the standard library, so a child loads no more than its own module asks for.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from typing import Any, BinaryIO


def python_command(target: str) -> list[str]:
    """The command of a process that calls a function without arguments: `winnow.envs:serve`."""
    module, _, function = target.partition(":")
    return [sys.executable, "-c", f"from {module} import {function}; {function}()"]


def child_env(**changes: str) -> dict[str, str]:
    """This process's environment variables with `changes`, and the same import path."""
    path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    return {**os.environ, **changes, "PYTHONPATH": path}


def simulator_env() -> dict[str, str]:
    """The same for a process that steps environments: one thread, and no rendering unless the user asks for it."""
    renderer = os.environ.get("MUJOCO_GL", "disable")
    return child_env(MUJOCO_GL=renderer, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


def close_pipes(child: subprocess.Popen[Any]) -> None:
    """Close a child's pipes. A child that serves requests exits when its pipe is closed."""
    for pipe in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):
            if pipe:
                pipe.close()


def serve_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Called first in a child that serves requests. Returns the pipes of its commands and of its answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an environment prints must not be taken for an answer
    return sys.stdin.buffer, answers


def address(thing: Any) -> str:
    """A function or a class as `module:name`, from which another process can import it."""
    where = f"{getattr(thing, '__module__', None)}:{getattr(thing, '__qualname__', '')}"
    imported = None
    with contextlib.suppress(ImportError, AttributeError):
        imported = at_address(where)
    if imported is not thing or where.startswith("__main__:"):
        raise ValueError(f"other processes can't import {where}")
    return where


def at_address(where: str) -> Any:
    """The function or class at `module:name`."""
    module, _, name = where.partition(":")
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value
