"""What a column holds: numbers, categories, dates, an identifier, or nothing that a policy could use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.frames import TableError, as_codes, as_floats, is_gone, is_missing, plain_array, type_family

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

__all__ = ["EXACT", "Kind", "RawColumn", "check_finite", "kind_of", "level_text", "read_column"]

IDENTIFIER_NAME = re.compile(r"(^|[_. ])id$|(case|client|customer|hh|order|patient|person|rec|record|row|user)id$")
DISTINCT = 20  # rows from which a column without a repeated value counts as an identifier
EXACT = 2.0**53  # up to here every integer is a float


class Kind(StrEnum):
    """What a column holds."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    CATEGORY = "category"
    DATE = "date"
    NESTED = "nested"  # lists, records, complex numbers: not one plain value per row
    EMPTY = "empty"
    CONSTANT = "constant"
    IDENTIFIER = "identifier"
    TEXT = "text"


@dataclass(frozen=True, slots=True, eq=False)
class RawColumn:
    """A column as read: numbers, or codes into `levels`, -1 where missing; `odd`: the first row without a number."""

    kind: Kind  # number, boolean, category, date or nested
    values: np.ndarray
    missing: Bool[np.ndarray, " row"]
    levels: tuple[str, ...] = ()
    types: str = ""
    odd: int = 0


def level_text(value: Any) -> str:
    """A level's text; whole floats are written as integers, which frames turn into floats where some are missing."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, np.generic | Decimal):
        value = float(value) if isinstance(value, Decimal) else value.item()
    whole = isinstance(value, float) and value.is_integer() and abs(value) <= EXACT
    return str(int(value)) if whole else str(value)


def _of_codes(
    codes: Int[np.ndarray, " row"], distinct: Sequence[Any], types: str = "", odd: int | None = None
) -> RawColumn:
    """Text levels: values that read the same, such as 1 and '1', are one level."""
    place: dict[str, int] = {}
    moved = [-1 if is_gone(value) else place.setdefault(level_text(value), len(place)) for value in distinct]
    codes = np.array([*moved, -1], np.int64)[codes]
    first = int(np.argmax(codes >= 0)) if odd is None and len(codes) else odd or 0
    return RawColumn(Kind.CATEGORY, codes, codes < 0, tuple(place), types, first)


def _of_texts(texts: list[str | None], types: str = "", odd: int | None = None) -> RawColumn:
    place = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    return _of_codes(np.fromiter(map(place.__getitem__, texts), np.int64, len(texts)), list(place), types, odd)


def _of_objects(listed: list[Any], name: str, as_text: bool) -> RawColumn:
    types = set(map(type, listed))
    if types <= {str, type(None)}:
        return _of_texts(listed)
    missing = np.fromiter(map(is_gone, listed), bool, len(listed))
    family = {kind: type_family(kind) for kind in types}
    rows = [row for row in range(len(listed)) if not missing[row]]
    present = {type(listed[row]) for row in rows}
    families = {family[kind] for kind in present}
    zeros = np.zeros(len(listed))
    if families & {"nested", "complex"}:
        words = "lists or records" if "nested" in families else "complex numbers"
        return RawColumn(Kind.NESTED, zeros, missing, types=words)
    if not as_text and families == {"date"}:
        return RawColumn(Kind.DATE, zeros, missing)
    if not as_text and (families <= {"boolean", "number"} or families == {"span"}):
        kind = Kind.BOOLEAN if families == {"boolean"} else Kind.NUMBER
        return RawColumn(kind, as_floats(listed, rows, name), missing)
    odd = next((row for row in rows if family[type(listed[row])] not in ("boolean", "number")), 0)
    words = "" if families <= {"text"} else ", ".join(sorted(kind.__name__ for kind in present))
    texts = [None if gone else level_text(value) for value, gone in zip(listed, missing.tolist(), strict=True)]
    return _of_texts(texts, words, odd)


def read_column(values: Any, name: str, *, as_text: bool = False) -> RawColumn:
    """A column by what it holds; with `as_text`, by its levels, each value on its own."""
    coded = as_codes(values)
    if coded is not None:
        return _of_codes(*coded)
    array = plain_array(values, name)
    sort = array.dtype.kind
    if sort in "OUST":
        return _of_objects(array.tolist(), name, as_text)
    if sort in "MVc":
        words = "complex numbers" if sort == "c" else "lists or records"
        return RawColumn(Kind.DATE if sort == "M" else Kind.NESTED, array, is_missing(array), types=words)
    if as_text:
        distinct, codes = np.unique(array, return_inverse=True)
        return _of_codes(codes, list(distinct))
    return RawColumn(Kind.BOOLEAN if sort == "b" else Kind.NUMBER, array, is_missing(array))


def check_finite(raw: RawColumn, name: str, first_row: int = 0) -> None:
    if raw.kind is Kind.NUMBER and raw.values.dtype.kind == "f" and np.isinf(raw.values).any():
        rows = np.flatnonzero(np.isinf(raw.values))
        raise TableError(
            f"column {name!r} has {len(rows)} infinite value(s), first in row {first_row + rows[0]}; write them as "
            "missing, or drop those rows"
        )


def kind_of(raw: RawColumn, name: str) -> Kind:
    rows, present = len(raw.missing), raw.values[~raw.missing]
    count = len(present)
    if count == 0 or raw.kind in (Kind.DATE, Kind.NESTED):
        return raw.kind if count else Kind.EMPTY
    if raw.kind is Kind.CATEGORY:
        distinct = int((np.bincount(present) > 0).sum())
        if distinct == 1 and count == rows:
            return Kind.CONSTANT
        if distinct == count >= DISTINCT:
            return Kind.IDENTIFIER
        return Kind.TEXT if distinct > max(50, count / 2) else Kind.CATEGORY
    low, high = present.min().item(), present.max().item()
    if low == high and count == rows:
        return Kind.CONSTANT
    named = name.endswith(("ID", "Id")) or IDENTIFIER_NAME.search(name.casefold()) is not None
    if raw.kind is Kind.BOOLEAN or count < DISTINCT or not (named or high - low == count - 1):
        return raw.kind
    different = bool((present == np.floor(present)).all()) and len(np.unique(present)) == count
    return Kind.IDENTIFIER if different else Kind.NUMBER
