"""What is wrong with propensities that the actions do not follow: in words, with numbers, and what may be meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.checks.follow import balance_by_propensities, balance_of, propensity_table
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import of_logged_action
from gbpl.report.numbers import percent

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["SMALL", "SURE", "meant_instead", "shares_of", "some_rows", "what_is_off", "wrong_propensities"]

QUICK_DRAWS = 499
FITS = 0.01  # p-value from which other propensities are said to fit
MOST_PERMUTED = 4  # actions whose labels are tried in every order
SURE = 1e-3  # p-value (a bound, with Bonferroni) of a warning before a fit: a clean table hardly ever raises one
MOST_ROWS, MOST_REDRAWN = 100_000, 10_000  # looked at; more would only take longer
NAMED = 5  # actions in a sentence
SMALL = 0.02  # of a standard deviation of a row: a deviation up to this is no reason for a warning, however sure


def wrong_propensities(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."] | None = None, *, strict: bool = False
) -> str | None:
    """A sentence if the actions clearly do not follow the propensities of the log, or those given; None if they may.

    mean(1[A = a] / e_a) is 1 for each action up to chance, and so are its weighted forms. By bounds that hold for any
    number of rows (`follow.Bounded`), so that it takes no redraws and no normal approximation.

    `strict` is for what holds with the right propensities alone: no deviation is too small to matter, every row is
    looked at, groups may have got their actions in any way, and to have propensities estimated is no remedy.
    """
    given = log.propensity if propensity is None else propensity
    if given is None:
        return None
    log = replace(log, propensity=given)
    log = log if strict else some_rows(log)
    given = np.asarray(log.propensity)
    test = balance_by_propensities(log, given, together=strict)
    far = np.abs(test.z) > (0.0 if strict else SMALL * np.sqrt(len(log)))
    if not far.any() or test.p_value() > SURE:
        return None
    few = some_rows(log, MOST_REDRAWN)
    _, remedy = meant_instead(few, np.asarray(few.propensity), seed=0, estimable=not strict)
    return f"the actions do not follow the propensities: {what_is_off(log, given)}. {remedy}"


def some_rows(log: LoggedFeedback, most: int = MOST_ROWS) -> LoggedFeedback:
    """At most so many rows, drawn at random."""
    if len(log) <= most:
        return log
    return log.take(np.sort(np.random.default_rng([17, len(log)]).permutation(len(log))[:most]))


def what_is_off(log: LoggedFeedback, propensity: Float[np.ndarray, "..."]) -> str:
    """The action whose share is farthest from what the propensities say, or that it does not rise with them."""
    if propensity.ndim == 1:
        mean = [float(np.mean((log.action == a) / propensity)) for a in range(len(log.actions))]
        worst = int(np.argmax(np.abs(np.log(np.maximum(mean, 1e-9)))))
        return f"mean(1[action = {log.actions.tolist()[worst]!r}] / e) is {mean[worst]:.3g}, and should be 1"
    said, taken = propensity.mean(axis=0), np.bincount(log.action, minlength=len(log.actions)) / len(log)
    error = np.sqrt(np.maximum(np.mean(propensity * (1.0 - propensity), axis=0), 1e-12) / len(log))
    worst = 1 if len(taken) == 2 else int(np.argmax(np.abs(taken - said) / error))
    label = log.actions.tolist()[worst]
    if abs(taken[worst] - said[worst]) > 3.0 * error[worst]:
        return f"{label!r} was taken in {percent(taken[worst])} of the rows, and they say {percent(said[worst])}"
    return f"how often {label!r} was taken does not rise with them as they say"


def _alternatives(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."]
) -> Iterator[tuple[Float[np.ndarray, "row action"], str]]:
    """Other propensities that the user may have meant, and what to do if the actions follow them."""
    labels, count = [repr(label) for label in log.actions.tolist()], len(log.actions)
    if propensity.ndim == 2 and count == 2:
        remedy = f"They follow the propensities of the other action: exchange those of {labels[0]} and {labels[1]}"
        yield propensity[:, ::-1], remedy
        taken = of_logged_action(propensity, log.action)
        for place in (1, 0):
            remedy = (
                f"They follow the numbers as probabilities of {labels[place]} in every row, where those of the action "
                f"taken are meant: give 1 - p where the action was {labels[1 - place]}"
            )
            yield np.column_stack([1.0 - taken, taken][:: 1 if place else -1]), remedy
    elif propensity.ndim == 2 and count <= MOST_PERMUTED:
        for order in permutations(range(count)):
            moved = ", ".join(f"{labels[a]} has that of {labels[order[a]]}" for a in range(count) if order[a] != a)
            if moved:
                yield propensity[:, list(order)], f"They follow the same propensities in another order: {moved}"
    shares, listed = shares_of(log)
    remedy = (
        f"They look as if drawn with the same chances in every row ({listed}): give these if that is how it was "
        "done; if not, the column of actions may be out of line with the rows"
    )
    yield shares, remedy


def shares_of(log: LoggedFeedback) -> tuple[Float[np.ndarray, "row action"], str]:
    """The shares of the actions as propensities of every row, and in words."""
    shares = np.bincount(log.action, weights=log.weights, minlength=len(log.actions))
    shares = shares / shares.sum()
    listed = [f"{label!r} {share:.3g}" for label, share in zip(log.actions.tolist(), shares, strict=True)]
    more = [f"and {len(listed) - NAMED} more"] if len(listed) > NAMED else []
    return np.tile(shares, (len(log), 1)), ", ".join(listed[:NAMED] + more)


def meant_instead(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."], seed: int, *, estimable: bool = True
) -> tuple[Any, str]:
    """The first alternative that the actions follow, and what to do about it; else shares, if those given are alike."""
    for table, remedy in _alternatives(log, propensity):
        found = balance_of(log, table, QUICK_DRAWS, seed)
        constant = not np.ptp(table, axis=0).any()  # as many as there are is no proof: the features must balance too
        if found.propensities.p_value() > FITS and (not constant or found.features.p_value() > FITS):
            return table, remedy
    table, listed = shares_of(log)
    told = propensity_table(propensity, log)
    alike = told is not None and not np.ptp(told, axis=0).any()
    otherwise = ", or leave them out to have them estimated" if estimable else ""
    return table if alike else None, f"Correct the propensities (the shares in the table are {listed}){otherwise}"
