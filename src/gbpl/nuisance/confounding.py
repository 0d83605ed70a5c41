"""Bounds under hidden confounding from the models of a log: the spread of outcomes around their predicted means.

The formulas are in `value.confounding`. They need, beside propensities and mean outcomes, a quantile and a tail mean of
the outcome given x and the action, which differ with Gamma. One forest per fold and action has them for every Gamma:
it splits the residuals of the outcome model by their mean and their size, and the rows of its leaves are a
distribution of residuals (Meinshausen 2006). Each row is predicted by forests, and residuals made by outcome
models, that have not seen it. An outcome of two values needs no forest.

What is assumed: if the propensities are right, or the outcome models and forests together, the bounds are valid in
large samples. A forest that is wrong about quantiles makes them wider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.ensemble import RandomForestRegressor

from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import clip_propensity, doubly_robust
from gbpl.fitting.members import fold_rows
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.off_policy import log_evaluator
from gbpl.value.confounding import Curves, LogBounds, OutcomeShape, TwoValues, check_gamma
from gbpl.value.evaluate import LOGGING, Evaluator
from gbpl.value.sensitivity import GAMMAS, Sensitivity, sensitivity_of

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.value.estimate import Value

__all__ = ["Confounding", "policy_sensitivity", "sensitivity"]

TREES, LEAF = 100, 20  # of the forests: trees, and rows per leaf at least
MANY_ROWS = 2_000  # from which several cores grow a forest sooner than one
SEEN_ROWS = 20_000  # rows a tree sees at most
CUTS = 48  # places at which tails of the residuals are known
FOLDS = 5  # where the cross-fitting has not said its own


@dataclass(frozen=True)
class Confounding:
    """The models of a log, with bounds for any Gamma."""

    nuisances: Nuisances
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nuisances.outcome_mean is None:
            raise ValueError(
                "bounds under hidden confounding need a model of each action's outcome; use pseudo_outcome='dr'"
            )

    @cached_property
    def _made(self) -> dict[int | None, LogBounds]:
        return {}

    @property
    def bounds(self) -> LogBounds:
        """The log with what bounds need, each row by models that have not seen it."""
        return self._of_fold(None)

    def scores(
        self, gamma: float, *, correction: float = 1.0, fold: int | None = None, baseline: int | None = None
    ) -> Float[np.ndarray, "row action"]:
        """The table to learn from, net of costs: lower bounds of each action.

        With a `baseline` action, lower bounds of each action's gain over it: its own column is zero, and the others
        are lower bounds less its upper one. With `fold` no model saw a row of that outer fold.
        """
        bounds = self._of_fold(fold)
        table = bounds.scores(gamma, upper=False, correction=correction)
        if baseline is not None:
            table = table - bounds.scores(gamma, upper=True, correction=correction)[:, [baseline]]
            table[:, baseline] = 0.0
        if bounds.cost is None:
            return table
        return table - bounds.cost + (0.0 if baseline is None else bounds.cost[:, [baseline]])

    def _of_fold(self, fold: int | None) -> LogBounds:
        if fold not in self._made:
            self._made[fold] = self._bounds(fold)
        return self._made[fold]

    # -- the parts ----------------------------------------------------------------------------------------

    def _bounds(self, fold: int | None) -> LogBounds:
        known = self.nuisances
        log, mean = known.feedback, self._means(fold)
        return LogBounds(
            outcome=log.outcome,
            action=log.action,
            propensity=known.logged_propensity,
            others=self._others(),
            robust=doubly_robust(log.outcome, log.action, known.logged_propensity, mean),
            mean=mean,
            shape=self._shape(mean, fold),
            cost=log.cost,
            weights=log.weights,
            groups=log.groups,
        )

    def _means(self, fold: int | None) -> Float[np.ndarray, "row action"]:
        every, by_fold = self.nuisances.outcome_mean, self.nuisances.fold_means
        assert every is not None
        return every if fold is None or by_fold is None else by_fold[fold]

    def _others(self) -> Float[np.ndarray, "row action"]:
        """The probability that an action is not taken; the most it can be where the log has that of one action."""
        log, clipped = self.nuisances.feedback, clip_propensity(self.nuisances.propensity, self.nuisances.clip)
        if clipped.ndim == 2:
            return 1.0 - clipped
        table = np.ones((len(log), len(log.actions)))
        if table.shape[1] == 2:
            table[:] = clipped[:, None]
        table[np.arange(len(log)), log.action] = 1.0 - clipped
        return table

    @cached_property
    def _folds(self) -> Sequence[Int[np.ndarray, " row"]]:
        log = self.nuisances.feedback
        if self.nuisances.folds:
            return self.nuisances.folds
        return fold_rows(len(log), FOLDS, seed=self.seed, strata=log.action, groups=log.groups)

    def _shape(self, mean: Float[np.ndarray, "row action"], fold: int | None) -> OutcomeShape:
        log = self.nuisances.feedback
        values = np.unique(log.outcome)
        if len(values) <= 2:
            return TwoValues(mean, float(values[0]), float(values[-1]))
        parts = range(len(self._folds)) if fold is None else [fold]
        cuts: list[Any] = []
        shortfall = np.zeros((len(log), len(log.actions), CUTS), np.float32)
        centre = np.zeros(mean.shape)
        residual = log.outcome - mean[np.arange(len(log)), log.action]
        for action in range(mean.shape[1]):
            own = residual[log.action == action]
            cuts.append(np.quantile(own, (0.5 + np.arange(CUTS)) / CUTS))
            for part in parts:
                held = self._folds[part]
                new = held if fold is None else np.arange(len(log))
                shortfall[new, action], centre[new, action] = self._tails(action, part, cuts[-1], new)
        return Curves(mean, np.stack(cuts), shortfall, centre)

    def _tails(
        self, action: int, part: int, cuts: Float[np.ndarray, " cut"], new: Int[np.ndarray, " row"]
    ) -> tuple[Float[np.ndarray, "new cut"], Float[np.ndarray, " new"]]:
        """E[(cut - residual)_+] and the mean residual of some rows, by a forest that saw no row of a fold.

        Rows that it did see are predicted by the trees that did not (out of bag).
        """
        log, means = self.nuisances.feedback, self._means(part)
        seen = log.action == action
        seen[self._folds[part]] = False
        rows = np.flatnonzero(seen)
        residual = log.outcome[rows] - means[rows, action]
        weight = np.ones(len(rows)) if log.weights is None else log.weights[rows]
        x, most = log.context, min(1.0, SEEN_ROWS / len(rows))
        forest = RandomForestRegressor(
            TREES, min_samples_leaf=min(LEAF, max(1, len(rows) // 2)), max_samples=most,
            n_jobs=-1 if len(rows) > MANY_ROWS else None, random_state=(self.seed + 31 * part + action) % 2**31,
        )  # fmt: skip
        forest.fit(x[rows], np.column_stack([residual, np.abs(residual)]))  # weights count in the leaves
        values = np.column_stack([np.maximum(cuts - residual[:, None], 0.0), residual, np.ones(len(rows))])
        grown, asked = forest.apply(x[rows]), forest.apply(x[new])
        place = np.full(len(log), -1)
        place[rows] = np.arange(len(rows))
        inside = place[new]  # place among the rows of the forest, -1 for those it did not see
        times = np.stack([np.bincount(drawn, minlength=len(rows)) for drawn in forest.estimators_samples_])
        outside = (times == 0) | np.all(times > 0, axis=0)  # a row that every tree saw is predicted by all of them
        total, count = np.zeros((len(new), len(cuts) + 1)), np.zeros(len(new))
        for tree, drawn in enumerate(times * weight):
            leaves = forest.estimators_[tree].tree_.node_count
            sums = csr_array((drawn, (grown[:, tree], np.arange(len(rows)))), shape=(leaves, len(rows))) @ values
            free = (inside < 0) | outside[tree, inside]
            of_leaf = sums[asked[free, tree]]
            total[free] += of_leaf[:, :-1] / of_leaf[:, -1:]
            count[free] += 1.0
        total /= count[:, None]
        return total[:, :-1], total[:, -1]


def sensitivity(
    confounding: Confounding,
    evaluator: Evaluator,
    policy: Any,
    *,
    baseline: Any = None,
    rule: str = "deterministic",
    gammas: Sequence[float] = GAMMAS,
    level: float = 0.95,
    learned: Callable[[Value], Value] = lambda value: value,
) -> Sensitivity:
    """Bounds of a policy's value and gain; the policy and baseline as users give them.

    Without a baseline it is the single action with the best estimated value, or, if the policy is just that for
    everybody, the second best.
    """
    asked = tuple(check_gamma(gamma) for gamma in gammas)
    if not asked:
        raise ValueError("gammas must have at least one number, got none; try (1, 1.5, 2)")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}; try 0.95")
    table = evaluator.table(policy, rule)
    other: Float[np.ndarray, "row action"] | Value
    if isinstance(baseline, str) and baseline == LOGGING and LOGGING not in evaluator.actions.tolist():
        assert evaluator.logged is not None
        other, name = evaluator.logged, "the log"
    else:
        if baseline is None:
            baseline = _best_other(evaluator, table)
        other = evaluator.table(baseline, rule)
        one = other[0].max() == 1.0 and np.all(other == other[0])
        name = str(evaluator.actions[np.argmax(other[0])]) if one else "the baseline"
    return sensitivity_of(confounding.bounds, table, other, name, gammas=asked, level=level, learned=learned)


def _best_other(evaluator: Evaluator, table: Float[np.ndarray, "row action"]) -> Any:
    """The best single action that is not what the policy gives to everybody."""
    single = [
        (option.value.estimate, option.action) for option in evaluator.alternatives() if option.action is not None
    ]
    ranked = [action for _, action in sorted(single, key=lambda pair: -pair[0])]
    return evaluator.actions.tolist()[next(action for action in ranked if not np.all(table[:, action] == 1.0))]


def policy_sensitivity(
    policy: Any,
    feedback: LoggedFeedback,
    *,
    gammas: Sequence[float] = GAMMAS,
    baseline: Any = None,
    rule: str = "deterministic",
    level: float = 0.95,
    nuisances: CrossFit | Nuisances | None = None,
) -> Sensitivity:
    """How much hidden confounding would change the value of any policy, on logged rows it did not learn from.

    For each Gamma, bounds of the policy's value and of its gain over the `baseline` hold for every confounder that
    changes the odds of an action by a factor of at most Gamma (`gbpl.value.confounding`). `policy`, `baseline`, `rule`
    and `nuisances` are as for `policy_value`; without a baseline it is the best single action.

    >>> rng = np.random.default_rng(0)
    >>> x, treated = rng.normal(size=(400, 1)), rng.integers(0, 2, 400)
    >>> log = LoggedFeedback.of(x, treated * x[:, 0] + rng.normal(size=400), treated, propensity=0.5)
    >>> found = policy_sensitivity((x[:, 0] > 0).astype(int), log, gammas=(1.0, 2.0))
    >>> bool(found.lower[1].estimate < found.lower[0].estimate == found.upper[0].estimate < found.upper[1].estimate)
    True
    """
    settings = nuisances or CrossFit()
    known = settings if isinstance(settings, Nuisances) else settings.run(feedback, "dr")
    if known.feedback is not feedback:
        raise ValueError("these nuisances are of another log; run the cross-fitting on this one")
    evaluator = log_evaluator(feedback, known, "dr")
    return sensitivity(Confounding(known), evaluator, policy, baseline=baseline, rule=rule, gammas=gammas, level=level)
