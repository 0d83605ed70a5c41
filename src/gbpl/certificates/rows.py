"""Rows that certify: values in a known range whose expected mean is at most the welfare (section 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.certificates.bounds import chernoff_bound
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import of_logged_action

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["CertifyingRows", "check_within", "full_rows", "logged_rows"]

CONDITIONAL = "so the certificate speaks of people with the features of these rows, not of a wider population"


@dataclass(frozen=True, slots=True, eq=False)
class CertifyingRows:
    """A table whose expected mean under a policy is at most its welfare, and the range of a row's value.

    `action_low` and `action_width` are that range where everybody gets one action.
    """

    x: Float[np.ndarray, "row feature"]
    table: Float[np.ndarray, "row action"]
    low: float
    width: float
    action_low: Float[np.ndarray, " action"]
    action_width: Float[np.ndarray, " action"]
    certified: bool
    caveats: tuple[str, ...]

    @classmethod
    def of(
        cls,
        x: Float[np.ndarray, "row feature"],
        gross: Float[np.ndarray, "row action"],
        cost: Float[np.ndarray, "row action"] | None,
        outcome_range: tuple[float, float],
        stretch: Float[np.ndarray, " action"] | float = 1.0,
        caveats: tuple[str, ...] = (),
        certified: bool = True,
    ) -> CertifyingRows:
        """From values before costs in [lowest, lowest + stretch_a (highest - lowest)] for action a."""
        paid = np.zeros(gross.shape) if cost is None else cost
        if cost is not None and np.ptp(cost, axis=0).any():
            caveats = (*caveats, f"costs differ between rows: the range is that of these rows' costs, {CONDITIONAL}")
        dearest, cheapest = paid.max(axis=0), paid.min(axis=0)
        span = np.broadcast_to(np.asarray(stretch) * (outcome_range[1] - outcome_range[0]), dearest.shape)
        low = outcome_range[0] - float(dearest.max())
        return cls(
            x=x,
            table=gross if cost is None else gross - paid,
            low=low,
            width=outcome_range[0] + float(span.max()) - float(cheapest.min()) - low,
            action_low=outcome_range[0] - dearest,
            action_width=span + dearest - cheapest,
            certified=certified,
            caveats=caveats,
        )

    def part(self, rows: Int[np.ndarray, " part"]) -> CertifyingRows:
        """Some of the rows; the ranges stay."""
        return replace(self, x=self.x[rows], table=self.table[rows])

    def single_actions(self, failure_probability: float) -> Float[np.ndarray, " action"]:
        """Lower bounds of the welfare of each action given to everybody, which hold together (Chernoff's bound)."""
        share = failure_probability / self.table.shape[1]
        gains = np.clip((self.table.mean(axis=0) - self.action_low) / self.action_width, 0.0, 1.0)
        losses = np.asarray(chernoff_bound(1.0 - gains, len(self.table), failure_probability=share))
        return self.action_low + self.action_width * (1.0 - losses)


def check_within(values: Float[np.ndarray, "..."], outcome_range: tuple[float, float], what: str) -> None:
    """Refuse outcomes outside the stated range."""
    low, high = outcome_range
    wrong = (values < low) | (values > high)
    if wrong.any():
        place = tuple(int(index[0]) for index in np.nonzero(wrong))
        raise ValueError(
            f"{what} is {values[place]:g} in row {place[0]} ({int(wrong.sum())} such value(s)), outside "
            f"outcome_range=({low:g}, {high:g}); state the range outcomes can take, or cut them to it first (cut from "
            "above, what is certified of the cut outcomes holds for the whole ones)"
        )


def full_rows(
    x: Float[np.ndarray, "row feature"],
    outcomes: Float[np.ndarray, "row action"],
    cost: Float[np.ndarray, "row action"] | None,
    outcome_range: tuple[float, float],
) -> CertifyingRows:
    """A row's value is sum_a delta_a (Y(a) - c_a)."""
    check_within(outcomes, outcome_range, "an outcome")
    return CertifyingRows.of(x, np.asarray(outcomes, np.float64), cost, outcome_range)


def logged_rows(
    log: LoggedFeedback,
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"],
    clip: float,
    outcome_range: tuple[float, float],
    *,
    estimated: bool,
) -> CertifyingRows:
    """A row's value is low + delta_A (Y - low) / max(e_A, clip) - sum_a delta_a c_a, its mean at most the welfare.

    The range follows from the smallest propensity that an action can have: by design where every row has the same, else
    that of these rows, or `clip` where it is larger; and `clip` where propensities of the other actions are not known.
    """
    check_within(log.outcome, outcome_range, "the outcome")
    count, low = len(log.actions), outcome_range[0]
    caveats: tuple[str, ...] = ()
    if propensity.ndim == 2:
        taken, smallest = of_logged_action(propensity, log.action), propensity.min(axis=0)
        if np.ptp(propensity, axis=0).max() > 1e-12 and smallest.min() > clip:
            caveats = (f"propensities differ between rows: the range is that of the smallest, {CONDITIONAL}",)
    else:
        taken, smallest = propensity, np.zeros(count)
        if clip == 0.0:
            raise ValueError(
                "propensity is known only for the action taken and clip is 0: a row's value has no range; give "
                "one column per action, or a clip > 0 to GBPLNet"
            )
        caveats = (f"propensities of actions not taken are unknown: the range is that of clip={clip:g}, which is wide",)
    if estimated:
        caveats = ("propensities are estimated: the bound takes them as true, and nothing is certified", *caveats)
    gross = np.full((len(log), count), float(low))
    gross[np.arange(len(log)), log.action] += (log.outcome - low) / np.maximum(taken, clip)
    stretch = 1.0 / np.maximum(smallest, clip)
    return CertifyingRows.of(log.x, gross, log.cost, outcome_range, stretch, caveats, certified=not estimated)
