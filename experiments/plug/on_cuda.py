"""`DensityWeights` on a GPU and on the CPU: the largest difference of any weight, and whether it compiles.

python experiments/plug/on_cuda.py        writes results/plug/on_cuda.json

Both use the same parameters, batches and initial states: 20 updates of each form on the dome with 95 % random and 5 %
expert rows. The mean weight is 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from winnow.errors import run_script
from winnow.plug.torch import DensityWeights
from winnow.toy import imbalanced

UPDATES = 20
BATCH = 256


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    numbers: dict[str, Any] = {"device": name, "torch": torch.__version__, "updates": UPDATES}
    data = imbalanced(20_000)
    rng = np.random.default_rng(0)
    starts = data.start_obs
    batch = {}
    for form in ("dual", "code", "paper"):
        torch.manual_seed(0)
        here = DensityWeights.from_dataset(data, form=form)
        there = DensityWeights.from_dataset(data, form=form)
        there.load_state_dict(here.state_dict())
        there.to(device)
        numbers[form] = 0.0
        for _ in range(UPDATES):
            drawn = data.rows(rng.integers(len(data), size=BATCH))._asdict()
            drawn["start_obs"] = starts[rng.integers(len(starts), size=BATCH)]
            batch = {key: torch.as_tensor(np.array(value, np.float32)) for key, value in drawn.items()}
            on_cpu = here.update(batch)
            on_device = there.update({key: value.to(device) for key, value in batch.items()})
            numbers[form] = max(numbers[form], BATCH * float((on_cpu.sa - on_device.sa.cpu()).abs().max()))
    compiled = torch.compile(DensityWeights.from_dataset(data, "dual").to(device).update)
    weight = compiled({key: value.to(device) for key, value in batch.items()})
    numbers["compiled sum"] = float(weight.sa.sum())
    print(json.dumps(numbers, indent=1))
    (Path(__file__).parents[2] / "results" / "plug" / "on_cuda.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
