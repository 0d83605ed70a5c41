"""What one logged row says of a policy's value and of its gain, never below a known number whatever the propensities.

Outcomes are in units of their range, y in [0, 1]; p and b are the policy's and the baseline's probabilities, e those of
the log, a the action taken, o = min(p, b) what both do alike. Each of these has, given the features and all that came
before, the mean that is written after it, or a lower one where the log could not take an action (e = 0):

    p_a / e_a y                                                              value
    sum o + (p - o)_a / e_a y + (b - o)_a / e_a (1 - y)                      1 + gain

They are never negative, so `betting` bounds their means from below without knowing how large a weight may be. With a
guess r of the outcome, made before the row, the same means have

    r + p_a / e_a (y - r)             and             1 + (p - b)_a / e_a (y - r),

which vary less and may be negative. A row takes as much of the second form as keeps it at or above -`slack`, whichever
action is taken: that depends on what is known before the action and changes no mean. Upper bounds come from y and r
turned round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["RowValues", "row_values", "slack_for"]


@dataclass(frozen=True, slots=True, eq=False)
class RowValues:
    """One number per row and bound; means are value, 1 - value, 1 + gain and 1 - gain, none below -slack."""

    value: Float[np.ndarray, " row"]
    less_value: Float[np.ndarray, " row"]
    gain: Float[np.ndarray, " row"]
    less_gain: Float[np.ndarray, " row"]


def slack_for(least_propensity: float) -> float:
    """Room below zero with which rows of this propensity are centred fully, as long as guesses are within 1/4 to 3/4.

    Rows of smaller propensities are centred in part. More room costs little: bets are smaller than need be on few rows.
    """
    if not 0.0 < least_propensity <= 1.0:
        raise ValueError(f"least_propensity must be in (0, 1], got {least_propensity}; for a fair coin it is 0.5")
    return max(0.0, 0.75 / least_propensity - 1.0)


def row_values(
    outcome: Float[np.ndarray, " row"],
    guess: Float[np.ndarray, " row"],
    action: Int[np.ndarray, " row"],
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"],
    policy: Float[np.ndarray, "row action"],
    baseline: int | None,
    slack: float,
) -> RowValues:
    """Values of rows; `propensity` is of every action or of the one taken, `baseline` an action or None for the log.

    Where only the propensity of the action taken is known, nothing is centred, since the room that the other actions
    would need is not known.
    """
    rows, known = np.arange(len(action)), propensity.ndim == 2
    taken = propensity[rows, action] if known else propensity
    if baseline is not None:
        other = np.broadcast_to(np.eye(policy.shape[1])[baseline], policy.shape)
    else:
        other = propensity if known else np.where(np.arange(policy.shape[1]) == action[:, None], taken[:, None], 0.0)
    alike = np.minimum(policy, other) if known or baseline is not None else np.zeros_like(policy)
    more, less, same = policy - alike, other - alike, alike.sum(axis=1)
    up, down, weight = (part[rows, action] / taken for part in (more, less, policy))

    def value(y: Float[np.ndarray, " row"], r: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        share = _centred(r[:, None] * policy, propensity, r, slack) if known else 0.0
        return weight * y + share * r * (1.0 - weight)

    def gain(up: np.ndarray, down: np.ndarray, more: np.ndarray, less: np.ndarray) -> Float[np.ndarray, " row"]:
        plain = same + up * outcome + down * (1.0 - outcome)
        if not known:
            return plain
        staked = more * guess[:, None] + less * (1.0 - guess[:, None])
        share = _centred(staked, propensity, np.ones(len(rows)), slack)
        return plain + share * (1.0 + (up - down) * (outcome - guess) - plain)

    return RowValues(
        value(outcome, guess), value(1.0 - outcome, 1.0 - guess),
        gain(up, down, more, less), gain(down, up, less, more),
    )  # fmt: skip


def _centred(
    staked: Float[np.ndarray, "row action"], propensity: Float[np.ndarray, "row action"],
    start: Float[np.ndarray, " row"], slack: float,
) -> Float[np.ndarray, " row"]:  # fmt: skip
    """How much of the centred form: it may fall to start - max_a staked_a / e_a, and its share to -slack, no lower."""
    never = (propensity <= 0.0) & (staked > 0.0)
    ratio = np.divide(staked, propensity, out=np.where(never, np.inf, 0.0), where=propensity > 0.0)
    fall = ratio.max(axis=1) - start
    return np.where(fall > slack, slack / np.maximum(fall, 1e-300), 1.0)
