"""A table of any library, read by columns: names, rows, and one column as a plain array.

A frame is a pandas or polars DataFrame, a pyarrow Table or RecordBatch, or a mapping from name to values; none of these
libraries is imported here. A message says the value, the rule and the remedy.
"""

from __future__ import annotations

import datetime
import difflib
import numbers
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.arrow_arrays import is_plain, to_plain

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = [
    "TableError", "as_codes", "as_floats", "column", "column_names", "column_places", "is_gone", "is_missing",
    "nearest", "picked_column", "plain_array", "require_columns", "rows_of", "type_family",
]  # fmt: skip

DELIMITERS = (",", ";", "\t", "|")  # of text, where a header is searched for them


class TableError(ValueError):
    """A table, or the file of one, that cannot be used as asked."""


def _library(value: Any) -> str:
    return _library_of(type(value))  # type: ignore[arg-type]  # types are hashable


@lru_cache(maxsize=256)  # asked several times per column, also of a single row
def _library_of(kind: type) -> str:
    roots = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return next((name for name in ("pandas", "polars", "pyarrow") if name in roots), "")


def _keys(frame: Any) -> list[Any]:
    library = _library(frame)
    if library == "pyarrow" and hasattr(frame, "schema") and hasattr(frame, "num_rows"):
        return list(frame.schema.names)
    if library in ("pandas", "polars") and hasattr(type(frame), "__len__") and hasattr(frame, "columns"):
        return list(frame.columns)
    if isinstance(frame, Mapping):
        return list(frame)
    raise TableError(
        "a table is a pandas or polars DataFrame (a lazy one collected), a pyarrow Table or RecordBatch, or a mapping "
        f"from name to values; got {type(frame).__name__}"
    )


def column_names(frame: Any) -> list[str]:
    """Names of the columns as text, each once."""
    names = [str(key) for key in _keys(frame)]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise TableError(f"{names.count(twice)} columns are named {twice!r}; a name belongs to one column: rename them")
    return names


def rows_of(frame: Any) -> int:
    """Number of rows."""
    keys = _keys(frame)
    if _library(frame):
        return int(frame.num_rows) if hasattr(frame, "num_rows") else len(frame)
    lengths: dict[str, int] = {}
    for key in keys:
        if isinstance(frame[key], str | bytes) or not hasattr(frame[key], "__len__"):
            raise TableError(
                f"column {str(key)!r} is the single value {frame[key]!r:.40}; give a list, one value per row"
            )
        lengths[str(key)] = len(frame[key])
    if len(set(lengths.values())) > 1:
        first, rows = next(iter(lengths.items()))
        other = next(name for name, length in lengths.items() if length != rows)
        raise TableError(
            f"column {first!r} has {rows} rows, but {other!r} has {lengths[other]}; give them the same length"
        )
    return next(iter(lengths.values()), 0)


def rows_at(frame: Any, numbers: Int[np.ndarray, " some"]) -> Any:
    """Some of the rows, in the same kind of table."""
    library = _library(frame)
    if library == "pandas":
        return frame.iloc[numbers]
    if library == "pyarrow":
        return frame.take(numbers)
    if library == "polars":
        return frame[numbers]
    return {key: np.asarray(frame[key])[numbers] for key in _keys(frame)}


def nearest(name: Any, names: Iterable[str]) -> str:
    """`; did you mean 'earnings'?`, or nothing if no name is near; case does not count."""
    plain = {text.strip().casefold(): text for text in reversed(list(names))}
    near = difflib.get_close_matches(str(name).strip().casefold(), list(plain), 1)
    return f"; did you mean {plain[near[0]]!r}?" if near else ""


def require_columns(names: Iterable[str], available: Sequence[str], what: str) -> None:
    """Refuse names that are not there, with the nearest that is; `what` is the table, such as `jtpa.csv`."""
    there = set(available)
    absent = [name for name in names if name not in there]
    if not absent:
        return
    more = f" and {len(absent) - 6} more" if len(absent) > 6 else ""
    also = f" (nor {', '.join(map(repr, absent[1:6]))}{more})" if len(absent) > 1 else ""
    near, listed = nearest(absent[0], available), _listed(available)
    hint = _misread(available) or (f"{near} I{listed[3:]}" if near else listed)  # all names: the nearest may be wrong
    raise TableError(f"{what} has no column {absent[0]!r}{also}{hint}")


def _listed(names: Sequence[str]) -> str:
    if not len(names):
        return "; it has no columns"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"; its columns are {', '.join(map(repr, names[:10]))}{more}"


def _misread(names: Sequence[str]) -> str:
    """A hint where a single column's name looks like a header: the text has another delimiter than the one used."""
    mark = max(DELIMITERS, key=names[0].count) if len(names) == 1 else ""
    if not mark or mark not in names[0]:
        return ""
    shown = "tab" if mark == "\t" else repr(mark)
    return f"{_listed(names)}; give another delimiter, such as --delimiter {shown}"


def column_places(frame: Any) -> dict[str, Any]:
    """Each column by name: where it is, or under which key."""
    names, keys = column_names(frame), _keys(frame)
    return dict(zip(names, range(len(keys)) if _library(frame) else keys, strict=True))


def picked_column(frame: Any, place: Any) -> Any:
    library = _library(frame)
    if library == "pandas":
        return frame.iloc[:, place]
    if library == "polars":
        return frame.to_series(place)
    return frame.column(place) if library == "pyarrow" else frame[place]


def column(frame: Any, name: str) -> np.ndarray:
    """One column: numbers with NaN where missing, spans of time in days, dates as numpy has them, objects with None."""
    places = column_places(frame)
    require_columns([name], list(places), "the table")
    rows_of(frame)
    values = picked_column(frame, places[name])
    coded = as_codes(values)
    array = plain_array(values, name) if coded is None else _objects([*coded[1], None])[coded[0]]  # code -1 is missing
    if array.dtype.kind != "O":
        return array
    missing = is_missing(array)
    families = {type_family(kind) for kind in set(map(type, array[~missing].tolist()))}
    if families == {"boolean"} and not missing.any():
        return array.astype(bool)
    if families != {"number"}:
        return _objects([None if gone else value for value, gone in zip(array, missing, strict=True)])
    tight = np.array(array.tolist()) if not missing.any() else array
    return tight if tight.dtype.kind in "iuf" else as_floats(array.tolist(), np.flatnonzero(~missing).tolist(), name)


def is_missing(values: np.ndarray) -> Bool[np.ndarray, " row"]:
    """Where a column has None, NaN, or the NA and NaT of pandas."""
    if values.dtype.kind == "O":
        return np.fromiter(map(is_gone, values.tolist()), bool, len(values))
    return values != values if values.dtype.kind in "fcmMT" else np.zeros(len(values), bool)


def is_gone(value: Any) -> bool:
    """The same for one value; NA answers no comparison, an array answers many."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return not hasattr(value, "__len__") and bool(value != value)


def plain_array(values: Any, name: str) -> np.ndarray:
    library = _library(values)
    if library == "pandas":
        cast = values.dtype.kind in "iuf" and not isinstance(values.dtype, np.dtype) and values.isna().any()
        array = values.to_numpy(dtype=np.float64, na_value=np.nan) if cast else values.to_numpy()
    elif library == "polars":
        listed = values.dtype.is_nested() or str(values.dtype) in ("Object", "Null", "Int128", "UInt128")
        array = _objects(values.to_list()) if listed else values.to_numpy()
    elif library == "pyarrow" and is_plain(values):
        array = to_plain(values)
    elif library == "pyarrow":
        timed = str(values.type).startswith(("time", "date", "dura"))
        array = values.to_numpy(zero_copy_only=False) if timed else _objects(values.to_pylist())
    elif np.ma.isMaskedArray(values):
        array = _objects(values.tolist())  # None where masked
    else:
        array = np.asarray(values) if hasattr(values, "__array__") else _objects(list(values))
    if array.ndim != 1:
        raise TableError(f"column {name!r} has shape {array.shape}; a column has one value per row")
    if array.dtype.kind == "O" and Decimal in set(map(type, array)) <= {Decimal, float, type(None)}:
        return array.astype(np.float64)
    return array / np.timedelta64(1, "D") if array.dtype.kind == "m" else array


def _objects(listed: list[Any]) -> np.ndarray:
    return np.fromiter(listed, object, len(listed))  # np.array would turn ["a", 1] into text, and lists into columns


def as_codes(values: Any) -> tuple[Int[np.ndarray, " row"], list[Any]] | None:
    """Codes, -1 where missing, and the distinct values; None where the column is not held that way."""
    library = _library(values)
    if library == "pandas":
        if type(values.dtype).__name__ == "CategoricalDtype":
            holder = getattr(values, "cat", values)
            return np.asarray(holder.codes).astype(np.int64), holder.categories.tolist()
        if type(values.dtype).__name__ == "StringDtype" or str(values.dtype) == "string[pyarrow]":
            codes, distinct = values.factorize()
            return np.asarray(codes, np.int64), list(distinct)
    if library != "pyarrow" or not str(values.type).startswith(("dictionary", "string", "large_string", "binary")):
        return None
    if not str(values.type).startswith("dictionary"):
        values = values.dictionary_encode()
    chunks = values.unify_dictionaries().chunks if hasattr(values, "chunks") else [values]
    parts = [np.zeros(0, np.int64)]
    for chunk in chunks:
        index = to_plain(chunk.indices)
        parts.append(np.where(index == index, index, -1).astype(np.int64))  # NaN where missing
    return np.concatenate(parts), chunks[0].dictionary.to_pylist() if chunks else []


def type_family(kind: type) -> str:
    families: tuple[tuple[str, Any], ...] = (
        ("boolean", bool | np.bool_),
        ("span", datetime.timedelta | np.timedelta64),  # before numbers: numpy counts it among the integers
        ("number", numbers.Real | Decimal | np.integer | np.floating),
        ("date", datetime.date | datetime.time | np.datetime64),
        ("text", str | bytes),
        ("complex", complex | np.complexfloating),
    )
    family = next((word for word, types in families if issubclass(kind, types)), "")
    return family or ("date" if kind.__name__ == "Period" else "nested" if hasattr(kind, "__len__") else "other")


def as_floats(listed: list[Any], rows: list[int], name: str) -> Float[np.ndarray, " row"]:
    day = datetime.timedelta(days=1)
    values = np.full(len(listed), np.nan)
    for row in rows:
        value = listed[row]
        try:
            values[row] = value / day if isinstance(value, datetime.timedelta | np.timedelta64) else float(value)
        except OverflowError:
            raise TableError(
                f"column {name!r} has an integer beyond the range of numbers (1.8e308) in row {row}; take its "
                "logarithm, or write it as text if it is a code"
            ) from None
    return values
