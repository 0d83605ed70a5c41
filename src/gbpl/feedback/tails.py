"""Outcomes so far from all others that one of them would decide: cut to where the others end, and named by row.

Squared loss and means follow the farthest outcome: one of 1e6 among noise of 1 moves half of the decisions. Two
patterns are cut, and no others, so that skewed outcomes (spending, earnings) and rare events stay as they are:

- stray cells: a few outcomes ten times as far from the median as the farthest of the rest, which together have a
  third of all squared distances. They are cut to the distance of that one.
- heavy tails on both sides, as of Cauchy noise: far outcomes below and above the median, five of which have half of all
  squared distances. Outcomes are cut at two standard deviations, by the median absolute deviation (Huber 1964).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

__all__ = ["Cut", "cut_tails", "cut_where"]

STRAY = 10.0  # times the distance of the farthest of the rest
STRAY_SHARE = 0.3  # of the squared distances, which stray cells have at least
MOST_STRAY = 0.01  # of the cells
LEAST_REST = 5  # cells away from the median among the rest, without which it has no scale
FAR = 25.0  # median distances, beyond which outcomes of both sides must be to call tails heavy
TOP, TOP_SHARE = 5, 0.5  # so many cells have at least this share of the squared distances where tails are heavy
CUT, NORMAL_MAD = 2.0, 1.4826  # heavy tails are cut at so many standard deviations, by the median absolute deviation


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Where outcomes were cut, the `limit` as a distance from the median, and which pattern they had."""

    cells: Bool[np.ndarray, "..."]
    limit: float
    stray: bool


def cut_where(outcomes: Float[np.ndarray, "..."]) -> Cut | None:
    """Which outcomes to cut, and at which distance from the median (of each column); None for ordinary outcomes."""
    from_median = outcomes - np.median(outcomes, axis=0)
    distance = np.abs(from_median)
    stray = _beyond(distance[distance > 0.0], outcomes.size)
    rest = from_median if stray is None else np.clip(from_median, -stray, stray)
    spread = NORMAL_MAD * float(np.median(distance))
    if spread > 0.0 and _heavy(rest):
        return Cut(distance > CUT * spread, CUT * spread, stray=False)
    return None if stray is None else Cut(distance > stray, stray, stray=True)


def _beyond(size: Float[np.ndarray, " away"], cells: int) -> float | None:
    """The distance beyond which cells are stray: that of the farthest of the rest."""
    farthest = np.sort(size)[::-1]
    if len(farthest) <= LEAST_REST:
        return None
    squares = (farthest / farthest[0]) ** 2
    for count in range(1, min(int(max(1, MOST_STRAY * cells)), len(farthest) - LEAST_REST) + 1):
        apart = farthest[count - 1] >= STRAY * farthest[count]
        if apart and squares[:count].sum() >= STRAY_SHARE * squares.sum():
            return float(farthest[count])
    return None


def _heavy(from_median: Float[np.ndarray, "..."]) -> bool:
    """Whether both tails are far, and a few cells have most of the squared distances."""
    size = np.sort(np.abs(from_median[from_median != 0.0]))[::-1]
    if len(size) <= LEAST_REST:
        return False
    reach, squares = FAR * float(np.median(size)), (size / size[0]) ** 2
    both = from_median.min() < -reach and from_median.max() > reach
    return bool(both and squares[:TOP].sum() >= TOP_SHARE * squares.sum())


def cut_tails(
    feedback: LoggedFeedback | FullFeedback,
) -> tuple[LoggedFeedback | FullFeedback, Cut | None]:
    """The same rows with stray outcomes and heavy tails cut, and what was cut."""
    outcomes = feedback.outcome if isinstance(feedback, LoggedFeedback) else feedback.outcomes
    found = cut_where(outcomes)
    if found is None:
        return feedback, None
    middle = np.median(outcomes, axis=0)
    made = np.clip(outcomes, middle - found.limit, middle + found.limit)
    if isinstance(feedback, LoggedFeedback):
        return replace(feedback, outcome=made, cut=int(found.cells.sum())), found
    return replace(feedback, outcomes=made, cut=int(found.cells.sum())), found
