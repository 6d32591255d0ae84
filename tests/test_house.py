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

ROOT_MODULES = 10
"""Modules that may stand beside the packages, the entry point `winnow/__main__.py` among them."""
TYPES_FROM_LATER_LAYERS = {
    ("winnow.evaluation.candidates", "winnow.training.trained"),
    ("winnow.evaluation.play", "winnow.training.trained"),
}
"""Evaluation takes what training returns, and training starts evaluation: only the annotations need the class."""
BANNED = ["said", "told", "held", "place", "one", "found", "words", "some"]
"""Names of variables that say nothing about what they hold."""
TUPLE_SHARE = 0.015
"""Upper bound on the share of assignments of the form `a, b = x, y`."""


class Import(NamedTuple):
    name: str
    """The module that is imported."""
    names: frozenset[str]
    """What is taken from it; empty where it is taken whole."""
    late: bool
    """Whether a function imports it when it is called."""
    typing: bool
    """Whether only a type checker imports it."""


def _name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(SRC.rglob("*.py"))}


def _imports(node: ast.AST, late: bool = False, typing: bool = False) -> Iterator[Import]:
    """The imports of a module, those for type checkers included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from _imports(child, late, typing=True)
        elif isinstance(child, ast.Import):
            yield from (Import(alias.name, frozenset(), late, typing) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module is not None, "imports are absolute"
            assert child.level == 0, "imports are absolute"
            whole = {alias.name for alias in child.names if f"{child.module}.{alias.name}" in MODULES}
            yield from (Import(f"{child.module}.{name}", frozenset(), late, typing) for name in whole)
            if names := {alias.name for alias in child.names} - whole:
                yield Import(child.module, frozenset(names), late, typing)
        else:
            yield from _imports(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef), typing)


TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}
IMPORTS = {name: set(_imports(tree)) for name, tree in TREES.items()}
GRAPH = {name: {item for item in imports if item.name in MODULES} for name, imports in IMPORTS.items()}
AT_ONCE = {
    name: {item.name for item in imports if not item.late and not item.typing} for name, imports in GRAPH.items()
}
"""What comes with a module when it is imported, before any of its functions is called."""


def _part(module: str) -> str:
    """The module or package right under `winnow` that a module belongs to; nothing for `winnow` itself."""
    return module.split(".")[1] if "." in module else ""


LAYER_OF = {part: number for number, parts in enumerate(LAYERS) for part in parts.split()}
PUBLIC = {"winnow", "winnow.__main__"}


def test_every_module_has_its_layer():
    assert {_part(module) for module in MODULES if module not in PUBLIC} == set(LAYER_OF)


def test_the_root_has_few_modules():
    """Modules of its own, `winnow/__init__.py` not counted: what has a place in a package is not at the root."""
    at_the_root = [path.name for path in MODULES.values() if path.parent.name == "winnow" and path.stem != "__init__"]
    assert len(at_the_root) <= ROOT_MODULES, at_the_root


def test_no_package_has_the_name_of_a_public_function():
    assert not {_part(module) for module in MODULES} & set(PUBLIC_FUNCTIONS.split())


def test_modules_do_not_import_each_other_in_a_ring():
    assert set(TopologicalSorter(AT_ONCE).static_order()) == set(MODULES)


def _upward(typing: bool) -> set[tuple[str, str]]:
    """Imports of a later layer: when the code runs, or (`typing`) for a type checker alone."""
    return {
        (module, item.name)
        for module, imports in GRAPH.items()
        for item in imports
        if item.typing == typing
        and module not in PUBLIC
        and item.name != "winnow"
        and LAYER_OF[_part(item.name)] > LAYER_OF[_part(module)]
    }


def test_imports_go_the_way_of_the_data():
    assert not _upward(typing=False)


def test_types_come_from_earlier_layers_too():
    assert _upward(typing=True) == TYPES_FROM_LATER_LAYERS


def test_nothing_behind_the_seam_knows_a_plugin_by_name():
    kinds = {"winnow.algorithms", "winnow.weighters", "winnow.samplers"}
    registries = {"ALGORITHMS", "WEIGHTERS", "SAMPLERS", "Sampler", "alias_table"}
    shared = {"winnow.weighters.diagnostics"}
    known = {
        (module, item.name)
        for module, imports in GRAPH.items()
        if _part(module) in BEHIND_THE_SEAM.split()
        for item in imports
        if (item.name in kinds and not (item.names and item.names <= registries))
        or (item.name.rpartition(".")[0] in kinds and item.name not in shared)
    }
    assert not known


def test_environments_and_data_come_without_jax():
    needed = {name for name in MODULES if _part(name) in WITHOUT_JAX.split()}
    while more := set().union(*(AT_ONCE[name] for name in needed)) - needed:
        needed |= more
    at_once = {name: [item for item in IMPORTS[name] if not item.late and not item.typing] for name in needed}
    assert not {name for name, imports in at_once.items() for item in imports if item.name.split(".")[0] == "jax"}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is_for(module):
    text = ast.get_docstring(TREES[module])
    assert text, f"{MODULES[module]}: opens without a docstring"
    first = text.partition("\n\n")[0]
    assert len(first.split()) >= 5, f"{MODULES[module]}: its opening line says too little: {first!r}"


def test_no_file_is_long():
    assert not [name for name, path in MODULES.items() if len(path.read_text("utf-8").splitlines()) > LONG]


# --------------------------------------------------------------------------------------------------------- names


def banned_names(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and name of each variable, loop variable and argument whose name does not say what it is."""
    stored = [(node.lineno, node.id) for node in ast.walk(tree)
              if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]  # fmt: skip
    arguments = [(node.lineno, node.arg) for node in ast.walk(tree) if isinstance(node, ast.arg)]
    return sorted((line, name) for line, name in stored + arguments if name in BANNED)


def assignments(tree: ast.AST) -> list[ast.stmt]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)]


def tuple_assignments(tree: ast.AST) -> list[int]:
    """Lines of the form `a, b = x, y`: two statements in one."""
    return sorted(
        node.lineno
        for node in assignments(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple | ast.List)
        and any(isinstance(target, ast.Tuple | ast.List) for target in node.targets)
    )


def test_the_counts_of_names_and_assignments_are_right():
    """The two rules, on code that breaks each of them three times and keeps to them as often."""
    tree = ast.parse(
        "def read(said, *, path):\n"
        "    found = [one for one in said if one]\n"
        "    low, high = 0, 1\n"
        "    (first, *rest), last = [found, 2]\n"
        "    x = y, z = 1, 2\n"
        "    start, end = found\n"
        "    pair = low, high\n"
        "    pair.found = words(one=1)\n"
    )
    assert banned_names(tree) == [(1, "said"), (2, "found"), (2, "one")]
    assert tuple_assignments(tree) == [3, 4, 5]
    assert len(assignments(tree)) == 7


@pytest.mark.parametrize("module", MODULES)
def test_a_name_says_what_it_is_of(module):
    lines = banned_names(TREES[module])
    assert not lines, f"{MODULES[module]}: name these for what they are (line, name): {lines}"


def test_tuple_assignments_are_rare():
    count = sum(len(tuple_assignments(tree)) for tree in TREES.values())
    share = count / sum(len(assignments(tree)) for tree in TREES.values())
    assert share < TUPLE_SHARE, f"{count} assignments of the form `a, b = x, y` are {share:.1%} of all"
