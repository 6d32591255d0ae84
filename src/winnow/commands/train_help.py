"""What `winnow train --help` says of what can be named: methods in groups, with a few words on each."""

from __future__ import annotations

import textwrap

METHOD_GROUPS: dict[str, dict[str, str]] = {
    "let the data decide": {
        "auto": "uniform, aw, rw, continued or dw-uniform; a line says which and why",
    },
    "choose rows, no learned weights": {
        "uniform": "every row equally often: plain offline RL",
        "aw": "episodes by advantage over the mean return from their start",
        "rw": "episodes by return",
        "pf": "only the best tenth of the episodes",
        "red": "episodes by return, scaled linearly (ReD)",
        "odpr-r": "the same as red, by its authors' later name",
        "odpr-a": "rows by iterated advantages of a fitted value function",
        "continued": "episodes or fragments that lead somewhere good; fits values first",
        "followed": "continued, and fragments that begin or end among those; prefer continued",
    },
    "learn weights, as published (DW)": {
        "dw-uniform": "density-ratio weights on uniform sampling",
        "dw-aw": "density-ratio weights on aw",
        "dw-uniform-script": "dw-uniform with the λ of the published scripts",
        "dw-aw-script": "dw-aw with the λ of the published scripts",
        "dw-uniform-text": "dw-uniform by the paper's equations",
        "dw-aw-text": "dw-aw by the paper's equations",
        "dw-continued": "density-ratio weights on continued",
    },
    "learn weights by the exact dual": {
        "dual-uniform": "the dual's weights on uniform sampling",
        "dual-aw": "the dual's weights on aw",
        "dual-paths-uniform": "weights of whole episodes, on uniform sampling",
        "dual-paths-aw": "weights of whole episodes, on aw",
        "dual-continued": "weights of whole episodes, on continued",
        "optidice-w": "weights of OptiDICE (with --algorithm bc: OptiDICE itself)",
    },
    "for comparison": {
        "best-source": "only rows of the best source, by source labels: an oracle",
    },
}
"""{group: {method: a few words}}"""

NAMES = """
What to train (these four options may stand anywhere in the command):
  --algorithm NAME    {algorithms} (default iql)
  --method NAME[,…]   one of those below (default {method}); several are trained side by side
  --sampler NAME      instead of the method's: {samplers}
  --weighter NAME     instead of the method's: {weighters}

Methods:
{methods}

The settings below are those of the algorithm, sampler and weighter named; name others to see theirs.
With several methods, a setting holds for each of them that has it.
"""


def names(default: str) -> str:
    """The part of the help that lists algorithms, methods, samplers and weighters."""
    from winnow.algorithms import ALGORITHMS
    from winnow.methods import METHODS
    from winnow.samplers import SAMPLERS
    from winnow.weighters import WEIGHTERS

    groups = {title: dict(methods) for title, methods in METHOD_GROUPS.items()}
    listed = {name for methods in groups.values() for name in methods}
    if more := [name for name in METHODS if name not in listed]:
        groups["more"] = dict.fromkeys(more, "")
    lines = []
    for title, methods in groups.items():
        lines.append(f"  {title}")
        lines += [f"    {name:<19} {about}".rstrip() for name, about in methods.items()]
    tables = {"algorithms": ALGORITHMS, "samplers": SAMPLERS, "weighters": WEIGHTERS}
    lists = {name: _wrapped(", ".join(table)) for name, table in tables.items()}
    return NAMES.format(**lists, methods="\n".join(lines), method=default)


def _wrapped(text: str) -> str:
    indent = " " * 22
    return textwrap.fill(text, 80, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False).lstrip()
