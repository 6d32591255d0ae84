"""Which files of a training folder are finished runs: NAME.safetensors, beside the checkpoints of packs in training."""

from __future__ import annotations

import re
from pathlib import Path


def pack_checkpoint(folder: Path, number: int) -> Path:
    """The file that keeps the state of a pack until it is finished."""
    return folder / f"pack-{number}.safetensors"


def is_pack_checkpoint(name: str) -> bool:
    """Whether a file of this name, without its ending, is the checkpoint of a pack."""
    return re.fullmatch(r"pack-\d+", name) is not None


def finished_runs(folder: Path) -> list[Path]:
    """The files of the finished runs in a folder, by name."""
    return [file for file in sorted(folder.glob("*.safetensors")) if not is_pack_checkpoint(file.stem)]
