"""Conditions on encoded features in words of the raw columns, with numbers that are easy to read."""

from __future__ import annotations

import numpy as np

from gbpl.tables.encoder import Encoder
from gbpl.tables.features import MISSING, OTHER, CategoryColumn, NumberColumn

__all__ = ["at_most", "more_than", "plainest", "shown"]

DIGITS = 17  # enough to write every float exactly


def plainest(low: float, high: float) -> float:
    """The number with the fewest digits in [low, high): a cut that is easy to read and moves no row to the other side.

    >>> plainest(1233.2, 1251.0), plainest(40.0, 41.0), plainest(2.71828, 2.71829)
    (1240.0, 40.0, 2.71828)
    """
    if low <= 0.0 < high:
        return 0.0
    for digits in range(DIGITS):
        for number in (low, low / 2.0 + high / 2.0, high):
            rounded = float(f"{number:.{digits}e}")
            if low <= rounded < high:
                return rounded
    return low


def shown(number: float) -> str:
    """A number in full, thousands separated: `float` of it without the commas is the number."""
    if number != 0.0 and not 1e-4 <= abs(number) < 1e15:
        return repr(float(number))
    whole, point, decimals = np.format_float_positional(abs(number), trim="-").partition(".")
    return f"{'-' if number < 0.0 else ''}{int(whole):,}{point}{decimals}"


def _asked(encoder: Encoder) -> list[tuple[NumberColumn | CategoryColumn, str | None]]:
    """The column of each feature, and its level; None for a number itself."""
    asked: list[tuple[NumberColumn | CategoryColumn, str | None]] = []
    for part in encoder.parts:
        if isinstance(part, NumberColumn):
            asked += [(part, None), (part, MISSING)][: len(part.kinds)]
        else:
            made = [part.made(word) for word, used in ((OTHER, part.other), (MISSING, part.missing)) if used]
            asked += [(part, level) for level in [*part.levels[int(part.single) :], *made]]
    return asked


def at_most(encoder: Encoder, feature: int, cut: float) -> str:
    """What holds where a feature is at most `cut`.

    >>> encoder, _ = Encoder.fit({"age": [31, None, 40, 52, 28, 60], "sex": ["f", "m", "f", "m", "m", "f"]})
    >>> at_most(encoder, 0, 34.5), at_most(encoder, 2, 0.0)
    ('age is known and <= 34.5', 'sex is not m')
    """
    part, level = _asked(encoder)[feature]
    if isinstance(part, CategoryColumn):
        gone = part.missing and level == part.made(MISSING)
        return f"{part.name} is known" if gone else f"{part.name} is not {level}"
    if level is not None:
        return f"{part.name} is known"
    either = f"{part.name} "
    if part.missing:  # missing numbers are on the side of the number they were filled with
        either += "is missing or " if part.fill <= cut else "is known and "
    if part.boolean:
        return f"{either}false" if part.missing else f"{either}is false"
    return f"{either}<= {shown(cut)}"


def more_than(encoder: Encoder, feature: int, cut: float) -> str:
    """What holds where a feature is above `cut`.

    >>> encoder, _ = Encoder.fit({"age": [31, None, 40, 52, 28, 60], "sex": ["f", "m", "f", "m", "m", "f"]})
    >>> more_than(encoder, 0, 34.5), more_than(encoder, 1, 0.0), more_than(encoder, 2, 0.0)
    ('age is missing or > 34.5', 'age is missing', 'sex is m')
    """
    part, level = _asked(encoder)[feature]
    if isinstance(part, CategoryColumn):
        gone = part.missing and level == part.made(MISSING)
        return f"{part.name} is missing" if gone else f"{part.name} is {level}"
    if level is not None:
        return f"{part.name} is missing"
    either = f"{part.name} "
    if part.missing:
        either += "is known and " if part.fill <= cut else "is missing or "
    if part.boolean:
        return f"{either}true" if part.missing else f"{either}is true"
    return f"{either}> {shown(cut)}"
