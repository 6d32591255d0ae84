"""`winnow export`: the files act as winnow's policy does, without winnow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from helpers.problems import is_discrete, perturbed
from safetensors.numpy import load_file

import winnow
from winnow import BadInput, Policy, deploy
from winnow.algorithms import ALGORITHMS
from winnow.cli import main
from winnow.data.scaling import action_transform
from winnow.errors import install_hint

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "deploy_onnx.py"


def pendulum(steps: int) -> Any:
    """What a random policy does in Gymnasium's pendulum, whose forces are in ±2."""
    env, rng = gymnasium.make("Pendulum-v1"), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    }
    for _ in range(steps):
        action = rng.uniform(-2, 2, 1).astype(np.float32)
        following, reward, terminal, timeout, _ = env.step(action)
        for column, value in zip(columns.values(), (obs, action, reward, terminal, timeout, following), strict=True):
            column.append(value)
        obs = env.reset()[0] if terminal or timeout else following
    arrays: Any = {name: np.array(values) for name, values in columns.items()}
    return winnow.from_arrays(**arrays, action_bounds=(-2, 2), name="pendulum", environment="Pendulum-v1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of every algorithm, standardising and not, with parameters that no training has to make."""
    folder, forces = tmp_path_factory.mktemp("runs"), pendulum(600)
    forces = forces.describe(obs_names=("cosine", "sine", "speed"), action_names=("torque",))
    rows = forces.rows()
    choices = winnow.from_arrays(
        rows.obs, rows.action[:, 0] > 0, rows.reward, next_observations=rows.next_obs, kind="bag", name="choices"
    )
    for name, kind in ALGORITHMS.items():
        algorithm = kind(hidden=(32, 24), standardise=name != "td3bc")
        data = choices if is_discrete(algorithm) else forces
        run = winnow.Run(data, algorithm, winnow.Uniform(), winnow.NoWeights(), 0, name)
        state = perturbed(jax.jit(lambda key, run=run: run.algorithm.init(key, run.spec))(jax.random.key(0)), 1, 0.2)
        shift, scale = data.obs_moments if algorithm.standardise else (np.zeros(3), np.ones(3))
        policy = Policy(algorithm, state, np.float32(shift), np.float32(scale), *action_transform(data))  # pyright: ignore
        winnow.Trained(run, 1, None, policy, ()).save(folder / f"{name}.safetensors")
    return {name: folder / f"{name}.safetensors" for name in ALGORITHMS}


def observations(count: int = 1000) -> np.ndarray:
    rng = np.random.default_rng(5)
    return (rng.normal(size=(count, 3)) * [1, 1, 5]).astype(np.float32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if is_discrete(kind)])
def test_every_format_chooses_as_the_policy_does(name: str, runs: dict[str, Path], tmp_path: Path) -> None:
    files = [tmp_path / f"p.{ending}" for ending in ("onnx", "pt2", "safetensors")]
    words = ["--onnx", str(files[0]), "--torch", str(files[1]), "--safetensors", str(files[2])]
    assert main(["export", str(runs[name]), *words]) == 0
    obs, policy = observations(), Policy.load(runs[name])
    scores, action = policy.scores(obs), policy(obs)
    assert action.dtype == np.int64
    assert set(action) == {0, 1}  # it is no constant
    session: Any = onnxruntime.InferenceSession(str(files[0]), providers=["CPUExecutionProvider"])
    program = torch.export.load(files[1]).module()
    for count in (1, 1000):
        exported = session.run(["action", "scores"], {"observation": obs[:count]})
        again = [part.detach().numpy() for part in program(torch.from_numpy(obs[:count]))]
        for chosen, given in (exported, again):
            np.testing.assert_array_equal(chosen, action[:count])
            np.testing.assert_allclose(given, scores[:count], atol=1e-5)
    held = load_file(files[2])
    x = (obs - held["shift"]) / held["scale"]
    for depth in range(3):
        x = x @ held[f"w{depth}"] + held[f"b{depth}"]
        x = x if depth == 2 else np.maximum(x, 0)
    np.testing.assert_array_equal(x.argmax(axis=1), action)


def test_a_policy_that_is_no_relu_network_is_refused(runs: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    assert main(["export", str(runs["fql"]), "--safetensors", str(tmp_path / "p.safetensors")]) == 2
    assert "a policy of FQL must be a ReLU network with a tanh at its end to be exported" in capsys.readouterr().err
    assert not (tmp_path / "p.safetensors").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if not is_discrete(kind) and name != "fql"])
def test_every_format_acts_as_the_policy_does(name: str, runs: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    files = [tmp_path / f"p.{ending}" for ending in ("onnx", "pt2", "safetensors")]
    words = ["--onnx", str(files[0]), "--torch", str(files[1]), "--safetensors", str(files[2])]
    assert main(["export", str(runs[name]), *words]) == 0
    shown = capsys.readouterr().out
    assert shown.count("from winnow's policy") == 3
    assert "observation [batch, 3]" in shown

    obs = observations()
    policy = Policy.load(runs[name])
    expected = policy(obs)
    assert np.ptp(expected) > 0.5  # it is no constant
    assert np.abs(expected).max() > 1  # in the environment's units
    session: Any = onnxruntime.InferenceSession(str(files[0]), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"observation": obs})[0], expected, atol=1e-5)
    np.testing.assert_allclose(session.run(None, {"observation": obs[:1]})[0], expected[:1], atol=1e-5)
    program = torch.export.load(files[1]).module()
    for count in (1, 2, 1000):
        np.testing.assert_allclose(program(torch.from_numpy(obs[:count])).detach(), expected[:count], atol=1e-5)
    held = load_file(files[2])
    x = (obs - held["shift"]) / held["scale"]
    for depth in range(3):
        x = x @ held[f"w{depth}"] + held[f"b{depth}"]
        x = np.tanh(x) if depth == 2 else np.maximum(x, 0)
    np.testing.assert_allclose(held["action_centre"] + held["action_half"] * x, expected, atol=1e-5)
    kept = {entry.key: entry.value for entry in onnx.load(files[0]).metadata_props}
    assert json.loads(kept["obs_names"]) == ["cosine", "sine", "speed"]
    assert json.loads(kept["action_names"]) == ["torque"]


def test_the_graph_is_of_old_operators_and_says_where_it_comes_from(runs: dict[str, Path], tmp_path: Path) -> None:
    deploy.to_onnx(Policy.load(runs["cql"]), tmp_path / "p.onnx", run="cql")
    model = onnx.load(tmp_path / "p.onnx")
    assert (model.opset_import[0].version, model.ir_version) == (13, 7)
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert said["run"] == "cql"
    assert json.loads(said["algorithm"])["name"] == "cql"
    assert {node.op_type for node in model.graph.node} == {"Sub", "Div", "Gemm", "Relu", "Tanh", "Mul", "Add"}


def test_the_example_needs_neither_winnow_nor_jax(runs: dict[str, Path], tmp_path: Path) -> None:
    """It is run where importing either of them fails."""
    assert main(["export", str(runs["iql"]), "--onnx", str(tmp_path / "policy.onnx")]) == 0
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith(('"""', "#"))]
    assert len(lines) == 5
    code = "import runpy, sys; sys.modules['winnow'] = sys.modules['jax'] = None; "
    code += f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__'); "
    code += "print([name for name in ('winnow', 'jax', 'torch') if sys.modules.get(name)])"
    words = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True, env={})
    *shown, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    action = Policy.load(runs["iql"])(np.zeros((1, 3), np.float32))
    assert float(" ".join(shown).strip("[] ")) == pytest.approx(float(action[0, 0]), abs=1e-4)


def test_a_policy_steps_an_environment_in_two_lines(runs: dict[str, Path]) -> None:
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=0)
    policy = Policy.load(runs["td3bc"])
    for _ in range(5):
        action = policy(obs)
        assert env.action_space.contains(action)
        obs, *_ = env.step(action)
    with pytest.raises(BadInput, match="observations must have shape"):
        policy(np.zeros(4))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN"], "nothing to write"),
        (["none.safetensors", "--onnx", "p.onnx"], "none.safetensors: there is no such file"),
        (["RUN", "--onnx", "p.pb"], "p.pb: a file of this kind ends in .onnx"),
        (["RUN", "--torch", "p.onnx"], "ends in .pt2"),
        (["RUN", "--safetensors", "RUN"], "is the run itself"),
        (["FOLDER", "--onnx", "p.onnx"], "is a folder; give one of the runs in it, say"),
        ([__file__, "--onnx", "p.onnx"], "was not written by winnow"),
        (["RUN", "--onnx", "FILE/p.onnx"], "can't be written"),
    ],
)
def test_bad_words_write_nothing(
    words: list[str], message: str, runs: dict[str, Path], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = runs["bc"].read_bytes()
    names = {"RUN": str(runs["bc"]), "FOLDER": str(runs["bc"].parent), "FILE/p.onnx": f"{runs['bc']}/p.onnx"}
    assert main(["export", *(names.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())
    assert runs["bc"].read_bytes() == before


@pytest.mark.parametrize(("package", "option"), [("onnx", "--onnx"), ("torch", "--torch")])
def test_a_missing_extra_names_the_line_to_install_it(
    package: str, option: str, runs: dict[str, Path], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    ending = {"--onnx": "onnx", "--torch": "pt2"}[option]
    assert main(["export", str(runs["bc"]), option, str(tmp_path / f"p.{ending}")]) == 2
    assert install_hint(package) in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_onnx_runtime_the_graph_is_checked_by_onnx(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert deploy.to_onnx(Policy.load(runs["iql"]), tmp_path / "p.onnx") < 1e-5


def test_a_policy_of_another_kind_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    """One whose action is no tanh of a ReLU network must not become a file that acts differently."""
    policy = Policy.load(runs["bc"])

    class Other(winnow.BC):
        def act(self, state: Any, obs: Any) -> Any:
            return jax.numpy.sin(super().act(state, obs))

    algorithm = jax.tree_util.register_static(Other)(hidden=(32, 24))
    other = Policy(algorithm, policy.state, policy.shift, policy.scale, policy.action_centre, policy.action_half)
    with pytest.raises(BadInput, match="a policy of Other must be a ReLU network"):
        deploy.to_safetensors(other, tmp_path / "p.safetensors")
    assert not list(tmp_path.iterdir())
