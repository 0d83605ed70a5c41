"""A policy as an ONNX file: the formulas of a frozen policy as one graph, for programs without Python (section 6)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gbpl.frozen.committee import Part
from gbpl.frozen.policy import NumpyPolicy
from gbpl.models.basis import spline_basis
from gbpl.models.numpy_form import Forests, Networks
from gbpl.runtime.files import replacing
from gbpl.squashing import NO_PROBABILITY, gap_doubt
from gbpl.tables.encoder import Encoder
from gbpl.tables.features import NumberColumn
from gbpl.version import __version__

__all__ = ["FreezablePolicy", "to_onnx"]

OPSET, IR = 17, 8  # old enough for onnxruntime 1.17
ML, ML_OPSET = "ai.onnx.ml", 2
FLOAT, INT64, STRING, DOUBLE = 1, 7, 8, 11  # as onnx.TensorProto numbers them
OURS = re.compile(r"[A-Za-z]+_\d+(_places)?|features|probability|action")  # names of steps and outputs
ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "silu": "Sigmoid", "cos": "Cos"}


@runtime_checkable
class FreezablePolicy(Protocol):
    """A fitted policy that can be written in numpy alone, as every estimator with members can."""

    def frozen(self, *, draws: int = 400) -> NumpyPolicy:
        """The policy without its training rows, with some draws of its posterior."""
        ...


class _Graph:
    """Steps in the order they are computed; numbers among their inputs become constants."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        output = output or f"{operator}_{len(self.steps)}"
        outputs = [output, f"{output}_places"] if operator == "TopK" else [output]
        self.steps.append((operator, [self.name(value) for value in inputs], outputs, attributes))
        return output

    def name(self, value: Any) -> str:
        """The name of a value: its own, or that of a constant made of it."""
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


def _curves(graph: _Graph, x: str, knots: int, width: int) -> str:
    """Curves of splines, "row feature" to "row curve", as `gbpl.models.basis.spline_curves`."""
    places, made = spline_basis(knots)
    x = graph("Unsqueeze", x, [2])
    below = graph("Min", graph("Sub", x, places[0]), np.float32(0.0))
    above = graph("Relu", graph("Sub", x, places[-1]))
    inside = graph("Min", graph("Relu", graph("Sub", x, places[:-1])), np.diff(places))
    square = graph("Mul", inside, inside)
    terms = graph("Concat", below, above, inside, square, graph("Mul", square, inside), axis=2)
    curves = graph("Add", graph("MatMul", terms, made[1:]), made[0])
    return graph("Reshape", curves, [-1, width * (knots - 1)])


def _network_outputs(graph: _Graph, x: str, networks: Networks, width: int) -> str:
    """Raw outputs of each member, "member row raw"."""
    x = _curves(graph, x, networks.knots, width) if networks.knots else x
    for layer in networks.hidden:
        z = _dense(graph, x, layer)
        x = graph(ACTIVATIONS[networks.activation], z)
        x = graph("Mul", z, x) if networks.activation == "silu" else x
    last = networks.last.copy()
    last[:, :-1] *= np.float32(networks.gain)
    return _dense(graph, x, last)


def _leaves(graph: _Graph, x: str, feature: np.ndarray, threshold: np.ndarray) -> str:
    """Places of a row's leaves among those of all trees, "row tree": at node i, on to 2 i + 1 + (x > threshold)."""
    trees, nodes = feature.shape
    features, thresholds = graph.name(feature.ravel()), graph.name(threshold.ravel())  # once for all levels
    seen = graph("Gather", x, feature[:, 0], axis=1)
    node = graph("Add", graph("Cast", graph("Greater", seen, threshold[:, 0]), to=INT64), 1)
    for _ in range(int(nodes + 1).bit_length() - 2):
        place = graph("Add", node, nodes * np.arange(trees))
        seen = graph("GatherElements", x, graph("Gather", features, place), axis=1)
        right = graph("Cast", graph("Greater", seen, graph("Gather", thresholds, place)), to=INT64)
        node = graph("Add", graph("Add", graph("Mul", node, 2), 1), right)
    return graph("Add", node, (nodes + 1) * np.arange(trees) - nodes)


def _forest_outputs(graph: _Graph, x: str, forests: Forests) -> str:
    """Raw outputs of each member, "member row raw", forest after forest.

    Without draws the last layer is all that is asked of a forest's components, so leaves have the outputs themselves.
    """
    outputs, raw = [], forests.last.shape[2]
    for number in np.unique(forests.forest).tolist():
        last = forests.last[forests.forest == number].astype(np.float64)
        value = forests.value[number].reshape(-1, forests.value.shape[3])
        table = np.concatenate(list(value @ last[:, :-1]), axis=1).astype(np.float32)
        leaves = _leaves(graph, x, forests.feature[number], forests.threshold[number])
        total = graph("ReduceSum", graph("Gather", table, leaves, axis=0), [1], keepdims=0)
        total = graph("Add", total, last[:, -1].ravel().astype(np.float32))
        outputs.append(graph("Transpose", graph("Reshape", total, [-1, len(last), raw]), perm=[1, 0, 2]))
    return graph("Concat", *outputs, axis=0)


def _deviation(graph: _Graph, x: str, part: Part, squashing: str, width: int, count: int) -> str:
    """What a part of the committee adds to the uniform policy, "row action"."""
    form, weights = part.form, part.weights
    if isinstance(form, Forests):
        raw, weights = _forest_outputs(graph, x, form), weights[np.argsort(form.forest, kind="stable")]
    else:
        raw = _network_outputs(graph, x, form, width)
    members = _advantage(graph, graph("Cast", raw, to=DOUBLE), squashing, count)
    return graph("ReduceSum", graph("Mul", members, weights[:, None, None]), [0], keepdims=0)


def _advantage(graph: _Graph, raw: str, squashing: str, count: int) -> str:
    """What a member adds, as `gbpl.squashing.advantage_of`."""
    if not squashing.startswith("gap "):
        return graph("Sub", _squashed(graph, raw, squashing, count), 1.0 / count)
    baseline = int(squashing.removeprefix("gap "))
    own, policies = (np.arange(count) == baseline).astype(float), _squashed(graph, raw, "softmax", count)
    share = graph("Div", graph("Gather", policies, [baseline], axis=-1), NO_PROBABILITY)
    missing = graph("Mul", graph("Relu", graph("Sub", 1.0, share)), gap_doubt(count) * own)
    scores = graph("Sub", graph("Sub", graph("Mul", policies, 2.0 * (1.0 - own)), 1.0 - own), missing)
    return graph("Sub", scores, graph("ReduceMean", scores, axes=[-1]))


def _squashed(graph: _Graph, raw: str, squashing: str, count: int) -> str:
    """Action probabilities of raw outputs."""
    match squashing:
        case "softmax":
            return graph("Softmax", raw, axis=-1)
        case "project":
            return _project(graph, raw, count)
        case "tanh":
            f = graph("Tanh", raw)
        case "clip":
            f = graph("Clip", raw, -1.0, 1.0)
        case other:
            raise ValueError(f"ONNX files know no squashing {other!r}; save the policy with policy.save instead")
    return graph("Div", graph("Add", graph("Mul", f, [-1.0, 1.0]), 1.0), 2.0)


def input_names(encoder: Encoder) -> dict[str, str]:
    """Raw columns and the inputs they are: the same name, but for one that a step of the graph has."""
    return {name: f"column {name}" if OURS.fullmatch(name) else name for name in encoder.columns}


def _encoded(graph: _Graph, encoder: Encoder) -> None:
    """Raw columns, "row 1" each, to `features`, as `Encoder.apply`: NaN and "" are missing."""
    features, names = [], input_names(encoder)
    for part in encoder.parts:
        x = names[part.name]
        if isinstance(part, NumberColumn):
            gone = graph("IsNaN", x)
            features.append(graph("Where", gone, part.fill, x))
            if part.missing:
                features.append(graph("Cast", gone, to=DOUBLE))
            continue
        count = len(part.levels)
        fallback = count if part.other else -1
        absent = count + part.other if part.missing else fallback
        place = {"": absent} | {level: number for number, level in enumerate(part.levels)}
        levels = [number - part.single if number >= 0 else -1 for number in place.values()]
        index = graph(
            "LabelEncoder", x, domain=ML, keys_strings=list(place), values_int64s=levels,
            default_int64=fallback - part.single if fallback >= 0 else -1,
        )  # fmt: skip
        features.append(graph("Cast", graph("Equal", index, np.arange(len(part.names))), to=DOUBLE))
    graph("Concat", *features, axis=1, output="features")


def _graph(policy: NumpyPolicy, encoder: Encoder | None) -> _Graph:
    graph, count = _Graph(), len(policy.actions_)
    if encoder is not None:
        _encoded(graph, encoder)
    # One row more, left out again at the end: in many versions of onnxruntime, TopK of no rows ends the process.
    rows = graph("Concat", "features", policy.mean[None], axis=0)
    x = graph("Cast", graph("Div", graph("Sub", rows, policy.mean), policy.scale), to=FLOAT)
    width = len(policy.mean)
    if policy.columns is not None:
        x, width = graph("Gather", x, np.asarray(policy.columns, np.int64), axis=1), len(policy.columns)
    parts = [_deviation(graph, x, part, policy.squashing, width, count) for part in policy.parts]
    deviation, *others = parts
    for other in others:
        deviation = graph("Add", deviation, other)
    if policy.effects is not None:
        deviation = graph("Add", graph("Mul", deviation, float(policy.effects.slope)), policy.effects.level)
    value = deviation
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


def to_onnx(policy: NumpyPolicy | FreezablePolicy, path: str | Path, *, encoded: bool = False) -> None:
    """Write a policy, fitted or saved, as an ONNX file, whole or not at all.

    A policy that was learned from a table takes its raw columns: one input per column, of shape "row 1", float64 for
    numbers (NaN where missing, 0 and 1 for booleans) and text for categories ("" where missing; new levels as in
    `decide`). Any other, or with `encoded`, has one input `features`, float64 "row feature": rounded to float32
    before it is standardized, a date or an income would lose digits. The outputs are
    `probability`, float64 "row action", as of `predict_proba`, and `action`, int64 " row", the column number of what
    `decide` takes, prices of limited actions included. A row with a missing or infinite feature has probabilities NaN
    and action -1. Posterior draws, and so who is deferred, are not in the file.

    Metadata, as JSON: `actions`, `features`, the names of the features or null, and `inputs`, which input each raw
    column is, or null. All members see all rows of a call at once, so give a few thousand at a time.
    """
    try:
        from onnx import helper, numpy_helper
    except ImportError as error:
        raise ImportError("ONNX files need the package onnx: pip install 'gbpl[onnx]'") from error
    if isinstance(policy, FreezablePolicy):
        policy = policy.frozen(draws=0)
    if not isinstance(policy, NumpyPolicy):
        raise ValueError(
            f"to_onnx takes a policy of GBPL or GBPLNet, fitted or saved, got {type(policy).__name__}; that of a study "
            "is study.policy"
        )
    if policy.rule.groups is not None:
        raise ValueError(
            f"the rule of this policy has prices by {policy.rule.groups.column!r}, which an ONNX file does not hold; "
            "decide with gbpl, or learn without a bound between groups"
        )
    for label in policy.actions_.tolist():
        if not isinstance(label, str | int | float):
            raise ValueError(f"the action {label!r} is a {type(label).__name__}; use text or numbers as labels")
    names = getattr(policy, "feature_names_in_", None) if policy.encoder is None else policy.encoder.names
    listed = None if names is None else [str(name) for name in names]
    encoder = None if encoded else policy.encoder
    columns = None if encoder is None else input_names(encoder)
    metadata = {"actions": policy.actions_.tolist(), "features": listed, "inputs": columns}
    graph, value = _graph(policy, encoder), helper.make_tensor_value_info
    inputs = [value("features", DOUBLE, ["row", len(policy.mean)])]
    if encoder is not None and columns is not None:
        kinds = [DOUBLE if isinstance(part, NumberColumn) else STRING for part in encoder.parts]
        inputs = [value(name, kind, ["row", 1]) for name, kind in zip(columns.values(), kinds, strict=True)]
    whole = helper.make_graph(
        [helper.make_node(operator, inputs, outputs, **more) for operator, inputs, outputs, more in graph.steps],
        "policy",
        inputs,
        [value("probability", DOUBLE, ["row", len(policy.actions_)]), value("action", INT64, ["row"])],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    known = [helper.make_opsetid("", OPSET), *([] if encoder is None else [helper.make_opsetid(ML, ML_OPSET)])]
    model = helper.make_model(whole, opset_imports=known, ir_version=IR)
    model.producer_name, model.producer_version = "gbpl", __version__
    helper.set_model_props(model, {name: json.dumps(values, allow_nan=False) for name, values in metadata.items()})
    with replacing(Path(path)) as name:
        name.write_bytes(model.SerializeToString())
