"""Predictions of the models of a log, and the pseudo-outcomes made from them (section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import clip_propensity, doubly_robust, ipw, of_logged_action

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Nuisances", "check_construction", "combined"]

CONSTRUCTIONS = ("dr", "ipw", "centered_ipw", "dm")


@dataclass(frozen=True, slots=True, eq=False)
class Nuisances:
    """Predictions for each row by models that were fitted to other folds.

    `propensity` is as given or estimated, one column per action or one number per row; `logged_propensity` is that of
    the action taken after clipping. `means` has the predicted mean of each action, or with `"centered_ipw"` one column,
    the regression on x alone; None if no model was needed. `fold_means` has, for each outer fold, the means by models
    that learned from no row of that fold: a policy that is evaluated on the fold may learn from these. `shares` are
    the weights of several learners in the means, where they are an average; `folds` the rows that were left out
    together.
    """

    feedback: LoggedFeedback
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"]
    clip: float
    estimated: bool
    means: Float[np.ndarray, "row column"] | None = None
    fold_means: Float[np.ndarray, "fold row column"] | None = None
    shares: Mapping[str, float] | None = None
    folds: Sequence[Int[np.ndarray, " row"]] = ()

    @property
    def outcome_mean(self) -> Float[np.ndarray, "row action"] | None:
        """Predicted mean outcome of each action; None without a model of each."""
        return None if self.means is None or self.means.shape[1] == 1 else self.means

    @property
    def logged_propensity(self) -> Float[np.ndarray, " row"]:
        """Propensity of the action taken, clipped."""
        clipped = clip_propensity(self.propensity, self.clip)
        return clipped if clipped.ndim == 1 else of_logged_action(clipped, self.feedback.action)

    def pseudo_outcomes(
        self, construction: str, *, correction: float = 1.0, fold: int | None = None
    ) -> Float[np.ndarray, "row action"]:
        """The n x K table of one of the constructions, net of costs.

        `correction` shrinks the doubly robust correction: gamma + correction (Y~ - gamma). With `fold` the models saw
        no row of that outer fold.
        """
        log, count = self.feedback, len(self.feedback.actions)
        check_construction(construction)
        if construction == "ipw":
            table = ipw(log.outcome, log.action, self.logged_propensity, count)
            return table if log.cost is None else table - log.cost
        means = self.means
        if means is None or (means.shape[1] == 1) != (construction == "centered_ipw"):
            raise ValueError(f"these nuisances have no model for {construction!r}; run the cross-fitting for it")
        if fold is not None:
            if self.fold_means is None:
                raise ValueError(f"fold is {fold}, but the cross-fitting was run without outer folds")
            means = self.fold_means[fold]
        if construction == "centered_ipw":
            table = ipw(log.outcome, log.action, self.logged_propensity, count, center=means[:, 0])
        else:
            table = np.array(means)
            if construction == "dr" and correction > 0.0:
                robust = doubly_robust(log.outcome, log.action, self.logged_propensity, table)
                table = robust if correction == 1.0 else table + correction * (robust - table)
        return table if log.cost is None else table - log.cost


def combined(
    parts: Sequence[Nuisances], weights: Sequence[float], *, toll: Float[np.ndarray, " action"] | None = None
) -> Nuisances:
    """The models of sum_j w_j Y_j from those of the Y_j, on the same rows and folds, with the same propensities.

    Every pseudo-outcome is linear in the outcome and the model of its mean, so that of the sum is the sum of those.
    `toll` is what each action costs beside.
    """
    first, log = parts[0], parts[0].feedback
    pairs = list(zip(weights, parts, strict=True))
    costs = [] if toll is None or not toll.any() else [np.tile(toll, (len(log), 1))]
    costs += [weight * part.feedback.cost for weight, part in pairs if part.feedback.cost is not None]
    feedback = replace(
        log, outcome=np.sum([weight * part.feedback.outcome for weight, part in pairs], axis=0),
        cost=np.sum(costs, axis=0) if costs else None,
    )  # fmt: skip
    means = None if first.means is None else np.sum([w * np.asarray(part.means) for w, part in pairs], axis=0)
    of_folds = None
    if first.fold_means is not None:
        of_folds = np.sum([w * np.asarray(part.fold_means) for w, part in pairs], axis=0)
    return replace(first, feedback=feedback, means=means, fold_means=of_folds, shares=None)


def check_construction(name: str) -> None:
    if name not in CONSTRUCTIONS:
        raise ValueError(f"pseudo_outcome must be one of {', '.join(CONSTRUCTIONS)}, got {name!r}")
