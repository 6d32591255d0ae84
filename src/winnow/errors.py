"""The one error a user of winnow should ever have to read, and how to tell that memory ran out."""

from __future__ import annotations


class BadInput(ValueError):
    """Something that was given can't be used.

    The message names the file or the setting, the field, the first bad row where there is one, and what to do.
    The command line prints it without a traceback and exits with code 2.
    """


def install_hint(extra: str) -> str:
    """How to install an extra: from the repository, until the distribution `winnow-rl` is on PyPI."""
    return f"pip install '.[{extra}]' in a copy of winnow's repository"


def out_of_memory(error: BaseException) -> bool:
    """Whether a device or the machine had no memory left. A kernel that wants more of the memory that a GPU's cores
    share than there is, on any such GPU, is another matter."""
    return isinstance(error, MemoryError) or ("RESOURCE_EXHAUSTED" in str(error) and "hared memory" not in str(error))
