"""A small rule fitted to all rows, without each fold, and to other samples: what an honest value and doubt need.

Other samples are Bayesian bootstraps (Rubin 1981): the scores of a row, or of a group of rows, times an exponential
weight. How often their rules ask a question is how often another sample would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import norm

from gbpl.decisions.rule_search import FoundRule, coarse_cuts, gap_of, rule_on_cuts, search_rule
from gbpl.decisions.rule_settings import Resolved, RuleSettings
from gbpl.decisions.scorecard import Scorecard
from gbpl.decisions.tree import LEAF, Tree

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["RuleFits", "Splits", "fit_rules", "fold_doubt", "splits_of"]

SPAN = (0.05, 0.95)  # of the cuts of a column


class RuleFits(NamedTuple):
    """The rule of all rows, what rules without each fold give its rows, other samples' rules and what they give."""

    found: FoundRule
    held: Int[np.ndarray, " row"]
    refits: tuple[Tree | Scorecard, ...]
    given: Int[np.ndarray, "refit row"]


def fit_rules(
    x: Float[np.ndarray, "row feature"], scores: Callable[[int | None], Float[np.ndarray, "row action"]],
    folds: Sequence[Int[np.ndarray, " row"]], settings: RuleSettings, resolved: Resolved, *,
    weights: Float[np.ndarray, " row"] | None = None, groups: Int[np.ndarray, " row"] | None = None,
) -> RuleFits:  # fmt: skip
    """Search the rule of all rows, of those outside each fold, and of other samples.

    `scores` gives the table to learn from, for a fold one that saw nothing of its rows.
    """
    whole = scores(None)
    found = search_rule(x, whole, settings, resolved, weights=weights)
    held = np.empty(len(x), np.int64)
    for number, fold in enumerate(folds):
        rest = np.ones(len(x), bool)
        rest[fold] = False
        own = None if weights is None else weights[rest]
        outside = search_rule(x[rest], scores(number)[rest], settings, resolved, weights=own)
        held[fold] = outside.rule.actions(x[fold])
    cuts, gap = coarse_cuts(x, settings, resolved), gap_of(whole, weights)
    unit = np.arange(len(x)) if groups is None else np.unique(groups, return_inverse=True)[1]
    rng = np.random.default_rng([settings.seed, 23])
    refits = []
    for _ in range(settings.replicates):
        drawn = rng.standard_exponential(int(unit.max()) + 1)[unit]
        refits.append(rule_on_cuts(cuts, gap * drawn[:, None], settings, resolved.limits).rule)
    return RuleFits(found, held, tuple(refits), np.stack([refit.actions(x) for refit in refits]))


def fold_doubt(
    given: Int[np.ndarray, "refit row"], outcomes: Float[np.ndarray, "row action"]
) -> Float[np.ndarray, "row 1"]:
    """v_i of `value.dependence` for a rule, from what other samples' rules give each row.

    A row that gets its most frequent action with chance p is decided by a score at Phi^{-1}(p) standard deviations, and
    v_i = phi(Phi^{-1}(p)) |Y_i(a) - Y_i(b)|, b the other actions as often as they are given.
    """
    count = outcomes.shape[1]
    share = np.stack([np.mean(given == action, axis=0) for action in range(count)], axis=1)
    rows, usual = np.arange(len(share)), share.argmax(axis=1)
    most = share[rows, usual]
    others = share.copy()
    others[rows, usual] = 0.0
    rest = others.sum(axis=1)
    other = np.sum(others * outcomes, axis=1) / np.where(rest > 0.0, rest, 1.0)
    height = np.where(rest > 0.0, norm.pdf(norm.ppf(np.clip(most, 0.5, 1.0))), 0.0)
    return (height * np.abs(outcomes[rows, usual] - other))[:, None]


@dataclass(frozen=True, slots=True)
class Splits:
    """How often other samples' rules ask what the rule asks: shares of `replicates`.

    `first` has for each column how often the first question (of a scorecard, the condition with most points) is about
    it, and where nine in ten of its cuts lie; `columns` how often it is asked at all. `same_columns`: how often exactly
    the columns of the rule are asked. `agreement`: the mean share of rows decided as by the rule.
    """

    replicates: int
    first: tuple[tuple[str, float, float | None, float | None], ...]
    columns: tuple[tuple[str, float], ...]
    same_columns: float
    agreement: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "replicates": self.replicates,
            "first": [dict(zip(("column", "share", "low", "high"), one, strict=True)) for one in self.first],
            "columns": [{"column": column, "share": share} for column, share in self.columns],
            "same_columns": self.same_columns,
            "agreement": self.agreement,
        }


def _asked(rule: Tree | Scorecard, column: Sequence[str]) -> frozenset[str]:
    return frozenset(column[j] for j in rule.feature.tolist() if j != LEAF)


def splits_of(
    fits: RuleFits, x: Float[np.ndarray, "row feature"], column: Sequence[str], ordered: Sequence[bool]
) -> Splits:
    """What other samples ask; `column` is the raw column of each feature, `ordered` whether its cuts say something."""
    first: dict[str, list[float]] = {}
    number: set[str] = set()
    used: Counter[str] = Counter()
    for refit in fits.refits:
        used.update(_asked(refit, column))
        if len(refit.feature) and (j := int(refit.feature[0])) != LEAF:
            first.setdefault(column[j], []).append(float(refit.threshold[0]))
            number |= {column[j]} if ordered[j] else set()
    count = len(fits.refits)
    listed = []
    for name, cuts in sorted(first.items(), key=lambda item: (-len(item[1]), item[0])):
        low, high = np.quantile(cuts, SPAN).tolist() if name in number else (None, None)
        listed.append((name, len(cuts) / count, low, high))
    mine = _asked(fits.found.rule, column)
    same = sum(_asked(refit, column) == mine for refit in fits.refits)
    return Splits(
        count, tuple(listed), tuple((name, times / count) for name, times in used.most_common()), same / count,
        float(np.mean(fits.given == fits.found.rule.actions(x))),
    )  # fmt: skip
