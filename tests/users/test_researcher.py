"""A researcher with her own PyTorch loop and her own tensors: samples, weights, and weights written beside her rows."""

from __future__ import annotations

import numpy as np
import torch
from pyarrow import parquet

from winnow.plug.torch import DensityWeights, RowSampler, expect

EPISODES = 40
LENGTH = 25


def buffer() -> dict[str, torch.Tensor]:
    """Her replay buffer: every eighth episode moves towards the origin, which pays; episodes end by time limit."""
    generator = torch.Generator().manual_seed(0)
    state = torch.zeros(EPISODES, LENGTH + 1, 4)
    state[:, 0] = torch.randn(EPISODES, 4, generator=generator)
    action = torch.empty(EPISODES, LENGTH, 2).uniform_(-1, 1, generator=generator)
    for step in range(LENGTH):
        action[::8, step] = (-state[::8, step, :2]).clamp(-1, 1)
        state[:, step + 1] = state[:, step]
        state[:, step + 1, :2] += 0.3 * action[:, step]
    timeout = torch.zeros(EPISODES, LENGTH, dtype=torch.bool)
    timeout[:, -1] = True
    return {
        "observations": state[:, :-1].reshape(-1, 4),
        "actions": action.reshape(-1, 2),
        "rewards": (-(state[:, 1:, :2] ** 2).sum(dim=-1)).reshape(-1),
        "next_observations": state[:, 1:].reshape(-1, 4),
        "terminals": torch.zeros(EPISODES * LENGTH),
        "timeouts": timeout.reshape(-1),
    }


def test_three_lines_in_her_loop(tmp_path):
    torch.manual_seed(0)
    data = buffer()
    columns = {name: column.numpy() for name, column in data.items()}
    policy = torch.nn.Linear(4, 2)
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-2)
    weights = DensityWeights.from_dataset(columns, form="code", hidden=(16,))
    sampler = RowSampler(columns, "aw", generator=torch.Generator().manual_seed(1))
    good = torch.arange(EPISODES * LENGTH) // LENGTH % 8 == 0
    losses = []
    drawn = []
    for _ in range(60):
        row = sampler.draw(64)
        batch = {name: column[row] for name, column in data.items()}
        w = weights.update(batch)
        assert float(w.sa.sum()) == 1.0 or abs(float(w.sa.sum()) - 1) < 1e-5
        loss = expect(w.sa, ((policy(batch["observations"]) - batch["actions"]) ** 2).sum(dim=1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        drawn.append(good[row].float().mean().item())
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert np.mean(drawn) > good.float().mean().item()  # AW samples good episodes more often than they occur

    # What the weights say of every row, in the order of her buffer; and she goes on from a checkpoint.
    weights.write(tmp_path / "weights.parquet", columns, "aw")
    table = parquet.read_table(tmp_path / "weights.parquet").to_pydict()
    assert table["row"] == list(range(EPISODES * LENGTH))
    assert table["episode"] == [row // LENGTH for row in range(EPISODES * LENGTH)]
    again = DensityWeights.from_dataset(columns, form="code", hidden=(16,))
    again.load_state_dict(weights.state_dict())
    batch = {name: column[:64] for name, column in data.items()}
    torch.testing.assert_close(again(batch).sa, weights(batch).sa)
