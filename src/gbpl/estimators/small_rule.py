"""A small rule beside a fitted policy: what it is worth, what it gives away, and how sure its splits are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.decisions.rule_fits import RuleFits, Splits, fit_rules, fold_doubt, splits_of
from gbpl.decisions.rule_settings import Columns, RuleSettings
from gbpl.decisions.tree import LEAF, Tree
from gbpl.estimators.training import LEARNED, Training
from gbpl.frozen.small_rule import SmallRule
from gbpl.value.estimate import Value

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.tables.encoder import Encoder

__all__ = ["SmallRuleFit", "columns_of", "fit_small_rule"]


@dataclass(frozen=True, slots=True, eq=False)
class SmallRuleFit:
    """A small `rule` learned by welfare, and what it gives away.

    `value` is that of the rule on rows it did not see: the search is repeated without each fold. `price` is the value
    of the full policy less that, on the same rows (positive: what the rule gives away). `splits` say how often other
    samples would ask the same. `exact`: there is no better rule of its kind for these rows. `agreement` is the share of
    rows that the rule decides as the policy does.
    """

    rule: SmallRule
    value: Value
    price: Value
    splits: Splits
    exact: bool
    settings: RuleSettings
    agreement: float
    rows: tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"]]  # what the rule and the policy give the training rows

    @property
    def card(self) -> dict[str, Any] | None:
        """A scorecard as plain JSON; None for a tree."""
        rule = self.rule.rule
        if isinstance(rule, Tree):
            return None
        asked = zip(rule.feature.tolist(), rule.threshold.tolist(), rule.points.tolist(), strict=True)
        told = [{"text": self.rule.condition(j, cut, above=True), "points": points} for j, cut, points in asked]
        return {"start": rule.start.tolist(), "conditions": told}

    def nodes(self, x: Float[np.ndarray, "row feature"]) -> list[dict[str, Any]] | None:
        """The nodes of a tree, with the rows in each and the share of them that the policy decides alike."""
        tree = self.rule.rule
        if not isinstance(tree, Tree):
            return None
        inside = {0: np.ones(len(x), bool)}
        nodes = []
        for number, (j, cut) in enumerate(zip(tree.feature.tolist(), tree.threshold.tolist(), strict=True)):
            asked: dict[str, Any] = {"feature": None, "text": None, "left": None, "right": None}
            own = inside[number]
            if j != LEAF:
                below, sides = x[:, j] <= cut, (int(tree.left[number]), int(tree.right[number]))
                inside |= {sides[0]: own & below, sides[1]: own & ~below}
                text = self.rule.condition(j, cut)
                asked = {"feature": self.rule.feature_names[j], "text": text, "left": sides[0], "right": sides[1]}
            mine, theirs = (part[own] for part in self.rows)
            action = int(np.argmax(np.bincount(mine)))
            counted = {"rows": int(own.sum()), "action": action, "share": float(np.mean(theirs == action))}
            nodes.append({"id": number, **asked, **counted})
        return nodes

    def to_dict(self, x: Float[np.ndarray, "row feature"], level: float = 0.95) -> dict[str, Any]:
        """For a summary, as plain JSON without rows; `x` are the training rows, which are counted."""
        count = len(self.rule.actions_)
        kept = ("estimate", "se", "low", "high", "level")
        return {
            "kind": self.settings.kind,
            "size": self.settings.size,
            "exact": self.exact,
            "text": str(self.rule),
            **{
                name: {key: value.to_dict(level)[key] for key in kept}
                for name, value in (("value", self.value), ("price", self.price))
            },
            "agreement": self.agreement,
            "shares": (np.bincount(self.rows[0], minlength=count) / len(self.rows[0])).tolist(),
            "nodes": self.nodes(x),
            "card": self.card,
            "splits": self.splits.to_dict(),
            "constraints": self.settings.to_dict(),
            "rule": self.rule.to_dict(),
        }

    def __str__(self) -> str:
        told = [f"{column} ({share:.0%})" for column, share in self.splits.columns[:4]]
        return "\n".join([
            str(self.rule),
            f"{self.value}, each row by a rule that did not see it",
            f"price against the full policy: {self.price}",
            f"in {self.splits.replicates} other samples the rule asks about {', '.join(told) or 'nothing'}; "
            f"{self.splits.agreement:.0%} of rows decided alike",
        ])  # fmt: skip

    __repr__ = __str__


def columns_of(names: list[str], encoder: Encoder | None) -> Columns:
    """The features that a rule may ask about."""
    if encoder is None:
        return Columns(tuple(names), tuple(names), (True,) * len(names))
    return Columns(tuple(encoder.names), tuple(encoder.raw_names), tuple(kind == "number" for kind in encoder.kinds))


def fit_small_rule(
    training: Training, settings: RuleSettings, columns: Columns, encoder: Encoder | None, smallest: int = 1
) -> SmallRuleFit:
    """Search the rule by the scores of the training rows, and evaluate it on rows that its search did not see."""
    feedback, labels = training.feedback, training.feedback.actions
    resolved = settings.resolved(columns, labels.tolist(), len(feedback), smallest)
    fits = fit_rules(
        feedback.x, _scores(training), training.held_out.folds, settings, resolved, weights=feedback.weights,
        groups=feedback.groups,
    )  # fmt: skip
    rule = SmallRule(fits.found.rule, labels, columns.names, encoder)
    full = training.value(training.untouched, estimator="dr", rule="deterministic")
    value = _value(training, fits)
    mine, policy = fits.found.rule.actions(feedback.x), training.decided
    return SmallRuleFit(
        rule, value, replace(full - value, what="price"), splits_of(fits, feedback.x, columns.raw, columns.ordered),
        fits.found.exact, settings, float(np.mean(mine == policy)), (mine, policy),
    )  # fmt: skip


def _scores(training: Training) -> Callable[[int | None], Float[np.ndarray, "row action"]]:
    """Doubly robust scores net of costs; for a fold by models that saw nothing of it, where there are such."""
    nuisances = training.nuisances
    if nuisances is None:
        return lambda fold: training.feedback.outcomes
    apart = nuisances.fold_means is not None
    return lambda fold: nuisances.pseudo_outcomes("dr", fold=fold if apart else None)


def _value(training: Training, fits: RuleFits) -> Value:
    """The value of the rule of all rows, from the decisions of those without a fold (as `Training.learned`)."""
    evaluator = training.evaluator("dr")
    count = len(evaluator.actions)
    held, whole = np.eye(count)[fits.held], np.eye(count)[fits.found.rule.actions(training.feedback.x)]
    value = evaluator.value_of(held)
    more = training.gained(whole, held)
    outcomes = np.stack([evaluator.value_of(np.tile(row, (evaluator.n, 1))).influence for row in np.eye(count)], axis=1)
    return replace(
        value, influence=value.influence + more, dependence=fold_doubt(fits.given, outcomes),
        allowance=0.5 * abs(float(np.average(more, weights=value.weights))), inflation=LEARNED,
    )  # fmt: skip
