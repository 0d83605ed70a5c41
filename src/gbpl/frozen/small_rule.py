"""A tree or scorecard with the labels and columns it was learned with: decides, speaks, and is written as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.decisions.scorecard import Scorecard
from gbpl.decisions.tree import LEAF, Tree
from gbpl.frozen.export.conditions import to_conditions
from gbpl.frozen.export.python import to_python
from gbpl.frozen.export.sql import to_sql
from gbpl.frozen.onnx import to_onnx
from gbpl.frozen.policy import as_table
from gbpl.frozen.schema import LABELS, labels_of
from gbpl.runtime.files import write_text
from gbpl.tables.conditions import at_most, more_than, shown
from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import require_columns

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["SmallRule"]

FORMAT = 1
TREE, CARD = "tree", "scorecard"
MOST_NODES = 1 << 12
MOST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class SmallRule:
    """A rule over encoded columns, `feature_names`, that gives the labels of `actions_`; numpy is all it needs.

    With an `encoder` it takes raw tables too: any frame, a dict of columns, one row as a dict, or a list of such. A
    missing value is what the encoder makes of it. Everything in `rule` is by number, of columns and of actions.
    """

    rule: Tree | Scorecard
    actions_: np.ndarray
    feature_names: tuple[str, ...]
    encoder: Encoder | None = None

    # -- deciding -----------------------------------------------------------------------------------------

    def encode(self, X: Any) -> Float[np.ndarray, "row feature"]:
        """The encoded columns of a table; an array of them stays as it is."""
        X = as_table(X)
        if self.encoder is not None and not isinstance(X, np.ndarray):
            return self.encoder.apply(X)[0]
        names = self.feature_names
        if isinstance(X, Mapping) or hasattr(X, "columns"):
            require_columns(names, list(X) if isinstance(X, Mapping) else [str(name) for name in X.columns], "X")
            X = np.column_stack([np.asarray(X[name]) for name in names])
        x = np.asarray(X, np.float64)
        x = x[None] if x.shape == (len(names),) else x
        if x.ndim != 2 or x.shape[1] != len(names):
            raise ValueError(f"X must have the {len(names)} features of the rule, got shape {x.shape}")
        if not np.isfinite(x).all():
            row = int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])
            raise ValueError(f"X has missing or infinite values, first in row {row}; drop or impute those rows")
        return x

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row's action."""
        return self.actions_[self.rule.actions(self.encode(X))]

    # -- in words -----------------------------------------------------------------------------------------

    def condition(self, feature: int, cut: float, *, above: bool = False) -> str:
        """What holds where an encoded column is at most `cut`, or above it."""
        if self.encoder is not None:
            return (more_than if above else at_most)(self.encoder, feature, cut)
        return f"{self.feature_names[feature]} {'>' if above else '<='} {shown(cut)}"

    def column(self, feature: int) -> str:
        """The raw column that an encoded one comes from."""
        return self.feature_names[feature] if self.encoder is None else self.encoder.raw_names[feature]

    @property
    def columns(self) -> list[str]:
        """The raw columns that the rule looks at, each once."""
        return list(dict.fromkeys(self.column(int(j)) for j in self.rule.feature.tolist() if j != LEAF))

    def __str__(self) -> str:
        return "\n".join(_tree_lines(self, 0, "") if isinstance(self.rule, Tree) else _card_lines(self, self.rule))

    __repr__ = __str__

    # -- keeping ------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The rule as plain JSON, from which `of_dict` makes it again; NaN, at the leaves, is None."""
        made: dict[str, Any] = {"format": FORMAT, "kind": TREE if isinstance(self.rule, Tree) else CARD}
        made |= {"actions": self.actions_.tolist(), "features": list(self.feature_names)}
        made["encoder"] = None if self.encoder is None else self.encoder.to_json()
        names: tuple[str, ...] = ("feature", "threshold", "left", "right", "action")
        if isinstance(self.rule, Scorecard):
            names = ("feature", "threshold", "points", "start")
        parts = {name: getattr(self.rule, name).tolist() for name in names}
        cuts = [cut if math.isfinite(cut) else None for cut in parts["threshold"]]
        return made | {made["kind"]: parts | {"threshold": cuts}}

    @classmethod
    def of_dict(cls, stored: Any) -> SmallRule:
        """The rule that `to_dict` wrote; anything else is refused."""
        try:
            return _read(stored)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            why = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__} ({error})"
            raise ValueError(f"this is not a stored rule: {why}; save it again where it was learned") from None

    def save(self, path: str | Path) -> None:
        """Write the rule as JSON, for `SmallRule.load`."""
        write_text(Path(path), json.dumps(self.to_dict(), allow_nan=False, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> SmallRule:
        """The rule in a file that `save` wrote; everything in it is checked."""
        path = Path(path)
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path} is no file of a rule; rules are written by SmallRule.save and by gbpl fit --rule")
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is no rule: {error}; save it again where it was learned") from None
        return cls.of_dict(stored)

    def to_sql(
        self, *, dialect: str = "duckdb", table: str | None = "people", keep: Sequence[str] | None = None
    ) -> str:
        """The rule as SQL, `CASE ... END`; `gbpl.to_sql` says what it returns."""
        return to_sql(self, dialect=dialect, table=table, keep=keep)

    def to_python(self) -> str:
        """The rule as a Python file without numpy; `gbpl.to_python` says what it holds."""
        return to_python(self)

    def to_onnx(self, path: str | Path) -> None:
        """Write the rule as an ONNX file, which takes its raw columns; `gbpl.to_onnx` says what it holds."""
        to_onnx(self, path)

    def to_conditions(self, *, flag: str | None = None) -> Any:
        """The rule as JSON conditions (JsonLogic), or as a file of feature flags; see `gbpl.to_conditions`."""
        return to_conditions(self, flag=flag)


def _tree_lines(small: SmallRule, node: int, indent: str) -> list[str]:
    tree = small.rule
    assert isinstance(tree, Tree)
    if tree.feature[node] == LEAF:
        return [f"{indent}give {small.actions_[tree.action[node]]}"]
    feature, cut = int(tree.feature[node]), float(tree.threshold[node])
    sides = [(small.condition(feature, cut, above=above), above) for above in (False, True)]
    if small.encoder is not None and small.encoder.kinds[feature] != "number":
        sides.reverse()  # nobody asks whether it is not
    lines: list[str] = []
    for text, above in sides:
        inner = _tree_lines(small, int((tree.right if above else tree.left)[node]), f"{indent}  ")
        head = f"{indent}if {text}:"
        lines += [f"{head} {inner[0].strip()}"] if len(inner) == 1 else [head, *inner]
    return lines


def _card_lines(small: SmallRule, card: Scorecard) -> list[str]:
    """Points relative to the first action, whose points are all zero in what is learned."""
    labels = small.actions_.tolist()

    def told(points: Int[np.ndarray, " action"]) -> str:
        return ", ".join(
            f"{count:+d} for {label}" for label, count in zip(labels, points.tolist(), strict=True) if count
        )

    lines = [f"start: {told(card.start) or 'no points'}"]
    for feature, cut, points in zip(card.feature.tolist(), card.threshold.tolist(), card.points, strict=True):
        lines.append(f"{small.condition(feature, cut, above=True)}: {told(points)}")
    tie = f"; {labels[1]} if equal" if len(labels) == 2 else "; of equal ones the first"
    return [*lines, f"give the action with the most points{tie}"]


# -- reading ----------------------------------------------------------------------------------------------------------


def _expect(fine: bool, what: str) -> None:
    if not fine:
        raise ValueError(what)


def _whole(listed: Any, what: str, low: int, high: int) -> Int[np.ndarray, " entry"]:
    fine = isinstance(listed, list) and all(type(number) is int and low <= number <= high for number in listed)
    _expect(fine and len(listed) <= MOST_NODES, f"its {what} are not whole numbers from {low} to {high}")
    return np.array(listed, np.int64)


def _cuts(listed: Any, inner: Any) -> Float[np.ndarray, " entry"]:
    fine = isinstance(listed, list) and len(listed) == len(inner)
    _expect(fine, "it does not have a threshold for each feature")
    for cut, needed in zip(listed, inner, strict=True):
        number = type(cut) in (int, float) and math.isfinite(cut)
        _expect(number if needed else cut is None, f"a threshold is {cut!r:.40}")
    return np.array([math.nan if cut is None else float(cut) for cut in listed])


def _read(stored: Any) -> SmallRule:
    _expect(isinstance(stored, dict) and stored.get("format") == FORMAT, f"its format is not {FORMAT}")
    kind, actions, features = stored["kind"], stored["actions"], stored["features"]
    _expect(kind in (TREE, CARD), f"its kind is {kind!r:.40}")
    _expect(isinstance(actions, list) and len(actions) >= 2, "it has fewer than two actions")
    _expect(all(type(label) in LABELS for label in actions), "an action is neither text nor a number")
    _expect(
        isinstance(features, list) and all(isinstance(name, str) for name in features), "its features have no names"
    )
    encoder = None if stored["encoder"] is None else Encoder.from_json(stored["encoder"])
    _expect(encoder is None or encoder.names == features, "its features are not those of its encoder")
    made = (_tree if kind == TREE else _card)(stored[kind], len(features), len(actions))
    return SmallRule(made, labels_of(actions), tuple(features), encoder)


def _tree(parts: Any, width: int, count: int) -> Tree:
    """Every node but the first has one parent, which comes before it: a tree, without cycles."""
    feature = _whole(parts["feature"], "features", LEAF, width - 1)
    leaf, last = feature == LEAF, len(feature) - 1
    left, right = (_whole(parts[name], name, -1, last) for name in ("left", "right"))
    action = _whole(parts["action"], "actions", -1, count - 1)
    _expect(last >= 0 and len(left) == len(right) == len(action) == last + 1, "its nodes are not whole")
    children = np.concatenate([left[~leaf], right[~leaf]])
    parents = np.tile(np.flatnonzero(~leaf), 2)
    fine = np.array_equal(np.sort(children), np.arange(1, last + 1)) and bool((children > parents).all())
    _expect(fine and bool((left[leaf] == -1).all() and (right[leaf] == -1).all()), "its nodes are no tree")
    _expect(bool((action[leaf] >= 0).all()), "a leaf has no action")
    return Tree(feature, _cuts(parts["threshold"], ~leaf), left, right, action)


def _card(parts: Any, width: int, count: int) -> Scorecard:
    feature = _whole(parts["feature"], "features", 0, width - 1)
    start = _whole(parts["start"], "points", -(1 << 31), 1 << 31)
    listed = parts["points"]
    _expect(isinstance(listed, list) and len(listed) == len(feature), "it does not have points for each condition")
    points = [_whole(row, "points", -(1 << 31), 1 << 31) for row in listed]
    _expect(all(len(row) == count for row in [*points, start]), "it does not have points for each action")
    cuts = _cuts(parts["threshold"], np.ones(len(feature), bool))
    return Scorecard(feature, cuts, np.array(points, np.int64).reshape(len(feature), count), start)
