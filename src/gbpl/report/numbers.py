"""Numbers as a reader sees them, and the little arithmetic of intervals; numbers.js holds the same functions.

Plain Python, so that a summary read back from a file can be reported without anything else installed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from statistics import NormalDist

__all__ = [
    "MINUS", "UNKNOWN", "amount", "ascii_number", "chance", "count", "decimal_places", "exponent", "interval", "number",
    "of_rows", "percent", "quantile", "reach", "two_digits",
]  # fmt: skip

UNKNOWN = "–"  # noqa: RUF001 - an en dash in a table cell
MINUS = "\u2212"
SPACE = "\u00a0"  # no line break between a number and its sign
DIGITS = 4  # significant digits where the error is not known
LARGEST = 1e15  # from here on all digits would be noise: powers of ten
MOST_PLACES = 10
_EXACT = Context(prec=400)  # enough for every float to be rounded as it is, not as it prints


def exponent(value: float, digits: int = DIGITS) -> int:
    """Power of ten of the first digit, after rounding to `digits`: 3 for 1234, 4 for 9999.6."""
    return int(f"{abs(value):.{digits - 1}e}".split("e")[1])


def decimal_places(error: float | None) -> int | None:
    """Places after the point at which an error has two digits; None without an error."""
    if error is None or not math.isfinite(error) or error <= 0.0:
        return None
    return min(max(1 - exponent(error, 2), 0), MOST_PLACES)


def number(value: float | None, places: int | None = None) -> str:
    """Thousands apart, `places` after the point or four digits in all, halves away from zero.

    >>> number(16120.3), number(-0.01234567), number(620.0, 1), number(None)
    ('16,120', '−0.01235', '620.0', '–')
    """  # noqa: RUF002
    if value is None or not math.isfinite(value):
        return UNKNOWN
    size = abs(value)
    if size >= LARGEST or (0.0 < size < 10.0**-MOST_PLACES and places is None):
        text = f"{size:.3e}"
        head, tail = text.split("e")
        text = f"{head.rstrip('0').rstrip('.')}e{int(tail)}"
    elif places is None:
        wanted = 0 if size == 0.0 else min(max(DIGITS - 1 - exponent(size), 0), MOST_PLACES + DIGITS)
        text = _fixed(size, wanted)
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = _fixed(size, places)
    return MINUS + text if value < 0.0 and text.strip("0.,") else text


def _fixed(size: float, places: int) -> str:
    exact = Decimal(size).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _EXACT)
    return f"{exact:,f}"


def amount(value: float | None, places: int | None = None, unit: str = "", *, signed: bool = False) -> str:
    """A number with its unit, a sign such as $ before it and a word after it; `signed` marks gains by a plus.

    >>> amount(0.61, 2, "$", signed=True), amount(-1200.0, 0, "$"), amount(39.0, 0, "visits")
    ('+$0.61', '−$1,200', '39\\xa0visits')
    """  # noqa: RUF002
    text = number(value, places)
    if text == UNKNOWN:
        return text
    minus, size = (MINUS, text[1:]) if text.startswith(MINUS) else ("", text)
    sign = minus or ("+" if signed and size.strip("0.,") else "")
    word = any(letter.isalpha() for letter in unit)
    return f"{sign}{size}{SPACE}{unit}" if word else f"{sign}{unit}{size}"


def ascii_number(value: float, places: int | None = None) -> str:
    """`number` with signs that every terminal and file can show.

    >>> ascii_number(-17262.4, 0)
    '-17,262'
    """
    return number(value, places).replace(MINUS, "-").replace(UNKNOWN, "unknown")


def two_digits(value: float) -> float:
    """Rounded to two digits.

    >>> two_digits(38_912.0), two_digits(-0.0123)
    (39000.0, -0.012)
    """
    return float(f"{value:.1e}")


def count(value: float | None) -> str:
    """A whole number, thousands apart."""
    return number(value, 0)


def percent(share: float | None) -> str:
    """A share in percent: one place near 0 and 1, where it matters, and none between.

    >>> percent(0.5), percent(0.0832), percent(0.99996)
    ('50\\xa0%', '8.3\\xa0%', '>99.9\\xa0%')
    """
    if share is None or not math.isfinite(share):
        return UNKNOWN
    size = 100.0 * share
    if 0.0 < size < 0.1:
        return f"<0.1{SPACE}%"
    if 99.9 < size < 100.0:
        return f">99.9{SPACE}%"
    text = number(size, 0 if 10.0 <= size <= 90.0 else 1)
    return f"{text.removesuffix('.0')}{SPACE}%"


def chance(probability: float | None) -> str:
    """A probability in percent that claims no certainty: an estimated 1 is `>99.9 %`."""
    if probability is None or not math.isfinite(probability):
        return UNKNOWN
    return percent(min(max(probability, 0.0005), 0.9995))


def of_rows(share: float | None) -> str:
    """A share as people count.

    >>> of_rows(0.94), of_rows(0.004), of_rows(1.0)
    ('94 of 100 rows', '4 of 1,000 rows', 'all rows')
    """
    if share is None or not math.isfinite(share):
        return "an unknown share of the rows"
    if share <= 0.0 or share >= 1.0:
        return "no row" if share <= 0.0 else "all rows"
    if 0.01 <= share <= 0.99:
        return f"{count(100.0 * share)} of 100 rows"
    if 0.001 <= share <= 0.999:
        return f"{count(1000.0 * share)} of 1,000 rows"
    return "fewer than 1 of 1,000 rows" if share < 0.5 else "more than 999 of 1,000 rows"


def quantile(quantiles: Sequence[float], probability: float) -> float:
    """Linear between the given quantiles, which sit at probabilities (0.5 + i) / n; the ends go on as they are."""
    place = min(max(probability * len(quantiles) - 0.5, 0.0), len(quantiles) - 1.0)
    below = min(int(place), len(quantiles) - 2) if len(quantiles) > 1 else 0
    above = min(below + 1, len(quantiles) - 1)
    return quantiles[below] + (place - below) * (quantiles[above] - quantiles[below])


def interval(quantiles: Sequence[float] | None, level: float) -> tuple[float, float] | None:
    """The central interval; None where there are no quantiles."""
    if not quantiles:
        return None
    return quantile(quantiles, 0.5 - level / 2.0), quantile(quantiles, 0.5 + level / 2.0)


def reach(level: float) -> float:
    """Standard errors to either side of a normal interval: 1.96 at 0.95."""
    return NormalDist().inv_cdf(0.5 + level / 2.0)
