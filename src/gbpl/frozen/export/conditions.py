"""A small rule as JSON conditions in JsonLogic (jsonlogic.com), which feature-flag systems take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gbpl.frozen.export.language import said
from gbpl.frozen.export.subject import is_small, subject

if TYPE_CHECKING:
    pass

__all__ = ["to_conditions"]


def to_conditions(rule: Any, *, flag: str | None = None) -> Any:
    """A small rule in JsonLogic: a value for `json.dumps` that its interpreters turn into the label of the action.

    JsonLogic is `{"if": [condition, then, otherwise]}` with `{"var": "age"}` for the columns, and has interpreters in
    most languages. With the name of a `flag` it is a whole file of flagd, the flag server of OpenFeature, whose
    targeting is JsonLogic: one variant per action. Categories are compared as text, and null, or a column that is not
    there, is missing. Only `if`, `var`, `>`, `>=`, `===`, `!==`, `in`, `!`, `and`, `or` and `+` are used.

    Whole policies are refused: thousands of numbers are no conditions.

    >>> import json
    >>> import numpy as np
    >>> from gbpl.decisions.tree import LEAF, Tree
    >>> from gbpl.frozen.small_rule import SmallRule
    >>> nan = float("nan")
    >>> stump = Tree.of([0, LEAF, LEAF], [34.5, nan, nan], [1, -1, -1], [2, -1, -1], [-1, 0, 1])
    >>> small = SmallRule(stump, np.array(["wait", "call"]), ("age",))
    >>> print(json.dumps(to_conditions(small)))
    {"if": [{"===": [{"var": "age"}, null]}, null, {">": [{"var": "age"}, 34.5]}, "call", "wait"]}
    """
    of = subject(rule, "to_conditions")
    if not is_small(of):
        raise ValueError(
            f"a whole policy is no list of conditions, got {of!r:.80}; learn a small rule for it "
            "(gbpl.learn(..., small_rule='tree:2'), gbpl fit --rule tree:2), or use to_sql, to_python or to_onnx"
        )
    labels = of.actions_.tolist()
    if flag is None:
        return said(of, _JsonLogic(labels))
    variants = [str(label) for label in labels]
    if len(set(variants)) < len(variants):
        raise ValueError(f"two of the actions {labels} read the same as names of variants; give them other labels")
    alike = len({type(label) for label in labels}) == 1
    settings = {
        "state": "ENABLED",
        "variants": dict(zip(variants, labels if alike else variants, strict=True)),
        "defaultVariant": variants[0],
        "targeting": said(of, _JsonLogic(variants)),
    }
    return {"$schema": "https://flagd.dev/schema/v0/flags.json", "flags": {flag: settings}}


class _JsonLogic:
    """JsonLogic as a `Language`."""

    def __init__(self, labels: list[Any]) -> None:
        self.labels = labels

    def label(self, number: int) -> Any:
        return self.labels[number]

    def nothing(self) -> Any:
        return None

    def number(self, column: str, fill: float | None) -> Any:
        value = _var(column)
        return value if fill is None else {"if": [{"===": [value, None]}, fill, value]}

    def above(self, value: Any, cut: float) -> Any:
        return {">": [value, cut]}

    def always(self, true: bool) -> Any:
        return true

    def missing(self, column: str, *, text: bool) -> Any:
        return {"===": [_var(column), None]}

    def level(self, column: str, text: str) -> Any:
        return {"===": [_var(column), text]}

    def other(self, column: str, levels: Sequence[str], or_missing: bool) -> Any:
        new = {"!": [{"in": [_var(column), list(levels)]}]}
        return new if or_missing else {"and": [{"!==": [_var(column), None]}, new]}

    def either(self, conditions: Sequence[Any]) -> Any:
        return conditions[0] if len(conditions) == 1 else {"or": list(conditions)}

    def every(self, conditions: Sequence[Any]) -> Any:
        return conditions[0] if len(conditions) == 1 else {"and": list(conditions)}

    def enough(self, start: int, points: Sequence[tuple[Any, int]]) -> Any:
        return {">=": [{"+": [start, *({"if": [condition, count, 0]} for condition, count in points)]}, 0]}

    def choose(self, condition: Any, then: Any, otherwise: Any) -> Any:
        more = otherwise["if"] if isinstance(otherwise, dict) else [otherwise]
        return {"if": [condition, then, *more]}


def _var(column: str) -> dict[str, str]:
    """A column; JsonLogic takes a point for a step into a record, and no name for the whole of it."""
    if not column or "." in column:
        raise ValueError(f"JsonLogic cannot name the column {column!r}: a point parts names; rename it, and fit again")
    return {"var": column}
