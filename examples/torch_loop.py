"""The shortest PyTorch loop with winnow: weighted behaviour cloning, its rows drawn by a DataLoader with AW.

python examples/torch_loop.py [--sampler aw] [--form code] [--steps 1000]
"""

import argparse

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import winnow
from winnow import toy
from winnow.plug.torch import DensityWeights, RowSampler, expect


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="anything that winnow opens; without it, 95 % random, 5 % expert on a dome")
    parser.add_argument("--sampler", choices=("uniform", "aw", "pf", "rw", "continued", "followed"), default="aw")
    parser.add_argument("--form", choices=("dual", "code", "paper"), default="code")
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--save", help="a file for the weight of every row, .parquet or .npy")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.dataset:
        data = winnow.open_dataset(args.dataset)
    else:
        data = toy.imbalanced(20_000)

    table = TensorDataset(*(torch.as_tensor(column).float() for column in data.rows()))
    sampler = {"aw": winnow.AW(0.1), "rw": winnow.RW(0.1)}.get(args.sampler, args.sampler)
    loader = DataLoader(table, batch_size=256, sampler=RowSampler(data, sampler, num_samples=256 * args.steps))
    policy = torch.nn.Sequential(
        torch.nn.Linear(data.obs_dim, 64), torch.nn.ReLU(), torch.nn.Linear(64, data.action_dim)
    )
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-3)

    weights = DensityWeights.from_dataset(data, args.form)  # 1: before the loop
    for batch in loader:
        w = weights.update(batch)  # 2: in the loop
        error = ((policy(batch[0]) - batch[1]) ** 2).sum(dim=1)
        loss = expect(w.sa, error)  # 3: in place of error.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    rows = next(iter(loader))
    print({name: round(value, 3) for name, value in weights.diagnose(weights(rows), rows).items()})
    good = data.source == len(data.meta.sources) - 1
    share = weights.rows(data, sampler).share(good)
    print(f"{good.mean():.0%} of the rows are {data.meta.sources[-1]}'s; {share:.0%} of the weight in drawn batches is")
    if not args.dataset:
        with torch.no_grad():
            scores = toy.normalised(
                toy.evaluate(lambda state: policy(torch.tensor(state).float()).clamp(-1, 1).numpy())
            )
        print(f"score {np.mean(scores):.1f} (0 is random, 100 the best possible)")
    if args.save:
        weights.write(args.save, data, sampler)
        print(f"weights {args.save}")


if __name__ == "__main__":
    main()
