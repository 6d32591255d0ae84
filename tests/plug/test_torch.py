"""`winnow.plug.torch` beside winnow's own weighters: the same losses, step by step, and the same files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from helpers.problems import quick_compiles, toy_dataset
from safetensors.numpy import load_file
from scipy.optimize import brentq

import winnow
from winnow import BadInput
from winnow.errors import install_hint
from winnow.plug.torch import DensityWeights, Form, RowSampler, expect, probabilities
from winnow.samplers import AW, PF, RW, Continued
from winnow.system import checkpoint
from winnow.system.files import write_tensors
from winnow.types import Batch, Spec
from winnow.weighters import Density, Dual
from winnow.weighters.fixed import read_weights

DATA = toy_dataset(rows=300, seed=3, action_bounds=([-2, -1], [2, 3]))
HIDDEN: Any = {"hidden": (24, 16)}
CASES: dict[str, dict[str, Any]] = {
    "dual": {},
    "dual-temperature": {"control": "temperature", "temperature": 0.3},
    "dual-discount": {"discount": 0.9, "budget": 0.5},
    "dual-mask": {"terminal": "mask"},
    "dual-mask-discount-temperature": {"terminal": "mask", "discount": 0.8, "control": "temperature"},
    "dual-marginal": {"state_weight": "marginal"},
    "dual-floor": {"budget": 5.0, "least_temperature": 0.09, "temperature_rate": 0.05},
    "code": {},
    "code-lambdas": {"lambda_k": 0.2, "lambda_f": 0.1, "learning_rate": 1e-3},
    "code-mask-marginal": {"terminal": "mask", "state_weight": "marginal"},
    "code-raw": {"standardise": False, "reward_scaling": "min-max"},
    "code-td3bc": {"state_weight": "marginal"},
    "paper": {"lambda_k": 0.7, "lambda_f": 2.0},
    "paper-mask": {"terminal": "mask"},
    "paper-marginal": {"state_weight": "marginal"},
}


def raw_batch(seed: int, size: int = 32) -> dict[str, np.ndarray]:
    """Rows of DATA as a user has them, with an initial state each."""
    rng = np.random.default_rng(seed)
    rows = DATA.rows(rng.integers(0, len(DATA), size))
    columns = {"observations": rows.obs, "actions": rows.action, "rewards": rows.reward}
    columns |= {"next_observations": rows.next_obs, "terminals": rows.terminal}
    return columns | {"start_observations": DATA.start_obs[rng.integers(0, len(DATA.episodes), size)]}


def jax_batch(raw: dict[str, np.ndarray], weighter: Any) -> Batch:
    """The same rows scaled for winnow's weighter, by hand."""
    every = DATA.rows()
    mean, std = every.obs.mean(axis=0, dtype=np.float64), every.obs.std(axis=0, dtype=np.float64)
    if not getattr(weighter, "standardise", True):
        mean, std = 0, 1
    obs, following, start = (
        jnp.asarray((raw[name] - mean) / std, jnp.float32)
        for name in ("observations", "next_observations", "start_observations")
    )
    action = jnp.asarray((raw["actions"] - np.array([0, 1])) / np.array([2, 2]), jnp.float32)
    low, span = every.reward.min(), every.reward.max() - every.reward.min()
    if getattr(weighter, "reward_scaling", "min-max") == "std":
        low, span = 0, every.reward.std()
    unit = jnp.asarray((raw["rewards"] - low) / span, jnp.float32)
    terminal = jnp.asarray(raw["terminals"], jnp.float32)
    zero = jnp.zeros(())
    return Batch(obs, action, unit, following, terminal, unit, start, jnp.zeros(len(unit), int), zero, zero)


def tensors(raw: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(column) for name, column in raw.items()}


def pair(case: str) -> tuple[DensityWeights, Any, Any]:
    """The two implementations with the same parameters, away from where they begin."""
    torch.manual_seed(0)
    form: Any = case if case in get_args(Form) else case.split("-")[0]
    weights = DensityWeights.from_dataset(DATA, form, **HIDDEN, **CASES[case])
    with torch.no_grad():
        for name, value in weights.params.items():
            if name != "log_temperature":
                value.add_(0.2 * torch.randn_like(value))
    return weights, *weights.to_winnow()


# ---------------------------------------------------------------------------------------- the same losses


@pytest.mark.parametrize("case", CASES)
def test_it_steps_as_winnows_own_weighter_does(case: str) -> None:
    weights, config, state = pair(case)
    assert type(config) is (Dual if case.startswith("dual") else Density)
    with quick_compiles():
        update: Any = jax.jit(lambda state, batch: config.update(state, batch, jax.random.key(0)))
        for step in range(100):
            raw = raw_batch(step)
            state, expected, metrics = update(state, jax_batch(raw, config))
            got = weights.update(tensors(raw))
            np.testing.assert_allclose(got.sa, expected.sa, atol=1e-5, err_msg=f"step {step}")
            np.testing.assert_allclose(got.s, expected.s, atol=1e-5, err_msg=f"step {step}")
            if step % 25 == 0:
                shown = weights.diagnose(got, tensors(raw))
                for name, value in shown.items():
                    assert value == pytest.approx(float(metrics[name]), rel=1e-3, abs=1e-5), name
            if "discount" in CASES[case]:
                # The gradient of ν's last bias is 0 here but for rounding, which Adam makes a step of full size.
                weights.params["nu/2/b"].data.copy_(torch.from_numpy(np.array(state.params["nu"][2]["b"])))
    _, mine = weights.to_winnow()
    for (place, a), b in zip(
        jax.tree_util.tree_leaves_with_path(mine.params), jax.tree.leaves(state.params), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-5, err_msg=jax.tree_util.keystr(place))
    assert int(mine.optimiser.moments.count) == 100


def test_the_state_that_winnow_gets_stays_as_it_is() -> None:
    weights, _, state = pair("dual")
    before = [np.array(leaf) for leaf in jax.tree.leaves(state.params)]
    weights.update(tensors(raw_batch(0)))
    for old, leaf in zip(before, jax.tree.leaves(state.params), strict=True):
        np.testing.assert_array_equal(old, leaf)


def test_the_cases_differ_from_each_other() -> None:
    found = {}
    for case in CASES:
        weights = pair(case)[0]
        got = [weights.update(tensors(raw_batch(step))) for step in range(3)]
        found[case] = torch.cat(got[-1])
    names = list(found)
    for i, a in enumerate(names):
        for b in names[:i]:
            assert not torch.allclose(found[a], found[b], rtol=0, atol=1e-6), (a, b)


def test_fresh_weights_are_even_and_learning_spends_the_budget() -> None:
    """A bandit whose reward depends on the action: the best share of good rows has the KL divergence of the budget."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(600, 2)), rng.uniform(-1, 1, (600, 1))
    good = action[:, 0] > 0.7
    data = {"observations": obs, "actions": action, "rewards": good.astype(float)}
    data |= {"next_observations": obs, "terminals": np.ones(600)}
    for form in ("code", "paper"):
        np.testing.assert_allclose(DensityWeights.from_dataset(data, form)(data).sa, np.full(600, 1 / 600), rtol=0.15)
    weights = DensityWeights.from_dataset(data, "dual", budget=0.5, hidden=(32,))
    np.testing.assert_allclose(weights(data).sa, torch.softmax(torch.as_tensor(good / 0.1), dim=0), rtol=0.1)
    for _ in range(400):
        rows = rng.integers(0, 600, 128)
        weights.update({name: column[rows] for name, column in data.items()})

    def divergence(share: float) -> float:
        return share * np.log(share / good.mean()) + (1 - share) * np.log((1 - share) / (1 - good.mean()))

    best = brentq(lambda share: divergence(share) - 0.5, good.mean(), 0.99)
    assert float(weights(data).sa[good].sum()) == pytest.approx(best, abs=0.05)


# ---------------------------------------------------------------------------------------- what it accepts


class Corl(NamedTuple):
    states: Any
    actions: Any
    rewards: Any
    next_states: Any
    dones: Any


def test_batches_under_many_names_are_the_same_batch() -> None:
    raw = raw_batch(0)
    weights = DensityWeights.from_dataset(DATA, **HIDDEN)
    expected = weights(tensors(raw)).sa
    batch = list(tensors(raw).values())
    five = {"obs": batch[0], "action": batch[1], "reward": batch[2][:, None], "next_obs": batch[3]}
    for same in (
        raw,
        batch,
        tuple(batch),
        five | {"terminal": batch[4][:, None], "start_obs": batch[5]},
        {name: value.double() for name, value in tensors(raw).items()},
    ):
        assert torch.equal(weights(same).sa, expected)
    alive = [value[~raw["terminals"]] for value in batch]  # no terminal: initial states do not matter
    expected = weights(alive).sa
    assert torch.equal(weights(Corl(*alive[:5])).sa, expected)
    assert torch.equal(weights(alive[:5]).sa, expected)


def test_initial_states_are_drawn_from_the_dataset() -> None:
    weights = DensityWeights.from_dataset(DATA, **HIDDEN)
    batch = {name: value for name, value in tensors(raw_batch(0)).items() if name != "start_observations"}
    torch.manual_seed(1)
    drawn = weights.scaling.read(batch).start_obs * weights.scaling.deviation + weights.scaling.mean
    known = torch.as_tensor(DATA.start_obs)
    assert torch.isclose(drawn[:, None], known[None], atol=1e-5).all(dim=2).any(dim=1).all()
    assert len({tuple(row.tolist()) for row in drawn}) > 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": torch.zeros(32, 4)}, "observations have shape [32, 4]; [32, 3] is expected"),
        ({"observations": torch.zeros(0, 3)}, "at least one row"),
        ({"actions": torch.zeros(31, 2)}, "actions have shape [31, 2]; [32, 2]"),
        ({"rewards": torch.zeros(32, 2)}, "rewards have shape [32, 2]; [32] is expected"),
        ({"rewards": torch.full((32,), float("nan"))}, "rewards, row 0: nan is not a finite number"),
        ({"next_observations": torch.full((32, 3), float("inf"))}, "next_observations, row 0, column 0: inf"),
        ({"terminals": torch.full((32,), 0.5)}, "terminals, row 0: 0.5 is neither 0 nor 1"),
        ({"actions": torch.zeros(32, 2, dtype=torch.complex64)}, "actions hold torch.complex64"),
        ({"actions": np.array([["a", "b"]] * 32)}, "actions hold <U1; they must be numbers"),
        ({"rewards": None}, "the batch has no rewards (it has observations, actions, rewards"),
    ],
)
def test_bad_batches_are_refused_and_change_nothing(change: dict[str, Any], message: str) -> None:
    weights = DensityWeights.from_dataset(DATA, **HIDDEN)
    before = {name: value.clone() for name, value in weights.state_dict().items()}
    with pytest.raises(BadInput) as error:
        weights.update(tensors(raw_batch(0)) | change)
    assert message in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in weights.state_dict().items())


def test_other_bad_input() -> None:
    with pytest.raises(BadInput, match="do not know the dataset's scaling yet"):
        DensityWeights(3, 2).update(tensors(raw_batch(0)))
    with pytest.raises(BadInput, match="obs_dim is 3, the weights' 4"):
        DensityWeights(4, 2).fit(DATA)
    with pytest.raises(BadInput, match="obs_dim is 0"):
        DensityWeights(0, 2)
    with pytest.raises(BadInput, match="form is 'exact'"):
        DensityWeights(3, 2, "exact")  # pyright: ignore
    with pytest.raises(BadInput, match="did you mean 'budget'"):
        DensityWeights(3, 2, "dual", bugdet=1.0)
    with pytest.raises(BadInput, match=r"budget is -1\.0; it must be at least 0"):
        DensityWeights(3, 2, "dual", budget=-1.0)
    with pytest.raises(BadInput, match="only average='row'"):
        DensityWeights(3, 2, "dual", average="trajectory")
    with pytest.raises(BadInput, match="sequence of 4"):
        DensityWeights.from_dataset(DATA).update([1, 2, 3, 4])
    with pytest.raises(BadInput, match="has no actions"):
        DensityWeights.from_dataset({"observations": np.zeros((3, 1)), "rewards": np.zeros(3)})
    with pytest.raises(BadInput, match="the dataset is a list"):
        DensityWeights.from_dataset([])  # pyright: ignore
    rows = DATA.rows()
    columns = {"observations": rows.obs, "actions": rows.action, "rewards": rows.reward}
    with pytest.raises(BadInput, match="add next_observations"):
        DensityWeights.from_dataset(columns | {"terminals": rows.terminal, "timeouts": np.arange(300) % 50 == 49})
    columns["rewards"] = np.where(np.arange(300) == 4, np.nan, rows.reward)
    with pytest.raises(BadInput, match="rewards, row 4: nan"):
        DensityWeights.from_dataset(columns | {"terminals": rows.terminal, "next_observations": rows.next_obs})
    with pytest.raises(BadInput, match=r"shape \[4, 4\] and there are 4 weights"):
        expect(torch.ones(4) / 4, torch.ones(4, 4))


def test_without_the_extra_the_error_names_the_line_to_install_it() -> None:
    code = "import sys; sys.modules['torch'] = sys.modules['d3rlpy'] = None\n"
    for module, extra in (("torch", "torch"), ("d3rlpy", "d3rlpy")):
        words = [sys.executable, "-c", f"{code}import winnow.plug.{module}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert install_hint(extra) in done.stderr.splitlines()[-1]


def test_expect_is_the_mean_for_uniform_weights_and_never_an_outer_product() -> None:
    loss = torch.arange(6.0)[:, None]
    assert float(expect(torch.full((6,), 1 / 6), loss)) == pytest.approx(float(loss.mean()))
    assert float(expect(torch.tensor([0.5, 0.5, 0, 0, 0, 0]), loss[:, 0])) == pytest.approx(0.5)


# ------------------------------------------------------------------------------------ in a PyTorch program


def test_state_dict_carries_everything() -> None:
    one = DensityWeights.from_dataset(DATA, state_weight="marginal", **HIDDEN)
    for step in range(5):
        one.update(tensors(raw_batch(step)))
    other = DensityWeights(3, 2, state_weight="marginal", **HIDDEN)
    other.load_state_dict(one.state_dict())
    for step in range(5, 10):
        a, b = one.update(tensors(raw_batch(step))), other.update(tensors(raw_batch(step)))
        assert torch.equal(a.sa, b.sa)
        assert torch.equal(a.s, b.s)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())
    with pytest.raises(RuntimeError, match="size mismatch"):
        DensityWeights(4, 2, state_weight="marginal", **HIDDEN).load_state_dict(one.state_dict())


def test_it_gives_gradients_to_nobody_and_learns_wherever_it_is_called() -> None:
    """Inside no_grad and autocast, with batches that carry gradients."""
    raw = tensors(raw_batch(0))
    a, b = pair("dual")[0], pair("dual")[0]
    plain = a.update(raw)
    watched = raw["observations"].clone().requires_grad_()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        inside = b.update(raw | {"observations": watched})
    assert torch.equal(plain.sa, inside.sa)
    assert all(torch.equal(value, b.state_dict()[name]) for name, value in a.state_dict().items())
    assert not inside.sa.requires_grad
    assert all(value.grad is None for value in [watched, *a.parameters(), *b.parameters()])


@pytest.mark.parametrize("case", ["dual-marginal", "code-lambdas"])
def test_a_traced_update_is_the_plain_one(case: str) -> None:
    """As one graph, without a compiler: code for this machine is made in the next test."""
    a, b = pair(case)[0], pair(case)[0]
    compiled = torch.compile(a.update, backend="aot_eager", fullgraph=True)
    for step in range(5):
        raw = tensors(raw_batch(step))
        got, expected = compiled(raw), b.update(raw)
        np.testing.assert_allclose(got.sa, expected.sa, atol=1e-6)
        np.testing.assert_allclose(got.s, expected.s, atol=1e-6)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of PyTorch's compiler itself
@pytest.mark.skipif(not shutil.which("c++"), reason="PyTorch compiles with a C++ compiler, and there is none")
def test_a_compiled_update_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HIDDEN, "hidden", (8,))  # few kernels: each takes a second to compile
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
    a, b = pair("dual")[0], pair("dual")[0]
    compiled = torch.compile(a.update, fullgraph=True)
    for step in range(5):
        raw = tensors(raw_batch(step))
        np.testing.assert_allclose(compiled(raw).sa, b.update(raw).sa, atol=1e-6)
    torch._dynamo.reset()


# ----------------------------------------------------------------------------------------------- samplers


def test_probabilities_are_those_of_winnows_samplers() -> None:
    rows = DATA.rows()
    columns = {"observations": rows.obs, "actions": rows.action, "rewards": torch.as_tensor(rows.reward)}
    ends = np.zeros(len(DATA), bool)
    ends[DATA.episodes.start[1:] - 1] = True
    columns |= {"next_observations": rows.next_obs, "terminals": rows.terminal, "truncations": ends & ~rows.terminal}
    for sampler in (AW(0.3), RW(0.3), PF(0.2), Continued(rounds=2, steps=10, hidden=(8,))):
        np.testing.assert_allclose(probabilities(columns, sampler), sampler.probabilities(DATA), rtol=1e-6)
    best = np.argsort(-DATA.returns)[: len(DATA.episodes) // 10]
    np.testing.assert_allclose(probabilities(columns, "pf") > 0, np.isin(DATA.episode, best))


def test_a_row_sampler_draws_with_its_probabilities_in_a_loader() -> None:
    generator = torch.Generator().manual_seed(0)
    sampler = RowSampler(DATA, AW(0.3), num_samples=60_000, generator=generator)
    table = torch.utils.data.TensorDataset(torch.arange(len(DATA)))
    loader = torch.utils.data.DataLoader(table, batch_size=500, sampler=sampler)
    assert len(loader) == 120
    counts = np.bincount(torch.cat([batch for (batch,) in loader]), minlength=len(DATA))
    expected = 60_000 * sampler.probability
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 1).all()
    assert sampler.draw(7).shape == (7,)
    with pytest.raises(BadInput, match="num_samples is 0"):
        RowSampler(DATA, num_samples=0)


# ------------------------------------------------------------------------------------- to and from winnow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs that winnow trained, with learned weights and without."""
    folder = tmp_path_factory.mktemp("runs")
    winnow.save(DATA, folder / "data.safetensors")
    data = winnow.open_dataset(folder / "data.safetensors")
    config = [Dual(**HIDDEN, state_weight="marginal"), Density(form="paper", **HIDDEN)]
    with quick_compiles():
        for name, weighter in zip("ab", config, strict=True):
            runs = [winnow.Run(data, winnow.BC(hidden=(4,)), AW(0.5), weighter, 0, name)]
            winnow.train_runs(runs, steps=30, batch_size=16, chunk=10, out=folder / name, progress=False)
    return folder


@pytest.mark.parametrize("name", ["a", "b"])
def test_weights_that_winnow_trained_are_read(run: Any, name: str, tmp_path: Any) -> None:
    path = run / name / f"{name}.safetensors"
    trained = winnow.Trained.load(path)
    weights = DensityWeights.from_run(path)
    expected, got = trained.weights(), weights.rows(DATA, AW(0.5))
    np.testing.assert_allclose(got.ratio, expected.ratio, rtol=1e-4)
    np.testing.assert_allclose(got.probability, expected.probability)

    config, state = weights.to_winnow()
    assert config == trained.run.weighter
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b), state, trained.weighter_state)

    weights.write(tmp_path / "w.npy", DATA, AW(0.5))
    np.testing.assert_allclose(read_weights(str(tmp_path / "w.npy")), expected.weight, rtol=1e-4)
    weights.write(tmp_path / "w.parquet", DATA)
    alone = read_weights(str(tmp_path / "w.parquet"))
    np.testing.assert_allclose(alone, expected.ratio / expected.ratio.mean(), rtol=1e-4)
    winnow.Fixed(path=str(tmp_path / "w.parquet")).check(DATA)


def test_learning_goes_on_where_winnow_stopped(run: Any) -> None:
    trained = winnow.Trained.load(run / "a" / "a.safetensors")
    weights = DensityWeights.from_run(run / "a" / "a.safetensors", DATA)
    assert int(weights.count) == 30
    raw = raw_batch(5)
    with quick_compiles():
        update: Any = jax.jit(lambda state, batch: trained.run.weighter.update(state, batch, jax.random.key(0)))
        state, expected, _ = update(trained.weighter_state, jax_batch(raw, trained.run.weighter))
        np.testing.assert_allclose(weights.update(raw).sa, expected.sa, atol=1e-5)
        raw = raw_batch(6)
        _, expected, _ = update(state, jax_batch(raw, trained.run.weighter))
    np.testing.assert_allclose(weights.update(raw).sa, expected.sa, atol=1e-5)


def test_runs_that_can_not_be_read(run: Any, tmp_path: Any) -> None:
    path = run / "a" / "a.safetensors"
    facts = checkpoint.read_record(path)
    for change, message in (
        ({"weighter": {"name": "none"}}, "without learned weights"),
        ({"failure": "NaN"}, "failed"),
    ):
        write_tensors(tmp_path / "other.safetensors", load_file(path), {"record": json.dumps(facts | change)})
        with pytest.raises(BadInput, match=message):
            DensityWeights.from_run(tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="there is no such file"):
        DensityWeights.from_run(tmp_path / "none.safetensors")
    with pytest.raises(BadInput, match="other rows than"):
        DensityWeights.from_run(run / "a" / "a.safetensors", toy_dataset(rows=50))
    with pytest.raises(BadInput, match="was not written by winnow"):
        DensityWeights.from_run(run / "data.safetensors")
    with pytest.raises(BadInput, match=r"must end in \.parquet, \.npy, \.csv"):
        DensityWeights.from_dataset(DATA).write(tmp_path / "w.xlsx", DATA)


def test_a_state_made_here_is_one_that_winnow_makes() -> None:
    """Names, shapes and dtypes of the state are those of `init`."""
    for case in CASES:
        _, config, state = pair(case)
        like = config.init(jax.random.key(0), Spec(3, 2, 0))
        assert jax.tree.structure(state) == jax.tree.structure(like)
        jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype) or pytest.fail(f"{a} {b}"), state, like)
