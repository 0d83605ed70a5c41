"""Do the actions follow the propensities, and which columns stand out? Findings of `policy.check`, with their words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.checks.finding import LEVEL, Finding, by_level
from gbpl.checks.follow import Balance, Test, balance_of
from gbpl.checks.propensities import meant_instead, what_is_off
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import of_logged_action

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["COLUMNS", "PROPENSITIES", "check_balance"]

PROPENSITIES, COLUMNS = "balance of the log", "columns after the action"
DRAWS = 1999
WIDE = 0.1  # of a standard deviation: a difference between weighted actions that matters (Austin 2009)
NAMED = 3  # columns named in a sentence


def _differences(log: LoggedFeedback, propensity: Float[np.ndarray, "..."]) -> Float[np.ndarray, "action column"]:
    """Mean of each column among rows of an action weighted by 1 / e, less the mean of all rows, in sd."""
    x = log.context
    taken = of_logged_action(propensity, log.action) if propensity.ndim == 2 else propensity
    rows = np.ones(len(log)) if log.weights is None else log.weights
    mean = np.average(x, axis=0, weights=rows)
    sd = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=rows))
    weight = rows / taken
    own = [np.average(x[log.action == a], axis=0, weights=weight[log.action == a]) for a in range(len(log.actions))]
    return np.abs(np.stack(own) - mean) / np.where(sd > 0.0, sd, 1.0)


# -- findings ---------------------------------------------------------------------------------------------------------


def check_balance(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."], names: Sequence[str], *, estimated: bool, tests: int,
    seed: int,
) -> list[Finding]:  # fmt: skip
    """Two findings, on the propensities and on columns, or one on estimated propensities; `names` are of `context`.

    `tests` is the number of tests among which the level is divided.
    """
    found = balance_of(log, propensity, DRAWS, seed)
    if estimated:
        return [_estimated(log, propensity, names, found, tests)]
    size, p_value = _largest(found.propensities), found.propensities.p_value()
    verdict = by_level(p_value, tests)
    details: dict[str, Any] = {"largest": size}
    if verdict == "passed":
        sentence = (
            f"The actions were taken as often as the propensities say, in all and where these are high or low (largest "
            f"deviation {size:.1f} standard errors, p = {p_value:.2g})."
        )
        return [
            Finding(PROPENSITIES, verdict, sentence, size, p_value, details), _columns(found, names, tests)
        ]  # fmt: skip
    table, remedy = meant_instead(log, propensity, seed)
    sentence = (
        f"The actions do not follow the propensities: {what_is_off(log, propensity)} (p = {p_value:.2g}). {remedy}."
    )
    first = Finding(PROPENSITIES, verdict, sentence, size, p_value, details)
    if table is None:
        unknown = "Columns cannot be judged before the propensities are right."
        return [first, Finding(COLUMNS, "doubt", unknown)]
    return [first, _columns(balance_of(log, table, DRAWS, seed), names, tests)]


def _largest(test: Test) -> float:
    return float(np.abs(test.z).max(initial=0.0))


def _columns(found: Balance, names: Sequence[str], tests: int) -> Finding:
    size, p_value = _largest(found.features), found.features.p_value()
    verdict = by_level(p_value, tests)
    details: dict[str, Any] = {"largest": size}
    if verdict == "passed":
        sentence = (
            f"No column differs between the actions beyond chance, given the propensities (largest deviation "
            f"{size:.1f} standard errors, p = {p_value:.2g})."
        )
        return Finding(COLUMNS, verdict, sentence, size, p_value, details)
    far = [names[j] for j in found.standing_out(tests, LEVEL)]
    listed = ", ".join(map(repr, far[:NAMED])) + (f" and {len(far) - NAMED} more" if len(far) > NAMED else "")
    differ = "differs" if len(far) == 1 else "differ"
    sentence = (
        f"{listed} {differ} between the actions, given the propensities ({size:.1f} standard errors, "
        f"p = {p_value:.2g}): measured after the action, and then to be left out; or a reason for the action, and then "
        "the propensities are wrong."
    )
    return Finding(COLUMNS, verdict, sentence, size, p_value, details | {"columns": far})


def _estimated(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."], names: Sequence[str], found: Balance, tests: int
) -> Finding:
    """Estimated propensities are judged by the size of what is left, since they are not exact."""
    p_value = found.features.p_value()
    apart = _differences(log, propensity)
    column = int(np.argmax(apart.max(axis=0)))
    largest = float(apart[:, column].max())
    details = {"largest": largest, "column": names[column]}
    what = (
        f"with the estimated propensities as weights, {names[column]!r} differs most between the actions and all rows"
    )
    if largest > WIDE and tests * p_value <= LEVEL:
        sentence = (
            f"{what[0].upper()}{what[1:]}, by {largest:.2f} standard deviations ({WIDE:g} is too much): estimate them "
            "with another classifier, leave out rows without overlap, or give the propensities."
        )
        return Finding(PROPENSITIES, "doubt", sentence, largest, p_value, details)
    sentence = (
        f"The features balance: {what}, by {largest:.2f} standard deviations. What is not in the table cannot be "
        "balanced."
    )
    return Finding(PROPENSITIES, "passed", sentence, largest, p_value, details)
