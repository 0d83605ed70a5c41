"""What a study says about its policy, out of fold: against alternatives, at other costs, with rows handed to a person.

Every value is a mean over rows of one number per row (`value.estimate`), so differences and mixtures of policies come
with their errors at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.estimators.gbplnet import GBPLNet
from gbpl.posterior.posterior import Draws
from gbpl.posterior.problem import PosteriorError
from gbpl.value.estimate import Value
from gbpl.value.evaluate import LOGGING

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["LEVELS", "PROBABILITIES", "StudyNumbers"]

PROBABILITIES = (0.5 + np.arange(201)) / 201  # of the quantiles that stand for draws
LEVELS = np.linspace(0.0, 1.0, 21)
GROUPS = 5


def _quantiles(draws: Draws) -> list[float]:
    quantiles: list[float] = np.quantile(draws.values, PROBABILITIES).tolist()
    return quantiles


class StudyNumbers:
    """A fitted policy under a rule: `decided` are its actions out of fold, column numbers."""

    def __init__(self, policy: GBPLNet, decided: Int[np.ndarray, " row"], default: int) -> None:
        self.policy, self.default = policy, default
        self.labels = policy.actions_.tolist()
        self.table: Float[np.ndarray, "row action"] = np.eye(len(self.labels))[decided]
        evaluator = policy.training("learn again").evaluator("dr")
        self.value = evaluator.value(self.table)
        self.options = evaluator.alternatives()
        self.single = [option.value for option in self.options if option.action is not None]

    def welfare(self) -> dict[str, Any]:
        """Estimate and error, and draws of it, in which the posterior's spread is added to that of the rows."""
        draws = self.policy.population_welfare(self.table, rule="deterministic")
        spread = float(np.sqrt(max(draws.sd**2 - self.value.se**2, 0.0)))
        estimate, se = self.value.estimate, self.value.se
        return {"estimate": estimate, "se": se, "spread": spread, "quantiles": _quantiles(draws)}

    def alternatives(self) -> list[dict[str, Any]]:
        """Giving everybody one action, for each action, and the policy that wrote the log."""
        best = int(np.argmax([value.estimate for value in self.single]))
        listed = []
        for option in self.options:
            if option.action is None and LOGGING in self.labels:
                continue
            gain = self.value - option.value
            baseline = LOGGING if option.action is None else self.labels[option.action]
            draws = self.policy.population_welfare(self.table, rule="deterministic", baseline=baseline)
            listed.append(
                {
                    "label": option.label,
                    "action": option.action,
                    "value": option.value.estimate,
                    "se": option.value.se,
                    "gain": gain.estimate,
                    "gain_se": gain.se,
                    "gain_quantiles": _quantiles(draws),
                    "chance": draws.above(0.0),
                    "best": option.action == best,
                }
            )
        return listed

    def moments(self) -> dict[str, Any]:
        """Estimates of the policy's value, each action's, and each action's share under the policy, with covariance.

        sum_g (sum_{i in g} w_i (v_i - V)) (...)' G / (G - 1), weights summing to one: what a report needs to change the
        costs.
        """
        first = self.value
        shares = [Value(column, "share", first.weights, first.groups) for column in self.table.T]
        values: Sequence[Value] = [first, *self.single, *shares]
        weight = np.ones(len(self.table)) if first.weights is None else first.weights
        terms = np.stack([weight * (value.influence - value.estimate) / weight.sum() for value in values])
        if first.groups is not None:
            place = np.unique(first.groups, return_inverse=True)[1]
            terms = np.stack([np.bincount(place, row) for row in terms])
        count = terms.shape[1]
        covariance = terms @ terms.T * (count / max(count - 1, 1))
        return {"mean": [value.estimate for value in values], "covariance": covariance.tolist()}

    def disagreement(
        self, split: Float[np.ndarray, " row"], given: Int[np.ndarray, " row"], level: float
    ) -> dict[str, Any]:
        """Rows by disagreement and action, and the value where those above a level get the default action instead."""
        usual = self.single[self.default].influence
        curve = []
        for at in sorted({*LEVELS.tolist(), level}):
            away = split > at
            value = Value(np.where(away, usual, self.value.influence), "mix", self.value.weights, self.value.groups)
            curve.append({"level": at, "share": float(away.mean()), "welfare": value.estimate, "se": value.se})
        counts = [np.histogram(split[given == a], LEVELS)[0].tolist() for a in range(len(self.labels))]
        return {"level": level, "edges": LEVELS.tolist(), "counts": counts, "curve": curve}

    def calibration(self) -> dict[str, Any]:
        """How the loss scale was chosen, and whether expected gains agree with estimated ones."""
        if self.policy.effect_ is not None and isinstance(self.policy.eta, str):
            said = self.policy.reliability(groups=GROUPS).to_dict()
            rows = [dict(zip(said, row, strict=True)) for row in zip(*said.values(), strict=True)]
            return {"eta": None, "eta_note": None, "coverage": None, "groups": self._groups(), "reliability": rows}
        try:
            choice = self.policy.calibrate_eta()
        except PosteriorError as error:
            return {"eta": None, "eta_note": str(error), "coverage": None, "groups": self._groups()}
        curve = {"eta": choice.grid.tolist(), "coverage": np.asarray(choice.curve).tolist(), "level": choice.nominal}
        return {"eta": choice.eta, "eta_note": str(choice), "coverage": curve, "groups": self._groups()}

    def _groups(self) -> list[dict[str, Any]]:
        """Rows in groups by the expected gain of the best other action over the default one, and its estimated gain."""
        gain = self.policy.expected_gain(default=self.labels[self.default])
        best = np.argmax(np.where(np.arange(gain.shape[1]) == self.default, -np.inf, gain), axis=1)
        expected = gain[np.arange(len(gain)), best]
        done = self.policy.out_of_fold_value(np.eye(gain.shape[1])[best]) - self.single[self.default]
        groups = []
        for rows in np.array_split(np.argsort(expected, kind="stable"), GROUPS):
            weights = None if done.weights is None else done.weights[rows]
            part = Value(
                done.influence[rows], done.estimator, weights, None if done.groups is None else done.groups[rows]
            )
            mean = float(np.average(expected[rows], weights=weights))
            groups.append({"expected": mean, "estimate": part.estimate, "se": part.se, "rows": len(rows)})
        return groups
