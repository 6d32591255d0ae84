"""The wheel and the sdist: all in them that winnow needs, and a smoke test of the wheel without the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import lock
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import winnow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OTHERS = {"gymnasium", "pip", "torch", "uv"}
"""Distributions that are not ours and that a page, a message or a script may install."""


def build(source: Path, out: Path, *targets: str) -> None:
    words = [word for target in targets for word in ("-t", target)]
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(out), *words], cwd=source, check=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist of this tree."""
    out = tmp_path_factory.mktemp("dist")
    build(ROOT, out, "wheel", "sdist")
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


# ------------------------------------------------------------------------------------------------- contents


def test_the_wheel_holds_the_package_and_nothing_else(built):
    held = contents(built[0])
    files = {path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    package = {name: data for name, data in held.items() if name.startswith("winnow/")}
    assert package == {str(path.relative_to(ROOT / "src")): path.read_bytes() for path in files}
    assert {Path(name).suffix for name in package} >= {".html", ".js", ".csv", ".tsv", ".safetensors", ".typed"}
    assert all("dist-info/" in name for name in held.keys() - package.keys())


def test_the_wheel_says_its_version_and_licence(built):
    held = contents(built[0])
    info = f"winnow_rl-{winnow.__version__}.dist-info"
    assert held[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    said = held[f"{info}/METADATA"].decode()
    for line in (f"Version: {winnow.__version__}", "License-Expression: MIT", "Requires-Python: >=3.11"):
        assert f"\n{line}\n" in said
    assert "winnow = winnow.cli:main" in held[f"{info}/entry_points.txt"].decode()


def test_the_sdist_makes_the_same_wheel(built, tmp_path):
    wheel, sdist = built
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert (source / "tests" / Path(__file__).name).exists()
    assert not (source / "results").exists()
    assert not (source / "experiments").exists()
    build(source, tmp_path / "again", "wheel")
    (again,) = (tmp_path / "again").glob("*.whl")
    assert contents(again) == contents(wheel)


# ----------------------------------------------------------------------------------------------- smoke test


def test_the_wheel_works_where_there_is_no_repository(built, tmp_path):
    """In an environment of its own that borrows the dependencies, and only them, from this one."""
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(built[0])], check=True)
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [home / "bin" / words[0], *words[1:]],
            cwd=tmp_path,
            env=clean | {"WINNOW_DATA": str(tmp_path / "data")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run("python", "-c", "import winnow; print(winnow.__file__)").startswith(str(site))
    assert run("winnow", "--version").strip() == f"winnow {PROJECT['version']}"
    assert "winnow COMMAND" in run("winnow", "--help")
    name = "hopper-random-expert-20%@400"
    run("winnow", "data", "make", name)
    run("winnow", "inspect", name, "--html", "page.html")
    assert "</html>" in (tmp_path / "page.html").read_text("utf-8")
    few = ("--algorithm", "bc", "--method", "aw", "--seeds", "1", "--steps", "20", "--chunk", "20", "--no-evaluate")
    run("winnow", "train", name, *few, "--out", "runs")
    assert '"returns"' in run("winnow", "evaluate", "runs", "--episodes", "1", "--json")


# ------------------------------------------------------------------------------------------------- versions


def test_the_versions_agree():
    assert PROJECT["version"] == winnow.__version__
    assert citation()["version"] == winnow.__version__


def citation() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))


def test_the_citation_says_what_the_package_does_and_names_the_paper():
    said = citation()
    assert said.keys() >= {"cff-version", "message", "title", "authors"}, "the Citation File Format needs these"
    assert said["cff-version"] == "1.2.0"
    assert said["license"] == PROJECT["license"]
    assert said["authors"] == PROJECT["authors"]
    assert (said["abstract"], said["keywords"]) == (PROJECT["description"], PROJECT["keywords"])
    (paper,) = said["references"]
    assert paper["title"].startswith("Beyond Uniform Sampling")


def extras_of(path: Path) -> list[str]:
    """The extras that a file of versions was made for: words of its first line."""
    first = path.read_text("utf-8").partition("\n")[0]
    return [word for word in first.replace("`", " ").split() if word in PROJECT["optional-dependencies"]]


def test_everything_that_is_installed_for_the_tests_is_locked():
    """`tools/lock.py` writes the file again."""
    extras = extras_of(lock.LOCK)
    assert "dev" in extras
    held = lock.locked()
    assert not lock.needed(extras).keys() - held.keys()
    assert not [str(one) for one in lock.declared(extras) if not one.specifier.contains(held[one.name.lower()])]


def test_lower_bounds_are_the_versions_that_were_tested():
    held = lock.locked(ROOT / "requirements" / "lowest.txt")
    for one in lock.declared(extras_of(ROOT / "requirements" / "lowest.txt")):
        (bound,) = [part.version for part in one.specifier if part.operator in (">=", "==")]
        assert Version(held[one.name.lower()]) == Version(bound), one


@pytest.mark.parametrize("name", ["ci.txt", "lowest.txt"])
def test_files_of_versions_name_versions_alone(name):
    for line in (ROOT / "requirements" / name).read_text("utf-8").splitlines()[1:]:
        (only,) = Requirement(line).specifier
        assert only.operator == "=="
        assert line == f"{Requirement(line).name}=={only.version}"


# ------------------------------------------------------------------------------------- how it is installed


OPTION = r"--python +\S+|-r +\S+|-(?!r\b|-python\b)\S+"
INSTALLS = re.compile(rf"\bpip install(?: +(?:{OPTION}))* +(?:'([^'\n]+)'|([^\s`'\"(),;-][^\s`'\"(),;]*))")
"""`pip install`, its options, and the first thing that it installs."""


def installed_by(text: str) -> list[str]:
    """What a text says to install; `'winnow[…]'` also where it stands alone."""
    return [one for pair in INSTALLS.findall(text) for one in pair if one] + re.findall(r"'(winnow\[[\w,]+\])'", text)


def is_allowed(what: str) -> bool:
    """`.`, `'.[torch]'`, `winnow-rl` with or without extras and an address, or one of the others that are meant."""
    name = re.match(r"[\w.-]*", what)
    return name is not None and name[0] in {".", PROJECT["name"], *OTHERS}


def texts_that_install() -> list[Path]:
    """Pages, sources, examples, scripts and the Makefile: everything that a reader may copy a line from."""
    folders = ("src", "docs", "examples", "tools", "benchmarks", "experiments")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".sh")]
    return [*ROOT.glob("*.md"), ROOT / "Makefile", *found]


def test_nothing_says_to_install_a_distribution_that_is_not_ours():
    """PyPI's `winnow` is another project."""
    said = [(path, one) for path in texts_that_install() for one in installed_by(path.read_text("utf-8"))]
    assert len(said) > 10
    assert not [(path.name, one) for path, one in said if not is_allowed(one)]


@pytest.mark.parametrize(
    "line",
    ["pip install winnow", "`pip install winnow`", "pip install -q --python x 'winnow[torch]'", "'winnow[torch]' too"],
)
def test_another_project_of_our_name_is_refused(line):
    assert not all(map(is_allowed, installed_by(line)))


@pytest.mark.parametrize(
    "line", ["pip install .", "pip install '.[torch]' in a copy", "pip install 'winnow-rl[torch] @ git+https://a/b'"]
)
def test_ours_is_not(line):
    assert installed_by(line)
    assert all(map(is_allowed, installed_by(line)))
