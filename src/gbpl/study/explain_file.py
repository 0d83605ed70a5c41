"""Explanations for a few rows of a file, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gbpl.frozen.explain import Explanation
from gbpl.frozen.file import SavedPolicy
from gbpl.study.decide_file import ROWS, batch_features, batch_group, needed_columns
from gbpl.tables.frames import TableError
from gbpl.tables.read import open_batches

__all__ = ["MOST_EXPLAINED", "check_explained", "explain_file"]

MOST_EXPLAINED = 100


def check_explained(rows: Sequence[int], columns: Sequence[str], fixed: Sequence[str]) -> None:
    """Refuse what are no row numbers, more than can be read, and columns that the policy does not have."""
    wrong = next((row for row in rows if row < 0), None)
    if wrong is not None:
        raise TableError(f"--explain takes row numbers, 0 for the first, got {wrong}; they are those of the decisions")
    if len(rows) > MOST_EXPLAINED:
        raise TableError(f"--explain takes up to {MOST_EXPLAINED} rows, got {len(rows)}; name fewer")
    unknown = next((name for name in fixed if name not in columns), None)
    if unknown is not None:
        raise TableError(f"--fixed names {unknown!r}, which the policy does not use; it uses {', '.join(columns[:20])}")
    if fixed and not rows:
        raise TableError("--fixed is for the changes of --explain; name the rows to explain too")


def explain_file(
    policy: SavedPolicy,
    data: Path,
    rows: Sequence[int],
    *,
    fixed: Sequence[str] = (),
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> dict[int, Explanation]:
    """The explanation of each row, by its number, as the decisions of `decide_file` count them."""
    needed, kinds = needed_columns(policy)
    check_explained(rows, needed, fixed)
    found: dict[int, Explanation] = {}
    first, wanted = 0, sorted(set(rows))
    with open_batches(data, columns=needed, kinds=kinds, rows=ROWS, encoding=encoding, delimiter=delimiter) as batches:
        for batch in batches:
            x, groups = batch_features(policy, batch, needed, first)[0], batch_group(policy, batch)
            for row in (row for row in wanted if first <= row < first + len(x)):
                at = slice(row - first, row - first + 1)
                group = None if groups is None else groups[at]
                found[row] = policy.explain(np.asarray(x[at]), fixed=fixed, group=group)
            first += len(x)
            if wanted and first > wanted[-1]:
                break
    if len(found) < len(wanted):
        raise TableError(f"--explain names row {wanted[-1]}, and {data.name} has {first:,} rows, counted from 0")
    return {row: found[row] for row in dict.fromkeys(rows)}
