"""Any design seen through a logging policy (counterfactual settings)."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, softmax

from gbpl.datasets.samples import (
    LOGGED_ACTION,
    LOGGING_INDEX,
    Design,
    KnownWelfare,
    LoggedSample,
    check_index_seed,
    stream,
    unit_rows,
)

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["LoggedDesign"]


@dataclass(frozen=True, slots=True)
class LoggedDesign:
    """A design seen through a stochastic logging policy with random linear indices.

    With s = `strength` and unit-norm w drawn from `index_seed` (not the w of the design behind it),

        two actions   e_1(x) = sigmoid(s x'w), clipped to [clip, 1 - clip]; clip = 0 leaves it as it is
        K > 2         e_a(x) = exp(s x'w_a) / sum over b of exp(s x'w_b), never clipped, as in the text: `clip` is for
                      two actions only

    The actions are drawn from these propensities, the clipped ones where they are clipped, so they are exact. s = 0
    logs every action equally often. Two designs that differ in strength or clip see the same rows for one seed.

    The weak-overlap design of the paper has a stronger index and no clipping when it is generated:

    >>> from gbpl.datasets import BinaryDesign
    >>> weak = LoggedDesign(BinaryDesign("DGP2"), strength=2.5, clip=0.0)
    >>> seen = weak.sample(6000, seed=0)
    >>> seen.outcome.shape, seen.propensity.shape
    ((6000,), (6000, 2))
    """

    design: Design
    strength: float = 1.0
    clip: float = 0.05
    index_seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.design, type) or not isinstance(self.design, Design):
            raise ValueError(
                "design must have n_features, n_actions, outcome_mean and sample, got "
                f'{self.design!r:.80}; try BinaryDesign("DGP2")'
            )
        strength, clip = self.strength, self.clip
        if not (isinstance(strength, numbers.Real) and math.isfinite(strength) and strength >= 0):
            raise ValueError(
                f"strength must be a finite number >= 0, got {strength!r}; try 1.0, or 2.5 for weak overlap"
            )
        if not (isinstance(clip, numbers.Real) and 0 <= clip < 0.5):
            raise ValueError(f"clip must be in [0, 0.5), got {clip!r}; try 0.05, or 0 for no clipping")
        check_index_seed(self.index_seed)

    def propensity(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """e_a(x) = P(A = a | X = x)."""
        count = self.design.n_actions
        rng = stream(self.index_seed, LOGGING_INDEX)
        if count > 2:
            return softmax(self.strength * (x @ unit_rows(count, self.design.n_features, rng).T), axis=1)
        logit = self.strength * (x @ unit_rows(1, self.design.n_features, rng)[0])
        # Each column from its own sigmoid: 1 - e_1 would round to zero where e_1 is near one.
        return np.clip(np.column_stack([expit(-logit), expit(logit)]), self.clip, 1.0 - self.clip)

    def sample(self, n: int, *, seed: int) -> LoggedSample:
        """Draw n independent rows: those of design.sample(n, seed=seed), and one action for each."""
        truth = self.design.sample(n, seed=seed)
        propensity = self.propensity(truth.x)
        u = stream(seed, LOGGED_ACTION).random((n, 1))
        # The last bound is one but for rounding, so it is left out: an action beyond it does not exist.
        action = np.sum(u >= np.cumsum(propensity, axis=1)[:, :-1], axis=1)
        outcome = np.take_along_axis(truth.outcomes, action[:, None], axis=1)[:, 0]
        return LoggedSample(truth.x, action, outcome, propensity, truth.outcomes, truth.outcome_mean)

    def optimal_welfare(self) -> float:
        """That of the design behind it: logging changes what is seen, not the welfare of rules."""
        return self._known().optimal_welfare()

    def oracle_welfare(self) -> float:
        """That of the design behind it."""
        return self._known().oracle_welfare()

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """That of the design behind it."""
        return self._known().action_welfare()

    def _known(self) -> KnownWelfare:
        if not isinstance(self.design, KnownWelfare):
            raise TypeError(
                f"the design behind does not know what rules are worth: {self.design!r:.80} lacks optimal_welfare, "
                "oracle_welfare or action_welfare; add them, or take means over a large sample"
            )
        return self.design
