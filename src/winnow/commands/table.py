"""The commands: where each is, what the overview says of it, and the example that its help ends with."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    module: str
    function: str
    summary: str
    example: str
    """One line that does what most people want of the command."""
    parses: bool = False
    """Whether the function parses the command line itself (argv, prog), because its options depend on it."""


COMMANDS = {
    "data make": Command(
        "data",
        "make",
        "make or fetch a dataset by name: hopper-random-expert-5%, hopper-medium-v2",
        "winnow data make hopper-random-expert-5%",
    ),
    "data list": Command("data", "list_", "the benchmark's 113 datasets and what is on disk", "winnow data list mixed"),
    "data import": Command(
        "data",
        "import_",
        "read a D4RL, Minari, npz or Parquet dataset into one flat file",
        "winnow data import log.csv --out log.safetensors",
    ),
    "data export": Command(
        "data",
        "export",
        "write a dataset as D4RL HDF5, Minari, npz or Parquet",
        "winnow data export log.safetensors --to log.parquet",
    ),
    "data mix": Command(
        "data",
        "mix",
        "make an imbalanced set from a good and a bad source",
        "winnow data mix --low poor=poor.npz --high good=good.npz --share 0.05 --out mixed.safetensors",
    ),
    "data split": Command(
        "split",
        "split",
        "hold whole episodes out of a dataset, to judge policies by",
        "winnow data split log.safetensors --share 0.2",
    ),
    "inspect": Command(
        "inspect",
        "inspect",
        "how imbalanced a dataset is and what fits it; with --html as a page",
        "winnow inspect log.safetensors --html log.html",
    ),
    "train": Command(
        "train",
        "train",
        "train policies and weights, many runs in one program",
        "winnow train log.train.safetensors --out runs --method uniform,aw --steps 20000",
        parses=True,
    ),
    "evaluate": Command(
        "evaluate",
        "evaluate",
        "play trained policies in their environment: returns, scores, a film",
        "winnow evaluate runs --episodes 20",
    ),
    "ope": Command(
        "ope",
        "ope",
        "what trained policies are worth by held-out episodes, without an environment",
        "winnow ope runs --out values.csv",
    ),
    "tune": Command(
        "tune",
        "tune",
        "choose a method and its settings by held-out episodes, in a few packed runs",
        "winnow tune log.safetensors --out tuning",
    ),
    "collect train": Command(
        "collect",
        "train",
        "train behaviour policies online with SAC",
        "winnow collect train --env hopper --until expert --out collected",
        parses=True,
    ),
    "collect check": Command(
        "collect",
        "check",
        "test whether a behaviour policy makes data that methods can be compared on",
        "winnow collect check hopper-expert collected/walker2d-expert.safetensors",
    ),
    "bench run": Command(
        "bench",
        "run",
        "train and play a grid of datasets, algorithms, methods and seeds",
        "winnow bench run mixed --out grid --methods uniform,aw --dry-run",
        parses=True,
    ),
    "bench list": Command(
        "bench",
        "list_",
        "the suites and studies there are, what each asks and how many runs it is",
        "winnow bench list",
    ),
    "bench pack": Command(
        "bench",
        "pack",
        "put a grid's thousands of result files into one compressed file",
        "winnow bench pack grid",
    ),
    "report": Command(
        "report",
        "report",
        "what folders of results say: a page with figures, tables, one method against another",
        "winnow report grid --html grid.html",
    ),
    "weights": Command(
        "weights",
        "weights",
        "write the learned weight of every row, and a picture of them",
        "winnow weights runs/log.iql.dw-aw.seed0.safetensors --out weights.parquet",
    ),
    "fourrooms": Command(
        "fourrooms",
        "fourrooms",
        "which weights join fragments of episodes, where the answer is known",
        "winnow fourrooms --seeds 3 --out fourrooms",
    ),
    "export": Command(
        "export",
        "export",
        "write a policy to deploy: ONNX, PyTorch or plain arrays, without winnow",
        "winnow export runs/log.iql.aw.seed0.safetensors --onnx policy.onnx",
    ),
    "demo": Command(
        "demo",
        "demo",
        "uniform, AW, DW-AW, auto and an oracle side by side on a small set",
        "winnow demo --out demo --open",
    ),
    "completion": Command(
        "completion",
        "completion",
        "a script with which bash completes commands and options",
        "source <(winnow completion bash)",
    ),
}

COMMON = """
Every command also takes
  --config FILE.toml   options from a file; those on the command line win
  --quiet              show only errors, warnings, and what --json prints
"""


def epilogue(name: str) -> str:
    """What the help of every command ends its description with."""
    return f"\nExample:\n  {COMMANDS[name].example}\n{COMMON}"
