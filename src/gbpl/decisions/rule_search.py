"""The small rule of the largest welfare for some rows: which search, over which cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.decisions.card_search import best_card
from gbpl.decisions.cuts import Cuts, Limits
from gbpl.decisions.every_cut import best_of_every_cut
from gbpl.decisions.rule_settings import CARD, Resolved, RuleSettings
from gbpl.decisions.scorecard import Scorecard
from gbpl.decisions.tree import Tree
from gbpl.decisions.tree_search import TreeSearch

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["FoundRule", "coarse_cuts", "gap_of", "rule_on_cuts", "search_rule"]

ALL = 1 << 62
# Cuts by depth: of all features together, and of each. More are of little use: the best of many cuts is mostly noise.
GRID = {1: (ALL, ALL), 2: (2_048, 255), 3: (640, 31), 4: (320, 15)}
COARSE = {1: (640, 63), 2: (320, 31), 3: (160, 15), 4: (80, 7)}  # of refits
CARD_GRID = (320, 31)
DEEP_CUTS = 40  # up to which trees of depth 4 are searched whole
QUICK = 2_000_000  # rows times squared features up to which every cut is looked at for trees of depth 2


class FoundRule(NamedTuple):
    """A rule, and whether there is none better of its kind."""

    rule: Tree | Scorecard
    exact: bool


def search_rule(
    x: Float[np.ndarray, "row feature"], scores: Float[np.ndarray, "row action"], settings: RuleSettings,
    resolved: Resolved, *, weights: Float[np.ndarray, " row"] | None = None,
) -> FoundRule:  # fmt: skip
    """The rule with the largest sum of the scores of what it gives, times the weights."""
    gap = gap_of(scores, weights)
    quick = len(x) * len(resolved.features) ** 2 <= QUICK and not resolved.limits.ranks
    if settings.kind != CARD and settings.depth == 2 and (settings.exact or quick):
        found, exact = best_of_every_cut(TreeSearch(_cuts(x, resolved, (ALL, ALL)), gap, resolved.limits))
        return FoundRule(found, exact)
    most = CARD_GRID if settings.kind == CARD else GRID[settings.depth]
    return rule_on_cuts(_cuts(x, resolved, most), gap, settings, resolved.limits)


def coarse_cuts(x: Float[np.ndarray, "row feature"], settings: RuleSettings, resolved: Resolved) -> Cuts:
    """Cuts for many searches of the same rows."""
    return _cuts(x, resolved, CARD_GRID if settings.kind == CARD else COARSE[settings.depth])


def rule_on_cuts(cuts: Cuts, gap: Float[np.ndarray, "row score"], settings: RuleSettings, limits: Limits) -> FoundRule:
    """The best rule with some cuts, by the scores of every action but the first, less those of the first."""
    if settings.kind == CARD:
        return FoundRule(best_card(cuts, gap, limits, settings.depth), False)
    search, depth = TreeSearch(cuts, gap, limits), settings.depth
    if depth < 4 or cuts.width <= DEEP_CUTS:
        return FoundRule(search.best(depth), cuts.exact)
    return FoundRule(search.best(depth, search.first_of(depth - 1, depth)), False)


def _cuts(x: Float[np.ndarray, "row feature"], resolved: Resolved, most: tuple[int, int]) -> Cuts:
    return Cuts.of(x, resolved.features, *most)


def gap_of(
    scores: Float[np.ndarray, "row action"], weights: Float[np.ndarray, " row"] | None
) -> Float[np.ndarray, "row score"]:
    gap = np.asarray(scores[:, 1:] - scores[:, :1], np.float64)
    return gap if weights is None else gap * weights[:, None]
