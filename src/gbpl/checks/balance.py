"""Do the actions follow the propensities? If not: which propensities would they follow, and which columns stand out.

With the right propensities the actions are a coin flip given the features, so sum (1[A = a] - e_a) h(x) is zero up to
chance for every function h. One test has the constant and e itself as h, and is about the propensities. Another has the
features and their products: a column that stands out was measured after the action, or decided about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy.stats import norm

from gbpl.checks.finding import LEVEL, Finding, by_level
from gbpl.checks.redraws import basis_of, ranks_of, redraw
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import of_logged_action
from gbpl.report.numbers import percent

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["COLUMNS", "PROPENSITIES", "check_balance", "propensity_table"]

PROPENSITIES, COLUMNS = "balance of the log", "columns after the action"
DRAWS, QUICK_DRAWS = 1999, 499
WIDE = 0.1  # of a standard deviation: a difference between weighted actions that matters (Austin 2009)
SUM_TOLERANCE = 1e-3
FITS = 0.05  # p-value from which other propensities are said to fit
MOST_PERMUTED = 4  # actions whose labels are tried in every order
NAMED = 3  # columns named in a sentence


class Test(Protocol):
    """Standardised sums, one row per action and one column per function, and the p-value of the largest."""

    @property
    def z(self) -> Float[np.ndarray, "action function"]: ...

    def p_value(self, size: float | None = None) -> float: ...


@dataclass(frozen=True, slots=True, eq=False)
class Studentized:
    """Sums over their robust errors, with Bonferroni: for propensities that are known of the action taken alone."""

    z: Float[np.ndarray, "action function"]

    def p_value(self, size: float | None = None) -> float:
        own = np.abs(self.z).max(initial=0.0) if size is None else size
        return float(min(1.0, 2.0 * self.z.size * norm.sf(own)))


def propensity_table(
    propensity: Float[np.ndarray, "..."], log: LoggedFeedback
) -> Float[np.ndarray, "row action"] | None:
    """One column per action; None where only that of the action taken is known and it varies within an action."""
    if propensity.ndim == 2:
        return propensity
    count = len(log.actions)
    parts = [propensity[log.action == a] for a in range(count)]
    if any(len(part) == 0 or np.ptp(part) > SUM_TOLERANCE for part in parts):
        return None
    chances = np.array([part.mean() for part in parts])
    return np.tile(chances / chances.sum(), (len(log), 1)) if abs(chances.sum() - 1.0) <= SUM_TOLERANCE else None


@dataclass(frozen=True, slots=True, eq=False)
class _Balance:
    """Two tests of some propensities: sums of functions of the propensities, and of the columns."""

    propensities: Test
    features: Test
    columns: list[tuple[int, ...]]

    def standing_out(self, tests: int) -> list[int]:
        """Columns with sums beyond chance, the farthest first; those of products only where no column does alone."""
        z = np.abs(self.features.z).max(axis=0)
        far = [k for k in np.argsort(-z) if tests * self.features.p_value(float(z[k])) <= LEVEL]
        alone = [self.columns[k] for k in far if len(self.columns[k]) == 1]
        listed = alone or [self.columns[k] for k in far]
        return list(dict.fromkeys(j for columns in listed for j in columns))


def _balance(log: LoggedFeedback, propensity: Float[np.ndarray, "..."], draws: int, seed: int) -> _Balance:
    basis = basis_of(log.context)
    table = propensity_table(propensity, log)
    # Functions must not depend on the action, so a propensity that is known of the action taken alone is none.
    known = np.empty((len(log), 0)) if table is None else table[:, 1:] if table.shape[1] == 2 else table
    varying = known[:, np.ptp(known, axis=0) > 0.0]
    weights = np.ones(len(log)) if log.weights is None else log.weights / log.weights.mean()

    def tested(moments: Float[np.ndarray, "row function"]) -> Test:
        weighted = moments * weights[:, None]
        if table is None:
            return _studentized(log, propensity, weighted)
        return redraw(log.action, table, weighted, draws=draws, seed=seed, groups=log.groups)

    own = tested(np.hstack([basis.values[:, :1], ranks_of(varying)]))
    return _Balance(own, tested(basis.values[:, 1:]), basis.columns[1:])


def _studentized(
    log: LoggedFeedback, propensity: Float[np.ndarray, " row"], moments: Float[np.ndarray, "row function"]
) -> Studentized:
    """Sums of (1[A = a] / e_A - 1) m over their errors, by group where there are groups."""
    z = []
    for a in range(len(log.actions)):
        rows = ((log.action == a) / propensity - 1.0)[:, None] * moments
        parts = rows
        if log.groups is not None:
            parts = np.zeros((int(log.groups.max()) + 1, rows.shape[1]))
            np.add.at(parts, log.groups, rows)
        centred = parts - parts.mean(axis=0)
        error = np.sqrt(np.sum(centred**2, axis=0))
        z.append(rows.sum(axis=0) / np.where(error > 0.0, error, np.inf))
    return Studentized(np.stack(z))


# -- what else could be meant -----------------------------------------------------------------------------------------


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
    shares, listed = _shares(log)
    remedy = (
        f"They look as if drawn with the same chances in every row ({listed}): give these if that is how it was "
        "done; if not, the column of actions may be out of line with the rows"
    )
    yield shares, remedy


def _shares(log: LoggedFeedback) -> tuple[Float[np.ndarray, "row action"], str]:
    """The shares of the actions as propensities of every row, and in words."""
    shares = np.bincount(log.action, weights=log.weights, minlength=len(log.actions))
    shares = shares / shares.sum()
    listed = ", ".join(f"{label!r} {share:.3g}" for label, share in zip(log.actions.tolist(), shares, strict=True))
    return np.tile(shares, (len(log), 1)), listed


def _meant(log: LoggedFeedback, propensity: Float[np.ndarray, "..."], seed: int) -> tuple[Any, str]:
    """The first alternative that the actions follow, and what to do about it; else shares, if those given are alike."""
    for table, remedy in _alternatives(log, propensity):
        found = _balance(log, table, QUICK_DRAWS, seed)
        constant = not np.ptp(table, axis=0).any()  # as many as there are is no proof: the features must balance too
        if found.propensities.p_value() > FITS and (not constant or found.features.p_value() > FITS):
            return table, remedy
    table, listed = _shares(log)
    told = propensity_table(propensity, log)
    alike = told is not None and not np.ptp(told, axis=0).any()
    return table if alike else None, (
        f"Correct the propensities (the shares in the table are {listed}), or leave them out to have them estimated"
    )


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
    found = _balance(log, propensity, DRAWS, seed)
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
    table, remedy = _meant(log, propensity, seed)
    sentence = f"The actions do not follow the propensities: {_off(log, propensity)} (p = {p_value:.2g}). {remedy}."
    first = Finding(PROPENSITIES, verdict, sentence, size, p_value, details)
    if table is None:
        unknown = "Columns cannot be judged before the propensities are right."
        return [first, Finding(COLUMNS, "doubt", unknown)]
    return [first, _columns(_balance(log, table, DRAWS, seed), names, tests)]


def _largest(test: Test) -> float:
    return float(np.abs(test.z).max(initial=0.0))


def _off(log: LoggedFeedback, propensity: Float[np.ndarray, "..."]) -> str:
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


def _columns(found: _Balance, names: Sequence[str], tests: int) -> Finding:
    size, p_value = _largest(found.features), found.features.p_value()
    verdict = by_level(p_value, tests)
    details: dict[str, Any] = {"largest": size}
    if verdict == "passed":
        sentence = (
            f"No column differs between the actions beyond chance, given the propensities (largest deviation "
            f"{size:.1f} standard errors, p = {p_value:.2g})."
        )
        return Finding(COLUMNS, verdict, sentence, size, p_value, details)
    far = [names[j] for j in found.standing_out(tests)]
    listed = ", ".join(map(repr, far[:NAMED])) + (f" and {len(far) - NAMED} more" if len(far) > NAMED else "")
    differ = "differs" if len(far) == 1 else "differ"
    sentence = (
        f"{listed} {differ} between the actions, given the propensities ({size:.1f} standard errors, "
        f"p = {p_value:.2g}): measured after the action, and then to be left out; or a reason for the action, and then "
        "the propensities are wrong."
    )
    return Finding(COLUMNS, verdict, sentence, size, p_value, details | {"columns": far})


def _estimated(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."], names: Sequence[str], found: _Balance, tests: int
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
