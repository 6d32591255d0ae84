"""The house: every module says what it is for, none is too long, and imports go one way, never in a ring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).parents[1] / "src"
LONG = 400
"""Lines that a file may have."""
LAYERS = (
    "errors",
    "system",
    "types",
    "envs",
    "data toy",
    "stats",
    "nets",
    "samplers",
    "algorithms weighters",
    "plugins methods",
    "packs",
    "policy deploy",
    "evaluation",
    "training",
    "ope",
    "bench",
    "render",
    "report",
    "inspection",
    "tabular",
    "plug",
    "collect",
    "commands",
    "cli",
)
"""The way of the data. A module may import from its own layer and those before it in this list."""
BEHIND_THE_SEAM = "packs policy deploy evaluation training ope bench report"
"""These know plug-ins by their registries alone: a new one needs no line in them."""
WITHOUT_JAX = "errors envs data toy"
"""A process that only plays, reads or mixes does not wait for jax."""
PUBLIC_FUNCTIONS = "train evaluate judge split method save imbalance mixed diverse small"
"""Importing a module of such a name under `winnow` would replace the function."""


class Import(NamedTuple):
    name: str
    """The module that is imported."""
    names: frozenset[str]
    """What is taken from it; empty where it is taken whole."""
    late: bool
    """Whether a function does it, when it is called."""


def _name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(SRC.rglob("*.py"))}


def _imports(node: ast.AST, late: bool = False) -> Iterator[Import]:
    """What a module imports. What only a type checker sees does not count: it does not run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, frozenset(), late) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module is not None, "imports are absolute"
            assert child.level == 0, "imports are absolute"
            whole = {alias.name for alias in child.names if f"{child.module}.{alias.name}" in MODULES}
            yield from (Import(f"{child.module}.{name}", frozenset(), late) for name in whole)
            if names := {alias.name for alias in child.names} - whole:
                yield Import(child.module, frozenset(names), late)
        else:
            yield from _imports(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


IMPORTS = {name: set(_imports(ast.parse(path.read_text("utf-8")))) for name, path in MODULES.items()}
GRAPH = {name: {one for one in imports if one.name in MODULES} for name, imports in IMPORTS.items()}
AT_ONCE = {name: {one.name for one in imports if not one.late} for name, imports in GRAPH.items()}
"""What comes with a module when it is imported, before any of its functions is called."""


def _part(module: str) -> str:
    """The module or package right under `winnow` that a module belongs to; nothing for `winnow` itself."""
    return module.split(".")[1] if "." in module else ""


PLACE = {part: place for place, parts in enumerate(LAYERS) for part in parts.split()}
PUBLIC = {"winnow", "winnow.__main__"}


def test_every_module_has_its_layer():
    assert {_part(module) for module in MODULES if module not in PUBLIC} == set(PLACE)


def test_modules_do_not_import_each_other_in_a_ring():
    assert set(TopologicalSorter(AT_ONCE).static_order()) == set(MODULES)


def test_imports_go_the_way_of_the_data():
    back = {
        (module, one.name)
        for module, imports in GRAPH.items()
        for one in imports
        if module not in PUBLIC and one.name != "winnow" and PLACE[_part(one.name)] > PLACE[_part(module)]
    }
    assert not back


def test_nothing_behind_the_seam_knows_a_plugin_by_name():
    kinds = {"winnow.algorithms", "winnow.weighters", "winnow.samplers"}
    registries = {"ALGORITHMS", "WEIGHTERS", "SAMPLERS", "Sampler", "alias_table"}
    shared = {"winnow.weighters.diagnostics"}
    known = {
        (module, one.name)
        for module, imports in GRAPH.items()
        if _part(module) in BEHIND_THE_SEAM.split()
        for one in imports
        if (one.name in kinds and not (one.names and one.names <= registries))
        or (one.name.rpartition(".")[0] in kinds and one.name not in shared)
    }
    assert not known


def test_environments_and_data_come_without_jax():
    needed = {name for name in MODULES if _part(name) in WITHOUT_JAX.split()}
    while more := set().union(*(AT_ONCE[name] for name in needed)) - needed:
        needed |= more
    assert not {name for name in needed for one in IMPORTS[name] if not one.late and one.name.split(".")[0] == "jax"}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is_for(module):
    said = ast.get_docstring(ast.parse(MODULES[module].read_text("utf-8")))
    assert said, f"{MODULES[module]}: opens without a docstring"
    first = said.partition("\n\n")[0]
    assert len(first.split()) >= 5, f"{MODULES[module]}: its opening line says too little: {first!r}"


def test_no_file_is_long():
    assert not [name for name, path in MODULES.items() if len(path.read_text("utf-8").splitlines()) > LONG]
