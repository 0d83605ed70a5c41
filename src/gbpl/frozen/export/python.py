"""A small rule or a whole policy as a Python file that needs nothing but Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.reach import FARTHEST
from gbpl.frozen.export import standalone
from gbpl.frozen.export.language import Rules, said
from gbpl.frozen.export.members import rounding_edges
from gbpl.frozen.export.subject import feature_columns, is_small, subject
from gbpl.frozen.policy import NumpyPolicy
from gbpl.models.basis import spline_basis
from gbpl.models.numpy_form import Forests, Networks, NumpyForm
from gbpl.squashing import NO_PROBABILITY, gap_doubt
from gbpl.tables.features import NumberColumn
from gbpl.version import __version__

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["to_python"]

EMPTY = "POLICY: dict[str, Any] = {}\n"


def to_python(policy: Any) -> str:
    """A Python file with one function, `decide(row)`: the label of the action for a dict of raw columns.

    `policy` is a `SmallRule`, or a policy that was fitted or saved. The file imports `math` and names of types: no
    numpy, no gbpl. Missing values are None or NaN; what `predict` refuses (text for a number, an infinite one, a column
    that is not there) is refused, and None is returned where there is no score. A small rule decides exactly as
    `predict`; for a policy the same holds as for `to_sql`.

    >>> from gbpl.decisions.tree import LEAF, Tree
    >>> from gbpl.frozen.small_rule import SmallRule
    >>> nan = float("nan")
    >>> stump = Tree.of([0, LEAF, LEAF], [34.5, nan, nan], [1, -1, -1], [2, -1, -1], [-1, 0, 1])
    >>> made: dict = {}
    >>> exec(to_python(SmallRule(stump, np.array(["wait", "call"]), ("age",))), made)
    >>> made["decide"]({"age": 40})
    'call'
    """
    of = subject(policy, "to_python")
    if isinstance(of, NumpyPolicy):
        return _policy_file(of)
    assert is_small(of)
    return _rule_file(of)


# -- small rules ------------------------------------------------------------------------------------------------------


class _Python:
    """Python as a `Language`: conditions are expressions, decisions are lines that return."""

    def __init__(self, actions: np.ndarray) -> None:
        self.labels = actions.tolist()

    def label(self, number: int) -> str:
        return f"return {self.labels[number]!r}"

    def nothing(self) -> str:
        return "return None"

    def number(self, column: str, fill: float | None) -> str:
        return f"number(row[{column!r}], {fill!r})"

    def above(self, value: str, cut: float) -> str:
        return f"{value} > {cut!r}"

    def always(self, true: bool) -> str:
        return repr(true)

    def missing(self, column: str, *, text: bool) -> str:
        return f"is_missing(row[{column!r}])"

    def level(self, column: str, text: str) -> str:
        return f"text(row[{column!r}]) == {text!r}"

    def other(self, column: str, levels: Sequence[str], or_missing: bool) -> str:
        return f"text(row[{column!r}]) not in {[*levels, *([] if or_missing else [None])]!r}"

    def either(self, conditions: Sequence[str]) -> str:
        return " or ".join(conditions)

    def every(self, conditions: Sequence[str]) -> str:
        return " and ".join(conditions)

    def enough(self, start: int, points: Sequence[tuple[str, int]]) -> str:
        return " + ".join([str(start), *(f"{count} * ({condition})" for condition, count in points)]) + " >= 0"

    def choose(self, condition: str, then: str, otherwise: str) -> str:
        return f"if {condition}:\n{indent(then, '    ')}\n{otherwise}"


def _rule_file(small: Rules) -> str:
    body = indent(said(small, _Python(small.actions_)), "    ")
    helpers: list[Callable[..., Any]] = [standalone.is_missing, standalone.number, standalone.text]
    parts = [
        f'"""A decision rule, written by gbpl {__version__}; decide(row) takes a dict of columns."""',
        "import math\nfrom typing import Any",
        *(inspect.getsource(helper).rstrip() for helper in helpers),
        f'def decide(row: Any) -> Any:\n    """The action for one row; missing is None or NaN."""\n{body}',
    ]
    return parts[0] + "\n\n" + "\n\n\n".join(parts[1:]) + "\n"


# -- policies ---------------------------------------------------------------------------------------------------------


def _policy_file(policy: NumpyPolicy) -> str:
    source = inspect.getsource(standalone)
    assert source.endswith(EMPTY)
    lines = [f"    {key!r}: {value!r},\n" for key, value in _numbers(policy).items()]
    return source.removesuffix(EMPTY) + "POLICY: dict[str, Any] = {\n" + "".join(lines) + "}\n"


def _short(array: Any) -> Any:
    """Nested lists of numbers in ten digits, more than the seven of the float32 they were."""
    if np.ndim(array) > 0:
        return [_short(part) for part in array]
    return float(f"{array:.9e}")


def _numbers(policy: NumpyPolicy) -> dict[str, Any]:
    """Everything that `standalone` computes with."""
    effects, count, seen = policy.effects, len(policy.actions_), policy.columns
    return {
        "actions": policy.actions_.tolist(),
        "columns": _columns(policy),
        "mean": policy.mean.tolist(),
        "scale": policy.scale.tolist(),
        "farthest": FARTHEST,
        "seen": list(range(len(policy.mean))) if seen is None else np.asarray(seen).tolist(),
        "squashing": policy.squashing,
        "doubt": gap_doubt(count) if policy.squashing.startswith("gap ") else 0.0,
        "no_probability": NO_PROBABILITY,
        "slope": 1.0 if effects is None else float(effects.slope),
        "level": [0.0] * count if effects is None else effects.level.tolist(),
        "default": policy.rule.default,
        "gain": None if policy.gain is None else policy.gain.slope,
        "prices": list(policy.rule.prices) if policy.gain is not None and any(policy.rule.prices) else [],
        "parts": [{"weights": part.weights.tolist()} | _form(part.form) for part in policy.parts],
    }


def _columns(policy: NumpyPolicy) -> list[dict[str, Any]]:
    if policy.encoder is None:
        return [{"name": name, "fill": None, "missing": False} for name in feature_columns(policy)]
    return [
        {"name": part.name, "fill": part.fill, "missing": part.missing}
        if isinstance(part, NumberColumn)
        else {
            "name": part.name, "levels": list(part.levels), "other": part.other, "missing": part.missing,
            "single": int(part.single), "width": len(part.names),
        }
        for part in policy.encoder.parts
    ]  # fmt: skip


def _form(form: NumpyForm) -> dict[str, Any]:
    return _forests(form) if isinstance(form, Forests) else _networks(form)


def _networks(form: Networks) -> dict[str, Any]:
    """Layers by unit; those that all members share, and that are before all others, apart."""
    layers = form.shared().hidden
    common = 0
    while common < len(layers) and len(layers[common]) == 1 and len(form.last) > 1:
        common += 1
    last = form.last.astype(np.float64)
    last[:, :-1] *= form.gain
    members = [[_short(layer[member].T) for layer in (*form.hidden[common:], last)] for member in range(len(last))]
    places, made = spline_basis(form.knots) if form.knots else (np.zeros(0), np.zeros((1, 0)))
    return {
        "activation": form.activation, "knots": _short(places), "curves": _short(np.roll(made, -1, axis=0).T),
        "shared": [_short(layer[0].T) for layer in layers[:common]], "members": members,
    }  # fmt: skip


def _forests(form: Forests) -> dict[str, Any]:
    """Trees whose leaves have the outputs of all members of the forest, the last layers folded into them."""
    trees, first = [], np.zeros(len(form.forest), int)
    raw = form.last.shape[2]
    for number in range(len(form.feature)):
        members = np.flatnonzero(form.forest == number)
        first[members] = raw * np.arange(len(members))
        last = np.concatenate([np.zeros((form.value.shape[3], 0)), *form.last[members, :-1].astype(np.float64)], axis=1)
        leaves, edges = form.value[number].astype(np.float64) @ last, rounding_edges(form.threshold[number])
        trees.append([_tree(*tree) for tree in zip(form.feature[number], edges, leaves, strict=True)])
    return {
        "forest": form.forest.tolist(), "first": first.tolist(), "bias": _short(form.last[:, -1]), "trees": trees,
    }  # fmt: skip


def _tree(
    feature: Int[np.ndarray, " node"], edges: Float[np.ndarray, " node"], leaves: Float[np.ndarray, "leaf output"],
    node: int = 0,
) -> Any:  # fmt: skip
    """A tuple of feature, cut, left and right, or the list of a leaf."""
    while node < len(feature) and np.isinf(edges[node]):
        node = 2 * node + 1
    if node >= len(feature):
        return _short(leaves[node - len(feature)])
    left, right = (_tree(feature, edges, leaves, 2 * node + side) for side in (1, 2))
    return int(feature[node]), float(edges[node]), left, right
