"""The docs site's one hook: puts what is generated from the code where a page asks for it, while the site is built.

A page asks with a line of its own, which a code host does not show:

    <!-- fill: settings winnow.algorithms.iql.IQL -->

Each word after `fill:` is a function here or in the modules beside; a word that is not there stops the build. Links to
`examples/` lead to the page that shows them, since the site has the docs alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import advice
import api
import commands
import conformance
import messages
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
    "deviations": conformance.deviations,
    "density": conformance.density,
    "exact": conformance.exact,
    "curves": conformance.curves,
    "table": tables.table,
    "hours": tables.hours,
}
MARK = re.compile(r"^<!-- fill: (\w+) ?(.*?) -->$", re.MULTILINE)
EXAMPLE = re.compile(r"\]\((?:\.\./)+examples/(\w+)\.py\)")


def filled(text: str) -> str:
    """A page's Markdown with every mark replaced by what it asks for."""
    return MARK.sub(lambda mark: FILLS[mark[1]](mark[2]), text)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    try:
        text = filled(markdown)
    except KeyError as error:
        raise PluginError(f"{page.file.src_uri}: there is nothing to fill {error} with") from error
    shown = os.path.relpath("examples.md", os.path.dirname(page.file.src_uri) or ".")
    return EXAMPLE.sub(rf"]({shown}#\1py)", text)
