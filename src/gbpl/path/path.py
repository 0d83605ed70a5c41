"""A path of members fitted to tables of outcomes, weighted by their out-of-fold welfare (sections 4.2, 6 and 9).

Several tables may be fitted side by side (the doubly robust one with and without its correction), and a table may
differ from fold to fold (pseudo-outcomes that have seen nothing of the fold on which a member's welfare is measured).
All are weighed by one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import (
    Mixed,
    Mixture,
    combined_deviation,
    member_policies,
    one_member,
    policy_of_deviation,
)  # fmt: skip
from gbpl.fitting.convergence import warn_if_unfinished
from gbpl.fitting.members import Member
from gbpl.fitting.stack import StackFit, StackProblem, fit_stack, fit_stacks
from gbpl.models.base import FixedFeatures, GrownModel, ScoreModel
from gbpl.path.out_of_fold import OutOfFold, ZetaPath, average_weights, common_size
from gbpl.path.plan import ROWS_AT_A_TIME, PathProblem, PathSettings, Plan, plan_path
from gbpl.posterior.effect import Effect, EffectFit, fit_effect
from gbpl.posterior.problem import Problem
from gbpl.runtime.threads import beside
from gbpl.runtime.warn import warn
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["PathFit", "fit_paths", "side_by_side", "weighed_fit"]

MANY_REORDERED = 0.05  # of the rows: more are worth a warning


@dataclass(frozen=True, eq=False)
class PathFit:
    """The members with weight, their weights, and the rows as they saw them.

    `policy_weights` multiply the members' deviations from uniform, `shares` are their weights in the posterior's
    mixture. `deviation` is that of each row's policy from uniform, by the members that stopped on its fold, weighted by
    the other folds; None without a committee. `every` are all members, `fold_weights` the weight of each entry of the
    path by the other folds alone. `target` holds the tables one below the other. Where the rows are a sample, there are
    `thinning` times as many that were learned from, and each row of the sample stands for that many in the posterior;
    `curvatures` are then the members' Gauss-Newton matrices by all rows, over `thinning`, where they are known, and the
    sample may be `apart` from what was learned from.
    Where zetas are averaged, `effect` has the expected effects that are played in place of the committee's deviation,
    and `outside` those by the rows outside each fold.
    """

    standardizer: Standardizer
    surrogate: Surrogate
    model: ScoreModel | Mixture
    scale: float
    eta: float
    path: ZetaPath
    members: tuple[Member, ...]
    params: Any
    policy_weights: Float[np.ndarray, " member"]
    shares: Float[np.ndarray, " member"]
    history: list[dict[str, Any]]
    x: Float[np.ndarray, "row feature"]
    target: Float[np.ndarray, "rows score"]
    deviation: Float[np.ndarray, "row action"] | None
    every: tuple[Member, ...]
    fold_weights: Float[np.ndarray, "fold entry"] | None
    settings: PathSettings
    thinning: float = 1.0
    curvatures: tuple[Float[np.ndarray, "weight weight"], ...] | None = None
    effect: EffectFit | None = None
    outside: tuple[Effect, ...] = ()
    apart: bool = False

    @property
    def out_of_fold(self) -> Float[np.ndarray, "row action"] | None:
        """Policy of each row by members that did not train on it; None without a committee."""
        return None if self.deviation is None else policy_of_deviation(self.deviation)

    def fit_again(self, members: Sequence[Member]) -> StackFit:
        """Fit copies of members, each with its own model, to the same tables."""
        return _fit_models(StackProblem(self.x, self.target, members), self.surrogate, self.settings)

    def problems(self) -> list[Problem]:
        """The generalized posterior of each member, made once; members of one fold and table share their rows."""
        return list(self._problems)

    @cached_property
    def _problems(self) -> tuple[Problem, ...]:
        return tuple(self._made_problems())

    def _made_problems(self) -> Iterator[Problem]:
        folds: dict[tuple[int, int], tuple] = {}
        for number, member in enumerate(self.members):
            key = id(member.train), member.table
            if key not in folds:
                weights = None if member.weights is None else member.weights / np.mean(member.weights)
                rows = member.table * len(self.x) + member.train
                folds[key] = self.x[member.train], self.target[rows], weights
            x, target, weights = folds[key]
            model, params = one_member(self.model, self.params, number)
            phi = None
            if isinstance(model, FixedFeatures) and not self.apart:
                phi = model.training_features(params, x, member.seed)
            yield Problem(
                model=model,
                surrogate=self.surrogate,
                x=x,
                target=target,
                weights=weights,
                zeta=member.zeta,
                eta=member.eta * self.thinning,
                prior_sd=member.prior_sd,
                params=params,
                seed=member.seed,
                rows=member.train,
                phi=phi,
                curvature=None if self.curvatures is None else self.curvatures[number],
            )


def fit_paths(problems: Sequence[PathProblem]) -> list[PathFit]:
    """Fit every zeta on every fold of every table, and weigh each entry by the folds its members stopped on.

    Problems that share objective, model and settings are fitted as one stack.
    """
    planned = [plan_path(problem) for problem in problems]
    together: dict[tuple, list[tuple[int, int]]] = {}
    for number, plan in enumerate(planned):
        settings = plan.problem.settings
        for place, model in enumerate(settings.models):
            key = plan.surrogate, model, settings.config, settings.device, settings.progress, plan.x.shape[1]
            together.setdefault(key, []).append((number, place))
    fitted: dict[tuple[int, int], StackFit] = {}

    def stacks_of(key: tuple, *, show: bool | None) -> list[StackFit]:
        surrogate, model, config, device, _, _ = key
        problems = [planned[number].stack(place) for number, place in together[key]]
        return fit_stacks(problems, surrogate, model, config=config, device=device, progress=show)

    with beside() as hand:  # forests are grown while networks are compiled and trained
        grown = [key for key in together if isinstance(key[1], GrownModel)]
        apart = grown if len(grown) < len(together) and jax.process_count() == 1 else []
        later = {key: hand(stacks_of, key, show=False) for key in apart}
        stacks = {key: stacks_of(key, show=key[4]) for key in together if key not in later}
        stacks |= {key: waiting.result() for key, waiting in later.items()}
    for key, places in together.items():
        for (number, place), stack in zip(places, stacks[key], strict=True):
            fitted[number, place] = replace(stack, params=planned[number].turned_back(place, stack.params))
    paths = []
    for number, plan in enumerate(planned):
        settings = plan.problem.settings
        stack = side_by_side([fitted[number, place] for place in range(len(settings.models))])
        weigh = average_weights if settings.zetas is None else settings.select
        fit = weighed_fit(plan, stack, _out_of_fold(plan, stack), weigh)
        _warn_if_unfinished(fit, stack)
        paths.append(fit if settings.committee or not settings.solved else _from_all_rows(fit, plan))
    return paths


def _warn_if_unfinished(fit: PathFit, stack: StackFit) -> None:
    """Warn if the members that count were still learning at their last epoch; models with steps of their own aside."""
    own_steps = [
        isinstance(model, GrownModel) and not isinstance(model, FixedFeatures) for model in fit.settings.models
    ]
    weights = np.repeat(fit.path.weight, len(fit.every) // len(fit.path.weight))
    weights[[own_steps[member.model or 0] for member in fit.every]] = 0.0
    names = [f"{one['model']} at zeta {one['zeta']:.3g}, fold {one['fold']}" for one in fit.history]
    if np.any(weights > 0):
        warn_if_unfinished(stack, fit.settings.config, names, weights=weights)


def _from_all_rows(fit: PathFit, plan: Plan) -> PathFit:
    """The same entries, learned from all rows: those that weighed them need not be left out where nothing is stopped.

    The folds of a committee's members stay left out, because out-of-fold policies need them.
    """
    rows, weights = np.arange(len(fit.x), dtype=np.int32), plan.problem.feedback.weights
    members = tuple(
        replace(member, train=rows, weights=weights, validation=rows[:0], validation_weights=None)
        for member in fit.members
    )
    return replace(fit, members=members, params=fit.fit_again(members).params)


def _fit_models(problem: StackProblem, surrogate: Surrogate, settings: PathSettings) -> StackFit:
    """Members of several models, each fitted with its own; in the order given."""
    members = problem.members
    numbers = [[i for i, m in enumerate(members) if m.model == place] for place in range(len(settings.models))]
    stacks = [
        fit_stack(
            problem.x, problem.target, [members[i] for i in own], surrogate, model,
            config=settings.config, device=settings.device, progress=settings.progress,  # type: ignore[arg-type]
        ) if own else None
        for own, model in zip(numbers, settings.models, strict=True)
    ]  # fmt: skip
    whole = side_by_side(stacks)
    order = np.argsort(np.concatenate([own for own in numbers if own]), kind="stable")
    return whole.subset(order, members)


def side_by_side(stacks: Sequence[StackFit | None]) -> StackFit:
    """The members of several models' stacks, one stack after the other; None for a model without members."""
    if len(stacks) == 1 and stacks[0] is not None:
        return stacks[0]
    owner = np.repeat(range(len(stacks)), [0 if stack is None else len(stack.members) for stack in stacks])
    params = Mixed(owner, tuple(None if stack is None else stack.params for stack in stacks))
    present = [stack for stack in stacks if stack is not None]
    return StackFit(
        members=tuple(member for stack in present for member in stack.members),
        params=params,
        validation_loss=tuple(loss for stack in present for loss in stack.validation_loss),
        train_loss=tuple(loss for stack in present for loss in stack.train_loss),
        best_epoch=np.concatenate([stack.best_epoch for stack in present]),
        best_loss=np.concatenate([stack.best_loss for stack in present]),
    )


def weighed_fit(
    plan: Plan,
    stack: StackFit,
    sums: Sequence[OutOfFold],
    weigh: Callable[[ZetaPath], Float[np.ndarray, " zeta"]],
    *,
    thinning: float = 1.0,
) -> PathFit:
    """The fit of a plan: entries weighed by the sums of all folds, and each fold's rows by those of the other folds.

    `sums` has those of the members' welfare on the rows of each fold.
    """
    settings, folds, members, model, x = (
        plan.problem.settings,
        plan.problem.folds,
        plan.layout.members,
        plan.model,
        plan.x,
    )
    path = _weighed(sums, weigh)
    _warn_if_reordered(path, settings.surrogate)
    deviation = fold_weights = None
    if settings.committee:
        deviation = np.zeros((len(x), settings.surrogate.n_actions), np.float32)
        fold_weights = np.empty((len(folds), len(path.zeta)))
        for number, fold in enumerate(folds):
            others = _weighed([part for other, part in enumerate(sums) if other != number], weigh)
            fold_weights[number] = common_size(others)
            if settings.zetas is None:  # of one size for all folds, since effects have one slope
                fold_weights[number] *= _mean_size(path) / max(_mean_size(others), 1e-12)
            params = stack.select(stack.find(fold=number))
            deviation[fold] = combined_deviation(model, settings.surrogate, params, fold_weights[number], x[fold])
    effect: EffectFit | None = None
    outside: list[Effect] = []
    if deviation is not None and settings.zetas is None:
        feedback = plan.problem.feedback
        effect, outside = fit_effect(
            x, feedback.outcomes, deviation, folds, weights=feedback.weights, thinning=thinning, unit=plan.scale
        )
        for own, fold in zip(outside, folds, strict=True):
            deviation[fold] = own.deviation(deviation[fold])
    count = len(folds)
    kept = np.flatnonzero(np.repeat(path.weight, count))
    return PathFit(
        model=model,
        path=path,
        members=tuple(members[i] for i in kept),
        params=stack.select(kept),
        policy_weights=np.repeat(common_size(path) / count, count)[kept],
        shares=np.repeat(path.weight / count, count)[kept],
        history=[
            {
                "zeta": float(path.zeta[i // count]),
                "correction": float(path.correction[i // count]),
                "model": type(settings.models[member.model or 0]).__name__,
                "fold": i % count,
                "best_epoch": int(stack.best_epoch[i]),
                "train_loss": stack.train_loss[i],
                "validation_loss": stack.validation_loss[i],
            }
            for i, member in enumerate(members)
        ],
        x=x,
        deviation=deviation,
        every=tuple(members),
        fold_weights=fold_weights,
        settings=settings,
        standardizer=plan.standardizer,
        surrogate=plan.surrogate,
        scale=plan.scale,
        eta=plan.eta,
        target=plan.target,
        thinning=thinning,
        effect=effect,
        outside=tuple(outside),
    )


def _warn_if_reordered(path: ZetaPath, surrogate: Surrogate) -> None:
    """Where the randomized policy of a surrogate has another order than its scores."""
    share = 0.0 if path.reordered is None else float(path.weight @ path.reordered)
    if share > MANY_REORDERED:
        kind, count = type(surrogate).__name__, surrogate.n_actions
        hidden = " unless the baseline has hardly any probability, where a large zeta hides whether it is the best"
        warn(
            f"in {share:.0%} of the rows the most probable action of {kind} is not the one that its scores call the "
            f"best; predict and gains follow the scores{hidden if count > 3 else ''}. A smaller zeta has fewer such "
            f"rows, FullVector({count}) none"
        )


def _mean_size(path: ZetaPath) -> float:
    return float(path.weight @ path.size)


def _out_of_fold(plan: Plan, stack: StackFit) -> list[OutOfFold]:
    """Welfare of each member on the fold it did not train on, fold by fold."""
    feedback, modelled = plan.problem.feedback, plan.problem.modelled
    sums = []
    for number, fold in enumerate(plan.problem.folds):
        own = plan.out_of_fold()
        params = stack.select(stack.find(fold=number))
        for start in range(0, len(fold), ROWS_AT_A_TIME):
            rows = fold[start : start + ROWS_AT_A_TIME]
            policies = member_policies(plan.model, own.surrogate, params, plan.x[rows])
            weights = None if feedback.weights is None else feedback.weights[rows]
            own.add(policies, feedback.outcomes[rows], weights, None if modelled is None else modelled[rows])
        sums.append(own)
    return sums


def _weighed(sums: Sequence[OutOfFold], weigh: Callable[[ZetaPath], Float[np.ndarray, " zeta"]]) -> ZetaPath:
    path = sum(sums[1:], sums[0]).path()
    return replace(path, weight=weigh(path))
