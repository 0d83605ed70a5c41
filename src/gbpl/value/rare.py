"""Rare events: what a log of few clicks, sales or failures leaves unsaid about each action.

Where nearly every outcome is the same, an action without another one has a spread of zero, and a standard error of zero
is wrong: after no event in n rows, the 95 % bound of the rate is 3 / n (the rule of three, Hanley and Lippman-Hand
1983). So the error counts three events more per action than were seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["RareEvents", "rare_events"]

USUAL = 0.9  # share of the most frequent outcome from which others are events
FEW = 30  # events of an action from which errors by the spread of the rows are right
UNSEEN = 3.0  # events more in the error of each action


@dataclass(frozen=True, slots=True, eq=False)
class RareEvents:
    """Events are outcomes other than the `usual` one: how many each action has, and their mean distance from it."""

    usual: float
    size: float
    counts: Int[np.ndarray, " action"]

    def unseen(
        self, policy: Float[np.ndarray, "row action"], action: Int[np.ndarray, " row"],
        propensity: Float[np.ndarray, " row"],
    ) -> Float[np.ndarray, " action"]:  # fmt: skip
        """What unseen events of each action would add to the value of a policy, as standard deviations.

        sqrt(3) size sqrt(mean r_i^2) / n over the rows of an action, with r the policy's probability of it over the
        log's.
        """
        ratio = np.take_along_axis(policy, action[:, None], axis=1)[:, 0] / propensity
        rows = np.maximum(np.bincount(action, minlength=len(self.counts)), 1)
        spread = np.sqrt(np.bincount(action, ratio**2, len(self.counts)) / rows)
        made: Float[np.ndarray, " action"] = np.sqrt(UNSEEN) * self.size * spread / len(action)
        return made


def rare_events(outcome: Float[np.ndarray, " row"], action: Int[np.ndarray, " row"], count: int) -> RareEvents | None:
    """The events of a log, if nine tenths of its outcomes are the same and some action has few others."""
    values, rows = np.unique(outcome, return_counts=True)
    usual = float(values[np.argmax(rows)])
    away = outcome != usual
    counts = np.bincount(action[away], minlength=count)
    if rows.max() < USUAL * len(outcome) or not away.any() or counts.min() >= FEW:
        return None
    return RareEvents(usual, float(np.mean(np.abs(outcome[away] - usual))), counts)
