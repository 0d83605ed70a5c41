"""Do the actions follow some propensities? Sums that are zero up to chance if they do.

With the right propensities the actions are a coin flip given the features, so sum (1[A = a] - e_a) h(x) is zero up to
chance for every function h. One test has the constant and e itself as h, and is about the propensities. Another has the
features (and their products): a column that stands out was measured after the action, or decided about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.stats import norm

from gbpl.checks.redraws import basis_of, one_action_each, ranks_of, redraw
from gbpl.feedback.logged import LoggedFeedback

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "Balance", "Bounded", "Studentized", "Test", "balance_by_features", "balance_by_propensities", "balance_of",
    "bounded_sums", "propensity_table",
]  # fmt: skip

SUM_TOLERANCE = 1e-3
SMALLEST = 1e-12  # propensity that is divided by
DIGITS = 12  # 1 - 1/3 and 2/3 differ in the last one, which would tell the action taken


class Test(Protocol):
    """Standardised sums, one row per action and one column per function, and the p-value of the largest."""

    @property
    def z(self) -> Float[np.ndarray, "action function"]: ...

    def p_value(self, size: float | None = None) -> float: ...


@dataclass(frozen=True, slots=True, eq=False)
class Studentized:
    """Sums over their robust errors, with Bonferroni: for propensities that are known of the action taken alone."""

    z: Float[np.ndarray, "action function"]

    def p_values(self) -> Float[np.ndarray, "action function"]:
        """Of each sum by itself, times the number of sums."""
        made: Float[np.ndarray, "action function"] = np.minimum(1.0, 2.0 * self.z.size * norm.sf(np.abs(self.z)))
        return made

    def p_value(self, size: float | None = None) -> float:
        return float((self if size is None else Studentized(np.full_like(self.z, size))).p_values().min(initial=1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """Sums of independent terms of at most `largest` standard deviations of the sum: a p-value without redraws.

    Bennett's inequality, with Bonferroni: P(|S| / sd >= z) <= 2 exp(-h(b z) / b^2) with b the largest term over the
    standard deviation and h(u) = (1 + u) log(1 + u) - u, whatever the number of rows and however rare an action is.
    """

    z: Float[np.ndarray, "action function"]
    largest: Float[np.ndarray, "action function"]

    def p_values(self) -> Float[np.ndarray, "action function"]:
        """Of each sum by itself, times the number of sums."""
        b = np.maximum(self.largest, 1e-9)
        u = b * np.abs(self.z)
        made: Float[np.ndarray, "action function"]
        made = np.minimum(1.0, 2.0 * self.z.size * np.exp(-((1.0 + u) * np.log1p(u) - u) / b**2))
        return made

    def p_value(self) -> float:
        return float(self.p_values().min(initial=1.0))


def bounded_sums(
    log: LoggedFeedback,
    table: Float[np.ndarray, "row action"],
    moments: Float[np.ndarray, "row function"],
    *,
    inverse: bool = False,
    together: bool = False,
) -> Bounded:
    """Sums of (1[A = a] - e_a) m over their standard deviations; whole groups are one term if each has one action.

    `inverse` adds m / e_a for the first function m: sum (1[A = a] / e_a - 1) m, which is what weighting by inverse
    propensities relies on. If rows of a group may have got their actions `together`, in whatever way, a group is one
    term too, of at most sum |m| and a standard deviation of at most sum |m| sqrt(e_a (1 - e_a)).
    """
    n, groups, count = len(log), np.arange(len(log)), table.shape[1]
    if log.groups is not None and (together or one_action_each(log.action, log.groups)):
        n, groups = int(log.groups.max()) + 1, log.groups
    z, share = [], []
    for a in [1] if count == 2 else range(count):
        over = table[:, [0, 1] if count == 2 else [a]]  # of two actions, a sum of one is that of the other
        functions = np.hstack([moments, moments[:, :1] / np.maximum(over, SMALLEST)]) if inverse else moments
        size = np.abs(functions) if together else functions
        off = ((log.action == a) - table[:, a]) @ functions
        spread = np.sqrt(table[:, [a]] * (1.0 - table[:, [a]]))
        sd = np.sqrt(np.sum(_summed(spread * size, groups, n) ** 2, axis=0))
        sd = np.where(sd > 0.0, sd, np.inf)
        z.append(off / sd)
        share.append(np.abs(_summed(size, groups, n)).max(axis=0, initial=0.0) / sd)
    return Bounded(np.stack(z), np.stack(share))


def _summed(
    values: Float[np.ndarray, "row column"], groups: Int[np.ndarray, " row"], count: int
) -> Float[np.ndarray, "group column"]:
    return values if count == len(values) else np.stack([np.bincount(groups, v, count) for v in values.T], axis=1)


def propensity_table(
    propensity: Float[np.ndarray, "..."], log: LoggedFeedback
) -> Float[np.ndarray, "row action"] | None:
    """One column per action; None where only that of the action taken is known and it varies within an action."""
    if propensity.ndim == 2:
        rounded: Float[np.ndarray, "row action"] = np.round(propensity, DIGITS)
        return rounded
    count = len(log.actions)
    parts = [propensity[log.action == a] for a in range(count)]
    if any(len(part) == 0 or np.ptp(part) > SUM_TOLERANCE for part in parts):
        return None
    chances = np.array([part.mean() for part in parts])
    return np.tile(chances / chances.sum(), (len(log), 1)) if abs(chances.sum() - 1.0) <= SUM_TOLERANCE else None


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """Two tests of some propensities: sums of functions of the propensities, and of the columns."""

    propensities: Test
    features: Test
    columns: list[tuple[int, ...]]

    def standing_out(self, tests: float, level: float) -> list[int]:
        """Columns with sums beyond chance, the farthest first; those of products only where no column does alone."""
        z = np.abs(self.features.z).max(axis=0, initial=0.0)
        far = [k for k in np.argsort(-z) if tests * self.features.p_value(float(z[k])) <= level]
        alone = [self.columns[k] for k in far if len(self.columns[k]) == 1]
        listed = alone or [self.columns[k] for k in far]
        return list(dict.fromkeys(j for columns in listed for j in columns))


def balance_by_propensities(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."], *, together: bool = False
) -> Studentized | Bounded:
    """The first test without redraws: sums of functions of the propensities."""
    table = propensity_table(propensity, log)
    varies = table is not None and bool(np.ptp(table, axis=0).any())  # else 1 / e is the constant again
    moments = _of_propensities(table, len(log))
    return _without_redraws(log, propensity, table, moments, inverse=varies, together=together)


def balance_by_features(log: LoggedFeedback, propensity: Float[np.ndarray, "..."]) -> Studentized | Bounded:
    """The second test without redraws: one sum per column."""
    return _without_redraws(log, propensity, propensity_table(propensity, log), ranks_of(log.context))


def _without_redraws(
    log: LoggedFeedback, propensity: Float[np.ndarray, "..."], table: Float[np.ndarray, "row action"] | None,
    moments: Float[np.ndarray, "row function"], *, inverse: bool = False, together: bool = False,
) -> Studentized | Bounded:  # fmt: skip
    weights = np.ones((len(log), 1)) if log.weights is None else (log.weights / log.weights.mean())[:, None]
    if table is None:
        return _studentized(log, propensity, weights * moments)
    return bounded_sums(log, table, weights * moments, inverse=inverse, together=together)


def _of_propensities(table: Float[np.ndarray, "row action"] | None, n: int) -> Float[np.ndarray, "row function"]:
    """The constant, and the propensities that vary.

    Functions must not depend on the action, so a propensity that is known of the action taken alone is none.
    """
    known = np.empty((n, 0)) if table is None else table[:, 1:] if table.shape[1] == 2 else table
    return np.hstack([np.ones((n, 1)), ranks_of(known[:, np.ptp(known, axis=0) > 0.0])])


def balance_of(log: LoggedFeedback, propensity: Float[np.ndarray, "..."], draws: int, seed: int) -> Balance:
    """Both tests by `draws` redraws of the actions."""
    basis = basis_of(log.context)
    table = propensity_table(propensity, log)
    weights = np.ones(len(log)) if log.weights is None else log.weights / log.weights.mean()

    def tested(moments: Float[np.ndarray, "row function"]) -> Test:
        weighted = moments * weights[:, None]
        if table is None:
            return _studentized(log, propensity, weighted)
        return redraw(log.action, table, weighted, draws=draws, seed=seed, groups=log.groups)

    return Balance(tested(_of_propensities(table, len(log))), tested(basis.values[:, 1:]), basis.columns[1:])


def _studentized(
    log: LoggedFeedback, propensity: Float[np.ndarray, " row"], moments: Float[np.ndarray, "row function"]
) -> Studentized:
    """Sums of (1[A = a] / e_A - 1) m over their errors, by group where there are groups.

    One more row of the largest weight of all is added to the error: rows that would have such a weight are missing more
    often than not, and then the sum is too small and its error too.
    """
    z, more = [], 1.0 / propensity.min()
    for a in range(len(log.actions)):
        rows = ((log.action == a) / propensity - 1.0)[:, None] * moments
        parts = rows
        if log.groups is not None:
            parts = _summed(rows, log.groups, int(log.groups.max()) + 1)
        centred = parts - parts.mean(axis=0)
        error = np.sqrt(np.sum(centred**2, axis=0) + more**2)
        z.append(rows.sum(axis=0) / np.where(error > 0.0, error, np.inf))
    return Studentized(np.stack(z))
