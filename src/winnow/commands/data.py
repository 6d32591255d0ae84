"""`winnow data make | list | import | export | mix`: datasets by name, in, out, and mixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import tyro

from winnow.commands._shared import answer, bar, dataset_record, made, opened, summarise
from winnow.data.names import Name, level
from winnow.errors import BadInput
from winnow.system import progress
from winnow.system.files import read_json

ROWS = 1_000_000


def make(
    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME")],
    /,
    *,
    out: Path | None = None,
    rows: int | None = None,
    source: tuple[str, ...] = (),
    processes: int | None = None,
) -> None:
    """Make datasets by name from the behaviour policies that come with winnow, or fetch D4RL's.

    A mixture is ready when its pools are: it is then opened by its name anywhere a dataset is asked for and takes no
    room of its own. Interrupted work is taken up again. Pools lie in $WINNOW_DATA/pools (without it, in the user's
    cache folder).

    Args:
        names: hopper-random-expert-5%, hopper-expert, hopper-medium-v2, … or a whole suite: mixed, diverse, small.
            `winnow data list` shows all names.
        out: Also write the dataset to this file (one name only).
        rows: A trial with fewer rows, from pools of as many rows; the same as NAME@ROWS.
        source: Where a D4RL file lies, as NAME=FILE, or just FILE for a name that is one file.
        processes: Processes that play. Without it, one for each core. The result does not depend on it.
    """
    from winnow.data import store
    from winnow.data.names import parse, suites
    from winnow.envs.workers import WorkerError
    from winnow.system.files import write_text

    if rows is not None and rows < 1:
        raise BadInput(f"--rows is {rows}; it must be at least 1")
    known = suites()
    wanted = [known_name for name in names for known_name in known.get(name, [name])]
    wanted = [name if rows is None else f"{name}@{rows}" for name in wanted]
    if not wanted:
        raise BadInput("give at least one name; `winnow data list` shows them")
    if out is not None and len(wanted) > 1:
        raise BadInput(f"--out is one file and there are {len(wanted)} names; make them one by one, or leave it out")
    for name in wanted:
        parse(name)
    places = dict(labelled(text, "--source") if "=" in text else (wanted[0], text) for text in source)
    for name in wanted:
        try:
            dataset = made(name, places, processes)
        except WorkerError as error:
            raise BadInput(f"{name}: {error}") from error
        except KeyboardInterrupt:
            progress.say("finished episodes are kept: the same command goes on from there")
            raise
        if out is not None:
            store.save(dataset, out)
            if dataset.meta.recipe and "sources" in dataset.meta.recipe:
                write_text(f"{out}.recipe.json", json.dumps(dataset.meta.recipe, indent=2) + "\n")
        if len(wanted) == 1:
            summarise(dataset, str(out) if out else f"ready as {name}")
        else:
            print(f"{name}: {len(dataset):,} rows in {len(dataset.episodes):,} episodes", flush=True)


def list_(
    suite: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[SUITE]")] = (),
    /,
    *,
    json: bool = False,
) -> None:
    """Show the benchmark's 113 datasets: what each is made of, and what is on disk.

    Args:
        suite: mixed, diverse, small, d4rl-mujoco, d4rl-antmaze, d4rl-kitchen, d4rl-adroit or pools; all without it.
        json: Print JSON instead of a table.
    """
    from json import dumps

    from winnow.data.catalogue import on_disk
    from winnow.data.names import parse, pools, suites

    known = suites() | {"pools": pools()}
    if wrong := [name for name in suite if name not in known]:
        raise BadInput(f"there is no suite {wrong[0]!r}; choose from {', '.join(known)}")
    names = [parse(name) for suite_name in (suite or suites()) for name in known[suite_name]]
    states = {name.text: on_disk(name) for name in names}
    if json:
        lines = [
            {
                "name": n.text,
                "suite": n.suite,
                "environment": n.environment,
                "made_of": made_of(n),
                "on_disk": states[n.text],
            }
            for n in names
        ]
        print(dumps(lines, indent=1))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for title in ("name", "suite", "made of", "on disk"):
        table.add_column(title, no_wrap=title != "made of")
    for name in names:
        table.add_row(Text(name.text), name.suite, Text(made_of(name)), Text(states[name.text]))
    console = Console()
    console.print(table)
    ready = sum(state == "ready" for state in states.values())
    console.print(
        f"\n{len(names)} datasets, {ready} ready; `winnow data make NAME` makes or fetches one. With -v2 after it, "
        "a mixture is made from D4RL's files",
        markup=False,
        soft_wrap=True,
    )


def made_of(name: Name) -> str:
    """A dataset's parts in words."""
    if name.kind == "d4rl":
        return "D4RL's file"
    if name.recipe is None:
        return f"{name.pool_rows:,} rows of the {level(name.text)} policy"
    low, high = map(level, name.sources)
    return f"{100 * name.recipe.share:g} % {high} in {low}" + (" (D4RL)" if name.is_d4rl else "")


def import_(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")],
    /,
    *,
    out: Path,
    observations: str | None = None,
    actions: str | None = None,
    reward: str | None = None,
    reward_from: str | None = None,
    next_observations: str | None = None,
    episode: str | None = None,
    terminal: str | None = None,
    timeout: str | None = None,
    propensity: str | None = None,
    source_label: str | None = None,
    drop: str | None = None,
    columns: Path | None = None,
    nan: Literal["refuse", "drop", "forward-fill"] | None = None,
    kind: Literal["episodes", "continuing", "bag"] | None = None,
    max_steps: int | None = None,
    action_bounds: tuple[float, float] | None = None,
    action_kind: Literal["continuous", "discrete"] | None = None,
    action_choices: int | None = None,
    choice_names: tuple[str, ...] = (),
    name: str | None = None,
    environment: str | None = None,
    json: bool = False,
) -> None:
    """Read a dataset, check it, and write it as one flat file that opens at once.

    Columns are found by their usual names (obs_0, obs_1, …; action; reward; episode; terminated) unless you name them.
    Names are separated by commas and may be patterns: --observations 'temp_*,valve_1'. What was named, guessed and
    ignored is printed and kept in the file.

    Args:
        source: A D4RL or robomimic HDF5 file, minari:ID or a Minari folder, a LeRobot folder, an npz, Parquet or CSV
            file, or a winnow dataset.
        out: The file to write (say hopper.safetensors). It is replaced if it exists.
        observations: Columns of the observation, in this order; for robomimic, LeRobot and Minari its keys.
        actions: Columns of the action, in this order.
        reward: The column of the reward; or `success`: 1 once in each episode in which `next.success` or `success` is
            true.
        reward_from: A column with progress: the reward of a row is how much it rises until the next row.
        next_observations: Columns of the next observation. Without them, the next row's observation.
        episode: The column with an id of the episode, a number or text.
        terminal: The column that is 1 where the task ended.
        timeout: The column that is 1 where only the recording ended.
        propensity: The column with the probability with which a discrete action was chosen.
        source_label: The column that says who or what acted: the labels of the dataset's sources.
        drop: Columns to leave out, whatever else would match them.
        columns: A TOML file with these options (observations = ["temp_*", "valve_1"], reward = "yield", …). Options of
            the command come before those of the file.
        nan: What to do with values that are missing or not finite. refuse (if you say nothing): say where they are;
            drop: leave these rows out and split the episode there; forward-fill: take the value of the row before in
            the same episode (never for rewards).
        kind: episodes; continuing: one recording with no ends; bag: unordered (s, a, r, s') rows. Without it, what the
            file says of itself, else episodes.
        max_steps: The environment's time limit, for a file that marks neither timeouts nor next observations.
        action_bounds: The least and the greatest value of every action column. Without it, what the file says, else
            -1 and 1, else the range in the data.
        action_kind: continuous, or discrete: a column of choices, numbered from 0 or in words. Without it, what the
            file says; a single column of whole numbers is asked about.
        action_choices: The number of choices. Without it, the greatest in the data plus one.
        choice_names: A name for each choice, in the order of their numbers.
        name: What to call the dataset. Without it, the file's name.
        environment: The environment's id (say Hopper-v4), where the file does not say it.
        json: Print what was written as one JSON object on stdout, and nothing else there.
    """
    from winnow.data import store
    from winnow.data.choices import Actions
    from winnow.data.columns import Columns, read_columns_file
    from winnow.data.sources import open_dataset

    options = {
        "observations": observations,
        "actions": actions,
        "reward": reward,
        "reward_from": reward_from,
        "next_observations": next_observations,
        "episode": episode,
        "terminal": terminal,
        "timeout": timeout,
        "propensity": propensity,
        "source": source_label,
        "drop": drop,
        "nan": nan,
    }
    given = {option: value for option, value in options.items() if value is not None}
    choice = Columns.of((read_columns_file(columns) if columns else {}) | given)
    with answer(json) as report:
        with bar("reading") as shown:
            dataset = open_dataset(
                source,
                kind=kind,
                max_steps=max_steps,
                action_bounds=action_bounds,
                actions=Actions(action_kind, action_choices, choice_names),
                name=name,
                environment=environment,
                columns=choice,
                progress=shown,
            )
        store.save(dataset, out)
        summarise(dataset, str(out))
        report(dataset_record(dataset, str(out)))


def export(
    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    /,
    *,
    to: str,
) -> None:
    """Write a dataset in a format that others read.

    Args:
        file: A winnow dataset, or anything else that `winnow data import` reads.
        to: minari:ID, or a file ending in .hdf5 (D4RL's layout), .npz or .parquet. A file is replaced if it exists, a
            Minari dataset is not.
    """
    from winnow.data.export import check_target
    from winnow.data.export import export as write
    from winnow.data.sources import open_dataset

    check_target(to)
    with bar("reading") as shown:
        dataset = open_dataset(file, progress=shown)
    with bar("writing") as shown:
        write(dataset, to, shown)
    summarise(dataset, to)


def mix(
    *,
    out: Path,
    low: str | None = None,
    high: str | None = None,
    share: float | None = None,
    rows: int = ROWS,
    segments: bool = False,
    seed: int = 0,
    recipe: Path | None = None,
    source: tuple[str, ...] = (),
) -> None:
    """Make an imbalanced dataset from a bad and a good source, or make one again from its recipe.

    The recipe is kept in the file and written beside it as FILE.recipe.json.

    Args:
        out: The file to write. It is replaced if it exists.
        low: The bad source, as LABEL=FILE.
        high: The good source, as LABEL=FILE.
        share: Part of the rows that comes from the good source, between 0 and 1 (5 % is 0.05).
        rows: Rows to reach. Episodes stay whole, so each source ends with the episode that reaches its part.
        segments: Take fragments of 10 to 49 steps from anywhere in the episodes instead of whole ones.
        seed: Another seed draws other episodes.
        recipe: Make the dataset of this recipe again, bit for bit, from the files that it names.
        source: Where a source of the recipe lies now, as LABEL=FILE; several after one another.
    """
    from winnow.data import store
    from winnow.data.recipes import Recipe, build, rebuild
    from winnow.system.files import write_text

    if recipe is not None:
        if low or high or share is not None or rows != ROWS or segments or seed:
            raise BadInput("--recipe says all of it: leave out --low, --high, --share, --rows, --segments and --seed")
        record = read_recipe(recipe)
        files = recipe_files(record) | dict(labelled(text, "--source") for text in source)
        try:
            dataset = rebuild(record, {label: opened(file) for label, file in files.items()})
        except BadInput as error:
            raise BadInput(f"{recipe}: {error}") from error
    else:
        if low is None or high is None or share is None:
            raise BadInput("give --low LABEL=FILE, --high LABEL=FILE and --share, or a --recipe")
        if source:
            raise BadInput("--source goes with --recipe; the sources of a new mixture are --low and --high")
        wanted = Recipe(share, rows, "segments" if segments else "episodes", seed)
        wanted.check()
        (low_label, low_file) = labelled(low, "--low")
        (high_label, high_file) = labelled(high, "--high")
        dataset = build(wanted, opened(low_file), opened(high_file), low_label, high_label)
    store.save(dataset, out)
    write_text(f"{out}.recipe.json", json.dumps(dataset.meta.recipe, indent=2) + "\n")
    summarise(dataset, str(out))


def labelled(text: str, option: str) -> tuple[str, str]:
    label, equals, file = text.partition("=")
    if not (label and equals and file):
        raise BadInput(f"{option} {text}: is not LABEL=FILE; write it like expert=expert.safetensors")
    return label, file


def read_recipe(path: Path) -> dict:
    return read_json(path, "give a recipe that winnow wrote")


def recipe_files(record: dict) -> dict[str, str]:
    """The files that a recipe names; those it does not name must be given."""
    sources = record.get("sources")
    sources = sources if isinstance(sources, list) else []
    named = [(entry.get("label"), entry.get("file")) for entry in sources if isinstance(entry, dict)]
    return {label: file for label, file in named if isinstance(label, str) and isinstance(file, str) and label and file}
