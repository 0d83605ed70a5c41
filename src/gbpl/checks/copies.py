"""Columns that are the outcome or the action under another name: refused before anything is learned from them.

A column is a copy if it tells rows apart exactly as the outcome (or the action) does: in the same order or the opposite
one, whatever the unit, or, where there are few different values, by any recoding. That a column does so by chance has
a probability of one over the number of ways to deal the values to the rows, n! / prod_v n_v!.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from gbpl.checks.columns import by_column, codes_of, listed, seen_by_models
from gbpl.checks.suspicion import Suspicion
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import Feedback
from gbpl.tables.frames import TableError

if TYPE_CHECKING:
    from jaxtyping import Int

__all__ = ["copies", "refuse_copies"]

SURE = np.log(1e9)  # of the ways to deal the values to the rows
GLANCE = 1_000  # rows that tell nearly every column apart from the outcome


def _alike(column: Int[np.ndarray, " row"], other: Int[np.ndarray, " row"], *, few: bool) -> bool:
    """Whether codes are in the same order or the opposite one, or, of `few` values, a recoding of each other."""
    top = int(column.max(initial=0))
    if top != int(other.max(initial=0)):
        return False
    if np.array_equal(column, other) or np.array_equal(column, top - other):
        return True
    return few and len(np.unique(column * (top + 1) + other)) == top + 1


def copies(column: Int[np.ndarray, " row"], other: Int[np.ndarray, " row"]) -> bool:
    """Whether two columns of codes tell rows apart in the same way, and that is no chance."""
    top, counts = int(column.max(initial=0)), np.bincount(column)
    if top == 0 or top != int(other.max(initial=0)):
        return False
    if gammaln(len(column) + 1.0) - gammaln(counts + 1.0).sum() < SURE:
        return False
    return _alike(column, other, few=_few(other))


def _few(codes: Int[np.ndarray, " row"]) -> bool:
    """Whether values repeat: of those that hardly do, every column is a recoding of every other."""
    return 2 * (int(codes.max(initial=0)) + 1) <= len(codes)


def refuse_copies(feedback: Feedback) -> list[Suspicion]:
    """Refuse columns of a log that are copies of its outcome or action.

    Where the outcomes of every action are known, that of one may be known beforehand too: a copy is only suspicious.
    """
    logged = isinstance(feedback, LoggedFeedback)
    outcomes = feedback.outcome[:, None] if isinstance(feedback, LoggedFeedback) else feedback.outcomes
    targets = [(np.unique(y, return_inverse=True)[1], "the outcome") for y in outcomes.T]
    if isinstance(feedback, LoggedFeedback):
        targets.append((np.unique(feedback.action, return_inverse=True)[1], "the action taken"))
    x, columns = seen_by_models(feedback), by_column(feedback)
    some = np.arange(0, len(x), max(1, len(x) // GLANCE))
    glances = [(np.unique(target[some], return_inverse=True)[1], _few(target)) for target, _ in targets]
    found: dict[str, list[str]] = {}
    for name, places in columns.items():
        glance = codes_of(x[some], places)
        if not any(_alike(glance, target, few=few) for target, few in glances):  # nor will all rows be
            continue
        codes = codes_of(x, places)
        what = next((what for target, what in targets if copies(codes, target)), None)
        if what is not None:
            found.setdefault(what, []).append(name)
    suspicions = []
    for what, names in found.items():
        several = len(names) > 1
        if several and len(names) == len(columns):  # a few rows that are repeated: any two columns are recodings
            continue
        are, them = ("are copies", "them") if several else ("is a copy", "it")
        said = f"{listed(names)} {are} of {what} (the same in every row, in other units or under other names)"
        if logged:
            raise TableError(f"{said}, which is known only afterwards: leave {them} out of the features")
        sentence = f"{said}: unless it is known before the decision, leave {them} out of the features"
        suspicions.append(Suspicion("copied outcome", sentence, tuple(names)))
    return suspicions
