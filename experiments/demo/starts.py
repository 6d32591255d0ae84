"""How much weight the demo's runs give to the first steps of the expert's episodes.

python experiments/demo/starts.py [RUNS]      after `make demo`; reads demo/runs, writes results/demo/starts.json

1 is the share that these steps have of the expert's rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from winnow.commands.demo import METHODS
from winnow.training.trained import Trained

SPANS = ((0, 10), (0, 20), (0, 50), (50, 100))


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo/runs")
    found = {}
    for method in METHODS:
        for path in sorted(folder.glob(f"*.{method}.seed*.safetensors")):
            trained = Trained.load(path)
            weights, data = trained.weights(), trained.run.dataset
            expert = data.source == data.meta.sources.index("expert")
            whole = weights.share(expert)
            for low, high in SPANS:
                span = expert & (data.step >= low) & (data.step < high)
                part = weights.share(span) / whole / (span.sum() / expert.sum())
                found.setdefault(f"{method} seed {trained.run.seed}", {})[f"steps {low} to {high - 1}"] = round(part, 4)
            print(path.name, found[f"{method} seed {trained.run.seed}"], flush=True)
    (Path(__file__).parents[2] / "results" / "demo" / "starts.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
