"""What a rule costs compared with another, on one table of outcomes (appendix: threshold rules)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from gbpl.decisions.decisions import Decisions
from gbpl.decisions.rules import (
    DEFERRED,
    ROUNDING,
    check_alpha,
    check_column_number,
    check_probabilities,
    column_numbers,
    leaving_probability,
)
from gbpl.feedback.checks import check_weights
from gbpl.feedback.pseudo_outcomes import of_logged_action

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Assessment", "assess"]

ASSUMED = {
    "best": "deferred rows get their best action in the given outcomes: an upper bound on what a person can do",
    "reference": "deferred rows get the reference rule's action",
}


@dataclass(frozen=True, slots=True)
class Assessment:
    """Welfare of a rule compared with a reference rule, on one table of outcomes.

    `difference` is welfare less the reference's (below zero: the rule's price), `difference_se` its standard error
    over rows; `change_rate` is the share of rows whose action differs from the reference's, `deferred_share` the
    share handed to a person (not counted as changed); `uncertain_rate` the share in the uncertain region;
    `assumed` says which outcomes of deferred rows the welfare assumes.
    """

    welfare: float
    reference_welfare: float
    difference: float
    difference_se: float
    change_rate: float
    deferred_share: float
    uncertain_rate: float | None
    assumed: str


def _deferred_values(
    value: Float[np.ndarray, " row"] | Literal["best", "reference"] | None,
    outcomes: Float[np.ndarray, "row action"],
    reference: Int[np.ndarray, " row"],
) -> tuple[Float[np.ndarray, " row"], str]:
    if value is None:
        raise ValueError(
            "deferred_value is needed for rows handed to a person: give 'reference', 'best', or one number per row"
        )
    if isinstance(value, str):
        if value not in ASSUMED:
            raise ValueError(f"deferred_value must be 'best', 'reference' or one number per row, got {value!r}")
        return (outcomes.max(axis=1) if value == "best" else of_logged_action(outcomes, reference)), ASSUMED[value]
    given = np.asarray(value, np.float64)
    if given.shape not in ((), (len(outcomes),)):
        raise ValueError(f"deferred_value must be one number per row ({len(outcomes)}), got shape {given.shape}")
    return np.broadcast_to(given, len(outcomes)), "deferred rows are worth the values given for them"


def _uncertain(
    action_probability: Float[np.ndarray, "row action"] | None, alpha: float | None, default: int, rows: int
) -> np.ndarray | None:
    """True where alpha <= 1 - p_default <= 1 - alpha; with two actions alpha <= p_D <= 1 - alpha."""
    if (action_probability is None) != (alpha is None):
        raise ValueError("the uncertain region needs both action_probability and alpha; give both or neither")
    if action_probability is None or alpha is None:
        return None
    table = check_probabilities(action_probability, "action_probability")
    if len(table) != rows:
        raise ValueError(f"action_probability has {len(table)} rows, outcomes {rows}; give the same rows")
    leaving, alpha = leaving_probability(table, check_column_number(default, table.shape[1])), check_alpha(alpha)
    return (leaving >= alpha - ROUNDING) & (leaving <= 1.0 - alpha + ROUNDING)


def assess(
    decision: Decisions | Int[np.ndarray, " row"],
    outcomes: Float[np.ndarray, "row action"],
    *,
    reference: Decisions | Int[np.ndarray, " row"],
    action_probability: Float[np.ndarray, "row action"] | None = None,
    alpha: float | None = None,
    default: int = 0,
    deferred_value: Float[np.ndarray, " row"] | Literal["best", "reference"] | None = None,
    sample_weight: Float[np.ndarray, " row"] | None = None,
) -> Assessment:
    """Welfare of a rule and its price compared with a reference rule, on outcomes, pseudo-outcomes or known means.

    `deferred_value` is the outcome of rows handed to a person: one number per row, 'reference' (the person does
    what the reference does) or 'best' (the best action in hindsight). Outcomes should already be net of costs.

    >>> assess(np.array([0, 0]), np.array([[0.0, 1.0], [2.0, 1.0]]), reference=np.array([1, 0])).difference
    -0.5
    """
    table = np.asarray(outcomes, np.float64)
    if table.ndim != 2 or 0 in table.shape or not np.all(np.isfinite(table)):
        raise ValueError(f"outcomes must be a finite (row, action) table, got shape {table.shape}")
    action, other = column_numbers(decision, "decision"), column_numbers(reference, "reference")
    for name, values, lowest in (("decision", action, DEFERRED), ("reference", other, 0)):
        if len(values) != len(table) or values.min() < lowest or values.max() >= table.shape[1]:
            raise ValueError(
                f"{name} must have {len(table)} column numbers from {lowest} to {table.shape[1] - 1}, got "
                f"{len(values)} numbers up to {max(values, default=None)}; give one per row of outcomes"
            )
    away, assumed = action == DEFERRED, "no row is deferred"
    value = of_logged_action(table, np.where(away, 0, action))
    if np.any(away):
        person, assumed = _deferred_values(deferred_value, table, other)
        value = np.where(away, person, value)
    uncertain = _uncertain(action_probability, alpha, default, len(table))
    weight = np.ones(len(table)) if sample_weight is None else check_weights(sample_weight, len(table))
    weight = weight / weight.sum()
    price = value - of_logged_action(table, other)
    return Assessment(
        welfare=float(value @ weight),
        reference_welfare=float(of_logged_action(table, other) @ weight),
        difference=float(price @ weight),
        difference_se=float(np.sqrt(weight**2 @ (price - price @ weight) ** 2)),
        change_rate=float(weight @ (~away & (action != other))),
        deferred_share=float(weight @ away),
        uncertain_rate=None if uncertain is None else float(weight @ uncertain),
        assumed=assumed,
    )
