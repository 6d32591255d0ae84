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
from winnow.report.studies import Group, StudyReport, groups

COLUMNS = (
    "suite", "dataset", "environment", "level", "share", "algorithm", "method", "swept", "label", "seed", "steps",
    "score", "failure", "warnings", "published", "data", "name", "id",
)  # fmt: skip
"""The columns of `scores`."""
HEAD = (
    "suite", "algorithm", "method", "IQM", "95 % interval", "paper", "gain over uniform", "paper's gain", "datasets",
    "runs", "failed",
)  # fmt: skip
SHORT = {"95 % interval": "95 %", "gain over uniform": "gain", "paper's gain": "paper's"}
"""Titles for the terminal."""
TUNED = ("suite", "algorithm", "what was tuned", "settings", "best of them", "its IQM", "mean IQM of all")
MAX_COLUMNS = 8
"""Maximum number of datasets that are columns of a table."""
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
    """Every run as CSV, one line each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        fields_of_run = {name: getattr(run, name) for name in COLUMNS if hasattr(run, name)}
        fields_of_run |= {
            "share": "" if run.share is None else f"{run.share:g}",
            "swept": canonical(run.swept) if run.swept else "",
            "steps": run.config["steps"],
            "warnings": "; ".join(run.warnings),
            "published": paper(run.dataset, run.algorithm, run.label),
        }
        writer.writerow(["" if fields_of_run[name] is None else fields_of_run[name] for name in COLUMNS])
    return out.getvalue()


# ------------------------------------------------------------------------------------------------------- in words


def number(value: float | None, sign: bool = False) -> str:
    """One decimal; empty for None."""
    if value is None:
        return ""
    text = f"{value:{'+' if sign else ''}.1f}"
    return text.replace("-0.0", "0.0") if float(text) == 0 else text


def interval(low: float, high: float, sign: bool = False) -> str:
    return f"[{number(low, sign)}, {number(high, sign)}]"


def fields(line: Line) -> list[str]:
    """A method's line under `HEAD`."""
    gain = line.gain
    iqm = line.iqm
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
    """Notes on the IQMs: warnings of the intervals, failed runs, methods on different datasets."""
    methods: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        warnings = [line.iqm.warning] if line.iqm else []
        if line.failed:
            left = f"{line.failed} run{' failed and is' if line.failed == 1 else 's failed and are'} left out"
            warnings.append(f"{left}; counted as 0 the IQM would be {number(line.with_zeros)}")
        if line.gain and line.gain.iqm.warning not in warnings:
            warnings.append(f"gain over uniform: {line.gain.iqm.warning}")
        for warning in filter(None, warnings):
            methods.setdefault((line.suite, warning), []).append(f"{line.algorithm} {line.label}")
    return [
        *(f"{suite}: {_joined(where)}: {warning.rstrip('.')}." for (suite, warning), where in methods.items()),
        *uneven(lines),
    ]


def uneven(lines: Sequence[Line]) -> list[str]:
    """Warnings about methods in one table that were not run on the same datasets."""
    groups: dict[tuple[str, str], set[frozenset[str]]] = {}
    for line in lines:
        groups.setdefault((line.suite, line.algorithm), set()).add(frozenset(line.scores))
    return [
        f"{suite}, {algorithm}: the methods do not have scores on the same datasets, so their IQMs must not be "
        "compared; gains over uniform are on the datasets that both have."
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


def markdown(
    runs: Sequence[Run], lines: Sequence[Line], rows: Sequence[Row], studies: Sequence[StudyReport] = ()
) -> str:
    return _document(_MARKDOWN, runs, lines, rows, studies)


def latex(runs: Sequence[Run], lines: Sequence[Line], rows: Sequence[Row], studies: Sequence[StudyReport] = ()) -> str:
    return "% needs \\usepackage{booktabs,longtable}\n" + _document(_LATEX, runs, lines, rows, studies)


def _document(
    form: Form, runs: Sequence[Run], lines: Sequence[Line], rows: Sequence[Row], studies: Sequence[StudyReport]
) -> str:
    """The IQMs with notes, the studies, and a table of all datasets for each suite."""
    parts = [form.heading("Interquartile means"), _iqms(form, "IQM of normalised scores", lines)] if lines else []
    study_lines = [line for report in studies for line in report.lines]
    remarks = [*notes([*lines, *study_lines]), f"The column “paper” is {published.LABEL}.", *published.comparable(runs)]
    parts.append(form.listed([form.escape(text) for text in remarks]))
    for report in studies:
        parts += _study(form, report)
    parts += [form.heading("All datasets"), form.escape(RULE) + "\n"]
    for suite in dict.fromkeys(row.suite for row in rows):
        same = [row for row in rows if row.suite == suite]
        columns = [label for label in labels(runs) if any(label in row.cells for row in same)]
        body = [[form.escape(row.dataset), form.escape(row.algorithm), *(_cell(form, row, label) for label in columns)]
                for row in same]  # fmt: skip
        parts.append(form.table(suite, ("dataset", "algorithm", *columns), body))
    return "\n".join(parts)


def _iqms(form: Form, title: str, lines: Sequence[Line]) -> str:
    body = []
    for line in lines:
        texts = [form.escape(text) for text in fields(line)]
        body.append([form.bold(text) if line.best and text and name == "IQM" else text
                     for name, text in zip(HEAD, texts, strict=True)])  # fmt: skip
    return form.table(title, HEAD, body)


def _study(form: Form, report: StudyReport) -> list[str]:
    """A study: its question, the IQMs of its variants, and a table for each algorithm with datasets as columns."""
    name = report.study.name
    parts = [form.heading(form.escape(f"Study: {name}")), form.escape(" ".join(about(report))) + "\n"]
    parts.append(_iqms(form, f"{name}: IQM of normalised scores", report.lines))
    for (suite, algorithm), same in side_by_side(report).items():
        variants = [label for label in labels(report.runs) if any(label in row.cells for row in same)]
        body = [[form.escape(label), *(_cell(form, row, label) for row in same)] for label in variants]
        parts.append(form.table(f"{name}: {suite}, {algorithm}", ("variant", *(row.dataset for row in same)), body))
    if tuned_lines := [list(map(form.escape, tuned(group))) for group in groups(report)]:
        parts.append(form.table(f"{name}: each tuned", TUNED, tuned_lines))
    return parts


def about(report: StudyReport) -> list[str]:
    """A study's question, and notes on it: sentences."""
    study = report.study
    left = [f"{algorithm} {', '.join(names)}" for algorithm, names in report.missing.items()]
    sentences = [study.question, f"In the paper: {study.paper}.", study.remark]
    return [text for text in (*sentences, f"Variants without a run here: {'; '.join(left)}." if left else "") if text]


def side_by_side(report: StudyReport) -> dict[tuple[str, str], list[Row]]:
    """The datasets of a study by suite and algorithm, if they are few enough to be columns."""
    by_suite: dict[tuple[str, str], list[Row]] = {}
    for row in report.rows:
        by_suite.setdefault((row.suite, row.algorithm), []).append(row)
    return {key: rows for key, rows in by_suite.items() if len(rows) <= MAX_COLUMNS}


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
    lines = [[_markdown_text(text) for text in head], ["---"] * len(head), *body]
    return f"**{_markdown_text(title)}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _latex_text(text: str) -> str:
    escapes = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
             "–": "--", "“": "``", "”": "''", "<": r"\textless{}", ">": r"\textgreater{}"}  # fmt: skip
    escapes |= {letter: rf"$\{name}$" for letter, name in GREEK.items()}
    return re.sub(
        r"[\\~^±–“”<>&%$#_{}αβγεηκλσ]", lambda match: escapes.get(match[0], f"\\{match[0]}"), " ".join(text.split())
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


def show(lines: Sequence[Line], studies: Sequence[StudyReport] = (), doubts: Sequence[str] = ()) -> None:
    """Print the IQMs: a table for each suite, then each study with its question and its IQMs. `doubts`, the reasons not
    to trust the numbers, come first."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for text in doubts:
        console.print(Text(text, style="bold"))
    if doubts:
        console.print()
    _show(console, lines)
    for report in studies:
        console.print(Text(f"study {report.study.name}: {' '.join(about(report))}"))
        console.print()
        _show(console, report.lines)
    console.print(Text(f"“paper” is {published.LABEL}; the page (--html) says what can be compared"))


def _show(console: Any, lines: Sequence[Line]) -> None:
    from rich.table import Table
    from rich.text import Text

    for suite in dict.fromkeys(line.suite for line in lines):
        same = [line for line in lines if line.suite == suite]
        hidden = {"suite", "algorithm", "datasets", "runs" if any(line.failed for line in same) else "failed"}
        kept = [name for name in HEAD if name not in hidden]
        table = Table(box=None, header_style="bold", title=Text(suite), title_justify="left")
        for name in kept:
            side = "left" if name == "method" else "right"
            table.add_column(SHORT.get(name, name), justify=side, no_wrap=name != "method", overflow="fold")
        for line in same:
            texts: dict[str, str] = dict(zip(HEAD, fields(line), strict=True))
            texts["method"] = f"{line.algorithm} {line.label}"
            bold = ("method", "IQM") if line.best else ()
            table.add_row(*(Text(texts[name], style="bold" if name in bold else "") for name in kept))
        console.print(table)
        for note in notes(same):
            console.print(Text(note, style="dim"))
        console.print()
