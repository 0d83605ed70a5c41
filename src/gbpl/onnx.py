"""A policy as an ONNX file: the formulas of `saved` as one graph, for programs that run no Python (section 6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gbpl.files import replacing
from gbpl.networks import Networks
from gbpl.saved import NumpyPolicy
from gbpl.version import __version__

__all__ = ["to_onnx"]

OPSET, IR = 17, 8  # old enough for onnxruntime 1.17
FLOAT, INT64, DOUBLE = 1, 7, 11  # as onnx.TensorProto numbers them
ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "silu": "Sigmoid", "cos": "Cos"}


class _Graph:
    """Steps in the order they are computed; numbers among their inputs become constants."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        output = output or f"{operator}_{len(self.steps)}"
        outputs = [output, f"{output}_places"] if operator == "TopK" else [output]
        self.steps.append((operator, [self._name(value) for value in inputs], outputs, attributes))
        return output

    def _name(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        array, name = np.asarray(value), f"constant_{len(self.constants)}"
        self.constants[name] = array.astype(np.int64) if array.dtype.kind == "i" else array
        return name


def _dense(graph: _Graph, x: str, layer: np.ndarray) -> str:
    """Every member's layer at once: "row in" or "member row in" to "member row out"."""
    if (layer == layer[:1]).all():
        layer = layer[:1]  # random features are the same for every member: computed once
    return graph("Add", graph("MatMul", x, layer[:, :-1]), layer[:, -1:])


def _project(graph: _Graph, points: str, count: int) -> str:
    """On the simplex: max(p - t, 0) with t = max_j (sum of the j largest p - 1) / j."""
    points = graph("Sub", points, graph("ReduceMax", points, axes=[-1]))
    excess = graph("Sub", graph("CumSum", graph("TopK", points, [count], axis=-1), -1), 1.0)
    shift = graph("ReduceMax", graph("Div", excess, np.arange(1.0, count + 1.0)), axes=[-1])
    return graph("Relu", graph("Sub", points, shift))


def _members(graph: _Graph, x: str, networks: Networks, count: int) -> str:
    """Action probabilities of each member, "member row action"."""
    for layer in networks.hidden:
        z = _dense(graph, x, layer)
        x = graph(ACTIVATIONS[networks.activation], z)
        x = graph("Mul", z, x) if networks.activation == "silu" else x
    last = networks.last.copy()
    last[:, :-1] *= np.float32(networks.gain)
    raw = graph("Cast", _dense(graph, x, last), to=DOUBLE)
    if networks.squashing == "softmax":
        return graph("Softmax", raw, axis=-1)
    if networks.squashing == "project":
        return _project(graph, raw, count)
    f = graph("Tanh", raw) if networks.squashing == "tanh" else graph("Clip", raw, -1.0, 1.0)
    return graph("Div", graph("Add", graph("Mul", f, [-1.0, 1.0]), 1.0), 2.0)


def _graph(policy: NumpyPolicy) -> _Graph:
    graph, count = _Graph(), len(policy.actions_)
    # One row more, left out again at the end: in many versions of onnxruntime, TopK of no rows ends the process.
    rows = graph("Concat", "features", policy.mean[None], axis=0)
    x = graph("Cast", graph("Div", graph("Sub", rows, policy.mean), policy.scale), to=FLOAT)
    members = graph("Sub", _members(graph, x, policy.networks, count), 1.0 / count)
    value = deviation = graph("ReduceSum", graph("Mul", members, policy.weights[:, None, None]), [0], keepdims=0)
    # What NumpyPolicy refuses must not look decided, as it would where relu makes a number of NaN.
    blank = graph("ReduceSum", graph("Mul", rows, 0.0), [1])
    probability = graph("Add", _project(graph, graph("Add", deviation, 1.0 / count), count), blank)
    graph("Slice", probability, [0], [-1], [0], output="probability")
    if policy.gain is not None and any(policy.rule.prices):  # gains over the default action have the same order
        value = graph("Sub", graph("Mul", deviation, float(policy.gain.slope)), np.array(policy.rule.prices, float))
    best = graph("ArgMax", value, axis=1, keepdims=0, select_last_index=int(count == 2))  # of two equal ones, action 1
    action = graph("Where", graph("Squeeze", graph("IsNaN", blank), [1]), -1, best)
    graph("Slice", action, [0], [-1], [0], output="action")
    return graph


def to_onnx(policy: NumpyPolicy, path: str | Path) -> None:
    """Write a saved policy as an ONNX file, whole or not at all.

    Its input `features` is float64 "row feature": rounded to float32 before it is standardized, a date or an income
    would lose digits. Its outputs are `probability`, float64 "row action", as of `predict_proba`, and `action`, int64
    " row", the column number of what `decide` takes, prices of limited actions included. A row with a missing or
    infinite feature has probabilities NaN and action -1. Posterior draws, and so who is deferred, are not in the file.

    A policy with an encoder takes encoded features here, `policy.encoder.apply(table)[0]`, and no table. Metadata, as
    JSON: `actions`, and `features`, the names of the columns or null. All networks see all rows of a call at once, so
    give a few thousand at a time.
    """
    try:
        from onnx import helper, numpy_helper
    except ImportError as error:
        raise ImportError("ONNX files need the package onnx: pip install 'gbpl[onnx]'") from error
    if not isinstance(policy, NumpyPolicy):
        raise ValueError(f"to_onnx takes a saved policy, got {type(policy).__name__}; a fitted one has frozen()")
    for label in policy.actions_.tolist():
        if not isinstance(label, str | int | float):
            raise ValueError(f"the action {label!r} is a {type(label).__name__}; use text or numbers as labels")
    names = getattr(policy, "feature_names_in_", None) if policy.encoder is None else policy.encoder.names
    told = {"actions": policy.actions_.tolist(), "features": None if names is None else [str(name) for name in names]}
    graph, value = _graph(policy), helper.make_tensor_value_info
    whole = helper.make_graph(
        [helper.make_node(operator, inputs, outputs, **more) for operator, inputs, outputs, more in graph.steps],
        "policy",
        [value("features", DOUBLE, ["row", len(policy.mean)])],
        [value("probability", DOUBLE, ["row", len(policy.actions_)]), value("action", INT64, ["row"])],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    model.producer_name, model.producer_version = "gbpl", __version__
    helper.set_model_props(model, {name: json.dumps(listed, allow_nan=False) for name, listed in told.items()})
    with replacing(Path(path)) as name:
        name.write_bytes(model.SerializeToString())
