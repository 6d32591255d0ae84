"""The error that users of winnow read, and the test for running out of memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn


class BadInput(ValueError):
    """Input that can't be used: a file, a setting or an argument.

    The message names the file or the setting, the field, the first bad row where there is one, and what to do.
    The command line prints it without a traceback and exits with code 2.
    """


def install_hint(extra: str) -> str:
    """How to install an extra: from the repository, until the distribution `winnow-rl` is on PyPI."""
    return f"pip install '.[{extra}]' in a copy of winnow's repository"


def out_of_memory(error: BaseException) -> bool:
    """Whether the device or the machine ran out of memory. A kernel that needs more shared memory than a GPU's cores
    have is another error: it would fail on any such GPU."""
    return isinstance(error, MemoryError) or ("RESOURCE_EXHAUSTED" in str(error) and "hared memory" not in str(error))


def run_script(main: Callable[[], int | None]) -> NoReturn:
    """Run the `main` of a script. Bad input is printed in one line, and the script ends with code 2."""
    try:
        sys.exit(main())
    except BadInput as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        sys.exit(2)
