"""Decisions for a file of any size: batch by batch in, batch by batch out, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.frames import TableError, column
from gbpl.persistence import SavedPolicy
from gbpl.table_writer import open_writer
from gbpl.tables import open_batches

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Decided", "decide_file"]

ROWS = 32_768  # a batch: large enough for the arithmetic to outweigh the reading


@dataclass(slots=True)
class Decided:
    """What was decided over a file: rows by action, rows for a person, what was filled in, and the sum of gains.

    `deferred` and `gain` are None where the policy has no draws to disagree, or no slope to count gains by.
    """

    rows: int = 0
    taken: Counter[Any] = field(default_factory=Counter)
    deferred: int | None = None
    gain: float | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "rows": self.rows,
            "actions": {str(label): count for label, count in self.taken.items()},
            "deferred": self.deferred,
            "mean_expected_gain": None if self.gain is None or not self.rows else self.gain / self.rows,
            "filled_in": dict(self.counts),
        }


def decide_file(
    policy: SavedPolicy,
    data: Path,
    out: Path,
    *,
    keep: Sequence[str] = (),
    defer: float | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    told: Callable[[int, int | None], None] | None = None,
) -> Decided:
    """Decide every row of a table and write the decisions; columns named in `keep` are copied beside them.

    `told(done, total)` hears of the progress; the total is None where the file does not say.
    """
    needed, kinds = _needed(policy)
    columns = list(dict.fromkeys([*needed, *keep]))
    writer = open_writer(out, inputs=[data])
    with open_batches(data, columns=columns, kinds=kinds, rows=ROWS, encoding=encoding, delimiter=delimiter) as batches:
        found = Decided(taken=Counter({label: 0 for label in policy.actions_.tolist()}))
        with writer:
            for batch in batches:
                writer.write(_decided(policy, batch, needed, keep, defer, found))
                if told is not None:
                    told(found.rows, batches.total_rows)
            if found.rows == 0:
                raise TableError(f"{data.name} has no rows; there is nothing to decide")
    return found


def _needed(policy: SavedPolicy) -> tuple[list[str], dict[str, str]]:
    """Columns that the policy looks at, and what they hold."""
    if policy.encoder is not None:
        return policy.encoder.columns, policy.encoder.arrow_types()
    names = getattr(policy, "feature_names_in_", None)
    if names is None:
        raise TableError(
            "this policy was fitted to an array without names, so columns of a table cannot be told apart; fit it to a "
            "frame, or with gbpl fit"
        )
    return names.tolist(), {name: "number" for name in names}


def _numbers(batch: Any, name: str, first_row: int) -> Float[np.ndarray, " row"]:
    """A column of a policy without an encoder, which knows nothing of text or of missing values."""
    values = column(batch, name)
    if values.dtype.kind not in "biuf":
        raise TableError(f"column {name!r} must be numbers, as in the fit, and has other values; encode it first")
    numbers = values.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise TableError(
            f"column {name!r} is missing or infinite in row {first_row + wrong[0]}, and this policy takes numbers "
            "only; fill it in, or drop the row"
        )
    return numbers


def _decided(
    policy: SavedPolicy, batch: Any, needed: Sequence[str], keep: Sequence[str], defer: float | None, found: Decided
) -> dict[str, Any]:
    """The columns to write for a batch; `found` grows by it."""
    if policy.encoder is None:
        x: Any = np.column_stack([_numbers(batch, name, found.rows) for name in needed])
    else:
        x, counts = policy.encoder.apply(batch, first_row=found.rows)
        found.counts.update(counts)
    decided = policy.decide(x, defer=defer)
    made = {"row": np.arange(found.rows, found.rows + len(decided)), **decided.to_dict()}
    clash = [name for name in keep if name in made]
    if clash:
        raise TableError(f"the column {clash[0]!r} to keep has the name of a decision's column; rename it first")
    found.rows += len(decided)
    for label, count in zip(*np.unique(decided.action, return_counts=True), strict=True):
        found.taken[label.item() if hasattr(label, "item") else label] += int(count)
    if decided.deferred is not None:
        found.deferred = (found.deferred or 0) + int(decided.deferred.sum())
    if decided.expected_gain is not None:
        found.gain = (found.gain or 0.0) + float(decided.expected_gain.sum())
    return {"row": made.pop("row"), **{name: batch.column(name) for name in keep}, **made}
