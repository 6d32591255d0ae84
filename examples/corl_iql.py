"""IQL in one file, in the manner of CORL, with learned weights in the three lines marked WEIGHTS.

python examples/corl_iql.py [--dataset FILE] [--steps 5000]      without a dataset: 95 % random, 5 % expert on a dome
"""

import argparse
import copy
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

import winnow
from winnow import toy
from winnow.plug.torch import DensityWeights, expect


def load(name: str | None) -> dict[str, torch.Tensor]:
    """Columns under D4RL's names, as `d4rl.qlearning_dataset` gives them."""
    if name:
        data = winnow.open_dataset(name)
    else:
        data = toy.imbalanced(40_000)
    names = ("observations", "actions", "rewards", "next_observations", "terminals")
    return {name: torch.as_tensor(column).float() for name, column in zip(names, data.rows(), strict=True)}


def mlp(*sizes: int) -> nn.Sequential:
    layers = [part for i, o in pairwise(sizes) for part in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="anything that winnow opens: D4RL HDF5, .npz, .parquet, minari:ID")
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = {name: column.to(device) for name, column in load(args.dataset).items()}
    obs_dim = data["observations"].shape[1]
    action_dim = data["actions"].shape[1]
    wide = (args.hidden, args.hidden)

    actor = mlp(obs_dim, *wide, action_dim).to(device)
    value = mlp(obs_dim, *wide, 1).to(device)
    critics = nn.ModuleList(mlp(obs_dim + action_dim, *wide, 1) for _ in range(2)).to(device)
    targets = copy.deepcopy(critics)
    log_std = torch.zeros(action_dim, device=device, requires_grad=True)
    groups = [*actor.parameters(), log_std, *value.parameters(), *critics.parameters()]
    optimiser = torch.optim.Adam(groups, lr=3e-4)
    weights = DensityWeights.from_dataset(data).to(device)  # WEIGHTS: the data's scaling, a network, its Adam

    for step in range(1, args.steps + 1):
        rows = torch.randint(len(data["rewards"]), (args.batch_size,), device=device)
        batch = {name: column[rows] for name, column in data.items()}
        obs, action, reward, following, terminal = batch.values()
        w = weights.update(batch)  # WEIGHTS: learn from the batch, and weigh it
        mean = partial(expect, w.sa)  # WEIGHTS: without them, mean = torch.mean

        pair = torch.cat([obs, action], dim=1)
        with torch.no_grad():
            ceiling = torch.min(*(target(pair)[:, 0] for target in targets))
            backup = reward + 0.99 * (1 - terminal) * value(following)[:, 0]
        gap = ceiling - value(obs)[:, 0]
        value_loss = mean(torch.where(gap < 0, 0.3, 0.7) * gap**2)
        critic_loss: Any = sum(mean((critic(pair)[:, 0] - backup) ** 2) for critic in critics)
        policy = torch.distributions.Normal(torch.tanh(actor(obs)), log_std.clamp(-5, 2).exp())
        advantage = (3 * gap.detach()).exp().clamp(max=100)
        actor_loss = -mean(advantage * policy.log_prob(action).sum(dim=1))

        optimiser.zero_grad()
        (value_loss + critic_loss + actor_loss).backward()
        optimiser.step()
        with torch.no_grad():
            for target, critic in zip(targets.parameters(), critics.parameters(), strict=True):
                target.lerp_(critic, 0.005)
        if step % max(1, args.steps // 5) == 0:
            print(f"step {step}  critic {critic_loss.item():.3f}  actor {actor_loss.item():.3f}")

    if not args.dataset:
        scores = toy.normalised(toy.evaluate(lambda state: act(actor, state, device)))
        print(f"score {scores.mean():.1f} (0 is random, 100 the best possible)")


@torch.no_grad()
def act(actor: nn.Module, state: Any, device: str) -> Any:
    return torch.tanh(actor(torch.as_tensor(state, dtype=torch.float32, device=device))).cpu().numpy()


if __name__ == "__main__":
    main()
