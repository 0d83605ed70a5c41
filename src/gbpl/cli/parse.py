"""Values of options: numbers, fractions, and ACTION=NUMBER."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

__all__ = ["amounts_or_column", "by_action", "check_settings", "number", "propensity", "small_rule", "text_of"]

LARGEST_SEED = 2**32 - 1  # numpy's and scikit-learn's


def number(text: str) -> float | None:
    """A number or a fraction such as 2/3; None for anything else."""
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None


def by_action(option: str, given: Sequence[str], what: str = "ACTION", example: str = "treat=0.2") -> dict[str, float]:
    """ACTION=NUMBER, or what else has a number, several of them."""
    numbers: dict[str, float] = {}
    for text in given:
        label, sign, written = text.rpartition("=")
        value = number(written)
        if not sign or not label or value is None:
            raise ValueError(f"{option} must be {what}=NUMBER, such as {option} {example}, got {text!r}")
        if label in numbers:
            raise ValueError(f"{option} names {label!r} twice; name it once")
        numbers[label] = value
    return numbers


def amounts_or_column(option: str, given: Sequence[str]) -> dict[str, float] | str | None:
    """ACTION=NUMBER, several of them, or the name of one column; None for nothing."""
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return by_action(option, given) or None


def propensity(given: Sequence[str], columns: Sequence[str]) -> str | float | dict[str, float] | None:
    """A column, a number, or ACTION=NUMBER for every action."""
    if not given:
        return None
    if len(given) == 1:
        value = number(given[0])
        if value is not None and given[0] not in columns:
            return value
        if given[0] in columns or "=" not in given[0]:
            return given[0]
    return by_action("--propensity", given)


def small_rule(
    rule: str | None, without: Sequence[str], monotone: Sequence[str], leaves: int | None
) -> dict[str, Any] | None:
    """The settings of a small rule by its options; None if none is asked for."""
    if rule is None:
        if without or monotone or leaves is not None:
            raise ValueError("--rule-without, --rule-monotone and --rule-leaves are about a rule; add --rule tree:2")
        return None
    kind, _, size = rule.partition(":")
    if size and not size.isdecimal():
        raise ValueError(f"--rule must be a kind and its size, such as tree:2 or scorecard:4, got {rule!r}")
    towards: dict[str, str] = {}
    for text in monotone:
        column, sign, action = text.partition("=")
        if not sign or not column or not action:
            raise ValueError(f"--rule-monotone must be COLUMN=ACTION, such as age=treat, got {text!r}")
        towards[column] = action
    size_of = {"size": int(size)} if size else {}
    return {"kind": kind, **size_of, "without": list(without), "monotone": towards, "leaves": leaves}


def check_settings(seed: int, defer: float | None, outcome_range: tuple[float, float] | None) -> None:
    """Refuse wrong settings before minutes of work."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"--seed must be a whole number from 0 to {LARGEST_SEED}, got {seed}; try 0")
    if defer is not None and not 0.0 <= defer <= 1.0:
        raise ValueError(f"--defer must be from 0 to 1, got {defer:g}; try 0.8")
    if outcome_range is not None:
        low, high = outcome_range
        if not (math.isfinite(low) and low < high):
            raise ValueError(
                f"--outcome-range must be two numbers, the lower one first, got {low:g} {high:g}; for yes and no it "
                "is 0 1, for spending without a limit 0 inf"
            )


def text_of(name: str) -> str:
    """A file's name as text that can be written anywhere: bytes that are not text become \\udcff."""
    return name.encode("utf-8", "backslashreplace").decode()
