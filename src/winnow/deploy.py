"""A trained policy as a file that needs neither winnow nor JAX: ONNX, a PyTorch program, or plain arrays.

All of them take raw observations [batch, O] in float32 and give actions [batch, A] in the environment's units:

    x = (observation − shift) / scale
    x = relu(x · w + b)  for every layer but the last;  x · w + b  for the last
    action = action_centre + action_half · tanh(x)

A policy of discrete actions has no tanh: its last layer's outputs are the scores of the choices, and the action is the
number of the greatest one. Its files give both, `action` [batch] as int64 and `scores` [batch, K].
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from winnow import __version__
from winnow.data.scaling import standardise
from winnow.errors import BadInput, install_hint
from winnow.system.files import replacing, write_tensors

if TYPE_CHECKING:
    from winnow.policy import Policy

OPSET = 13
IR_VERSION = 7
"""Versions of 2021: current runtimes read them, and the graph needs nothing newer."""
TOLERANCE = 1e-5
"""Largest allowed difference between an exported policy and winnow's own, relative to an action's half width (or the
largest score) if that is above 1."""

Act = Callable[[np.ndarray], np.ndarray]


class Network(NamedTuple):
    """All numbers of a policy, in float32."""

    shift: np.ndarray  # [O]
    scale: np.ndarray
    layers: list[tuple[np.ndarray, np.ndarray]]  # [in, out] and [out]
    action_centre: np.ndarray  # [A]
    action_half: np.ndarray
    is_discrete: bool = False

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Actions, or scores of choices."""
        x = standardise(obs, self.shift, self.scale)
        for weight, bias in self.layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = self.layers[-1]
        x = x @ weight + bias
        return x if self.is_discrete else self.action_centre + self.action_half * np.tanh(x)


def network(policy: Policy) -> Network:
    """A policy's numbers, checked to act as it does.

    The parameters that `act` reads must be the layers of one ReLU network whose first outputs, through a tanh, are the
    mean action (or whose outputs are the scores of discrete actions). Every algorithm here is like that; one that acts
    in another way is refused.
    """
    from winnow.policy.stacked import pruned
    from winnow.system import checkpoint
    from winnow.types import Spec

    actions = len(policy.action_centre)
    spec = Spec(len(policy.shift), actions, 0, "discrete" if policy.is_discrete else "continuous")
    read = checkpoint.flatten(pruned(policy.algorithm, spec, policy.state))
    weights = [np.float32(value) for name, value in read.items() if name.endswith("/w")]
    biases = [np.float32(value) for name, value in read.items() if name.endswith("/b")]
    scaling = (policy.shift, policy.scale, policy.action_centre, policy.action_half)
    shift, scale, centre, half = (np.asarray(part, np.float32) for part in scaling)
    pairs: list[Any] = list(zip(weights, biases, strict=False))
    if pairs and len(weights) == len(biases):
        # The last layer of a tanh-Gaussian has the standard deviations after the means.
        pairs[-1] = tuple(part[..., :actions] for part in pairs[-1])
    exported = Network(shift, scale, pairs, centre, half, policy.is_discrete)
    try:
        check(exported, policy)
    except (BadInput, ValueError, IndexError) as error:
        name = type(policy.algorithm).__name__
        end = "scores of choices" if policy.is_discrete else "a tanh"
        raise BadInput(f"a policy of {name} must be a ReLU network with {end} at its end to be exported") from error
    return exported


def check(act: Act, policy: Policy, count: int = 1000) -> float:
    """The largest difference from winnow's own policy on observations of a wide range; an error if it is not small."""
    rng = np.random.default_rng(0)
    spread = rng.choice([0.1, 1.0, 3.0], (count, 1))
    obs = policy.shift + policy.scale * spread * rng.normal(size=(count, len(policy.shift)))
    obs = obs.astype(np.float32)
    expected = policy.scores(obs)
    unit = np.abs(expected).max() if policy.is_discrete else policy.action_half
    gap = np.abs(np.asarray(act(obs)) - expected) / np.maximum(unit, 1)
    if not gap.max() <= TOLERANCE:
        raise BadInput(f"the exported policy differs from winnow's by {gap.max():.1e}; nothing was written")
    return float(gap.max())


# ------------------------------------------------------------------------------------------------- formats


def to_safetensors(policy: Policy, path: str | Path, **facts: str) -> float:
    """Plain arrays: shift, scale, w0, b0, w1, b1, …, action_centre, action_half. How to use them is in `formula`."""
    exported = network(policy)
    tensors = {name: getattr(exported, name) for name in _scalings(exported)}
    for depth, (weight, bias) in enumerate(exported.layers):
        tensors |= {f"w{depth}": np.ascontiguousarray(weight), f"b{depth}": np.ascontiguousarray(bias)}
    formula = "x = (observation - shift) / scale; x = relu(x @ w + b) for all layers but the last, x @ w + b for it; "
    formula += "action = argmax(x)" if exported.is_discrete else "action = action_centre + action_half * tanh(x)"
    gap = check(exported, policy)
    write_tensors(path, tensors, _facts(policy, facts) | {"formula": formula})
    return gap


def to_onnx(policy: Policy, path: str | Path, **facts: str) -> float:
    """One graph from `observation` to `action`, with operators that every runtime has."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise BadInput(f"an ONNX file needs the onnx package: {install_hint('onnx')}") from error
    exported = network(policy)
    arrays = {name: getattr(exported, name) for name in _scalings(exported)}
    nodes = [helper.make_node("Sub", ["observation", "shift"], ["moved"])]
    nodes += [helper.make_node("Div", ["moved", "scale"], ["x0"])]
    for depth, (weight, bias) in enumerate(exported.layers):
        arrays |= {f"w{depth}": weight, f"b{depth}": bias}
        nodes.append(helper.make_node("Gemm", [f"x{depth}", f"w{depth}", f"b{depth}"], [f"y{depth}"]))
        if depth < len(exported.layers) - 1:
            nodes.append(helper.make_node("Relu", [f"y{depth}"], [f"x{depth + 1}"]))
    inputs = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", len(exported.shift)])]
    width = len(exported.action_centre)
    last = f"y{len(exported.layers) - 1}"
    if exported.is_discrete:
        nodes += [helper.make_node("Identity", [last], ["scores"])]
        nodes += [helper.make_node("ArgMax", ["scores"], ["action"], axis=1, keepdims=0)]
        outputs = [
            helper.make_tensor_value_info("action", TensorProto.INT64, ["batch"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", width]),
        ]
    else:
        nodes += [helper.make_node("Tanh", [last], ["unit"])]
        nodes += [helper.make_node("Mul", ["unit", "action_half"], ["wide"])]
        nodes += [helper.make_node("Add", ["wide", "action_centre"], ["action"])]
        outputs = [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", width])]
    constants = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="winnow")
    helper.set_model_props(model, _facts(policy, facts))
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    gap = check(_onnx_act(content, "scores" if exported.is_discrete else "action"), policy)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return gap


def _scalings(exported: Network) -> tuple[str, ...]:
    return ("shift", "scale") if exported.is_discrete else ("shift", "scale", "action_centre", "action_half")


def _onnx_act(model: bytes, output: str) -> Act:
    """One of the graph's outputs, run by ONNX Runtime if it is installed, otherwise by onnx itself."""
    try:
        import onnxruntime

        session: Any = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(model)
    return lambda obs: session.run([output], {"observation": obs})[0]


def to_torch(policy: Policy, path: str | Path, **facts: str) -> float:
    """A program that `torch.export.load(path).module()` loads as a callable."""
    try:
        import torch
    except ImportError as error:
        raise BadInput(f"a PyTorch program needs PyTorch: {install_hint('torch')}") from error
    exported = network(policy)

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in _scalings(exported):
                self.register_buffer(name, torch.from_numpy(getattr(exported, name).copy()))
            parts: list[torch.nn.Module] = []
            for weight, bias in exported.layers:
                layer = torch.nn.Linear(*weight.shape)
                layer.load_state_dict(
                    {"weight": torch.from_numpy(weight.T.copy()), "bias": torch.from_numpy(bias.copy())}
                )
                parts += [layer, torch.nn.ReLU()]
            self.layers = torch.nn.Sequential(*parts[:-1], *([] if exported.is_discrete else [torch.nn.Tanh()]))

        def forward(self, observation: Any) -> Any:
            if exported.is_discrete:
                scores = self.layers((observation - self.shift) / self.scale)
                return scores.argmax(dim=1), scores
            return self.action_centre + self.action_half * self.layers((observation - self.shift) / self.scale)

    shapes = {"observation": {0: torch.export.Dim("batch", min=1)}}
    example = torch.zeros(2, len(exported.shift))
    with torch.no_grad():
        program = torch.export.export(Module().eval(), (example,), dynamic_shapes=shapes)
    facts_of_file = {f"winnow/{name}": value for name, value in _facts(policy, facts).items()}
    with replacing(path) as temporary:
        with temporary.open("wb") as file:
            torch.export.save(program, file, extra_files=facts_of_file)
        saved = torch.export.load(temporary).module()

        def act(obs: np.ndarray) -> np.ndarray:
            given = saved(torch.from_numpy(obs))
            return (given[1] if exported.is_discrete else given).numpy()

        with torch.no_grad():
            return check(act, policy)


def _facts(policy: Policy, facts: dict[str, str]) -> dict[str, str]:
    """Metadata of the exported file."""
    from winnow.plugins import record

    return {"winnow": __version__, "algorithm": json.dumps(record(policy.algorithm))} | facts
