"""HTML pages: a template filled with facts and figures, in one self-contained file."""

from __future__ import annotations

import base64
import io
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from winnow.system.files import write_text


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Names come from data and from file names: everything is escaped, and a missing fact is an error.
    return Environment(
        loader=PackageLoader("winnow.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write(path: Path, template: str, **facts: Any) -> None:
    """Fill a template of `winnow/render/templates` and write the page."""
    write_text(path, _templates().get_template(template).render(**facts))


def embedded(figure: Any) -> str:
    """A figure as a data URL."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "winnow"}), warnings.catch_warnings():  # always the same bytes
        # Names come from data: too long ones, or ones with letters that no font has, are drawn without a warning.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def picture(figure: Any, alt: str) -> dict[str, Any]:
    """A figure for a template: its data URL, its alternative text, and its size in pixels."""
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return {"src": embedded(figure), "alt": alt, "width": width, "height": height}
