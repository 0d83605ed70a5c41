"""A path of members fitted to tables of outcomes, judged out of fold and averaged (sections 4.2, 6 and 9).

All feedback is full here: a table of outcomes or pseudo-outcomes, a column for each action. Several tables may be
fitted side by side (the doubly robust one with and without its correction), and a table may differ from fold to fold
(pseudo-outcomes that have not seen the fold they will be judged on). One table is the judge of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.full import FullFeedback, unit_of
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import (
    Mixed,
    Mixture,
    combined_deviation,
    combined_policy,
    member_policies,
    one_member,
    policy_of_deviation,
)  # fmt: skip
from gbpl.fitting.members import Member, across_folds, fold_rows, over_zeta
from gbpl.fitting.stack import FitConfig, StackFit, StackProblem, fit_stack, fit_stacks
from gbpl.models.base import FixedFeatures, ScoreModel
from gbpl.path.out_of_fold import AUTO_PATH, OutOfFold, ZetaPath, average_weights, common_size, select_weights
from gbpl.posterior.methods import Problem
from gbpl.runtime.devices import aligned_empty
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["PathFit", "PathProblem", "PathSettings", "Table", "fit_models", "fit_path", "fit_paths", "weighed_fit"]

JUDGED_AT_A_TIME = 65_536
STOPPING_PARTS = 5
SIDE_PATH = (3.0, 0.3)  # zetas of the models beside the first, in units of the outcome scale


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """What is fitted: `zetas` and `eta` are in outcome units, None for those that follow from the outcome scale.

    Models `beside` the first stand in the same committee; the first is fitted at every zeta, the others at a few.
    """

    surrogate: Surrogate
    model: ScoreModel
    zetas: Sequence[float] | None
    eta: float | None
    prior_sd: float
    committee: bool
    seed: int
    config: FitConfig | None
    device: str
    progress: bool | None
    beside: tuple[ScoreModel, ...] = ()

    @property
    def models(self) -> tuple[ScoreModel, ...]:
        """All of them."""
        return (self.model, *self.beside)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Outcomes that members learn from: one for all folds, or one for each.

    `scale` is the outcome scale its zetas follow, `path` those zetas in units of it where the user names none,
    `correction` the share of the doubly robust correction in it.
    """

    outcomes: Sequence[Float[np.ndarray, "row action"]]
    scale: float
    correction: float = 1.0
    path: Sequence[float] = AUTO_PATH


@dataclass(frozen=True, slots=True, eq=False)
class PathFit:
    """The members that count, what each counts, and the rows as they saw them.

    `policy_weights` multiply the members' deviations from uniform, `shares` are their weights in the posterior's
    mixture. `deviation` is that of each row's policy from uniform, by the members that stopped on its fold, weighed by
    the other folds; None without a committee. `every` are all members, `fold_weights` what each entry of the path
    counts by the other folds alone. `target` holds the tables one below the other. Where the rows are a sample of those
    that were learned from, there are `thinning` times as many of the latter, and the posterior counts each for so many;
    `curvatures` are then the members' Gauss-Newton matrices by all rows, over `thinning`, where they are known.
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
    _problems: list[Problem] = field(default_factory=list, init=False, repr=False)

    @property
    def out_of_fold(self) -> Float[np.ndarray, "row action"] | None:
        """Policy of each row by members that did not train on it; None without a committee."""
        return None if self.deviation is None else policy_of_deviation(self.deviation)

    def untouched(self) -> Float[np.ndarray, "row action"]:
        """Policy of each row by members that neither trained nor stopped on its fold: another fit of the stack.

        Choosing the best epoch on a fold makes a member look good there. These stop on a fifth of the other rows.
        """
        assert self.fold_weights is not None
        members, weights = [], []
        for member in self.every:
            number, entry = int(member.label["fold"]), int(member.label["entry"])  # type: ignore[call-overload]
            if self.fold_weights[number, entry] == 0.0:
                continue
            part = fold_rows(len(member.train), STOPPING_PARTS, seed=member.seed)[0]
            left = np.setdiff1d(np.arange(len(member.train)), part, assume_unique=True)
            given = member.weights
            members.append(
                replace(
                    member,
                    train=member.train[left],
                    validation=member.train[part],
                    weights=None if given is None else given[left],
                    validation_weights=None if given is None else given[part],
                )
            )
            weights.append(self.fold_weights[number, entry])
        settings = self.settings
        stack = self.fit_again(members)
        policy = np.empty((len(self.x), settings.surrogate.n_actions), np.float32)
        for number, fold in {int(m.label["fold"]): m.validation for m in self.every}.items():  # type: ignore[call-overload]
            chosen = stack.find(fold=number)
            multiplier = np.array([weights[i] for i in chosen])
            policy[fold] = combined_policy(
                self.model, settings.surrogate, stack.select(chosen), multiplier, self.x[fold]
            )
        return policy

    def fit_again(self, members: Sequence[Member]) -> StackFit:
        """Fit copies of members, each with its own model, to the same tables."""
        return fit_models(StackProblem(self.x, self.target, members), self.surrogate, self.settings)

    def problems(self) -> list[Problem]:
        """The generalized posterior of each member, made once; members of one fold and table share their rows."""
        if not self._problems:
            self._problems.extend(self._made_problems())
        return list(self._problems)

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
            phi = model.training_features(params, x, member.seed) if isinstance(model, FixedFeatures) else None
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


@dataclass(frozen=True, slots=True, eq=False)
class PathProblem:
    """What `fit_path` needs: the outcomes of `feedback` are the judge, and `modelled` means beside them, if any."""

    feedback: FullFeedback
    tables: Sequence[Table]
    folds: list[Int[np.ndarray, " row"]]
    settings: PathSettings
    modelled: Float[np.ndarray, "row action"] | None = None


def fit_path(
    feedback: FullFeedback, tables: Sequence[Table], folds: list[Int[np.ndarray, " row"]], settings: PathSettings
) -> PathFit:
    """Fit every zeta on every fold of every table as one stack; judge each member on the fold it stopped on.

    The outcomes of `feedback` are the judge.
    """
    return fit_paths([PathProblem(feedback, tables, folds, settings)])[0]


def fit_paths(problems: Sequence[PathProblem]) -> list[PathFit]:
    """`fit_path` of several problems at once: those that share objective, network and settings go as one stack."""
    planned = [_plan(problem) for problem in problems]
    together: dict[tuple, list[tuple[int, int]]] = {}
    for number, plan in enumerate(planned):
        settings = plan.problem.settings
        for place, model in enumerate(settings.models):
            key = plan.surrogate, model, settings.config, settings.device, settings.progress, plan.x.shape[1]
            together.setdefault(key, []).append((number, place))
    fitted: dict[tuple[int, int], StackFit] = {}
    for (surrogate, model, config, device, progress, _), places in together.items():
        stacks = fit_stacks(
            [StackProblem(planned[i].x, planned[i].target, planned[i].of_model(place)) for i, place in places],
            surrogate, model, config=config, device=device, progress=progress,
        )  # fmt: skip
        fitted |= dict(zip(places, stacks, strict=True))
    found = []
    for number, plan in enumerate(planned):
        stacks = [fitted[number, place] for place in range(len(plan.problem.settings.models))]
        found.append(_weighed_path(plan, _side_by_side(stacks)))
    return found


def fit_models(problem: StackProblem, surrogate: Surrogate, settings: PathSettings) -> StackFit:
    """Members of several models (their label `model`), each fitted with its own; in the order given."""
    members = problem.members
    numbers = [[i for i, m in enumerate(members) if m.label["model"] == place] for place in range(len(settings.models))]
    stacks = [
        fit_stack(
            problem.x, problem.target, [members[i] for i in own], surrogate, model,
            config=settings.config, device=settings.device, progress=settings.progress,  # type: ignore[arg-type]
        ) if own else None
        for own, model in zip(numbers, settings.models, strict=True)
    ]  # fmt: skip
    whole = _side_by_side(stacks)
    order = np.argsort(np.concatenate([own for own in numbers if own]), kind="stable")
    return StackFit(
        members=tuple(members),
        params=whole.select(order),
        validation_loss=tuple(whole.validation_loss[i] for i in order),
        train_loss=tuple(whole.train_loss[i] for i in order),
        best_epoch=whole.best_epoch[order],
        best_loss=whole.best_loss[order],
    )


def _side_by_side(stacks: Sequence[StackFit | None]) -> StackFit:
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


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """A problem in units of its outcome scale, and its members."""

    problem: PathProblem
    scale: float
    eta: float
    surrogate: Surrogate
    zetas: Float[np.ndarray, " entry"]
    corrections: Float[np.ndarray, " entry"]
    owners: list[int]
    members: list[Member]
    standardizer: Standardizer
    x: Float[np.ndarray, "row feature"]
    target: Float[np.ndarray, "rows score"]

    def of_model(self, place: int) -> list[Member]:
        """Members of one of the models."""
        return [member for member in self.members if member.label["model"] == place]


def _plan(problem: PathProblem) -> _Plan:
    feedback, settings = problem.feedback, problem.settings
    scale = unit_of(feedback.scale)
    eta = 1.0 / scale if settings.eta is None else settings.eta
    rows = np.arange(len(feedback), dtype=np.int32)
    base = Member(rows, weights=feedback.weights, eta=eta * scale, prior_sd=settings.prior_sd)
    across = across_folds(base, problem.folds, seed=settings.seed)
    # Dividing outcomes and zeta by the scale, and multiplying eta by it, leaves the objective as it is.
    inner = settings.surrogate.scaled(scale)
    zetas, corrections, owners, members = _members(problem.tables, across, scale, settings)
    trained = rows if settings.committee else across[0].train
    weights = None if feedback.weights is None else feedback.weights[trained]
    standardizer = Standardizer.fit(feedback.x, trained, weights)
    target = _scaled_targets(inner, [outcomes for table in problem.tables for outcomes in table.outcomes], scale)
    x = standardizer.apply(feedback.x)
    return _Plan(problem, scale, eta, inner, zetas, corrections, owners, members, standardizer, x, target)


def _weighed_path(plan: _Plan, stack: StackFit) -> PathFit:
    """Judge the members of a plan out of fold and weigh its entries."""
    feedback, folds, settings = plan.problem.feedback, plan.problem.folds, plan.problem.settings
    surrogate, zetas, x, several = settings.surrogate, plan.zetas, plan.x, len(settings.models) > 1
    model = Mixture(settings.models) if several else settings.models[0]
    level = float(np.mean(feedback.outcomes, dtype=np.float64))
    names = [type(settings.models[owner]).__name__ for owner in plan.owners] if several else None
    empty = OutOfFold(zetas, surrogate, plan.corrections, model=names, level=level)
    judges = _judge(stack, x, plan.problem, empty, model)
    weigh = average_weights if settings.zetas is None else select_weights
    return weighed_fit(
        judges, weigh, stack, plan.members, folds, model=model, settings=settings, standardizer=plan.standardizer,
        surrogate=plan.surrogate, scale=plan.scale, eta=plan.eta, x=x, target=plan.target,
    )  # fmt: skip


def weighed_fit(
    judges: Sequence[OutOfFold],
    weigh: Callable[[ZetaPath], Float[np.ndarray, " zeta"]],
    stack: StackFit,
    members: list[Member],
    folds: Sequence[Int[np.ndarray, " row"]],
    *,
    model: ScoreModel | Mixture,
    settings: PathSettings,
    x: Float[np.ndarray, "row feature"],
    **parts: Any,
) -> PathFit:
    """The fit of judged members: entries weighed by all judges, and each fold's rows by those of the other folds.

    `folds` are rows of `x`, one for each judge; `parts` are the other parts of the `PathFit`.
    """
    path = _weighed(judges, weigh)
    deviation = fold_weights = None
    if settings.committee:
        deviation = np.empty((len(x), settings.surrogate.n_actions), np.float32)
        fold_weights = np.empty((len(folds), len(path.zeta)))
        for number, fold in enumerate(folds):
            others = _weighed([judge for other, judge in enumerate(judges) if other != number], weigh)
            fold_weights[number] = common_size(others)
            params = stack.select(stack.find(fold=number))
            deviation[fold] = combined_deviation(model, settings.surrogate, params, fold_weights[number], x[fold])
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
                "model": type(settings.models[int(member.label["model"])]).__name__,  # type: ignore[call-overload]
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
        **parts,
    )


def _members(
    tables: Sequence[Table], across: list[Member], scale: float, settings: PathSettings
) -> tuple[Float[np.ndarray, " entry"], Float[np.ndarray, " entry"], list[int], list[Member]]:
    """zeta, correction and model of each entry of the path, and its members, the folds of an entry together."""
    zetas: list[float] = []
    corrections: list[float] = []
    owners: list[int] = []
    members: list[Member] = []
    for place in range(len(settings.models)):
        before = 0
        for table in tables:
            own = range(before, before + len(table.outcomes))
            before += len(own)
            placed = [replace(m, table=own[fold if len(own) > 1 else 0]) for fold, m in enumerate(across)]
            relative = table.path if place == 0 else SIDE_PATH[: len(table.path)]
            path = np.array(relative) * (table.scale or scale) if settings.zetas is None else np.array(settings.zetas)
            for number, zeta in enumerate(path, start=len(zetas)):
                at = over_zeta(placed, [float(zeta / scale)])
                members += [replace(m, label=m.relabel(entry=number, model=place)) for m in at]
            zetas += list(path)
            corrections += [table.correction] * len(path)
            owners += [place] * len(path)
    return np.array(zetas), np.array(corrections), owners, members


def _scaled_targets(
    surrogate: Surrogate, tables: Sequence[Float[np.ndarray, "row action"]], scale: float
) -> Float[np.ndarray, "rows score"]:
    """Targets of outcomes / scale. Rows are centred first: the loss is the same, and float32 keeps its digits."""
    n, target = len(tables[0]), None
    for number, outcomes in enumerate(tables):
        for start in range(0, n, JUDGED_AT_A_TIME):
            part = np.asarray(outcomes[start : start + JUDGED_AT_A_TIME], np.float64)
            if surrogate.shift_invariant:
                part = part - part.mean(axis=1, keepdims=True)
            block = np.asarray(surrogate.target((part / scale).astype(np.float32)))
            if target is None:
                target = aligned_empty((n * len(tables), block.shape[1]))
            target[number * n + start : number * n + start + len(block)] = block
    assert target is not None
    return target


def _judge(
    stack: StackFit,
    x: Float[np.ndarray, "row feature"],
    problem: PathProblem,
    empty: OutOfFold,
    model: ScoreModel | Mixture,
) -> list[OutOfFold]:
    """Each member on the fold it did not train on, a judge a fold."""
    judges, feedback, modelled = [], problem.feedback, problem.modelled
    for number, fold in enumerate(problem.folds):
        judge = empty.fresh()
        params = stack.select(stack.find(fold=number))
        for start in range(0, len(fold), JUDGED_AT_A_TIME):
            rows = fold[start : start + JUDGED_AT_A_TIME]
            policies = member_policies(model, empty.surrogate, params, x[rows])
            weights = None if feedback.weights is None else feedback.weights[rows]
            judge.add(policies, feedback.outcomes[rows], weights, None if modelled is None else modelled[rows])
        judges.append(judge)
    return judges


def _weighed(judges: Sequence[OutOfFold], weigh: Callable[[ZetaPath], Float[np.ndarray, " zeta"]]) -> ZetaPath:
    path = sum(judges[1:], judges[0]).path()
    return replace(path, weight=weigh(path))
