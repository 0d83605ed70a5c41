"""What a study says about its policy: against alternatives, at other costs, with rows handed to a person.

Every value is by decisions of fits that saw nothing of the row's fold (`path.held_out`), and a mean over rows of one
number per row (`value.estimate`), so differences and mixtures of policies come with their errors at no cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t

from gbpl.estimators.gbplnet import GBPLNet
from gbpl.posterior.problem import PosteriorError
from gbpl.report.numbers import percent
from gbpl.tables.parts import SMALLEST_GROUP
from gbpl.value.estimate import Value, value_covariance
from gbpl.value.evaluate import LOGGING, Alternative
from gbpl.value.gains import gains_over

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["LEVELS", "PROBABILITIES", "StudyNumbers"]

PROBABILITIES = (0.5 + np.arange(201)) / 201  # of the quantiles that stand for draws
LEVELS = np.linspace(0.0, 1.0, 21)
GROUPS = 5


def _quantiles(value: Value) -> list[float]:
    quantiles: list[float] = (value.estimate + value.se * t.ppf(PROBABILITIES, value.freedom)).tolist()
    return quantiles


class StudyNumbers:
    """A fitted policy under a rule: `decided` are its held-out actions, column numbers.

    `limits` are the capacities by column number. The policy is compared only with what they allow: an action that at
    most a share s can get is given to that share by lot, the default one to the others: s V(a) + (1 - s) V(default).
    With guards of other outcomes, only actions that may be given to everybody are `allowed`.
    """

    def __init__(
        self,
        policy: GBPLNet,
        decided: Int[np.ndarray, " row"],
        default: int,
        limits: Mapping[int, float] | None = None,
        smallest: int = SMALLEST_GROUP,
        allowed: Sequence[int] | None = None,
    ) -> None:
        self.policy, self.default, self.limits, self.smallest = policy, default, dict(limits or {}), smallest
        self.parts = max(1, min(GROUPS, len(decided) // smallest))
        self.labels = policy.actions_.tolist()
        self.table: Float[np.ndarray, "row action"] = np.eye(len(self.labels))[decided]
        self.value = policy.cross_fitted_value(self.table)
        options = policy.training("learn again").evaluator("dr").alternatives()
        self.single = [option.value for option in options if option.action is not None]
        left = [one for one in options if one.action is None or allowed is None or one.action in allowed]
        self.options = [self._allowed(option) for option in left]
        single = [(self.labels[one.action], one.value) for one in self.options if one.action is not None]
        self.gains = gains_over(self.value, [label for label, _ in single], [value for _, value in single])

    def _allowed(self, option: Alternative) -> Alternative:
        """An alternative within the capacities."""
        if option.action is None or option.action not in self.limits:
            return option
        share, others = self.limits[option.action], self.single[self.default]
        rows = share * option.value.influence + (1.0 - share) * others.influence
        names = f"{self.labels[option.action]}, {self.labels[self.default]} for the others"
        value = replace(option.value, influence=rows)
        return Alternative(f"{percent(share)} by lot get {names}", option.action, value)

    def welfare(self) -> dict[str, Any]:
        """Estimate; the error that rows would have under a given policy, and what learning it adds; quantiles."""
        estimate, se = self.value.estimate, replace(self.value, dependence=None, allowance=0.0, inflation=0.0).se
        spread = float(np.sqrt(max(self.value.se**2 - se**2, 0.0)))
        return {"estimate": estimate, "se": se, "spread": spread, "quantiles": _quantiles(self.value)}

    def alternatives(self) -> list[dict[str, Any]]:
        """Each action for everybody, or for as many as can get it, and the policy that wrote the log."""
        values = {one.action: one.value.estimate for one in self.options if one.action is not None}
        best = max(values, key=lambda action: values[action])
        listed = []
        for option in self.options:
            if option.action is None and LOGGING in self.labels:
                continue
            gain = self.value - option.value
            listed.append(
                {
                    "label": option.label,
                    "action": option.action,
                    "share": None if option.action is None else self.limits.get(option.action, 1.0),
                    "value": option.value.estimate,
                    "se": option.value.se,
                    "gain": gain.estimate,
                    "gain_se": gain.se,
                    "gain_quantiles": _quantiles(gain),
                    "chance": gain.probability_positive,
                    "best": option.action == best,
                }
            )
        return listed

    def bands(self) -> dict[str, list[float]]:
        """Standard errors that bands around the gains over all single actions reach to each side, by level."""
        levels = np.arange(50, 100) / 100.0
        return {"level": levels.tolist(), "reach": [self.gains.reach(level) for level in levels]}

    def moments(self) -> dict[str, Any]:
        """Estimates of the policy's value, each action's, and each action's share under the policy, with covariance.

        It is what a report needs to change the costs.
        """
        first = self.value
        shares = [Value(column, "share", first.weights, first.groups) for column in self.table.T]
        values: Sequence[Value] = [first, *self.single, *shares]
        return {"mean": [value.estimate for value in values], "covariance": value_covariance(values).tolist()}

    def disagreement(
        self, split: Float[np.ndarray, " row"], given: Int[np.ndarray, " row"], level: float
    ) -> dict[str, Any]:
        """Rows by disagreement and action, and the value where those above a level get the default action instead.

        The value is that of the next higher level unless the smallest group of rows lies between, and as many stay: the
        difference would be the outcome of a few.
        """
        curve = []
        handed = np.zeros(len(split), bool)
        value = self._handed_over(handed)
        for at in sorted({*LEVELS.tolist(), level}, reverse=True):
            away = split > at
            more, left = np.count_nonzero(away & ~handed), np.count_nonzero(~away)
            if more >= self.smallest and (left == 0 or left >= self.smallest):
                handed, value = away, self._handed_over(away)
            curve.append({"level": at, "share": float(away.mean()), "welfare": value.estimate, "se": value.se})
        curve.reverse()
        counts = [np.histogram(split[given == a], LEVELS)[0].tolist() for a in range(len(self.labels))]
        return {"level": level, "edges": LEVELS.tolist(), "counts": counts, "curve": curve}

    def _handed_over(self, away: Bool[np.ndarray, " row"]) -> Value:
        """The value where some rows get the default action: of those nothing was learned that adds to the error."""
        value, usual = self.value, self.single[self.default].influence
        learned = None if value.dependence is None else np.where(away[:, None], 0.0, value.dependence)
        kept = 1.0 - float(np.average(away, weights=value.weights))
        return replace(
            value,
            influence=np.where(away, usual, value.influence),
            dependence=learned,
            allowance=kept * value.allowance,
            inflation=kept * value.inflation,
        )

    def calibration(self) -> dict[str, Any]:
        """How the loss scale was chosen, and whether expected gains agree with estimated ones."""
        if self.policy.effect_ is not None and isinstance(self.policy.eta, str):
            said = self.policy.reliability(groups=self.parts).to_dict()
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
        evaluator = self.policy.training("learn again").objective_evaluator()
        done = evaluator.value(np.eye(gain.shape[1])[best]) - evaluator.value(self.labels[self.default])
        groups = []
        for rows in np.array_split(np.argsort(expected, kind="stable"), self.parts):
            weights = None if done.weights is None else done.weights[rows]
            part = Value(
                done.influence[rows], done.estimator, weights, None if done.groups is None else done.groups[rows]
            )
            mean = float(np.average(expected[rows], weights=weights))
            groups.append({"expected": mean, "estimate": part.estimate, "se": part.se, "rows": len(rows)})
        return groups
