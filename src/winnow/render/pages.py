"""Pages to read in a browser: a template filled with facts and figures, in one file that needs no other."""

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

    # Names come from data and from file names: everything is escaped, and a fact that is missing is an error.
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
    """A figure as an address that holds the picture itself."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "winnow"}), warnings.catch_warnings():  # always the same bytes
        # Names come from data: one that is too long, or has letters that no font here has, is drawn as well as can be.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def picture(figure: Any, alt: str) -> dict[str, Any]:
    """A figure for a template: its address, its words for those who don't see it, and its size in pixels."""
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return {"src": embedded(figure), "alt": alt, "width": width, "height": height}
