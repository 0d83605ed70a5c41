"""Columns that look as if they were filled in after the action: no policy will know them when it decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.checks.columns import by_column, listed
from gbpl.checks.follow import balance_by_features, bounded_sums
from gbpl.checks.leak import most_explained
from gbpl.checks.propensities import SMALL, SURE, shares_of, some_rows
from gbpl.checks.redraws import ranks_of
from gbpl.checks.suspicion import Suspicion
from gbpl.feedback.logged import LoggedFeedback
from gbpl.report.numbers import percent

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["after_the_action", "suspect_columns"]

FEW_EVENTS = 20  # outcomes other than the usual one, below which "only where" may be chance
LIKELY = 0.05  # p-value that is enough for a column without which there is no event
LEAST_OTHERS, MANY_OTHERS = 2, 10  # columns that do not depend on the action, per column that does


def after_the_action(log: LoggedFeedback) -> list[str]:
    """Columns that depend on the action given the propensities; those not given are taken to be constant.

    Without propensities a column that depends on the action may be a reason for it. It is suspicious where the table
    looks randomized but for such columns: if there are many others, or the outcome is the usual one wherever the column
    is (no visit, no sale).
    """
    known = log.propensity is not None
    log = some_rows(log)
    x, columns = log.context, by_column(log)
    if known:
        test = balance_by_features(log, np.asarray(log.propensity))
    else:
        test = bounded_sums(log, shares_of(log)[0], ranks_of(x))
    chance, matters = test.p_values(), np.abs(test.z) > SMALL * np.sqrt(len(log))
    far = [name for name, places in columns.items() if np.any((chance <= SURE) & matters, axis=0)[places].any()]
    only = [name for name, places in columns.items() if any(_usual_where_usual(x[:, j], log.outcome) for j in places)]
    likely = [name for name in only if (chance[:, columns[name]] <= LIKELY).any()]
    others = len(columns) - len({*far, *likely})
    if known or others >= MANY_OTHERS * len(far):
        return [name for name in columns if name in far or name in likely]
    return likely if others >= LEAST_OTHERS * len({*far, *likely}) else []


def _usual_where_usual(column: Float[np.ndarray, " row"], outcome: Float[np.ndarray, " row"]) -> bool:
    """Whether the outcome is its most frequent value in every row in which the column is its most frequent value."""
    usual = column == _mode(column)
    events = outcome != _mode(outcome)
    count = int(events.sum())
    if usual.all() or not FEW_EVENTS <= count <= len(outcome) / 2:
        return False
    return not np.any(events & usual) and count * np.log(np.mean(~usual)) < np.log(SURE)


def _mode(values: Float[np.ndarray, " row"]) -> float:
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[np.argmax(counts)])


def suspect_columns(log: LoggedFeedback, *, balanced: bool = True) -> list[Suspicion]:
    """One suspicion for columns after the action, and one for those that predict the outcome nearly perfectly.

    Unless the propensities are right (`balanced`), nothing can be said about the first.
    """
    found = []
    after = after_the_action(log) if balanced else []
    if after:
        given = log.propensity is not None
        how = "given the propensities" if given else "and no other column does"
        depend, they, them = ("depend", "they look", "them") if len(after) > 1 else ("depends", "it looks", "it")
        sentence = (
            f"{listed(after)} {depend} on the action, {how}: {they} as if measured after it, when a policy has decided "
            f"already. Leave {them} out ({_remedy(after)})"
        )
        if given:
            sentence += f"; or, if the action was chosen by {them}, correct the propensities"
        found.append(Suspicion("after the action", sentence, tuple(after)))
    shares, much = most_explained(log)
    of_column = {name: float(shares[places].max()) for name, places in by_column(log).items() if name not in after}
    named = sorted((name for name, share in of_column.items() if share >= much), key=lambda name: -of_column[name])
    if named:
        predict, they, them = ("predict", "they are", "them") if len(named) > 1 else ("predicts", "it is", "it")
        sentence = (
            f"{listed(named)} {predict} the outcome far better than features usually do ({named[0]!r} alone explains "
            f"{percent(of_column[named[0]])} of it): if {they} not known before the decision, leave {them} out "
            f"({_remedy(named)})"
        )
        found.append(Suspicion("predicts the outcome", sentence, tuple(named)))
    return found


def _remedy(names: list[str]) -> str:
    return f"in Python drop the column{'s' if len(names) > 1 else ''} or give exclude=, on the command line --exclude"
