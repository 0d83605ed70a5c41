"""BoostedScore: gradient boosting of the surrogate itself by trees of LightGBM (sections 4 to 6).

Boosting that regresses outcomes learns what an action brings; this one learns which action to take. Each round grows
trees on the gradient and the curvature of the surrogate's loss in the raw output, squashing included, so that no splits
are spent on rows that are already decided.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.fitting.members import Member
from gbpl.fitting.stack import FitConfig, NonFiniteLossError, Objective, StackFit, StackProblem
from gbpl.models.base import check_whole
from gbpl.models.basis import rounded_down
from gbpl.runtime.devices import DeviceName
from gbpl.runtime.progress import Progress

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

__all__ = ["BoostedScore"]

UNROLLED = 16  # splits of a tree that are compiled together, as one loop over rows


@runtime_checkable
class CurvedObjective(Objective, Protocol):
    """A loss per row whose curvature in the raw output is known, as that of every surrogate is."""

    def curvature_root(self, raw: Array, target: Any, zeta: float) -> Float[Array, "row score raw"]: ...


@dataclass(frozen=True, slots=True)
class BoostedScore:
    """A constant and a sum of small trees, grown by LightGBM (`pip install 'gbpl[boost]'`) on the surrogate's loss.

    rounds : rounds at most, each of one tree per raw output
    learning_rate : share of a tree's Newton step that is taken
    leaves, min_leaf : most leaves of a tree, fewest training rows of a leaf
    patience : rounds without a lower loss on the validation rows after which the best round is kept; without
        validation rows all are

    With g_i the gradient of row i's loss in a raw output and h_i = C_i + s, where C_i is the diagonal of the
    Gauss-Newton curvature (`Surrogate.curvature_root`) and s the root mean square gradient at raw = 0, a leaf
    weight is

        w = -sum_i weight_i g_i / (sum_i weight_i h_i + 1 / (prior_sd^2 eta)),

    the minimiser of n times the objective, sum_i weight_i loss_i + |w|^2 / (2 prior_sd^2 eta), to second order: the
    prior is on the leaf weights of each tree, and LightGBM's `lambda_l2` = 1 / (prior_sd^2 eta) follows from it. C_i
    vanishes where the score is saturated and as zeta goes to zero; with s a step moves a raw output by about one at
    most. The constant is such a step too, the whole of it, of a tree that is all one leaf.

    The settings of `FitConfig` are for networks and have no effect here. Trees have no last layer to draw: use
    `posterior("bootstrap")`.
    """

    rounds: int = 300
    learning_rate: float = 0.05
    leaves: int = 15
    min_leaf: int = 20
    patience: int = 20

    def __post_init__(self) -> None:
        for name, least in (("rounds", 1), ("leaves", 2), ("min_leaf", 1), ("patience", 1)):
            check_whole(name, getattr(self, name), least)
        if self.leaves > 256:
            raise ValueError(f"leaves must be at most 256, got {self.leaves}; try 15, and more rounds")
        if not 0.0 < self.learning_rate <= 1.0:
            raise ValueError(f"learning_rate must be in (0, 1], got {self.learning_rate}; try 0.05")

    def init(self, key: Array, n_features: int, n_raw: int) -> dict[str, Array]:
        """No tree splits and every weight is zero: the shapes of a fitted member."""
        return jax.tree.map(jnp.asarray, self._empty(n_raw))

    def _empty(self, n_raw: int) -> dict[str, np.ndarray]:
        splits = (self.rounds, n_raw, self.leaves - 1)
        return {
            "bias": np.zeros(n_raw, np.float32),
            "leaf": np.zeros(splits, np.float32),
            "feature": np.zeros(splits, np.float32),
            "threshold": np.full(splits, np.inf, np.float32),
            "value": np.zeros((self.rounds, n_raw, self.leaves), np.float32),
        }

    def apply(self, params: dict[str, Array], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        """The constant and the weights of the leaves that a row falls into.

        Trees are kept as they were grown: split k sends the rows of one `leaf` that are above its threshold to the new
        leaf k + 1. That is a comparison of columns for each split, and nothing to descend.
        """
        columns = x.T
        n_raw, rows = params["bias"].shape[0], x.shape[0]

        def split(leaf: Int[Array, "raw row"], one: tuple[Array, ...]) -> tuple[Array, None]:
            place, feature, threshold, number = one
            moved = (leaf == place[:, None]) & (columns[feature] > threshold[:, None])
            return jnp.where(moved, number, leaf), None

        def add(total: Float[Array, "raw row"], trees: tuple[Array, ...]) -> tuple[Array, None]:
            place, feature, threshold, value = trees
            steps = place.T, feature.T, threshold.T, jnp.arange(1, self.leaves, dtype=jnp.int32)
            leaf = jax.lax.scan(split, jnp.zeros((n_raw, rows), jnp.int32), steps, unroll=UNROLLED)[0]
            return total + jnp.take_along_axis(value, leaf, axis=1), None

        start = jnp.broadcast_to(params["bias"][:, None], (n_raw, rows))
        whole = (params["leaf"].astype(jnp.int32), params["feature"].astype(jnp.int32))
        return jax.lax.scan(add, start, (*whole, params["threshold"], params["value"]))[0].T

    def fit_stacks(
        self,
        problems: Sequence[StackProblem],
        objective: Objective,
        *,
        config: FitConfig | None,
        device: DeviceName | Sequence[jax.Device],
        progress: bool | None,
    ) -> list[StackFit]:
        """Boost every member on one core: its result does not depend on how many members there are."""
        if not isinstance(objective, CurvedObjective):
            raise TypeError(
                f"BoostedScore boosts a surrogate of welfare, got {type(objective).__name__}; for a boosted model of "
                "the outcomes use outcome_model=PerAction(lightgbm.LGBMRegressor())"
            )
        lightgbm = _lightgbm()
        members = [(problem, member) for problem in problems for member in problem.members]
        sizes = max(len(m.train) for _, m in members), max(len(m.validation) for _, m in members)
        bar = Progress("boosting", len(members), show=progress)
        done = []
        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for one in pool.map(lambda of: self.boost(lightgbm, of[0], of[1], objective, sizes), members):
                    done.append(one)
                    bar.update(len(done), "members")
        finally:
            bar.close()
        ends = np.cumsum([0, *(len(problem.members) for problem in problems)])
        return [_stacked(p, done[start:end]) for p, start, end in zip(problems, ends, ends[1:], strict=False)]

    def boost(
        self, lightgbm: Any, problem: StackProblem, member: Member, objective: CurvedObjective, sizes: tuple[int, int]
    ) -> _Boosted:
        """One member; `sizes` are the numbers of training and validation rows that arrays are padded to."""
        known, weights = member.train, member.weights
        if weights is not None:  # a row of weight zero is no row, and fills no leaf
            known, weights = known[weights > 0], weights[weights > 0]
        train = _Rows.of(problem, member, known, weights, objective, sizes[0])
        held = _Rows.of(problem, member, member.validation, member.validation_weights, objective, sizes[1])
        ridge = 1.0 / (member.prior_sd**2 * member.eta)  # n times the penalty |w|^2 / (2 prior_sd^2 eta n)
        floor = train.gradient_size()
        bias = train.constant(floor, ridge)
        settings = {
            "objective": "none", "metric": "none", "num_class": objective.n_raw, "learning_rate": self.learning_rate,
            "num_leaves": self.leaves, "min_data_in_leaf": self.min_leaf, "min_sum_hessian_in_leaf": 0.0,
            "lambda_l2": ridge, "use_missing": False, "feature_pre_filter": False, "seed": member.seed % 2**31,
            "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1,
        }  # fmt: skip
        learned = lightgbm.Dataset(problem.x[known], params=settings).construct()
        sets, callbacks, losses = [learned], [], _Losses([train.loss(bias)], [])
        if all(learned.feature_num_bin(j) <= 1 for j in range(problem.x.shape[1])):  # LightGBM takes no such table
            return _Boosted({**self._empty(len(bias)), "bias": bias}, losses, 0)
        if len(member.validation):
            sets.append(lightgbm.Dataset(problem.x[member.validation], params=settings, reference=learned))
            callbacks.append(lightgbm.early_stopping(self.patience, verbose=False))
            losses.held.append(held.loss(bias))

        def slopes(predictions: np.ndarray, data: Any) -> tuple[np.ndarray, np.ndarray]:
            gradient, curvature = train.derivatives(_two_axes(predictions, objective.n_raw) + bias, floor)
            return (gradient, curvature) if objective.n_raw > 1 else (gradient[:, 0], curvature[:, 0])

        def keep_loss(predictions: np.ndarray, data: Any) -> tuple[str, float, bool]:
            rows, seen = (train, losses.train) if data is learned else (held, losses.held)
            seen.append(rows.loss(_two_axes(predictions, objective.n_raw) + bias))
            return "loss", seen[-1], False

        booster = lightgbm.train(
            {**settings, "objective": slopes}, learned, self.rounds, feval=keep_loss, callbacks=callbacks,
            valid_sets=sets, valid_names=["training", "held"][: len(sets)],
        )  # fmt: skip
        if not np.isfinite([*losses.train, *losses.held]).all():
            raise NonFiniteLossError(
                f"the loss is not finite for {member}. Nothing was kept. Look for "
                "extreme outcomes: a robust surrogate (huber=...) bounds what one row can do."
            )
        # Where nothing is left to split LightGBM adds no more trees, and the losses stay as they are.
        best = int(np.argmin(losses.held)) if losses.held else booster.current_iteration()
        return _Boosted(self._arrays(booster, best, bias), losses, best)

    def _arrays(self, booster: Any, best: int, bias: Float[np.ndarray, " raw"]) -> dict[str, np.ndarray]:
        """Parameters of the first `best` rounds."""
        params = {**self._empty(len(bias)), "bias": bias}
        for number, tree in enumerate(booster.dump_model(num_iteration=best)["tree_info"] if best else []):
            _write(tree["tree_structure"], params, divmod(number, len(bias)))
        return params


class _Losses(NamedTuple):
    """Mean loss of the rows, of the constant and after each round."""

    train: list[float]
    held: list[float]


class _Boosted(NamedTuple):
    params: dict[str, np.ndarray]
    losses: _Losses
    best: int


@partial(jax.jit, static_argnames="objective")
def _terms(
    raw: Float[Array, "row raw"], target: Float[Array, "row score"], zeta: Any, *, objective: CurvedObjective
) -> tuple[Float[Array, " row"], Float[Array, "row raw"], Float[Array, "row raw"]]:
    """Loss of each row, its gradient, and the diagonal of its Gauss-Newton curvature."""

    def total(r: Array) -> tuple[Array, Array]:
        loss = objective.row_loss(r, target, zeta)
        return jnp.sum(loss), loss

    (_, loss), gradient = jax.value_and_grad(total, has_aux=True)(raw)
    return loss, gradient, jnp.sum(objective.curvature_root(raw, target, zeta) ** 2, axis=1)


class _Rows(NamedTuple):
    """Targets and weights (of mean one) of some rows; arrays are padded to `size`, so that one shape is compiled."""

    target: Float[np.ndarray, "size score"]
    weight: Float[np.ndarray, " row"]
    zeta: float
    objective: CurvedObjective

    @staticmethod
    def of(
        problem: StackProblem, member: Member, rows: Int[np.ndarray, " row"], weights: np.ndarray | None,
        objective: CurvedObjective, size: int,
    ) -> _Rows:  # fmt: skip
        target = np.zeros((size, problem.target.shape[1]), np.float32)
        target[: len(rows)] = problem.target[member.table * len(problem.x) + rows]
        weight = np.ones(len(rows)) if weights is None else weights * (len(rows) / max(np.sum(weights), 1e-30))
        return _Rows(target, weight, member.zeta, objective)

    def terms(self, raw: Float[np.ndarray, "row raw"]) -> tuple[np.ndarray, ...]:
        """Loss, gradient and curvature of each row, without weights."""
        padded = np.zeros((len(self.target), raw.shape[1]), np.float32)
        padded[: len(raw)] = raw
        terms = _terms(padded, self.target, self.zeta, objective=self.objective)
        return tuple(np.asarray(part, np.float64)[: len(raw)] for part in terms)

    def derivatives(self, raw: Float[np.ndarray, "row raw"], floor: float) -> tuple[np.ndarray, np.ndarray]:
        """weight_i g_i and weight_i (C_i + floor)."""
        _, gradient, curvature = self.terms(raw)
        return self.weight[:, None] * gradient, self.weight[:, None] * (curvature + floor)

    def loss(self, raw: Float[np.ndarray, "#row raw"]) -> float:
        """Weighted mean; of one raw output for all rows, too."""
        return float(np.mean(self.weight * self.terms(np.broadcast_to(raw, (len(self.weight), raw.shape[-1])))[0]))

    def gradient_size(self) -> float:
        """Root mean square of the gradient at raw = 0; not zero, for where nothing is to be learned."""
        gradient = self.terms(np.zeros((len(self.weight), self.objective.n_raw)))[1]
        return max(float(np.sqrt(np.mean(self.weight[:, None] * gradient**2))), 1e-12)

    def constant(self, floor: float, ridge: float) -> Float[np.ndarray, " raw"]:
        """The Newton step from raw = 0 of a tree that is all one leaf."""
        gradient, curvature = self.derivatives(np.zeros((len(self.weight), self.objective.n_raw)), floor)
        return (-gradient.sum(axis=0) / (curvature.sum(axis=0) + ridge)).astype(np.float32)


def _two_axes(predictions: np.ndarray, n_raw: int) -> Float[np.ndarray, "row raw"]:
    """LightGBM's predictions with a second axis, which they lack with one raw output."""
    return predictions.reshape(-1, n_raw)


def _write(node: dict[str, Any], params: dict[str, np.ndarray], place: tuple[int, int]) -> int:
    """Write the tree below a node to its place; returns the leaf that was split there, or the node if it is a leaf.

    LightGBM numbers splits in the order they were made; the left part keeps the number of the leaf.
    """
    if "split_feature" not in node:
        leaf = node.get("leaf_index", 0)
        params["value"][(*place, leaf)] = node["leaf_value"]
        return leaf
    kept = _write(node["left_child"], params, place)
    _write(node["right_child"], params, place)
    at = (*place, node["split_index"])
    params["leaf"][at], params["feature"][at] = kept, node["split_feature"]
    params["threshold"][at] = rounded_down(node["threshold"])
    return kept


def _stacked(problem: StackProblem, done: Sequence[_Boosted]) -> StackFit:
    return StackFit(
        members=tuple(problem.members),
        params=jax.tree.map(lambda *leaves: np.stack(leaves), *[one.params for one in done]),
        validation_loss=tuple(np.array(one.losses.held[1:]) for one in done),
        train_loss=tuple(np.array(one.losses.train[1:]) for one in done),
        best_epoch=np.array([one.best for one in done]),
        best_loss=np.array([(one.losses.held or one.losses.train)[one.best] for one in done]),
    )


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise ImportError("BoostedScore needs LightGBM; install it with: pip install 'gbpl[boost]'") from None
    return lightgbm
