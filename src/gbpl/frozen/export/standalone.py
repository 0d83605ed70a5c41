"""A whole policy in plain Python, for one row at a time; it needs the standard library alone.

`gbpl.to_python` writes this file with the numbers of a policy at its end.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any


def decide(row: Mapping[str, Any]) -> Any:
    """The action for one row, a mapping from column to value; missing is None or NaN.

    None where there is no score: a number is beyond all that can be computed with, or missing without an encoder.
    """
    x = features(row)
    if x is None:
        return None
    values = [POLICY["slope"] * d + level for d, level in zip(deviation(x), POLICY["level"], strict=True)]
    if POLICY["prices"]:
        default = values[POLICY["default"]]
        values = [POLICY["gain"] * (v - default) - price for v, price in zip(values, POLICY["prices"], strict=True)]
    if len(values) == 2:  # of two equal ones the second, of more the first
        return POLICY["actions"][int(values[1] >= values[0])]
    return POLICY["actions"][values.index(max(values))]


def is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def number(value: Any, fill: float | None) -> float | None:
    """A number, `fill` where it is missing."""
    if is_missing(value):
        return fill
    if isinstance(value, str) or math.isinf(value):
        raise ValueError(f"expected a finite number, got {value!r:.40}; bring numbers, None where one is missing")
    return float(value)


def text(value: Any) -> str | None:
    """A level's text, None where it is missing; whole floats are written as integers."""
    if is_missing(value):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) <= 2.0**53 else str(value)


def features(row: Mapping[str, Any]) -> list[float] | None:
    """Standardized features, those that members see; None without a score."""
    x: list[Any] = []
    for column in POLICY["columns"]:
        value = row[column["name"]]
        if "levels" not in column:
            x.append(number(value, column["fill"]))
            if column["missing"]:
                x.append(float(is_missing(value)))
            continue
        level, levels, marks = text(value), column["levels"], [0.0] * column["width"]
        place = levels.index(level) if level in levels else len(levels) if column["other"] else -1
        if level is None and column["missing"]:
            place = len(levels) + column["other"]
        if place >= column["single"]:
            marks[place - column["single"]] = 1.0
        x += marks
    if None in x:
        return None
    x = [(value - mean) / scale for value, mean, scale in zip(x, POLICY["mean"], POLICY["scale"], strict=True)]
    return None if max(map(abs, x)) > POLICY["farthest"] else [x[place] for place in POLICY["seen"]]


def deviation(x: Sequence[float]) -> list[float]:
    """What the members deviate from uniform, weighted."""
    total = [0.0] * len(POLICY["actions"])
    for part in POLICY["parts"]:
        raws = forests(part, x) if "trees" in part else networks(part, x)
        for weight, raw in zip(part["weights"], raws, strict=True):
            total = [t + weight * a for t, a in zip(total, advantage(raw), strict=True)]
    return total


# -- members


def dense(x: Sequence[float], layer: Iterable[Sequence[float]]) -> list[float]:
    """Outputs of a layer: each unit has its weights, and its bias last."""
    return [sum(map(float.__mul__, unit, x), unit[-1]) for unit in layer]  # ends with x, before the bias


ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "tanh": math.tanh,
    "relu": lambda h: max(h, 0.0),
    "silu": lambda h: h / (1.0 + math.exp(-h)) if h > -700.0 else 0.0,
    "cos": math.cos,
}


def networks(part: Mapping[str, Any], x: Sequence[float]) -> Iterator[list[float]]:
    """Raw outputs of every member; hidden layers that all share are computed once."""
    act = ACTIVATIONS[part["activation"]]
    x = curves(part, x) if part["knots"] else x
    for layer in part["shared"]:
        x = list(map(act, dense(x, layer)))
    for *hidden, last in part["members"]:
        h = x
        for layer in hidden:
            h = list(map(act, dense(h, layer)))
        yield dense(h, last)


def curves(part: Mapping[str, Any], x: Sequence[float]) -> list[float]:
    """Curves of splines, those of one feature beside each other."""
    knots, made = part["knots"], []
    for value in x:
        inside = [min(max(value - low, 0.0), high - low) for low, high in pairwise(knots)]
        terms = [min(value - knots[0], 0.0), max(value - knots[-1], 0.0), *inside]
        terms += [t * t for t in inside] + [t * t * t for t in inside]
        made += dense(terms, part["curves"])
    return made


def forests(part: Mapping[str, Any], x: Sequence[float]) -> Iterator[list[float]]:
    """Raw outputs of every member: sums over trees, each of which is a leaf, or feature, cut, left and right."""
    found = []
    for trees in part["trees"]:
        leaves = []
        for tree in trees:
            while isinstance(tree, tuple):
                feature, cut, left, right = tree
                tree = right if x[feature] > cut else left
            leaves.append(tree)
        found.append(leaves)
    for forest, first, bias in zip(part["forest"], part["first"], part["bias"], strict=True):
        yield [sum((leaf[first + raw] for leaf in found[forest]), b) for raw, b in enumerate(bias)]


# -- from raw outputs to what a member adds


def advantage(raw: Sequence[float]) -> list[float]:
    """What a member adds to the uniform policy."""
    squashing = POLICY["squashing"]
    if squashing in ("tanh", "clip"):
        f = math.tanh(raw[0]) if squashing == "tanh" else min(max(raw[0], -1.0), 1.0)
        return [-f / 2.0, f / 2.0]
    policy = projected(raw) if squashing == "project" else softmax(raw)
    if not squashing.startswith("gap "):
        return [p - 1.0 / len(policy) for p in policy]
    baseline = int(squashing.removeprefix("gap "))
    scores = [2.0 * p - 1.0 for p in policy]
    scores[baseline] = -POLICY["doubt"] * max(1.0 - policy[baseline] / POLICY["no_probability"], 0.0)
    mean = sum(scores) / len(scores)
    return [score - mean for score in scores]


def softmax(raw: Sequence[float]) -> list[float]:
    most = max(raw)
    policy = [math.exp(r - most) for r in raw]
    total = sum(policy)
    return [p / total for p in policy]


def projected(raw: Sequence[float]) -> list[float]:
    """On the simplex: max(p - c, 0) with c = max_j (sum of the j largest p - 1) / j."""
    cut, total = -math.inf, -1.0
    for count, r in enumerate(sorted(raw, reverse=True), 1):
        total += r
        cut = max(cut, total / count)
    return [max(r - cut, 0.0) for r in raw]


POLICY: dict[str, Any] = {}
