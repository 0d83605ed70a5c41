"""What a user hands over, looked at as a whole: masked cells, dates, lazy frames, rows in different orders.

numpy would take each of these for numbers, or rows by their place, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from gbpl.tables.frames import TableError

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["LARGEST", "SMALLEST", "check_given", "check_magnitude"]

LARGEST, SMALLEST = 1e100, 1e-100  # squares, and sums of them, stay within what numbers hold


def check_given(X: Any, **others: Any) -> None:
    """Refuse what would be misread: `others` are the arguments of `fit` beside X, by name."""
    for name, values in {"X": X, **others}.items():
        _check_kind(values, name)
    _check_order({"X": X, **others})


def _check_kind(values: Any, name: str) -> None:
    if type(values).__name__ == "LazyFrame":
        raise TableError(f"{name} is a lazy frame, which has no rows yet; give {name}.collect()")
    if isinstance(values, Mapping) and name in ("X", "y", "controls") and not scipy.sparse.issparse(values):
        raise TableError(
            f"{name} is a {type(values).__name__}; give a frame, such as pandas.DataFrame({name}), or gbpl.learn"
        )
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        mask = np.ma.getmaskarray(values)
        row = int(np.argmax(mask.reshape(len(mask), -1).any(axis=1)))
        raise TableError(
            f"{name} has {int(mask.sum()):,} masked cell(s), first in row {row}; fill them in, or drop those rows"
        )
    kind = getattr(values, "dtype", None)
    temporal = getattr(kind, "is_temporal", None)  # of polars
    if temporal() if callable(temporal) else getattr(kind, "kind", "") in ("M", "m"):
        remedy = "name it by text" if name == "action" else "give numbers, such as the days since a start"
        raise TableError(f"{name} holds dates or times, not {'labels' if name == 'action' else 'numbers'}; {remedy}")


def _check_order(parts: Mapping[str, Any]) -> None:
    """Refuse two pandas objects with the same index in different orders: by place, rows would be mixed up."""
    indexed = {name: part.index for name, part in parts.items() if hasattr(part, "iloc") and hasattr(part, "index")}
    first = next(iter(indexed), "")
    for name, index in indexed.items():
        own = indexed[first]
        if len(index) != len(own) or index.equals(own) or not (index.is_unique and own.is_unique):
            continue
        if index.isin(own).all():
            raise TableError(
                f"{name} has the index of {first} in another order, so their rows do not belong together as they "
                f"stand; give {name}.loc[{first}.index] to match them, or {name}.to_numpy() if their order is right"
            )


def check_magnitude(
    values: Float[np.ndarray, "row ..."], name: str, rows: Int[np.ndarray, " row"] | None = None
) -> None:
    """Refuse numbers whose squares are beyond what numbers hold."""
    sizes = np.abs(values).reshape(len(values), -1).max(axis=1, initial=0.0)
    largest = float(sizes.max(initial=0.0))
    if not largest or SMALLEST <= largest <= LARGEST:
        return
    row = int(np.argmax(sizes))
    unit = "larger" if largest > LARGEST else "smaller"
    raise TableError(
        f"{name} goes up to {largest:.3g} in row {row if rows is None else int(rows[row])}, and squares of such "
        f"numbers cannot be computed; give it in {unit} units, between 1e-100 and 1e100, or correct the row"
    )
