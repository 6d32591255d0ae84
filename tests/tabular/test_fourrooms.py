"""Four rooms: the grid and its exact answers, the weights that `winnow fourrooms` compares, and the command itself."""

from __future__ import annotations

import csv
import json
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from winnow.cli import main
from winnow.errors import BadInput
from winnow.samplers import AW
from winnow.tabular import density, fourrooms, judge
from winnow.tabular.data import Data, collect
from winnow.tabular.exact import distance_to_optimum, exact_dual, linear_program
from winnow.tabular.grid import FOUR_ROOMS, Grid
from winnow.tabular.small_rooms import edge_log_weights, train
from winnow.types import Batch, Spec
from winnow.weighters import Density, Dual


@cache
def rooms(slip: float = 0.0, episodes: int = 1000) -> Data:
    return collect(Grid(slip), 0, episodes)


@cache
def found(slip: float = 0.0) -> list[fourrooms.Seed]:
    return fourrooms.run(slip, 2)


def judged(slip: float, start: str, seed: int) -> judge.Judged:
    """The first row whose name begins so."""
    return next(row.judged for row in found(slip)[seed].rows if row.form.startswith(start))


# --------------------------------------------------------------------------------------------------- the grid


def test_the_grid_is_as_described() -> None:
    grid = Grid()
    assert (len(FOUR_ROOMS), {len(line) for line in FOUR_ROOMS}) == (11, {11})
    assert (grid.states, grid.least_steps[0]) == (104, 17)  # 16 moves to the goal, and the one that is paid
    (y, x), (goal_y, goal_x) = grid.cells[0], grid.cells[-1]
    assert abs(goal_y - y) + abs(goal_x - x) == 16
    assert y < 5 < goal_y
    assert x < 5 < goal_x
    assert grid.best == pytest.approx(1 / 17)


@pytest.mark.parametrize("slip", [0.0, 0.1])
def test_the_best_policy_is_that_of_a_linear_program_over_all_flows(slip: float) -> None:
    grid = Grid(slip)
    leads = grid.transition.reshape(-1, grid.states + 1)
    flow = leads[:, :-1].T - np.repeat(np.eye(grid.states), 4, axis=1)
    flow[0] += leads[:, -1]
    constraints = np.vstack([flow, np.ones(len(leads))])
    best = -linprog(-leads[:, -1], A_eq=constraints, b_eq=np.append(np.zeros(grid.states), 1)).fun
    assert grid.best == pytest.approx(best)
    np.testing.assert_allclose(leads.sum(axis=1), 1)


def test_a_policy_is_worth_what_it_earns_when_it_is_played() -> None:
    grid, rng = Grid(0.1), np.random.default_rng(0)
    policy = 0.7 * grid.optimal + 0.3 * rng.dirichlet(np.ones(4), grid.states)
    players, steps = 500, 800
    state, earned = np.zeros(players, int), 0
    seen = np.zeros(grid.states)
    for _ in range(steps):
        seen += np.bincount(state, minlength=grid.states)
        action = (policy[state].cumsum(axis=1) < rng.random((players, 1))).sum(axis=1)
        state = (grid.transition[state, action].cumsum(axis=1) < rng.random((players, 1))).sum(axis=1)
        earned += (state == grid.states).sum()
        state[state == grid.states] = 0
    assert grid.value(policy) == pytest.approx(earned / (players * steps), rel=0.03)
    often = grid.occupancy(policy)
    assert often is not None
    np.testing.assert_allclose(often.sum(axis=1), seen / seen.sum(), atol=4e-3)


@pytest.mark.parametrize("slip", [0.0, 0.1])
def test_the_data_holds_no_optimal_episode_and_all_that_one_is_made_of(slip: float) -> None:
    data = rooms(slip)
    assert len(data.dataset.episodes) == 1000
    assert data.dataset.episodes.length.min() > 17
    assert data.dataset.episodes.terminated.all()
    best, mass = linear_program(data)
    assert best == pytest.approx(data.grid.best, rel=1e-9 if slip == 0 else 0.03)
    assert distance_to_optimum(data, mass) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("slip", [0.0, 0.1])
def test_tables_are_the_same_rows(slip: float) -> None:
    data = rooms(slip, 50)
    rows = np.arange(len(data.dataset))
    given, table = data.dataset.rows(rows), data.tables.rows(rows)
    cells = np.array(data.grid.cells)
    np.testing.assert_array_equal(cells[table.obs.argmax(axis=1)], given.obs)
    np.testing.assert_array_equal(table.action.argmax(axis=1) % 4, given.action.argmax(axis=1))
    np.testing.assert_array_equal(table.terminal, given.terminal)
    np.testing.assert_array_equal(data.tables.returns, data.dataset.returns)


# --------------------------------------------------------------------------------- what the ways of weighing do


@pytest.mark.parametrize("seed", [0, 1])
def test_dual_joins_pieces_of_episodes_and_drawing_episodes_cannot(seed: int) -> None:
    best = 1 / 17
    assert judged(0, "linear program", seed) == pytest.approx((best, 0, 0, best), abs=1e-6)
    dual = judged(0, "DW dual λ", seed)
    assert dual.value > 0.99 * best
    assert dual.reported == pytest.approx(dual.value, rel=1e-6)
    assert dual.flow < 1e-6
    assert dual.distance < 0.001
    for drawn in ("AW", "PF", "best episode"):
        assert judged(0, drawn, seed).value < 0.95 * best
    assert judged(0, "behaviour", seed).value < 0.5 * best


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("slip", [0.0, 0.1])
@pytest.mark.parametrize("form", ["DW paper", "DW code"])
def test_density_promises_what_no_policy_can_do_and_its_policy_is_the_behaviour(
    form: str, slip: float, seed: int
) -> None:
    weighed, behaviour = judged(slip, form, seed), judged(slip, "behaviour", seed)
    assert weighed.reported > 5 * Grid(slip).best
    assert weighed.flow > 0.3
    assert weighed.value == pytest.approx(behaviour.value, rel=0.02)


@pytest.mark.parametrize("seed", [0, 1])
def test_where_moves_slip_dual_counts_on_luck_unless_outcomes_share_a_weight(seed: int) -> None:
    best = Grid(0.1).best
    by_outcome = judged(0.1, "DW dual λ=0.003", seed)
    by_pair = next(row.judged for row in found(0.1)[seed].rows if row.form.endswith("by (s,a)"))
    assert by_outcome.reported > 1.25 * best
    assert by_outcome.value < 0.95 * best
    assert by_pair.reported == pytest.approx(by_pair.value, rel=0.02)
    assert by_pair.value > 0.97 * best
    assert by_outcome.value > 1.2 * max(judged(0.1, drawn, seed).value for drawn in ("AW", "PF", "best episode"))


def test_weights_by_pair_solve_the_problem_with_outcomes_as_in_the_data() -> None:
    """Flow is conserved, outcomes of a pair keep their shares, and J tends to the linear program's."""
    data = rooms(0.1)
    log_weight = exact_dual(data, 0.003, by="pair")
    for pair in np.unique(data.pair):
        assert np.ptp(log_weight[data.pair == pair]) == 0
    mass = data.share * np.exp(log_weight)
    assert np.abs(mass @ data.drift).max() < 1e-9
    best = linear_program(data)[0]
    assert 0.97 * best < mass @ data.reward < best


# ----------------------------------------------------------------- tables against winnow's own weighters


@pytest.mark.parametrize("form", ["paper", "code"])
def test_the_loss_over_edges_is_that_of_density_over_all_rows(form: Any) -> None:
    data = rooms(0.1, 20)
    rows = data.tables.rows(np.arange(len(data.tables)))
    start = np.zeros_like(rows.obs)
    start[:, 0] = 1
    terminal = jnp.asarray(rows.terminal, jnp.float32)
    batch = Batch(
        obs=jnp.asarray(rows.obs),
        action=jnp.asarray(rows.action),
        reward=jnp.asarray(rows.reward),
        next_obs=jnp.asarray(rows.next_obs),
        terminal=terminal,
        unit_reward=terminal,
        start_obs=jnp.asarray(start),
        row=jnp.arange(len(start)),
        step=jnp.asarray(0),
        progress=jnp.asarray(0.0),
    )
    weighter = Density(form=form, lambda_k=0.3, lambda_f=0.7, hidden=())
    state = weighter.init(jax.random.key(0), Spec(104, 416, len(start)))
    edges, update = density.Edges(data).arrays, jax.jit(weighter.update)
    for scale in (0.01, 1.0, 3.0):
        params: Any = jax.tree.map(
            lambda leaf, scale=scale: scale * jax.random.normal(jax.random.key(1), leaf.shape), state.params
        )
        _, _, metrics = update(state._replace(params=params), batch, jax.random.key(2))
        (phi,), (psi,) = params["phi"], params["psi"]
        tables = {
            "phi": phi["w"][:, 0] + phi["b"],
            "psi": (psi["w"][104:, 0].reshape(104, 4) + psi["w"][:104] + psi["b"]).ravel(),
        }
        got = density.loss(weighter, tables, edges) - weighter.lambda_k * np.log(len(start))
        assert float(got) == pytest.approx(float(metrics["weighter/loss"]), rel=1e-4)


@pytest.mark.parametrize(("form", "steps", "apart"), [("paper", 1500, 0.02), ("code", 700, 0.25)])
def test_density_in_batches_learns_what_it_learns_from_all_data_at_once(form: Any, steps: int, apart: float) -> None:
    """`code` only about: beyond its clip nothing but the flow penalty has a gradient, so where it ends depends on the
    way there."""
    data = rooms(0.0, 300)
    settings: Any = {"form": form, "lambda_k": 0.2, "lambda_f": 0.1, "hidden": (), "reward_scaling": "min-max"}
    whole = density.learn_density(data, [Density(**settings, learning_rate=fourrooms.LEARNING_RATE)])[0]
    pack = train([(data, Density(**settings, learning_rate=0.003), 0)], ((1.0, steps), (0.1, 200)), batch_size=1024)
    learnt = edge_log_weights(data, pack.log_weights(0))
    at_once, in_batches = (data.share * np.exp(one) for one in (whole, learnt))
    assert np.abs(at_once - in_batches).sum() / 2 < apart
    assert in_batches @ data.reward == pytest.approx(at_once @ data.reward, rel=0.15)


def test_dual_in_batches_learns_the_exact_weights() -> None:
    data = rooms(0.0, 300)
    weighter = Dual(control="temperature", temperature=0.03, hidden=(), learning_rate=0.03)
    exact = exact_dual(data, 0.03)
    learnt = edge_log_weights(data, train([(data, weighter, 0)], batch_size=1024).log_weights(0))
    assert data.share @ np.abs(np.exp(exact) - np.exp(learnt)) / 2 < 0.05
    value, wanted = (data.grid.value(judge.extracted(data, judge.from_edges(data, w))) for w in (learnt, exact))
    assert value == pytest.approx(wanted, rel=0.01)


# ------------------------------------------------------------------------------------------------ the measures


def test_mass_by_rows_and_by_edges_agree() -> None:
    data = rooms()
    log_weight = np.random.default_rng(0).normal(size=len(data.share))
    np.testing.assert_allclose(judge.from_rows(data, log_weight[data.edge]), judge.from_edges(data, log_weight))
    drawn = AW().probabilities(data.dataset)
    np.testing.assert_allclose(
        np.exp(judge.from_rows(data, sampler=AW())), np.bincount(data.edge, drawn, minlength=len(data.share))
    )


def test_the_distance_is_to_the_nearest_of_many_optimal_flows() -> None:
    """One shortest way and all of them together are both optimal; the behaviour is not."""
    data = rooms()
    often = data.grid.occupancy(data.grid.optimal)
    assert often is not None
    both = often.ravel()[data.pair]  # moves are deterministic: an edge is a pair
    for outcomes in ("data", "grid"):
        assert distance_to_optimum(data, both, outcomes=outcomes) == pytest.approx(0, abs=1e-6)
        assert distance_to_optimum(data, linear_program(data)[1], outcomes=outcomes) == pytest.approx(0, abs=1e-6)
        assert distance_to_optimum(data, data.share, outcomes=outcomes) > 0.3
    assert distance_to_optimum(data, 0.5 * both, outcomes="grid") == pytest.approx(0.5, abs=1e-6)


# ------------------------------------------------------------------------------------------------- the command


def test_the_command_shows_a_table_and_writes_figure_table_and_raw_values(tmp_path, capsys) -> None:
    out = tmp_path / "new" / "rooms"
    words = ["fourrooms", "--seeds", "3", "--episodes", "100", "--slip", "0.1", "--dual", "0.01", "--out", str(out)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("DW paper (0.2, 0.1)", "DW dual λ=0.01 by (s,a)", "lucky"))
    assert sorted(path.name for path in out.iterdir()) == ["fourrooms.png", "raw.json", "table.csv", "table.md"]
    assert (out / "fourrooms.png").read_bytes().startswith(b"\x89PNG")
    raw = json.loads((out / "raw.json").read_text())
    with (out / "table.csv").open() as file:
        table = {row["form"]: row for row in csv.DictReader(file)}
    assert [row["form"] for row in raw["seeds"][0]["rows"]] == list(table)
    for form, row in table.items():
        values = [one["value"] for seed in raw["seeds"] for one in seed["rows"] if one["form"] == form]
        assert len(values) == 3
        assert float(row["value"]) == pytest.approx(np.mean(values), rel=1e-4)
        assert min(values) - 1e-6 <= float(row["value_low"]) <= float(row["value_high"]) <= max(values) + 1e-6
        assert np.sum(raw["maps"][form]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slip", "0.5"], "slip must be at least 0 and below 0.5"),
        (["--seeds", "0"], "seeds must be at least 1"),
        (["--episodes", "0"], "episodes must be at least 1"),
        (["--random", "0"], "random must be above 0"),
        (["--dual", "-1"], "dual: each number must be above 0"),
        (["--pf", "2"], "pf: each number must be at most 1"),
        (["--density", "-0.1", "1"], "density: λK and λF must be at least 0"),
        (["--out", "file"], "file: is a file"),
    ],
)
def test_bad_input_gets_a_line_and_exit_code_2(words, message, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["fourrooms", *words]) == 2
    assert message in capsys.readouterr().err


def test_settings_are_checked_from_python_too() -> None:
    with pytest.raises(BadInput, match="aw: each number"):
        fourrooms.Settings(aw=(0.0,))
