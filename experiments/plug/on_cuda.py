"""`DensityWeights` on an accelerator against the CPU: the largest difference of a weight, and whether it compiles.

python experiments/plug/on_cuda.py        writes results/plug/on_cuda.json

The same parameters and the same batches, initial states given; 20 updates of each form on 95 % random, 5 % expert on a
dome. A weight is 1 in the mean.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from winnow.plug.torch import DensityWeights
from winnow.toy import imbalanced

UPDATES, BATCH = 20, 256


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    found: dict[str, Any] = {"device": name, "torch": torch.__version__, "updates": UPDATES}
    data, rng = imbalanced(20_000), np.random.default_rng(0)
    starts, batch = data.start_obs, {}
    for form in ("dual", "code", "paper"):
        torch.manual_seed(0)
        here, there = DensityWeights.from_dataset(data, form=form), DensityWeights.from_dataset(data, form=form)
        there.load_state_dict(here.state_dict())
        there.to(device)
        found[form] = 0.0
        for _ in range(UPDATES):
            drawn = data.rows(rng.integers(len(data), size=BATCH))._asdict()
            drawn["start_obs"] = starts[rng.integers(len(starts), size=BATCH)]
            batch = {key: torch.as_tensor(np.array(value, np.float32)) for key, value in drawn.items()}
            one, two = here.update(batch), there.update({key: value.to(device) for key, value in batch.items()})
            found[form] = max(found[form], BATCH * float((one.sa - two.sa.cpu()).abs().max()))
    compiled = torch.compile(DensityWeights.from_dataset(data).to(device).update)
    weight = compiled({key: value.to(device) for key, value in batch.items()})
    found["compiled sum"] = float(weight.sa.sum())
    print(json.dumps(found, indent=1))
    (Path(__file__).parents[2] / "results" / "plug" / "on_cuda.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
