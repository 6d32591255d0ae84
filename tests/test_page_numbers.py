"""Pages that people read first are short, and state no number that is typed where it could be computed."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
if not (ROOT / "experiments").exists():
    pytest.skip("the source distribution has neither experiments nor results", allow_module_level=True)
WORD_LIMITS = {
    "README.md": 600,
    "docs/index.md": 350,
    "docs/evidence.md": 2500,
    "docs/paper.md": 900,
    "docs/speed.md": 900,
}
README_LINES = 120
WORDS_BEFORE_CODE = 150
NUMERALS_PER_100_WORDS = 8
CELL_WORDS = 15
CLAIMS = range(18, 26)
INTERVAL = re.compile(r"\d\s\[[+−-]?\d")
SIGNED = re.compile(r"(?<![\w.])[+−]\d+\.\d")
GENERATED = re.compile(r"<!-- generated: \w+ -->.*?<!-- end -->", re.DOTALL)
NOTICE = "**Withdrawn, and waiting to be trained again.**"
RIDDLES = ("by heart", "holds out better", "held out better", "the labels are", "same words", "reckoned")
"""Turns of phrase that readers stumbled over."""


@pytest.fixture(scope="module")
def tools() -> Any:
    """The script that writes README's numbers, and the module that fills a page of the site."""
    paths = [str(ROOT / "tools"), str(DOCS / "hooks")]
    sys.path[:0] = paths
    try:
        return importlib.import_module("readme"), importlib.import_module("fill")
    finally:
        for path in paths:
            sys.path.remove(path)


def prose(text: str) -> str:
    """A page without code blocks, comments and the targets of links: headings, paragraphs and tables."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("    ") or line.lstrip()[:1] in "-*|")
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def words(text: str) -> list[str]:
    return [word for word in prose(text).split() if re.search(r"\w", word)]


def numerals(text: str) -> list[str]:
    return [word for word in words(re.sub(r"`[^`\n]*`", "", text)) if re.search(r"\d", word)]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------- how long


def test_words_are_counted_without_code_and_addresses():
    page = "# Two words\n\nsee [this page](far/away.md)\n\n    a command\n\n```python\nx = 1\n```\n<!-- fill: x -->\n"
    assert words(page) == ["Two", "words", "see", "this", "page"]
    assert numerals("At 3 of `4` and 5.5 %") == ["3", "5.5"]


@pytest.mark.parametrize("name", WORD_LIMITS)
def test_a_page_is_short_as_written_and_as_built(name, tools):
    text = read(name)
    if name != "README.md":
        text = tools[1].filled(text)
    assert len(words(text)) <= WORD_LIMITS[name]


def test_readme_is_one_page_and_soon_comes_to_the_point():
    text = read("README.md")
    before = re.split(r"^ {4}\S|^```", text, maxsplit=1, flags=re.MULTILINE)[0]
    assert len(text.splitlines()) <= README_LINES
    assert len(words(before)) <= WORDS_BEFORE_CODE
    text = GENERATED.sub("", text)
    assert 100 * len(numerals(text)) / len(words(text)) <= NUMERALS_PER_100_WORDS


def test_claims_of_the_paper_fit_their_cells():
    rows = [line.strip("| ").split(" | ") for line in read("docs/paper.md").splitlines() if line.startswith("| ")]
    claims = [row for row in rows if len(row) == 4 and row[0] not in ("section", "---")]
    assert len(claims) in CLAIMS
    assert not [cell for row in claims for cell in row if len(cell.split()) > CELL_WORDS]


# --------------------------------------------------------------------------------------------- where numbers come from


def test_numbers_in_readme_are_those_of_the_results(tools):
    text = read("README.md")
    assert len(GENERATED.findall(text)) >= 3
    assert tools[0].generated(text) == text, "run python tools/readme.py"


def test_a_number_that_was_changed_by_hand_is_noticed(tools):
    text = read("README.md")
    digit = re.search(r"\+(\d)", GENERATED.findall(text)[0])
    assert digit
    wrong = text.replace(digit[0], f"+{(int(digit[1]) + 1) % 10}", 1)
    assert tools[0].generated(wrong) == text


@pytest.mark.parametrize("name", WORD_LIMITS)
def test_no_gain_and_no_interval_is_typed(name):
    typed = GENERATED.sub("", read(name))
    assert not INTERVAL.findall(typed)
    assert not SIGNED.findall(typed)


def test_typed_intervals_would_be_found():
    assert INTERVAL.search("AW gains +22.3 [14.0, 30.1]")
    assert SIGNED.search("AW gains +22.3 there")
    assert not INTERVAL.search("rewards in [0, 1]")


def test_every_withdrawn_table_stands_under_the_notice():
    pages = sorted((DOCS / "log").glob("*.md"))
    assert len(pages) > 5
    for page in pages:
        if page.name != "speed.md":
            assert "**Withdrawn, and waiting to be trained again.**" in page.read_text(encoding="utf-8")[:1000], (
                page.name
            )


# ------------------------------------------------------------------------------------------------------------ the words


def test_llms_txt_names_pages_that_exist():
    links = re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "llms.txt").read_text(encoding="utf-8"))
    assert len(links) > 15
    assert not [link for link in links if not (DOCS / link).exists()]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_pages_speak_plainly(page):
    text = page.read_text(encoding="utf-8")
    assert not [phrase for phrase in RIDDLES if phrase in text]


def test_every_method_has_a_colour_of_its_own():
    from winnow.methods import METHODS
    from winnow.render.figures import METHOD_COLOURS, colours

    assert set(METHODS) <= set(METHOD_COLOURS)
    assert len(set(METHOD_COLOURS.values())) == len(METHOD_COLOURS)
    few, many = colours(["aw", "dw-aw"]), colours(["uniform", "pf", "dw-aw", "mine", "aw"])
    assert (few["aw"], few["dw-aw"]) == (many["aw"], many["dw-aw"])
    assert list(many) == ["uniform", "pf", "dw-aw", "mine", "aw"]
    assert len(set(many.values())) == len(many)
