"""`winnow export`: a trained policy as a file that needs neither winnow nor JAX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import tyro

from winnow.errors import BadInput


def export(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    *,
    onnx: Path | None = None,
    torch: Path | None = None,
    safetensors: Path | None = None,
) -> None:
    """Write a policy to deploy: raw observation in, mean action in the environment's units out, scaling inside. For
    discrete actions the number of a choice and the scores of all choices come out.

    Each file is compared with winnow's own policy on 1000 observations before it takes its name.

    Args:
        run: A finished run: a file that `winnow train` wrote.
        onnx: A graph for ONNX Runtime and others, .onnx (needs the extra onnx).
        torch: A program for torch.export.load, .pt2 (needs the extra torch).
        safetensors: Plain arrays and the formula that uses them, .safetensors.
    """
    from rich.console import Console

    from winnow import deploy
    from winnow.data.meta import DEPLOYED
    from winnow.policy import Policy
    from winnow.system import checkpoint

    wanted = (("onnx", onnx, deploy.to_onnx), ("pt2", torch, deploy.to_torch), ("safetensors", safetensors, None))
    if not any(path for _, path, _ in wanted):
        raise BadInput(
            "nothing to write; give --onnx policy.onnx, --torch policy.pt2 or --safetensors policy.safetensors"
        )
    for ending, path, _ in wanted:
        if path and path.suffix != f".{ending}":
            raise BadInput(f"{path}: a file of this kind ends in .{ending}; choose such a name")
        if path and path.exists() and path.samefile(run):
            raise BadInput(f"{path}: is the run itself; choose another name")
    if run.is_dir():
        raise BadInput(f"{run}: is a folder; give one of the runs in it, say {_example(run)}")
    policy = Policy.load(run)
    saved = checkpoint.read_record(run)
    facts = {"run": saved["name"], "dataset": saved["dataset"]["name"]}
    for field in DEPLOYED:
        if names := saved["dataset"].get(field):
            facts[field] = json.dumps(names)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for _, path, write in wanted:
        if path:
            with console.status(f"writing {path}"):
                gap = (write or deploy.to_safetensors)(policy, path, **facts)
            console.print(f"{path}: at most {gap:.0e} from winnow's policy")
    choices = f"one of {len(policy.action_centre)} choices out, and their scores"
    out = choices if policy.is_discrete else f"{len(policy.action_centre)} out"
    sizes = f"{len(policy.shift)} numbers in, {out}"
    console.print(f"{sizes}: observation [batch, {len(policy.shift)}] in float32")


def _example(folder: Path) -> str:
    from winnow.policy.files import finished_runs

    files = finished_runs(folder)
    return str(files[0]) if files else "one that `winnow train` wrote"
