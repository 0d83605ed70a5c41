"""A look at the data before a fit: what would make its result worthless, in words, with columns and rows.

It is made before every fit and takes a second at most. What cannot be right is refused (`copies`); what is suspicious
is a `Suspicion`, of which users are warned and which the summary and the report of a study hold. The tests behind it
are chosen so that a clean table hardly ever raises one.
"""

from __future__ import annotations

from typing import Any

from gbpl.checks.after import suspect_columns
from gbpl.checks.copies import refuse_copies
from gbpl.checks.propensities import wrong_propensities
from gbpl.checks.rows import dates_as_numbers, few_events, repeated_rows, stray_outcomes
from gbpl.checks.suspicion import Suspicion
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import Feedback
from gbpl.feedback.tails import cut_tails

__all__ = ["screen", "screened"]


def screened(feedback: Feedback, *, cut: bool = True, rows: Any = None) -> tuple[Feedback, list[Suspicion]]:
    """The data with stray outcomes cut, unless they are to be kept, and all that is suspicious about them.

    Copies of the outcome and the action are refused. `rows` are the row numbers for users where rows were left out.
    """
    made, found = cut_tails(feedback)
    if found is None:
        return feedback, screen(feedback)
    outcomes = feedback.outcome if isinstance(feedback, LoggedFeedback) else feedback.outcomes
    first = stray_outcomes(outcomes, found, cut, rows)
    return made if cut else feedback, [first, *screen(feedback)]


def screen(feedback: Feedback) -> list[Suspicion]:
    """Refuse copies of the outcome and the action; all else that is suspicious but for stray outcomes."""
    found = refuse_copies(feedback)
    if isinstance(feedback, LoggedFeedback):
        sentence = wrong_propensities(feedback)
        if sentence is not None:
            found.append(Suspicion("propensities", sentence))
        found += suspect_columns(feedback, balanced=sentence is None)
        found += few_events(feedback)
    return [*found, *repeated_rows(feedback), *dates_as_numbers(feedback)]
