"""The one error a user of winnow should ever have to read."""

from __future__ import annotations


class BadInput(ValueError):
    """Something that was given can't be used.

    The message names the file or the setting, the field, the first bad row where there is one, and what to do.
    The command line prints it without a traceback and exits with code 2.
    """
