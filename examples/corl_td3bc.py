"""TD3+BC in one file, in the manner of CORL, with learned weights in the three lines marked WEIGHTS.

python examples/corl_td3bc.py [--dataset FILE] [--steps 5000]      without a dataset: 95 % random, 5 % expert on a dome
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
    shift = data["observations"].mean(dim=0)
    scale = data["observations"].std(dim=0) + 1e-3
    for name in ("observations", "next_observations"):
        data[name] = (data[name] - shift) / scale
    obs_dim = data["observations"].shape[1]
    action_dim = data["actions"].shape[1]
    wide = (args.hidden, args.hidden)

    actor = nn.Sequential(mlp(obs_dim, *wide, action_dim), nn.Tanh()).to(device)
    critics = nn.ModuleList(mlp(obs_dim + action_dim, *wide, 1) for _ in range(2)).to(device)
    target_actor = copy.deepcopy(actor)
    target_critics = copy.deepcopy(critics)
    actor_loss = torch.zeros(())
    actor_adam, critic_adam = (torch.optim.Adam(part.parameters(), lr=3e-4) for part in (actor, critics))
    weights = DensityWeights.from_dataset(data).to(device)  # WEIGHTS: the data's scaling, a network, its Adam

    for step in range(1, args.steps + 1):
        rows = torch.randint(len(data["rewards"]), (args.batch_size,), device=device)
        batch = {name: column[rows] for name, column in data.items()}
        obs, action, reward, following, terminal = batch.values()
        w = weights.update(batch)  # WEIGHTS: learn from the batch, and weigh it
        mean = partial(expect, w.sa)  # WEIGHTS: without them, mean = torch.mean

        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)
            pair = torch.cat([following, (target_actor(following) + noise).clamp(-1, 1)], dim=1)
            ahead = torch.min(*(critic(pair)[:, 0] for critic in target_critics))
            backup = reward + 0.99 * (1 - terminal) * ahead
        pair = torch.cat([obs, action], dim=1)
        critic_loss: Any = sum(mean((critic(pair)[:, 0] - backup) ** 2) for critic in critics)
        critic_adam.zero_grad()
        critic_loss.backward()
        critic_adam.step()

        if step % 2 == 0:
            chosen = actor(obs)
            q = critics[0](torch.cat([obs, chosen], dim=1))[:, 0]
            improvement = 2.5 / q.abs().mean().detach() * q  # the scale of Q is a plain mean
            actor_loss = mean(((chosen - action) ** 2).mean(dim=1) - improvement)
            actor_adam.zero_grad()
            actor_loss.backward()
            actor_adam.step()
            with torch.no_grad():
                for target, online in ((target_actor, actor), (target_critics, critics)):
                    for old, new in zip(target.parameters(), online.parameters(), strict=True):
                        old.lerp_(new, 0.005)
        if step % max(1, args.steps // 5) == 0:
            print(f"step {step}  critic {critic_loss.item():.3f}  actor {actor_loss.item():.3f}")

    if not args.dataset:
        scores = toy.normalised(toy.evaluate(lambda state: act(actor, state, shift, scale)))
        print(f"score {scores.mean():.1f} (0 is random, 100 the best possible)")


@torch.no_grad()
def act(actor: nn.Module, state: Any, shift: torch.Tensor, scale: torch.Tensor) -> Any:
    return actor((torch.as_tensor(state, dtype=torch.float32, device=shift.device) - shift) / scale).cpu().numpy()


if __name__ == "__main__":
    main()
