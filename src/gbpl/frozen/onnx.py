"""A policy as an ONNX file: the formulas of a frozen policy as one graph, for programs without Python (section 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gbpl.frozen.committee import Part
from gbpl.frozen.export.subject import is_small, subject
from gbpl.frozen.onnx_graph import DOUBLE, FLOAT, INT64, Graph, add_encoder, write_graph
from gbpl.frozen.onnx_rule import rule_graph
from gbpl.frozen.policy import NumpyPolicy
from gbpl.models.basis import spline_basis
from gbpl.models.numpy_form import Forests, Networks
from gbpl.squashing import NO_PROBABILITY, gap_doubt
from gbpl.tables.encoder import Encoder

__all__ = ["to_onnx"]

ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "silu": "Sigmoid", "cos": "Cos"}


def _dense(graph: Graph, x: str, layer: np.ndarray) -> str:
    """Every member's layer at once: "row in" or "member row in" to "member row out"."""
    if (layer == layer[:1]).all():
        layer = layer[:1]  # random features are the same for every member: computed once
    return graph("Add", graph("MatMul", x, layer[:, :-1]), layer[:, -1:])


def _project(graph: Graph, points: str, count: int) -> str:
    """On the simplex: max(p - t, 0) with t = max_j (sum of the j largest p - 1) / j."""
    points = graph("Sub", points, graph("ReduceMax", points, axes=[-1]))
    excess = graph("Sub", graph("CumSum", graph("TopK", points, [count], axis=-1), -1), 1.0)
    shift = graph("ReduceMax", graph("Div", excess, np.arange(1.0, count + 1.0)), axes=[-1])
    return graph("Relu", graph("Sub", points, shift))


def _curves(graph: Graph, x: str, knots: int, width: int) -> str:
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


def _network_outputs(graph: Graph, x: str, networks: Networks, width: int) -> str:
    """Raw outputs of each member, "member row raw"."""
    x = _curves(graph, x, networks.knots, width) if networks.knots else x
    for layer in networks.hidden:
        z = _dense(graph, x, layer)
        x = graph(ACTIVATIONS[networks.activation], z)
        x = graph("Mul", z, x) if networks.activation == "silu" else x
    last = networks.last.copy()
    last[:, :-1] *= np.float32(networks.gain)
    return _dense(graph, x, last)


def _leaves(graph: Graph, x: str, feature: np.ndarray, threshold: np.ndarray) -> str:
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


def _forest_outputs(graph: Graph, x: str, forests: Forests) -> str:
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


def _deviation(graph: Graph, x: str, part: Part, squashing: str, width: int, count: int) -> str:
    """What a part of the committee adds to the uniform policy, "row action"."""
    form, weights = part.form, part.weights
    if isinstance(form, Forests):
        raw, weights = _forest_outputs(graph, x, form), weights[np.argsort(form.forest, kind="stable")]
    else:
        raw = _network_outputs(graph, x, form, width)
    members = _advantage(graph, graph("Cast", raw, to=DOUBLE), squashing, count)
    return graph("ReduceSum", graph("Mul", members, weights[:, None, None]), [0], keepdims=0)


def _advantage(graph: Graph, raw: str, squashing: str, count: int) -> str:
    """What a member adds, as `gbpl.squashing.advantage_of`."""
    if not squashing.startswith("gap "):
        return graph("Sub", _squashed(graph, raw, squashing, count), 1.0 / count)
    baseline = int(squashing.removeprefix("gap "))
    own, policies = (np.arange(count) == baseline).astype(float), _squashed(graph, raw, "softmax", count)
    share = graph("Div", graph("Gather", policies, [baseline], axis=-1), NO_PROBABILITY)
    missing = graph("Mul", graph("Relu", graph("Sub", 1.0, share)), gap_doubt(count) * own)
    scores = graph("Sub", graph("Sub", graph("Mul", policies, 2.0 * (1.0 - own)), 1.0 - own), missing)
    return graph("Sub", scores, graph("ReduceMean", scores, axes=[-1]))


def _squashed(graph: Graph, raw: str, squashing: str, count: int) -> str:
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


def _graph(policy: NumpyPolicy, encoder: Encoder | None) -> Graph:
    graph, count = Graph(), len(policy.actions_)
    if encoder is not None:
        add_encoder(graph, encoder)
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


def to_onnx(policy: Any, path: str | Path, *, encoded: bool = False) -> None:
    """Write a policy, fitted or saved, or a small rule as an ONNX file, whole or not at all.

    What was learned from a table takes its raw columns: one input per column, of shape "row 1", float64 for
    numbers (NaN where missing, 0 and 1 for booleans) and text for categories ("" where missing; new levels as in
    `decide`). Any other, or with `encoded`, has one input `features`, float64 "row feature": rounded to float32
    before it is standardized, a date or an income would lose digits. The outputs are
    `probability`, float64 "row action", as of `predict_proba`, and `action`, int64 " row", the column number of what
    `decide` takes, prices of limited actions included. A row with a missing or infinite feature has probabilities NaN
    and action -1. Posterior draws, and so who is deferred, are not in the file. A small rule has no probabilities.

    Metadata, as JSON: `actions`, `features`, the names of the features or null, and `inputs`, which input each raw
    column is, or null. All members see all rows of a call at once, so give a few thousand at a time.
    """
    of = subject(policy, "to_onnx")
    outputs: list[tuple[str, int, list[Any]]] = [("action", INT64, ["row"])]
    encoder = None if encoded else of.encoder
    if isinstance(of, NumpyPolicy):
        graph, width = _graph(of, encoder), len(of.mean)
        names = getattr(of, "feature_names_in_", None) if of.encoder is None else of.encoder.names
        outputs = [("probability", DOUBLE, ["row", len(of.actions_)]), *outputs]
    else:
        assert is_small(of)
        graph, width, names = rule_graph(of, encoder), len(of.feature_names), of.feature_names
    write_graph(graph, path, actions=of.actions_, names=names, encoder=encoder, width=width, outputs=outputs)
