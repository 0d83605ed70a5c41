"""A path before it is fitted: the problem in units of the outcome scale, and the members laid out for it.

Feedback is full here: tables of outcomes or pseudo-outcomes, one column per action.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbpl.feedback.full import FullFeedback, unit_of
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import Mixture, has_last_layer
from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member, across_folds, dealt_rows, over_zeta
from gbpl.fitting.newton import is_solved
from gbpl.fitting.stack import StackProblem
from gbpl.models.base import ScoreModel
from gbpl.path.grid import AUTO_PATH, TableGrid
from gbpl.path.out_of_fold import OutOfFold, Selection, select_weights
from gbpl.runtime.devices import aligned_empty
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Layout", "PathProblem", "PathSettings", "Plan", "Table", "lay_out", "plan_path", "scaled_targets"]

ROWS_AT_A_TIME = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """What is fitted: `zetas` and `eta` are in outcome units, None for those that follow from the outcome scale.

    `select` weighs the `zetas` that are given. Models `beside` the first are in the same committee; the first is fitted
    at every zeta, the others at few. Those that are `optional` have weight only where they earn it (`average_weights`).
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
    optional: tuple[ScoreModel, ...] = ()
    select: Selection = select_weights

    @property
    def models(self) -> tuple[ScoreModel, ...]:
        """All the models, the first one first."""
        return (self.model, *self.beside, *self.optional)

    @property
    def solved(self) -> bool:
        """Whether all members are solved, none trained and stopped."""
        return all(is_solved(self.surrogate, model) for model in self.models)


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

    @property
    def grid(self) -> TableGrid:
        return TableGrid(self.scale, self.correction, self.path, len(self.outcomes))


@dataclass(frozen=True, slots=True, eq=False)
class PathProblem:
    """What `fit_paths` needs. Entries are weighed by the outcomes of `feedback`, and by `modelled` means, if any."""

    feedback: FullFeedback
    tables: Sequence[Table]
    folds: list[Int[np.ndarray, " row"]]
    settings: PathSettings
    modelled: Float[np.ndarray, "row action"] | None = None


class Layout(NamedTuple):
    """The entries of a path (zeta, correction, and place of the model of each) and their members.

    The folds of an entry lie together.
    """

    zetas: Float[np.ndarray, " entry"]
    corrections: Float[np.ndarray, " entry"]
    models: list[int]
    members: list[Member]


def lay_out(tables: Sequence[TableGrid], across: Sequence[Member], scale: float, settings: PathSettings) -> Layout:
    """Members `across` folds, at every zeta of every table and model; their zetas are in units of `scale`."""
    zetas: list[float] = []
    corrections: list[float] = []
    models: list[int] = []
    members: list[Member] = []
    for place in range(len(settings.models)):
        start = 0
        for table in tables:
            placed = [replace(m, table=start + (fold if table.copies > 1 else 0)) for fold, m in enumerate(across)]
            start += table.copies
            path = table.zetas(settings.zetas, scale, first=place == 0)
            for entry, zeta in enumerate(path, start=len(zetas)):
                members += [replace(m, entry=entry, model=place) for m in over_zeta(placed, [zeta / scale])]
            zetas += path
            corrections += [table.correction] * len(path)
            models += [place] * len(path)
    return Layout(np.array(zetas), np.array(corrections), models, members)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A problem in units of its outcome scale, and its members."""

    problem: PathProblem
    scale: float
    eta: float
    surrogate: Surrogate
    layout: Layout
    standardizer: Standardizer
    x: Float[np.ndarray, "row feature"]
    target: Float[np.ndarray, "rows score"]

    @property
    def model(self) -> ScoreModel | Mixture:
        """The model of the committee."""
        models = self.problem.settings.models
        return Mixture(models) if len(models) > 1 else models[0]

    def out_of_fold(self) -> OutOfFold:
        """Sums over rows for every entry, before any row."""
        settings, layout = self.problem.settings, self.layout
        level = float(np.mean(self.problem.feedback.outcomes, dtype=np.float64))
        several = len(settings.models) > 1
        names = [type(settings.models[place]).__name__ for place in layout.models] if several else None
        optional = np.array(layout.models) >= len(settings.models) - len(settings.optional)
        return OutOfFold(
            layout.zetas, settings.surrogate, layout.corrections, model=names, optional=optional, level=level
        )

    def _turn(self, place: int) -> tuple[float, Int[np.ndarray, " output"] | None]:
        """Sign and order of a model's outputs in which the actions are ranked by the first table, not by name.

        A surrogate of the gap is the same for the gap the other way round, one of the vector for any order.
        """
        means = np.asarray(self.target[: len(self.x)].mean(axis=0, dtype=np.float64))
        if not has_last_layer(self.problem.settings.models[place]):
            return 1.0, None
        if len(means) == 1:
            return (1.0 if means[0] >= 0.0 else -1.0), None
        count = self.problem.feedback.outcomes.shape[1]
        return 1.0, np.argsort(means, kind="stable") if len(means) == count else None

    def stack(self, place: int) -> StackProblem:
        """Members of one of the models, their outputs in an order that does not depend on the names of actions."""
        sign, order = self._turn(place)
        target = sign * self.target if order is None else self.target[:, order]
        return StackProblem(self.x, target, self.of_model(place))

    def turned_back(self, place: int, params: Any) -> Any:
        """Parameters of members that learned from `stack`, their outputs in the order of the actions again."""
        sign, order = self._turn(place)
        if sign == 1.0 and order is None:
            return params
        back = slice(None) if order is None else np.argsort(order)
        turned = {name: sign * np.asarray(layer)[..., back] for name, layer in params[-1].items()}
        return [*params[:-1], {name: np.ascontiguousarray(layer) for name, layer in turned.items()}]

    def of_model(self, place: int) -> list[Member]:
        """Members of one of the models."""
        return [member for member in self.layout.members if member.model == place]


def plan_path(problem: PathProblem, standardizer: Standardizer | None = None) -> Plan:
    """Convert a problem to units of its outcome scale, and lay out its members.

    Features are standardised by the rows that members learn from unless a `standardizer` is given.
    """
    feedback, settings = problem.feedback, problem.settings
    scale = unit_of(feedback.scale)
    eta = 1.0 / scale if settings.eta is None else settings.eta
    rows = dealt_rows(len(feedback), problem.folds)
    base = Member(
        rows,
        weights=None if feedback.weights is None else feedback.weights[rows],
        eta=eta * scale,
        prior_sd=settings.prior_sd,
    )
    across = across_folds(base, problem.folds, seed=settings.seed)
    # Dividing outcomes and zeta by the scale, and multiplying eta by it, leaves the objective unchanged.
    inner = settings.surrogate.scaled(scale)
    layout = lay_out([table.grid for table in problem.tables], across, scale, settings)
    trained = rows if settings.committee or settings.solved else across[0].train
    weights = None if feedback.weights is None else feedback.weights[trained]
    standardizer = standardizer or Standardizer.fit(feedback.x, trained, weights)
    target = scaled_targets(inner, [outcomes for table in problem.tables for outcomes in table.outcomes], scale)
    x = standardizer.apply(feedback.x)
    return Plan(problem, scale, eta, inner, layout, standardizer, x, target)


def scaled_targets(
    surrogate: Surrogate, tables: Sequence[Float[np.ndarray, "row action"]], scale: float
) -> Float[np.ndarray, "rows score"]:
    """Targets of outcomes / scale. Rows are centred first: the loss is the same, and float32 keeps its digits."""
    n, target = len(tables[0]), None
    for number, outcomes in enumerate(tables):
        for start in range(0, n, ROWS_AT_A_TIME):
            part = np.asarray(outcomes[start : start + ROWS_AT_A_TIME], np.float64)
            if surrogate.shift_invariant:
                part = part - part.mean(axis=1, keepdims=True)
            block = np.asarray(surrogate.target((part / scale).astype(np.float32)))
            if target is None:
                target = aligned_empty((n * len(tables), block.shape[1]))
            target[number * n + start : number * n + start + len(block)] = block
    assert target is not None
    return target
