"""Verdicts on refits: outcomes that are noise, other seeds and rows, one column more or less."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t

from gbpl.checks.finding import Finding, by_level
from gbpl.report.numbers import decimal_places, number, percent
from gbpl.value.estimate import Value

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["COMMON_CAUSE", "LEFT_OUT", "NOISE", "SEEDS", "SUBSETS", "Change", "on_columns", "on_noise", "on_stability"]

NOISE, COMMON_CAUSE, SEEDS, SUBSETS = "outcomes of noise", "random common cause", "other seeds", "fewer rows"
LEFT_OUT = "one column left out"
FAR = 2.0  # standard errors of the value, which a refit must not move it by
MANY = 2 / 3  # of the decisions that would change by chance, 1 - 1/K, which a refit must not change
CLEAR = 2.6  # standard errors of a paired difference that is worth a name: 1 % two-sided
NAMED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A refit beside the fit to the table as it is: share of decisions that differ, and value after less before."""

    share: float
    difference: Value


def on_noise(gains: Sequence[float], tests: int) -> Finding:
    """Honest gains over choosing at random, learned from outcomes drawn at random: zero on average (one-sided t test).

    The spread of the gains over the draws is their error, so the test does not lean on the errors of the values.
    """
    values = np.asarray(gains, np.float64)
    mean, se = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    statistic = mean / se if se > 0.0 else 0.0
    p_value = float(t.sf(statistic, len(values) - 1))
    verdict = by_level(p_value, tests)
    numbers = f"{_number(mean, se)}, standard error {_number(se, se)}, {len(values)} draws, p = {p_value:.2g}"
    sentence = f"Learned from outcomes of pure noise, policies gain nothing on rows they have not seen ({numbers})."
    if verdict != "passed":
        sentence = (
            f"Learned from outcomes of pure noise, policies seem to gain something on rows they have not seen "
            f"({numbers}): rows that belong together may be in different folds. Name their group, and look for "
            "rows that occur twice."
        )
    return Finding(NOISE, verdict, sentence, statistic, p_value, {"gains": values.tolist()})


def on_stability(name: str, what: str, value: Value, changes: Sequence[Change], actions: int) -> Finding:
    """Whether the value stays within its error, and most decisions stay; a rule, not a test.

    `what` was done, as in "With another seed"; `value` is that before. Of K `actions` drawn twice, 1 - 1/K differ.
    """
    share = float(np.mean([change.share for change in changes]))
    moves = [change.difference.estimate for change in changes]
    moved, error = float(np.mean(np.abs(moves))), value.se
    details = {"share": share, "moves": moves, "error": error}
    numbers = (
        f"{percent(share)} of the decisions change, and the value moves by {_number(moved, error)} "
        f"(its own standard error is {_number(error, error)})"
    )
    if moved > FAR * error:
        sentence = f"{what} the value is another one: {numbers}. Use more rows, a larger committee or fewer features."
        return Finding(name, "doubt", sentence, moved, None, details)
    if share > MANY * (1.0 - 1.0 / actions):
        sentence = f"{what} many decisions are others: {numbers}. Gains are too small to tell these rows apart."
        return Finding(name, "doubt", sentence, share, None, details)
    return Finding(name, "passed", f"{what} {numbers}.", share, None, details)


def on_columns(names: Sequence[str], changes: Sequence[Change], value: Value, suspects: Collection[str]) -> Finding:
    """Which columns the value leans on; doubtful only if one of them is a suspect of another test."""
    moves: Float[np.ndarray, " column"] = np.array([change.difference.estimate for change in changes])
    errors = np.array([change.difference.se for change in changes])
    ratio = moves / np.where(errors > 0.0, errors, np.inf)
    order = [int(j) for j in np.argsort(moves) if ratio[j] < -CLEAR]
    details: dict[str, Any] = {
        "columns": [
            {"column": names[j], "change": moves[j], "se": errors[j], "share": changes[j].share}
            for j in np.argsort(moves)
        ]
    }
    if not order:
        sentence = f"No single one of {len(names)} columns carries the value: it stays within its error without any."
        return Finding(LEFT_OUT, "passed", sentence, None, None, details)
    listed = ", ".join(
        f"{names[j]!r} ({_number(-moves[j], errors[j])}, standard error {_number(errors[j], errors[j])})"
        for j in order[:NAMED]
    )
    more = f" and {len(order) - NAMED} more" if len(order) > NAMED else ""
    sentence = (
        f"The value of {_number(value.estimate, value.se)} leans on {listed}{more}: it falls by that much without."
    )
    named = [names[j] for j in order if names[j] in suspects]
    if named:
        sentence += f" {named[0]!r} is suspect (see above): do not trust the value."
        return Finding(LEFT_OUT, "doubt", sentence, float(moves[order[0]]), None, details)
    return Finding(LEFT_OUT, "passed", sentence, float(moves[order[0]]), None, details)


def _number(value: float, error: float) -> str:
    return number(value, decimal_places(error))
