"""Placebo: would shuffled actions do as well? A randomization test of the hypothesis that no action does anything.

With logged feedback the outcomes and features stay and actions are drawn again from their propensities. If outcomes do
not depend on the actions given the features, these tables are as likely as the one at hand, and the p-value is exactly
uniform where the propensities are known; where they are estimated it is nearly so, since the outcomes are residuals of
a regression on the features. With full feedback the outcomes of each row are shuffled among the actions, which
is exact if they are exchangeable. Statistic: the largest standardised sum of (1[A = a] - e_a) h(x) r over the actions
and over the constant, the ranks of the features and their products as h; r is the residual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.linear_model import LogisticRegression

from gbpl.checks.finding import PLACEBO_LEVEL, Finding
from gbpl.checks.follow import propensity_table
from gbpl.checks.redraws import Basis, Redrawn, basis_of, redraw
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.standardize import Standardizer

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["PLACEBO", "check_placebo", "placebo_of_full", "placebo_of_log"]

PLACEBO = "shuffled actions"
DRAWS, DRAWS_OF_FULL = 1999, 499
ROWS_OF_FULL = 20_000
RIDGE = 1.0  # rows' worth of shrinkage per function
FAR, NORMAL_MAD = 3.0, 1.4826  # residuals are cut at FAR robust standard deviations
FEW_VALUES = 10  # an outcome of so few values has no tails to cut
NEARLY = 0.05


def _residual(basis: Basis, outcome: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """What a ridge regression on the functions leaves of the outcome, with its tails cut."""
    h = basis.values
    centred = outcome - outcome.mean()
    left = centred - h @ np.linalg.solve(h.T @ h + RIDGE * np.eye(h.shape[1]), h.T @ centred)
    return left if len(np.unique(outcome[:1000])) <= FEW_VALUES else _cut(left)


def _cut(values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    spread = NORMAL_MAD * np.median(np.abs(values - np.median(values)))
    return np.clip(values, -FAR * spread, FAR * spread) if spread > 0.0 else values


def _drawn_from(log: LoggedFeedback, propensity: Float[np.ndarray, "..."]) -> Float[np.ndarray, "row action"]:
    """Propensities of every action; a logistic regression where those of actions not taken are unknown."""
    table = propensity_table(propensity, log)
    if table is not None:
        return table
    x = Standardizer.fit(log.context, np.arange(len(log))).apply(log.context)
    estimated: Float[np.ndarray, "row action"] = LogisticRegression(max_iter=1000).fit(x, log.action).predict_proba(x)
    return estimated


def placebo_of_log(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."], *, draws: int = DRAWS, seed: int = 0
) -> Redrawn:
    """Sums of the table and of redraws of its actions."""
    basis = basis_of(log.context)
    moments = basis.values * _residual(basis, log.outcome)[:, None]
    moments = moments if log.weights is None else moments * (log.weights / log.weights.mean())[:, None]
    return redraw(log.action, _drawn_from(log, propensity), moments, draws=draws, seed=seed, groups=log.groups)


def placebo_of_full(feedback: FullFeedback, *, draws: int = DRAWS_OF_FULL, seed: int = 0) -> Redrawn:
    """Sums of the table and of tables whose outcomes are shuffled within each row, alike in rows of one group."""
    rng = np.random.default_rng([seed, 23])
    if len(feedback) > ROWS_OF_FULL:
        feedback = feedback.take(np.sort(rng.choice(len(feedback), ROWS_OF_FULL, replace=False)))
    basis = basis_of(feedback.x).values
    basis = basis if feedback.weights is None else basis * (feedback.weights / feedback.weights.mean())[:, None]
    apart = _cut(feedback.outcomes - feedback.outcomes.mean(axis=1, keepdims=True))
    apart = apart - apart.mean(axis=1, keepdims=True)
    sd = np.sqrt(np.mean(apart**2, axis=1) @ basis**2)
    sd = np.where(sd > 0.0, sd, np.inf)
    n, count = apart.shape
    places = np.arange(n) if feedback.groups is None else feedback.groups
    largest = np.empty(draws)
    for draw in range(draws):
        order = np.argsort(rng.random((int(places.max()) + 1, count)), axis=1)[places]
        largest[draw] = np.abs(np.take_along_axis(apart, order, axis=1).T @ basis / sd).max()
    return Redrawn(apart.T @ basis / sd, largest)


def check_placebo(
    feedback: LoggedFeedback | FullFeedback, propensity: Float[np.ndarray, "..."] | None = None, *,
    estimated: bool = False, seed: int = 0,
) -> Finding:  # fmt: skip
    """Passed if tables with shuffled actions hardly ever differ as much between the actions as this one."""
    if isinstance(feedback, LoggedFeedback):
        assert propensity is not None
        found = placebo_of_log(feedback, propensity, seed=seed)
    else:
        found = placebo_of_full(feedback, seed=seed)
    p_value, size = found.p_value(), float(np.abs(found.z).max(initial=0.0))
    about = "about " if estimated else ""
    count = int(np.sum(found.largest >= size))
    numbers = f"p = {about}{p_value:.2g}, {count:,} of {len(found.largest):,} tables with shuffled actions"
    if p_value <= PLACEBO_LEVEL:
        sentence = f"Shuffled actions would not do as well: what they do shows in the outcomes ({numbers})."
        return Finding(PLACEBO, "passed", sentence, size, p_value)
    sentence = (
        f"Shuffled actions would do {'nearly ' if p_value <= NEARLY else ''}as well ({numbers}): this table hardly "
        "tells the outcomes of the actions apart. There is no effect, or too few rows to see it, or the column of "
        "actions is out of line with the rows."
    )
    return Finding(PLACEBO, "doubt", sentence, size, p_value)
