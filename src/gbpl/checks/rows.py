"""Rows and cells that look wrong: stray outcomes, rows that occur twice, too few events, dates written as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.checks.columns import by_column, codes_of, listed, seen_by_models
from gbpl.checks.suspicion import Suspicion
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import Feedback
from gbpl.feedback.tails import Cut
from gbpl.report.numbers import percent
from gbpl.value.overlap import LEAST_EVENTS
from gbpl.value.rare import rare_events

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["dates_as_numbers", "few_events", "repeated_rows", "stray_outcomes"]

NAMED_ROWS = 5  # in a sentence
MOST_ROWS_LISTED = 100  # in a summary
LEAST_REPEATED, REPEATED_SHARE = 20, 0.01  # rows that occur before, from which it is worth a word
MOST_ALIKE = 5  # rows with the same features: where more have, that is no accident
MOST_CHANCE, MOST_AGREE = 0.6, 0.9  # that two rows agree in action and outcome, and share of those alike that do


def stray_outcomes(outcomes: Float[np.ndarray, "..."], found: Cut, cut: bool, rows: Any) -> Suspicion:
    """The rows whose outcomes are far from all others, and what was done about them."""
    away = np.flatnonzero(found.cells.reshape(len(outcomes), -1).any(axis=1))
    size = np.abs(outcomes - np.median(outcomes, axis=0)).reshape(len(outcomes), -1).max(axis=1)
    away = away[np.argsort(-size[away], kind="stable")]
    numbers = [int(row if rows is None else rows[row]) for row in away]
    one = len(numbers) == 1
    named = ", ".join(map(str, numbers[:NAMED_ROWS])) + (", ..." if len(numbers) > NAMED_ROWS else "")
    far = f"{outcomes[found.cells].ravel()[np.argmax(np.abs(outcomes[found.cells]))]:.4g}"
    rest = f"{outcomes[~found.cells].min():.4g} to {outcomes[~found.cells].max():.4g}"
    if found.stray:
        which = f"the outcome of row {named} is" if one else f"the outcomes of rows {named} are"
        told = f"{which} {far if one else f'up to {far}'}, and all others are from {rest}"
        kept = f"{which} far from all others"
        alone = f"{'it' if one else 'they'} would decide alone"
    else:
        which = f"{len(numbers):,} of {len(outcomes):,} rows"
        kept = "the outcomes have extreme tails on both sides"
        told = f"{kept}, up to {far}; {which} are outside {rest} (rows {named})"
        alone = "a few of them would decide alone"
    remedy = "Correct the data, or leave these rows out"
    if cut:
        remedy = (
            f"So {'it was' if one else 'they were'} cut to where the others end, for learning and for values: correct "
            "the data, or give outliers='keep' (--keep-outliers on the command line)"
        )
    # A policy file and a report must not hold what a single person earned.
    return Suspicion(
        "stray outcomes", f"{told}: {alone}. {remedy}", (), tuple(numbers[:MOST_ROWS_LISTED]),
        f"{kept}: {alone}. {remedy}",
    )  # fmt: skip


def repeated_rows(feedback: Feedback) -> list[Suspicion]:
    """Rows that are copies of others: where a few rows share all features, they share action and outcome as well.

    Rows may share their features by chance. But then they agree in action and outcome about as often as any two rows.
    """
    x = seen_by_models(feedback)
    alike = _joined(codes_of(x, places) for places in by_column(feedback).values())
    size = np.bincount(alike)
    some = (size >= 2) & (size <= MOST_ALIKE)
    if not some.any():
        return []
    if isinstance(feedback, LoggedFeedback):
        results = _joined([feedback.action, np.unique(feedback.outcome, return_inverse=True)[1]])
    else:
        results = _joined([np.unique(outcome, return_inverse=True)[1] for outcome in feedback.outcomes.T])
    chance = float(np.sum((np.bincount(results) / len(results)) ** 2))
    whole = _joined([alike, results])
    distinct, first = np.unique(whole, return_index=True)
    different = np.bincount(alike[first], minlength=len(size))  # results in each group of rows that are alike
    again = np.delete(np.arange(len(whole)), first)
    again = again[some[alike[again]]]
    share = float(np.mean(different[some] == 1))
    if len(again) < max(LEAST_REPEATED, REPEATED_SHARE * len(whole)) or chance > MOST_CHANCE or share < MOST_AGREE:
        return []
    repeated = len(whole) - len(distinct)
    sentence = (
        f"{repeated:,} of {len(whole):,} rows ({percent(repeated / len(whole))}) are copies of an earlier row in every "
        f"column, the first of them row {again[0]}: a copy of a row that was held out is learned from, and errors are "
        "too small. Leave the copies out; or, if the same person was asked again, name the person as the group"
    )
    return [Suspicion("repeated rows", sentence, (), tuple(again[:MOST_ROWS_LISTED].tolist()))]


def _joined(columns: Iterable[Int[np.ndarray, " row"]]) -> Int[np.ndarray, " row"]:
    """One code per row for all columns together; where some tell all rows apart, the others need no look."""
    codes: np.ndarray | None = None
    for column in columns:
        together = column if codes is None else codes * (int(column.max(initial=0)) + 1) + column
        codes = np.unique(together, return_inverse=True)[1]
        if codes.max(initial=0) + 1 == len(codes):
            break
    assert codes is not None
    return codes


def few_events(log: LoggedFeedback) -> list[Suspicion]:
    """Actions with too few outcomes other than the usual one to tell what they are worth."""
    events = rare_events(log.outcome, log.action, len(log.actions))
    if events is None or events.counts.min() >= LEAST_EVENTS:
        return []
    few, none = int(np.sum(events.counts < LEAST_EVENTS)), int(np.sum(events.counts == 0))
    sentence = (
        f"few events: only {int(events.counts.sum()):,} of {len(log):,} outcomes are other than {events.usual:g}, and "
        f"{few} of the {len(log.actions)} actions have fewer than {LEAST_EVENTS} of them"
        + (f" ({none} {'has' if none == 1 else 'have'} none, which does not mean that they are worth {events.usual:g})"
           if none else "")
        + ". It is events that count, not rows: gather more, merge actions, or take an outcome that happens more often"
    )  # fmt: skip
    return [Suspicion("few events", sentence)]


def dates_as_numbers(feedback: Feedback) -> list[Suspicion]:
    """Numbers such as 20240131, whose distances mean nothing."""
    x = seen_by_models(feedback)
    named = [name for name, places in by_column(feedback).items() if len(places) == 1 and _dates(x[:, places[0]])]
    if isinstance(feedback, LoggedFeedback) and _dates(feedback.outcome):
        named.append("the outcome")
    if not named:
        return []
    sentence = (
        f"{listed(named)} {'look' if len(named) > 1 else 'looks'} like dates written as numbers, such as 20240131, "
        "whose distances mean nothing: turn dates into days since a start, or leave them out"
    )
    return [Suspicion("dates as numbers", sentence, tuple(named))]


def _dates(column: Float[np.ndarray, " row"]) -> bool:
    """Whether all are whole numbers from 19000101 to 20991231 with a month and a day, on ten days or more."""
    if column.min(initial=np.inf) < 19000101 or column.max(initial=-np.inf) > 20991231:
        return False
    days = np.unique(column)
    month, day = days // 100 % 100, days % 100
    dated = (days == np.floor(days)) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return len(days) >= 10 and bool(dated.all())
