"""The docs site: it builds without a warning, holds all that it is made from, and needs nothing from elsewhere."""

from __future__ import annotations

import ast
import dataclasses
import html
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser
from pymdownx.slugs import slugify

import winnow
from winnow.algorithms import ALGORITHMS
from winnow.cli import COMMANDS
from winnow.data.sources import open_dataset
from winnow.methods import METHODS
from winnow.samplers import SAMPLERS
from winnow.weighters import WEIGHTERS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it: a warning is an error, dead links and anchors among them."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def hook(name: str) -> Any:
    """A module of what the site is filled with."""
    sys.path.insert(0, str(DOCS / "hooks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def text_of(page: Path) -> str:
    """What a reader sees of a page, spaces alike."""
    body = re.search(r"<article.*</article>", page.read_text(encoding="utf-8"), re.DOTALL)
    assert body
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", body[0])).split())


def ids_of(page: Path) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8")))


# ------------------------------------------------------------------------------------------------- it is all there


def test_every_page_is_built_and_asks_for_nothing_more(site: Path) -> None:
    for page in PAGES:
        built = site / page.relative_to(DOCS).with_suffix(".html")
        assert "<!-- fill:" not in built.read_text(encoding="utf-8"), page
    assert not list(site.rglob("*.py"))


def test_every_plug_in_has_its_page_with_all_its_settings(site: Path) -> None:
    places = [(site / "algorithms" / f"{name}.html", kind) for name, kind in ALGORITHMS.items()]
    places += [(site / "weighters" / f"{name}.html", kind) for name, kind in WEIGHTERS.items()]
    places += [(site / "samplers.html", kind) for kind in SAMPLERS.values()]
    assert set(SAMPLERS) <= ids_of(site / "samplers.html")
    shown = text_of(site / "samplers.html")
    assert all(re.search(rf"\b{name} {sampler} {weighter}\b", shown) for name, (sampler, weighter) in METHODS.items())
    for page, kind in places:
        shown = page.read_text(encoding="utf-8")
        for field in dataclasses.fields(kind):
            assert f"<td><code>{field.name}</code></td>" in shown, f"{page.name}: {field.name}"


def test_settings_are_shown_with_default_range_and_meaning(site: Path) -> None:
    shown = text_of(site / "algorithms" / "iql.html")
    assert "expectile 0.7 0 to 1 τ: 0.5 is the mean over actions in the data, 1 their maximum." in shown
    assert "hidden 256 256 whole numbers Widths of the hidden layers." in shown
    assert "antmaze: expectile 0.9, beta 10.0, reward_scaling minus-one" in shown


def test_every_command_is_shown_with_its_options(site: Path) -> None:
    shown = text_of(site / "cli.html")
    assert all(f"usage: winnow {name} " in shown for name in COMMANDS)
    assert all(f"winnow-{name.replace(' ', '-')}" in ids_of(site / "cli.html") for name in COMMANDS)
    assert "--episodes INT Episodes of each run. (default: 20)" in shown


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    modules = {"winnow": dir(winnow)}
    for module in ("winnow.plug.torch", "winnow.plug.d3rlpy"):
        if importlib.util.find_spec(module.replace("winnow.plug.", "")):
            modules[module] = importlib.import_module(module).__all__
    wanted = {f"{module}.{name}" for module, names in modules.items() for name in names}
    assert len(wanted) > 40
    assert wanted <= ids_of(site / "api.html")
    shown = text_of(site / "api.html")
    assert "Train every combination of dataset, algorithm, method and seed" in shown
    assert not re.search(r"ForwardRef|<class|object at 0x", shown)


# ------------------------------------------------------------------------------------------------------ messages


@pytest.fixture(scope="module")
def messages() -> Any:
    return hook("messages")


def test_every_message_of_the_source_is_explained(site: Path, messages: Any) -> None:
    shown, found = text_of(site / "errors.html"), messages.collect()
    assert len(found) > 300
    missing = [one for one in found if " ".join(one.text.split()) not in shown]
    assert not missing, "name the module in docs/errors.md, in the section that says what to do"


def test_no_place_that_raises_is_overlooked(messages: Any) -> None:
    """By the letters alone: as many texts as there are calls, but for one that passes on what another process said."""
    for file in (ROOT / "src" / "winnow").rglob("*.py"):
        calls = len(re.findall(r"(?<!class )\b(?:BadInput|Taken)\((?!BadInput)", file.read_text(encoding="utf-8")))
        passed_on = file.read_text(encoding="utf-8").count("BadInput(str(")
        here = [one for one in messages.collect() if one.module == file.relative_to(ROOT / "src/winnow").as_posix()]
        assert len(here) >= calls - passed_on, file


def test_messages_as_raised_match_an_entry(messages: Any, tmp_path: Path) -> None:
    """What stands in capitals or … is what is filled in."""
    (tmp_path / "text.csv").write_text("obs_0,action_0,reward\n1,nan,2\n")
    tries = [
        lambda: open_dataset(str(tmp_path / "nothing.hdf5")),
        lambda: open_dataset(str(tmp_path / "text.csv")),
        lambda: winnow.method("uniforn"),
        lambda: winnow.PF(share=2.0).probabilities(winnow.from_arrays([[0.0]] * 3, [[0.0]] * 3, [0.0] * 3, [0, 0, 1])),
    ]
    patterns = [
        re.compile(re.sub(r"(?:[A-Z_]{2,}|…)+", ".+", re.escape(one.text).replace(r"\ ", " ")))
        for one in messages.collect()
    ]
    for attempt in tries:
        with pytest.raises(winnow.BadInput) as error:
            attempt()
        assert any(pattern.fullmatch(str(error.value)) for pattern in patterns), str(error.value)


# ---------------------------------------------------------------------------------------------- it says what is so


EXPLAINED = [page for page in PAGES if "| code | what it is |" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", EXPLAINED, ids=lambda page: page.name)
def test_lines_that_a_page_explains_are_the_code_s_own(page: Path) -> None:
    said = page.read_text(encoding="utf-8")
    tables = re.findall(r"^\| code \| what it is \|\n\|---\|---\|\n((?:\|.*\n)+)", said, re.MULTILINE)
    lines = [line for table in tables for line in re.findall(r"^\| `(.*?)` \| ", table, re.MULTILINE)]
    assert len(lines) == sum(table.count("\n") for table in tables)
    names = [name for mark in re.findall(r"fill: source (.*) -->", said) for name in mark.split()]
    files = {Path(inspect.getfile(hook("source").named(name))) for name in names}
    code = [" ".join(file.read_text(encoding="utf-8").split()) for file in files]
    assert not [line for line in lines if not any(line in one for one in code)]


VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|DISPLAY|PYTHONPATH")


def environment_variables() -> set[str]:
    """Names of variables that the source reads or sets: by `os.environ`, by keywords and by keys of dictionaries."""
    found: set[str] = set()
    for file in (ROOT / "src" / "winnow").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            parts: list[Any] = []
            if "environ" in ast.unparse(node) and isinstance(node, ast.Compare | ast.Subscript | ast.Call):
                parts = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.Constant)]
            elif isinstance(node, ast.Dict):
                parts = [key for key in node.keys if isinstance(key, ast.Constant)]
            names = [part.value for part in parts] + ([node.arg] if isinstance(node, ast.keyword) else [])
            found |= {name for name in names if isinstance(name, str) and VARIABLE.fullmatch(name)}
    return found


def test_the_table_of_variables_is_whole() -> None:
    page = (DOCS / "environment.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)
    assert {name for cell in cells for name in re.findall("`(.*?)`", cell)} == environment_variables()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_loss_is_left_out(name: str) -> None:
    """Wherever an algorithm reduces over a batch, its page says what that is."""
    code = Path(sys.modules[ALGORITHMS[name].__module__].__file__ or "").read_text(encoding="utf-8")
    reduced = re.findall(r"^ +(.*\bexpect\(.*)$", code, re.MULTILINE)
    said = (DOCS / "algorithms" / f"{name}.md").read_text(encoding="utf-8")
    assert reduced
    left = [
        line for line in reduced if f"`{line}`" not in said and not line.startswith(("metrics = {", "return state, {"))
    ]
    assert not left


def test_scores_are_computed_from_raw_returns(site: Path) -> None:
    """Every page that asks for a comparison shows all of its methods, with a score for each seed."""
    for page, comparison in (("algorithms/td3bc", "dome"), ("weighters", "baselines")):
        rows = hook("scores").table(comparison).splitlines()[2:]
        shown = text_of(site / f"{page}.html")
        assert len(rows) > 4
        assert not [row for row in rows if " ".join(row.replace("|", " ").split()) not in shown]


# ------------------------------------------------------------------------------------------------------------ links


def anchors(page: Path) -> set[str]:
    slug = slugify(case="lower")
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {slug(re.sub(r"[`*]", "", head), "-") for head in heads}


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere_on_a_code_host_too(page: Path) -> None:
    said = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", said):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        # What the reference's anchors are made from is not in its source: the strict build checks those.
        assert not anchor or target.name == "api.md" or anchor in anchors(target), link


def test_no_page_takes_anything_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text(encoding="utf-8"))
        assert not [tag for tag in tags if re.search(r'(?:src|href)="(?:https?:)?//', tag)], page
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------- in a browser


class Watched(Browser):
    """A browser that keeps the address of everything it asks for."""

    def __init__(self, profile: Path) -> None:
        self.asked: list[str] = []
        super().__init__(profile)
        self.ask("Network.enable")

    def _note(self, message: dict[str, Any]) -> None:
        super()._note(message)
        if message.get("method") == "Network.requestWillBeSent":
            self.asked.append(message["params"]["request"]["url"])


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Watched]:
    if not CHROMIUM:
        pytest.skip("there is no Chromium")
    one = Watched(tmp_path / "profile")
    with one:
        yield one
        assert one.asked
        assert not [url for url in one.asked if not url.startswith(("file:", "data:", "about:"))]
        assert not one.complaints


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 1280), (False, 400)])
def test_pages_open_from_disk_without_a_network(site: Path, browser: Watched, dark: bool, width: int) -> None:
    browser.look(dark=dark, width=width)
    for name in ("index", "concepts", "algorithms/iql", "weighters/dual", "cli", "api", "errors"):
        browser.open(site / f"{name}.html")
        assert browser.run("document.querySelector('h1').textContent.length") > 2
        assert browser.run("[...document.images].every(one => one.naturalWidth > 0)")
        assert browser.run("document.documentElement.scrollWidth") <= width
        colour = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 300) == dark


@pytest.mark.parametrize("page", ["index", "algorithms/iql"])
def test_the_search_finds_from_disk(site: Path, browser: Watched, page: str) -> None:
    browser.look()
    browser.open(site / f"{page}.html")
    browser.run("document.querySelector('.md-search__input').focus()")
    for letter in "expectile":
        browser.press(letter, letter)
    end = time.monotonic() + 60
    while not browser.run("document.querySelectorAll('.md-search-result__item').length"):
        assert time.monotonic() < end, browser.run("document.querySelector('.md-search-result__meta').textContent")
        time.sleep(0.1)
    found = browser.run("[...document.querySelectorAll('.md-search-result__item a')].map(one => one.href)")
    assert any("algorithms/iql.html" in one for one in found)
