"""The only hook of the docs site: inserts generated text into pages while the site is built.

A page asks for it with a comment on its own line, which code hosts do not show:

    <!-- fill: settings winnow.algorithms.iql.IQL -->

The word after `fill:` is a key of `FILLS`; an unknown one stops the build. Links to `examples/` are turned into links
to the page that shows them, because the site contains docs/ only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import advice
import api
import choices
import commands
import conformance
import messages
import policies
import scores
import settings
import source
import tables
from mkdocs.exceptions import PluginError

FILLS: dict[str, Callable[[str], str]] = {
    "settings": settings.table,
    "methods": settings.methods,
    "commands": commands.helps,
    "api": api.names,
    "messages": messages.listed,
    "source": source.function,
    "examples": source.examples,
    "scores": scores.table,
    "collapse": advice.collapse,
    "choices": advice.choices,
    "mixtures": choices.mixtures,
    "tabular": choices.tabular,
    "deviations": conformance.deviations,
    "density": conformance.density,
    "exact": conformance.exact,
    "curves": conformance.curves,
    "table": tables.table,
    "hours": tables.hours,
    "acceptance": policies.acceptance,
}
MARK = re.compile(r"^<!-- fill: (\w+) ?(.*?) -->$", re.MULTILINE)
EXAMPLE = re.compile(r"\]\((?:\.\./)+examples/(\w+)\.py\)")


def filled(text: str) -> str:
    """A page's Markdown with every mark replaced by its text."""
    return MARK.sub(lambda mark: FILLS[mark[1]](mark[2]), text)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    try:
        text = filled(markdown)
    except KeyError as error:
        raise PluginError(
            f"{page.file.src_uri}: no fill is named {error}; the names are in docs/hooks/fill.py"
        ) from error
    shown = os.path.relpath("examples.md", os.path.dirname(page.file.src_uri) or ".")
    return EXAMPLE.sub(rf"]({shown}#\1py)", text)
