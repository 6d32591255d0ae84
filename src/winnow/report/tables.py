"""The numbers of a report as tables: on the terminal, in Markdown, in LaTeX, and every score as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from winnow.bench.plan import canonical
from winnow.report import published
from winnow.report.published import Paper
from winnow.report.runs import Run, labels
from winnow.report.statistics import Cell, Line, Row
from winnow.report.studies import Group, Told, groups

COLUMNS = (
    "suite", "dataset", "environment", "level", "share", "algorithm", "method", "swept", "label", "seed", "steps",
    "score", "failure", "warnings", "published", "data", "name", "id",
)  # fmt: skip
"""What `scores` says of each run."""
HEAD = (
    "suite", "algorithm", "method", "IQM", "95 % interval", "paper", "gain over uniform", "paper's gain", "datasets",
    "runs", "failed",
)  # fmt: skip
SHORT = {"95 % interval": "95 %", "gain over uniform": "gain", "paper's gain": "paper's"}
"""Titles for the terminal."""
TUNED = ("suite", "algorithm", "what was tuned", "settings", "best of them", "its IQM", "mean IQM of all")
MOST = 8
"""Datasets that stand side by side as columns, at the most."""
GREEK = {
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "ε": "varepsilon",
    "η": "eta",
    "κ": "kappa",
    "λ": "lambda",
    "σ": "sigma",
}
RULE = (
    "Best in bold only where the 95 % interval of its lead over the second lies above 0 (stratified bootstrap over "
    "seeds; never with fewer than 3 seeds or after a failed run). Mean ± sample standard deviation over seeds (number "
    "of seeds)."
)


def scores(runs: Sequence[Run], paper: Paper = published.score) -> str:
    """Every run, a line each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        said = {name: getattr(run, name) for name in COLUMNS if hasattr(run, name)}
        said |= {
            "share": "" if run.share is None else f"{run.share:g}",
            "swept": canonical(run.swept) if run.swept else "",
            "steps": run.config["steps"],
            "warnings": "; ".join(run.warnings),
            "published": paper(run.dataset, run.algorithm, run.label),
        }
        writer.writerow(["" if said[name] is None else said[name] for name in COLUMNS])
    return out.getvalue()


# ------------------------------------------------------------------------------------------------------- in words


def number(value: float | None, sign: bool = False) -> str:
    """One decimal; nothing where there is no number."""
    if value is None:
        return ""
    text = f"{value:{'+' if sign else ''}.1f}"
    return text.replace("-0.0", "0.0") if float(text) == 0 else text


def interval(low: float, high: float, sign: bool = False) -> str:
    return f"[{number(low, sign)}, {number(high, sign)}]"


def fields(line: Line) -> list[str]:
    """A method's line under `HEAD`."""
    gain, iqm = line.gain, line.iqm
    return [
        line.suite,
        line.algorithm,
        line.label,
        number(iqm.value) if iqm else "–",
        interval(iqm.low, iqm.high) if iqm and line.has_interval else "",
        number(line.published),
        f"{number(gain.iqm.value, True)}{' ' + interval(*gain.iqm[1:3]) if gain.iqm.seeds > 1 else ''}" if gain else "",
        number(line.published_gain, True),
        str(len(line.scores)),
        str(sum(map(len, line.scores.values()))),
        str(line.failed or ""),
    ]


def cell_text(cell: Cell) -> str:
    """A method's runs on one dataset."""
    if cell.mean is None:
        return "failed" if cell.failed else "–"
    spread = f" ± {number(cell.spread)}" if cell.spread is not None else ""
    failed = f", {cell.failed} failed" if cell.failed else ""
    warned = f", {cell.warned} with warnings" if cell.warned else ""
    return f"{number(cell.mean)}{spread} ({len(cell.scores)}{failed}{warned})"


def notes(lines: Sequence[Line]) -> list[str]:
    """What is to be known beside the IQMs: warnings of the intervals, failed runs, methods on other datasets."""
    said: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        warnings = [line.iqm.warning] if line.iqm else []
        if line.failed:
            left = f"{line.failed} run{' failed and is' if line.failed == 1 else 's failed and are'} left out"
            warnings.append(f"{left}; counted as 0 the IQM would be {number(line.with_zeros)}")
        if line.gain and line.gain.iqm.warning not in warnings:
            warnings.append(f"gain over uniform: {line.gain.iqm.warning}")
        for warning in filter(None, warnings):
            said.setdefault((line.suite, warning), []).append(f"{line.algorithm} {line.label}")
    return [
        *(f"{suite}: {_joined(where)}: {warning.rstrip('.')}." for (suite, warning), where in said.items()),
        *uneven(lines),
    ]


def uneven(lines: Sequence[Line]) -> list[str]:
    """Where methods stand side by side that were not run on the same datasets."""
    groups: dict[tuple[str, str], set[frozenset[str]]] = {}
    for line in lines:
        groups.setdefault((line.suite, line.algorithm), set()).add(frozenset(line.scores))
    return [
        f"{suite}, {algorithm}: the methods do not have scores on the same datasets, so their IQMs may not be compared "
        "with each other; gains over uniform are on the datasets that both have."
        for (suite, algorithm), sets in groups.items()
        if len(sets) > 1
    ]


def _joined(where: list[str]) -> str:
    return ", ".join(where) if len(where) <= 6 else f"{', '.join(where[:6])} and {len(where) - 6} more"


# --------------------------------------------------------------------------------------------- Markdown and LaTeX


class Form(NamedTuple):
    """How a table is written."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    small: Callable[[str], str]
    table: Callable[[str, Sequence[str], Sequence[Sequence[str]]], str]
    heading: Callable[[str], str]
    listed: Callable[[Sequence[str]], str]


def markdown(runs: Sequence[Run], lines: Sequence[Line], rows: Sequence[Row], studies: Sequence[Told] = ()) -> str:
    return _document(_MARKDOWN, runs, lines, rows, studies)


def latex(runs: Sequence[Run], lines: Sequence[Line], rows: Sequence[Row], studies: Sequence[Told] = ()) -> str:
    return "% needs \\usepackage{booktabs,longtable}\n" + _document(_LATEX, runs, lines, rows, studies)


def _document(
    form: Form, runs: Sequence[Run], lines: Sequence[Line], rows: Sequence[Row], studies: Sequence[Told]
) -> str:
    """The IQMs, what is to be known of them, studies, and a table of all datasets for each suite."""
    parts = [form.heading("Interquartile means"), _iqms(form, "IQM of normalised scores", lines)] if lines else []
    told = [line for one in studies for line in one.lines]
    said = [*notes([*lines, *told]), f"The column “paper” is {published.LABEL}.", *published.comparable(runs)]
    parts.append(form.listed([form.escape(text) for text in said]))
    for one in studies:
        parts += _study(form, one)
    parts += [form.heading("All datasets"), form.escape(RULE) + "\n"]
    for suite in dict.fromkeys(row.suite for row in rows):
        some = [row for row in rows if row.suite == suite]
        columns = [label for label in labels(runs) if any(label in row.cells for row in some)]
        body = [[form.escape(row.dataset), form.escape(row.algorithm), *(_cell(form, row, one) for one in columns)]
                for row in some]  # fmt: skip
        parts.append(form.table(suite, ("dataset", "algorithm", *columns), body))
    return "\n".join(parts)


def _iqms(form: Form, title: str, lines: Sequence[Line]) -> str:
    body = []
    for line in lines:
        words = [form.escape(text) for text in fields(line)]
        body.append([form.bold(text) if line.best and text and name == "IQM" else text
                     for name, text in zip(HEAD, words, strict=True)])  # fmt: skip
    return form.table(title, HEAD, body)


def _study(form: Form, one: Told) -> list[str]:
    """A study: what it asks, the IQMs of its variants, and a table of each algorithm with datasets for columns."""
    name = one.study.name
    parts = [form.heading(form.escape(f"Study: {name}")), form.escape(" ".join(about(one))) + "\n"]
    parts.append(_iqms(form, f"{name}: IQM of normalised scores", one.lines))
    for (suite, algorithm), some in side_by_side(one).items():
        variants = [label for label in labels(one.runs) if any(label in row.cells for row in some)]
        body = [[form.escape(label), *(_cell(form, row, label) for row in some)] for label in variants]
        parts.append(form.table(f"{name}: {suite}, {algorithm}", ("variant", *(row.dataset for row in some)), body))
    if found := [list(map(form.escape, tuned(group))) for group in groups(one)]:
        parts.append(form.table(f"{name}: each tuned", TUNED, found))
    return parts


def about(one: Told) -> list[str]:
    """What a study asks, and what is to be known of it: sentences."""
    study = one.study
    left = [f"{algorithm} {', '.join(names)}" for algorithm, names in one.missing.items()]
    said = [study.question, f"In the paper: {study.paper}.", study.remark]
    return [text for text in (*said, f"Without a run here: {'; '.join(left)}." if left else "") if text]


def side_by_side(one: Told) -> dict[tuple[str, str], list[Row]]:
    """The datasets of a study by suite and algorithm, where they are few enough to be columns."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in one.rows:
        found.setdefault((row.suite, row.algorithm), []).append(row)
    return {key: rows for key, rows in found.items() if len(rows) <= MOST}


def tuned(group: Group) -> list[str]:
    """A line under `TUNED`."""
    best = number(group.best.iqm.value) if group.best.iqm else "–"
    return [group.suite, group.algorithm, group.name, str(group.tried), group.best.label, best, number(group.mean)]


def _cell(form: Form, row: Row, label: str) -> str:
    cell = row.cells.get(label)
    if cell is None:
        return ""
    text = form.escape(cell_text(cell))
    text = form.bold(text) if cell.best else text
    return text if cell.published is None else f"{text} {form.small(f'paper {number(cell.published)}')}"


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", " ".join(text.split()))


def _markdown_table(title: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [[_markdown_text(one) for one in head], ["---"] * len(head), *body]
    return f"**{_markdown_text(title)}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _latex_text(text: str) -> str:
    words = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
             "–": "--", "“": "``", "”": "''", "<": r"\textless{}", ">": r"\textgreater{}"}  # fmt: skip
    words |= {letter: rf"$\{name}$" for letter, name in GREEK.items()}
    return re.sub(
        r"[\\~^±–“”<>&%$#_{}αβγεηκλσ]", lambda found: words.get(found[0], f"\\{found[0]}"), " ".join(text.split())
    )


def _latex_table(title: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    names = " & ".join(map(_latex_text, head))
    lines = "".join(f"{' & '.join(line)} \\\\\n" for line in body)
    top = f"\\caption{{{_latex_text(title)}}} \\\\\n\\toprule\n{names} \\\\\n\\midrule\n\\endhead\n"
    return f"\\begin{{longtable}}{{{'l' * len(head)}}}\n{top}{lines}\\bottomrule\n\\end{{longtable}}\n"


_MARKDOWN = Form(
    escape=_markdown_text,
    bold=lambda text: f"**{text}**",
    small=lambda text: f"<sub>{text}</sub>",
    table=_markdown_table,
    heading=lambda text: f"## {text}\n",
    listed=lambda texts: "".join(f"- {text}\n" for text in texts),
)
_LATEX = Form(
    escape=_latex_text,
    bold=lambda text: f"\\textbf{{{text}}}",
    small=lambda text: f"{{\\scriptsize ({text})}}",
    table=_latex_table,
    heading=lambda text: f"\\subsection*{{{text}}}\n",
    listed=lambda texts: "\\begin{itemize}\n" + "".join(f"\\item {text}\n" for text in texts) + "\\end{itemize}\n",
)


# ---------------------------------------------------------------------------------------------------- the terminal


def show(lines: Sequence[Line], studies: Sequence[Told] = (), doubts: Sequence[str] = ()) -> None:
    """The IQMs, on the terminal: a table for each suite. And of studies what they ask, and theirs. `doubts` come first:
    what speaks against the numbers."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for text in doubts:
        console.print(Text(text, style="bold"))
    if doubts:
        console.print()
    _show(console, lines)
    for one in studies:
        console.print(Text(f"study {one.study.name}: {' '.join(about(one))}"))
        console.print()
        _show(console, one.lines)
    console.print(Text(f"“paper” is {published.LABEL}; the page (--html) says what may be compared"))


def _show(console: Any, lines: Sequence[Line]) -> None:
    from rich.table import Table
    from rich.text import Text

    for suite in dict.fromkeys(line.suite for line in lines):
        some = [line for line in lines if line.suite == suite]
        hidden = {"suite", "algorithm", "datasets", "runs" if any(line.failed for line in some) else "failed"}
        kept = [name for name in HEAD if name not in hidden]
        table = Table(box=None, header_style="bold", title=Text(suite), title_justify="left")
        for name in kept:
            side = "left" if name == "method" else "right"
            table.add_column(SHORT.get(name, name), justify=side, no_wrap=name != "method", overflow="fold")
        for line in some:
            said: dict[str, str] = dict(zip(HEAD, fields(line), strict=True))
            said["method"], bold = f"{line.algorithm} {line.label}", ("method", "IQM") if line.best else ()
            table.add_row(*(Text(said[name], style="bold" if name in bold else "") for name in kept))
        console.print(table)
        for note in notes(some):
            console.print(Text(note, style="dim"))
        console.print()
