"""Text that looks like numbers: a last line 'Total', '45,000', '45 %', '$45', a no-break space.

One such cell makes a column of numbers one of categories, which learns something else. It is named, with its cell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from gbpl.tables.frames import TableError

if TYPE_CHECKING:
    from gbpl.tables.columns import RawColumn

__all__ = ["number_text"]

PLAIN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
CODE = re.compile(r"[-+]?0\d+")  # '01' is no amount
MONEY = r"(?:[$€£¥]|[A-Z]{3})?"
THOUSANDS = r"\d{1,3}(?:[,.'\u2019 \u00a0\u202f\u2009]\d{3})+"
MARKED = re.compile(rf"\(?[-+\u2212]?\s*{MONEY}\s*[-+\u2212]?(?:{THOUSANDS}|\d+)(?:[.,]\d*)?\s*(?:%|{MONEY})\)?")
MANY = 20  # different numbers from which a column with hardly another cell is taken for one of numbers
FEW_ODD = 3  # different cells that are no numbers, up to which they count as accidents


def number_text(raw: RawColumn, name: str) -> str | None:
    """What is odd about a column of text that looks like numbers; None where it does not. Refused where it is clear.

    It is clear where at least 20 different numbers, in four of five rows, stand beside at most three other texts.
    """
    texts = [level.strip(" \t\r\n") for level in raw.levels]
    codes = [text for text in texts if CODE.fullmatch(text)]
    if raw.types or not texts or codes:
        return (
            f"column {name!r}: codes such as {codes[0]!r} are read as categories" if codes and not raw.types else None
        )
    plain = np.array([PLAIN.fullmatch(text) is not None for text in texts])
    marked = np.array([MARKED.fullmatch(text.strip()) is not None for text in texts]) & ~plain
    rows = np.bincount(raw.values[~raw.missing], minlength=len(texts))
    number, seen = plain | marked, rows > 0
    distinct, share = int(np.sum(number & seen)), float(rows[number].sum() / max(rows.sum(), 1))
    if distinct < 3 or share < 0.5 or (plain[seen].all() and distinct < MANY):
        return None
    if plain[seen].all():
        return f"column {name!r} looks like numbers, but is text, read as categories; convert it if these are amounts"
    odd = ~number & seen if (~number & seen).any() else marked & seen
    first = int(np.argmax(np.isin(raw.values, np.flatnonzero(odd))))
    cell, count = raw.levels[raw.values[first]], int(rows[odd].sum())
    what = f"column {name!r} looks like numbers, but row {first} has {cell!r:.40} ({count:,} such row(s))"
    if distinct >= MANY and share >= 0.8 and int(np.sum(~number & seen)) <= FEW_ODD:
        remedy = "write plain numbers, such as 45000" if number[seen].all() else "write NA, or drop the row"
        raise TableError(f"{what}; {remedy}, or leave the column out of the features")
    return f"{what}, so it is read as categories"
