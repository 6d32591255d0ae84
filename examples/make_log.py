"""Write log.csv, the log of a simulated plant: 13,200 steps, most of them badly run."""

import numpy as np
import pyarrow as pa
from pyarrow import csv

from winnow import toy

parts = [toy.make(toy.random, 12_000, 0), toy.make(toy.expert, 1_200, 1)]
columns: dict[str, list[np.ndarray]] = {}
for number, part in enumerate(parts):
    rows = part.rows()
    table = {
        "episode": 10_000 * number + part.episode,
        **{f"obs_{index}": rows.obs[:, index] for index in range(4)},
        **{f"action_{index}": rows.action[:, index] for index in range(2)},
        "reward": rows.reward,
        "terminated": rows.terminal.astype(int),
    }
    for name, column in table.items():
        columns.setdefault(name, []).append(column)
csv.write_csv(pa.table({name: np.concatenate(values) for name, values in columns.items()}), "log.csv")
