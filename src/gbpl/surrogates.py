"""Squared-loss surrogates for welfare (sections 4 and 5).

A surrogate turns outcomes into a target, the raw output of a score model into a bounded score, and a score into a
policy. All three share one loss per row,

    l(s; t) = 1/2 sum_j (t_j / sqrt(zeta) - sqrt(zeta) s_j)^2
            = |t|^2 / (2 zeta)  +  { -t's + zeta/2 |s|^2 },

whose braces are the reduced loss: the part that depends on the score (Proposition on the decomposition). Minimising it
is maximising welfare less `penalty_scale * zeta` times the mean of |s|^2. `NegativeWelfare` is what the introduction
argues against: welfare itself as the loss, without the square. Axes: row, action, score, raw output.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.huber import reduced_huber
from gbpl.squashing import gap_advantage, simplex_projection

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float

    Table = Array | np.ndarray

__all__ = ["BaselineGap", "Binary", "FullVector", "NegativeWelfare", "Surrogate", "project_simplex"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate(ABC):
    """What a fit, a posterior, a bound and a frozen policy need to know of a surrogate; nothing else has its formulas.

    A new surrogate is one subclass. What it may leave out (`squashing` None, no `penalty_range`, no `loss_range`) is
    refused by name where it is needed.

    `huber` is the threshold, in outcome units, of the robust variant: the squared residual `t - zeta s` is
    replaced by Huber's function, so that a row moves the fit by at most `huber` however extreme its
    outcomes. That changes the target: the population minimiser is no longer a clipped or projected
    conditional *mean*. The default, infinity, is the paper's squared loss.

    `squash=False` takes the raw output itself as the score (and cuts it back to a policy when one is needed). With a
    score linear in its parameters the generalized posterior is then Gaussian, exactly.
    """

    huber: float = float("inf")
    squash: bool = True
    penalty_scale: ClassVar[float]
    welfare_factor: ClassVar[float]

    def __post_init__(self) -> None:
        if not self.huber > 0:
            raise ValueError(f"huber must be > 0 (in outcome units), got {self.huber}; leave it out for no limit")

    @property
    @abstractmethod
    def n_actions(self) -> int:
        """K."""

    @property
    @abstractmethod
    def n_raw(self) -> int:
        """Raw outputs the score model must have."""

    @property
    @abstractmethod
    def squashing(self) -> str | None:
        """The formula of `gbpl.squashing` from raw outputs to the policy; with None a policy cannot be saved."""

    @property
    def shift_invariant(self) -> bool:
        """Whether a constant added to all outcomes of a row leaves its target as it is."""
        return True

    @property
    def convex(self) -> bool:
        """Whether a row's loss is a sum of convex functions, each of one raw output: linear scores are then solved."""
        return not self.squash

    @property
    def linear(self) -> bool:
        """Whether the loss is linear in the scores: zeta does not enter it, and its Gauss-Newton matrix is zero."""
        return False

    @property
    def penalty_range(self) -> tuple[float, float]:
        """Smallest and largest |s|^2 of a policy's scores."""
        raise self._lacks("penalty_range", "welfare from penalized welfare is not known")

    def loss_range(self, outcome_range: tuple[float, float], zeta: float) -> tuple[float, float]:
        """Smallest and largest full loss of a row, outcomes in the range and scores those of any policy.

        The loss sum_j rho(t_j - zeta s_j) / zeta is convex in outcomes and policy together, so its largest value is at
        a corner (outcomes at the ends of the range, one action for sure), its smallest at the symmetric point. Both are
        attained, up to the closure of the softmax. Unsquashed scores have no range.
        """
        low, high = (float(end) for end in outcome_range)
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"outcome_range must be finite (low, high) with low < high, got {outcome_range}")
        if not 0.0 < zeta < math.inf:
            raise ValueError(f"zeta must be > 0 and finite, got {zeta}; try 0.1")
        if not self.squash:
            raise ValueError(f"{type(self).__name__}(squash=False) has unbounded scores: its loss has no range")
        return self._loss_range(low, high, zeta)

    def _loss_range(self, low: float, high: float, zeta: float) -> tuple[float, float]:
        """`loss_range` of squashed scores, its arguments checked."""
        raise self._lacks("loss_range", "the range of a loss is not known")

    def _lacks(self, name: str, what: str) -> ValueError:
        kind = type(self).__name__
        return ValueError(f"{what} for the surrogate {kind}; define {kind}.{name}, or use policy.certificate")

    def scaled(self, scale: float) -> Self:
        """The same surrogate for outcomes that are divided by `scale`."""
        return replace(self, huber=self.huber / scale)

    def _huber(self, residual: float) -> float:
        """rho(residual): half the square, linear beyond the threshold."""
        inside = min(abs(residual), self.huber)
        beyond = abs(residual) - inside
        return 0.5 * inside**2 + (self.huber * beyond if beyond else 0.0)

    @abstractmethod
    def target(self, outcomes: Float[Table, "row action"]) -> Float[Table, "row score"]:
        """What the score is fitted to. Numpy in, numpy out: JAX would compile anew for every number of rows."""

    @abstractmethod
    def scores(self, raw: Float[Array, "row raw"]) -> Float[Array, "row score"]:
        """Bounded scores from raw outputs."""

    @abstractmethod
    def policy(self, scores: Float[Table, "row score"]) -> Float[Array, "row action"]:
        """Action probabilities from scores."""

    @abstractmethod
    def scores_of_policy(self, policy: Float[Table, "row action"]) -> Float[Table, "row score"]:
        """The inverse of `policy`; numpy in, numpy out."""

    def advantage(self, policy: Float[Table, "row action"]) -> Float[Table, "row action"]:
        """What members are averaged by, and whose largest column is the rule: in the order of the estimated outcomes.

        It is centred in each row. One whose probabilities are in another order defines its own. Numpy in, numpy out.
        """
        return policy - 1.0 / self.n_actions

    def reordered(self, policy: Float[np.ndarray, "row action"]) -> Bool[np.ndarray, " row"]:
        """Whether the most probable action of a row is not the one whose score says that it is the best."""
        return np.zeros(policy.shape[:-1], bool)

    @abstractmethod
    def population_policy(self, outcome_mean: Float[Table, "row action"], zeta: float) -> Float[Array, "row action"]:
        """Policy of the population minimiser of the squared loss, given the conditional means."""

    @abstractmethod
    def outcomes(self, scores: Float[Table, "row score"], zeta: float) -> Float[Array, "row action"]:
        """Outcomes, up to a constant of the row, whose target is zeta times the scores."""

    def loss(self, scores: Table, target: Table, zeta: float | Array) -> Float[Array, " row"]:
        """Full loss per row, 1/2 |t/sqrt(zeta) - sqrt(zeta) s|^2 (Huber's function of it when robust)."""
        residual = jnp.asarray(target) - zeta * jnp.asarray(scores)
        inside = jnp.clip(residual, -self.huber, self.huber)
        beyond = 0.0 if self.huber == float("inf") else self.huber * (jnp.abs(residual) - jnp.abs(inside))
        return jnp.sum(0.5 * inside**2 + beyond, axis=-1) / zeta

    def reduced_loss(self, scores: Table, target: Table, zeta: float | Array) -> Float[Array, " row"]:
        """Loss less its value at score 0: -t's + zeta/2 |s|^2. Keeps its digits at small zeta in float32."""
        s, t = jnp.asarray(scores), jnp.asarray(target)
        if self.huber == float("inf"):
            return jnp.sum(s * (0.5 * zeta * s - t), axis=-1)
        return jnp.sum(reduced_huber(s, t, jnp.asarray(zeta, s.dtype), self.huber), axis=-1)

    def row_loss(self, raw: Array, target: Array, zeta: float | Array) -> Float[Array, " row"]:
        """What a member is trained on: the reduced loss of the squashed raw output."""
        return self.reduced_loss(self.scores(raw), target, zeta)

    def curvature_root(
        self, raw: Float[Table, "row raw"], target: Float[Table, "row score"], zeta: float
    ) -> Float[Array, "row score raw"]:
        """A_i with A_i' A_i = C_i, the generalized Gauss-Newton curvature of the loss in the raw output.

        With D_i the Jacobian of the scores in the raw outputs, squashing included, C_i = zeta D_i' D_i; for the robust
        loss only the coordinates inside the threshold count (appendix on the Gaussian approximation).
        """

        def row(r: Array, t: Array) -> Array:
            jacobian = jax.jacfwd(lambda v: self.scores(v[None])[0])(r)
            inside = jnp.abs(t - zeta * self.scores(r[None])[0]) <= self.huber
            return jnp.sqrt(jnp.asarray(zeta)) * jnp.where(inside[:, None], jacobian, 0.0)

        return jax.vmap(row)(jnp.asarray(raw), jnp.asarray(target))


@dataclass(frozen=True, slots=True)
class Binary(Surrogate):
    """Two actions (section 4): target the gap U = Y(1) - Y(0), score f = tanh(raw), policy (f + 1) / 2.

    >>> Binary().target(jnp.array([[0.0, 1.5]]))
    Array([[1.5]], dtype=float32)
    """

    penalty_scale: ClassVar[float] = 0.25  # penalty = zeta / 4 (equivalence theorem, binary)
    welfare_factor: ClassVar[float] = 0.5  # W1 - W2 = (R2 - R1) / 2 (welfare-risk corollary, binary)

    @property
    def n_actions(self) -> int:
        return 2

    @property
    def n_raw(self) -> int:
        return 1

    @property
    def squashing(self) -> str:
        return "tanh" if self.squash else "clip"

    @property
    def penalty_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _loss_range(self, low: float, high: float, zeta: float) -> tuple[float, float]:
        return _gap_loss_range(self, low, high, zeta)

    def target(self, outcomes: Float[Table, "row action"]) -> Float[Table, "row score"]:
        return outcomes[..., 1:] - outcomes[..., :1]

    def scores(self, raw: Float[Array, "row raw"]) -> Float[Array, "row score"]:
        return jnp.tanh(raw) if self.squash else raw

    def policy(self, scores: Float[Table, "row score"]) -> Float[Array, "row action"]:
        f = jnp.asarray(scores) if self.squash else jnp.clip(scores, -1.0, 1.0)
        return jnp.concatenate([1.0 - f, 1.0 + f], axis=-1) / 2.0

    def scores_of_policy(self, policy: Float[Table, "row action"]) -> Float[Table, "row score"]:
        return 2.0 * policy[..., 1:] - 1.0

    def outcomes(self, scores: Float[Table, "row score"], zeta: float) -> Float[Array, "row action"]:
        gap = zeta * jnp.asarray(scores)
        return jnp.concatenate([-gap, gap], axis=-1) / 2.0

    def population_policy(self, outcome_mean: Float[Table, "row action"], zeta: float) -> Float[Array, "row action"]:
        """Policy of the population minimiser, the clipped conditional mean gap: f = clip(m / zeta, -1, 1)."""
        return self.policy(jnp.clip(self.target(outcome_mean) / zeta, -1.0, 1.0))


@dataclass(frozen=True, slots=True)
class BaselineGap(Surrogate):
    """K actions against a baseline (section 5.1): targets Y(a) - Y(baseline), scores 2 delta_a - 1.

    The scores come from a softmax policy, so they keep the simplex constraint of the induced class. The penalty, and
    with it the minimiser at finite zeta, depends on the baseline; it draws the probabilities of all other actions to
    1/2, so the rule follows the scores, which are gaps over zeta (`squashing.gap_advantage`).
    """

    n_actions: int = 3
    baseline: int = 0
    penalty_scale: ClassVar[float] = 0.25  # penalty = zeta / 4 (equivalence theorem, baseline gap)
    welfare_factor: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        Surrogate.__post_init__(self)
        if not 0 <= self.baseline < self.n_actions:
            raise ValueError(f"baseline must be one of the columns 0 to {self.n_actions - 1}, got {self.baseline}")
        if not self.squash:
            raise ValueError("the baseline-gap scores must come from the simplex: squash=False is for the others")

    @property
    def n_raw(self) -> int:
        return self.n_actions

    @property
    def squashing(self) -> str:
        return f"gap {self.baseline}"

    @property
    def penalty_range(self) -> tuple[float, float]:
        others = self.n_actions - 1
        return others * max(0.0, 1.0 - 2.0 / others) ** 2, float(others)

    def _loss_range(self, low: float, high: float, zeta: float) -> tuple[float, float]:
        return _gap_loss_range(self, low, high, zeta)

    def _others(self, columns: Table) -> Table:
        joined = np.concatenate if isinstance(columns, np.ndarray) else jnp.concatenate
        return joined([columns[..., : self.baseline], columns[..., self.baseline + 1 :]], axis=-1)

    def target(self, outcomes: Float[Table, "row action"]) -> Float[Table, "row score"]:
        return self._others(outcomes) - outcomes[..., self.baseline : self.baseline + 1]

    def scores(self, raw: Float[Array, "row raw"]) -> Float[Array, "row score"]:
        return jnp.asarray(self.scores_of_policy(jax.nn.softmax(raw, axis=-1)))

    def policy(self, scores: Float[Table, "row score"]) -> Float[Array, "row action"]:
        others = (scores + 1.0) / 2.0
        rest = jnp.maximum(1.0 - jnp.sum(others, axis=-1, keepdims=True), 0.0)
        return jnp.concatenate([others[..., : self.baseline], rest, others[..., self.baseline :]], axis=-1)

    def scores_of_policy(self, policy: Float[Table, "row action"]) -> Float[Table, "row score"]:
        return 2.0 * self._others(policy) - 1.0

    def advantage(self, policy: Float[Table, "row action"]) -> Float[Table, "row action"]:
        return gap_advantage(policy, self.baseline)

    def reordered(self, policy: Float[np.ndarray, "row action"]) -> Bool[np.ndarray, " row"]:
        best = np.delete(policy, self.baseline, axis=-1).max(axis=-1)
        return (best > policy[..., self.baseline]) & (best < 0.5)

    def outcomes(self, scores: Float[Table, "row score"], zeta: float) -> Float[Array, "row action"]:
        gaps = zeta * jnp.asarray(scores)
        own = jnp.zeros_like(gaps[..., :1])
        return jnp.concatenate([gaps[..., : self.baseline], own, gaps[..., self.baseline :]], axis=-1)

    def population_policy(self, outcome_mean: Float[Table, "row action"], zeta: float) -> Float[Array, "row action"]:
        """Minimise -sum_a m_a f_a + zeta/2 |f|^2 over the simplex, f = 2 delta - 1 on the other actions.

        In delta this is a projection in which the baseline's own coordinate costs nothing:
        delta_a = max(0, (m_a / zeta + 1) / 2 - c) with c >= 0 as small as the simplex allows.
        """
        others = jnp.maximum((self.target(outcome_mean) / zeta + 1.0) / 2.0, 0.0)
        projected = project_simplex(others)
        fits = jnp.sum(others, axis=-1, keepdims=True) <= 1.0
        return self.policy(2.0 * jnp.where(fits, others, projected) - 1.0)


@dataclass(frozen=True, slots=True)
class FullVector(Surrogate):
    """K actions, symmetric (section 5.2): targets Y(a) for every action, scores the softmax policy itself.

    `centered` subtracts each row's mean over actions, which changes the squared loss only by a constant (shift
    invariance) and the size of the numbers for the better; in the robust variant it decides what is extreme.
    """

    n_actions: int = 3
    centered: bool = True
    penalty_scale: ClassVar[float] = 0.5  # penalty = zeta / 2 (equivalence theorem, full vector)
    welfare_factor: ClassVar[float] = 1.0  # W1 - W2 = R2 - R1 (welfare-risk corollary, K actions)

    @property
    def n_raw(self) -> int:
        return self.n_actions

    @property
    def squashing(self) -> str:
        return "softmax" if self.squash else "project"

    @property
    def shift_invariant(self) -> bool:
        return self.centered

    @property
    def penalty_range(self) -> tuple[float, float]:
        return 1.0 / self.n_actions, 1.0

    def _loss_range(self, low: float, high: float, zeta: float) -> tuple[float, float]:
        count, width, rho = self.n_actions, high - low, self._huber
        if not self.centered:
            middle = zeta / count
            smallest = count * rho(middle - min(max(middle, low), high))
            largest = max(rho(low - zeta), rho(high - zeta))
            return smallest / zeta, (largest + (count - 1) * max(rho(low), rho(high))) / zeta
        largest = 0.0
        for highs in range(count + 1):  # that many outcomes at the upper end; the action taken is one of them or not
            up, down = width * (1.0 - highs / count), -width * highs / count
            total = highs * rho(up) + (count - highs) * rho(down)
            if highs:
                largest = max(largest, total - rho(up) + rho(up - zeta))
            if highs < count:
                largest = max(largest, total - rho(down) + rho(down - zeta))
        return count * rho(zeta / count) / zeta, largest / zeta

    def target(self, outcomes: Float[Table, "row action"]) -> Float[Table, "row score"]:
        return outcomes - outcomes.mean(axis=-1, keepdims=True) if self.centered else outcomes

    def scores(self, raw: Float[Array, "row raw"]) -> Float[Array, "row score"]:
        return jax.nn.softmax(raw, axis=-1) if self.squash else raw

    def policy(self, scores: Float[Table, "row score"]) -> Float[Array, "row action"]:
        return jnp.asarray(scores) if self.squash else project_simplex(scores)

    def scores_of_policy(self, policy: Float[Table, "row action"]) -> Float[Table, "row score"]:
        return policy

    def outcomes(self, scores: Float[Table, "row score"], zeta: float) -> Float[Array, "row action"]:
        return zeta * jnp.asarray(scores)

    def population_policy(self, outcome_mean: Float[Table, "row action"], zeta: float) -> Float[Array, "row action"]:
        """Euclidean projection of gamma / zeta on the simplex; it keeps the order of the coordinates."""
        return project_simplex(outcome_mean / zeta)


@dataclass(frozen=True, slots=True)
class NegativeWelfare(Surrogate):
    """Negative welfare as the loss (introduction, "one could update directly"): -sum_a delta_a (Y(a) - mean of Y).

    Scores are those of `Binary` for two actions and of `FullVector` for more, so that for two the loss is -U f / 2. It
    is their reduced loss at zeta = 0, times their `welfare_factor`. It is linear in the scores: no zeta, no penalty, no
    Gaussian pseudo-likelihood and no curvature, and without a prior no finite weights are the best ones. Posteriors
    are drawn by `sgld` and `nuts`, or refitted by `bootstrap`; what needs a curvature refuses it by name.

    >>> NegativeWelfare().loss(jnp.array([[0.5]]), NegativeWelfare().target(jnp.array([[0.0, 1.0]])), zeta=1.0)
    Array([-0.25], dtype=float32)
    """

    n_actions: int = 2
    penalty_scale: ClassVar[float] = 0.0  # nothing is added to welfare
    welfare_factor: ClassVar[float] = 1.0  # W1 - W2 = R2 - R1: the loss is welfare

    def __post_init__(self) -> None:
        if self.n_actions < 2:
            raise ValueError(f"n_actions must be >= 2, got {self.n_actions}; count every action, doing nothing too")
        if self.huber != float("inf"):
            raise ValueError(f"NegativeWelfare has no residual to cut, got huber={self.huber}; leave it out")
        if not self.squash:
            raise ValueError("negative welfare of unbounded scores has no minimum: squash=False is for the others")

    @property
    def _bounded(self) -> Surrogate:
        """The surrogate whose targets and scores these are."""
        return Binary() if self.n_actions == 2 else FullVector(self.n_actions)

    @property
    def n_raw(self) -> int:
        return self._bounded.n_raw

    @property
    def squashing(self) -> str | None:
        return self._bounded.squashing

    @property
    def linear(self) -> bool:
        return True

    @property
    def penalty_range(self) -> tuple[float, float]:
        return self._bounded.penalty_range

    def _loss_range(self, low: float, high: float, zeta: float) -> tuple[float, float]:
        """At one outcome at one end and all others at the other, and that action for sure."""
        most = (high - low) * (1.0 - 1.0 / self.n_actions)
        return -most, most

    def target(self, outcomes: Float[Table, "row action"]) -> Float[Table, "row score"]:
        return self._bounded.target(outcomes)

    def scores(self, raw: Float[Array, "row raw"]) -> Float[Array, "row score"]:
        return self._bounded.scores(raw)

    def policy(self, scores: Float[Table, "row score"]) -> Float[Array, "row action"]:
        return self._bounded.policy(scores)

    def scores_of_policy(self, policy: Float[Table, "row action"]) -> Float[Table, "row score"]:
        return self._bounded.scores_of_policy(policy)

    def outcomes(self, scores: Float[Table, "row score"], zeta: float) -> Float[Array, "row action"]:
        return self._bounded.outcomes(scores, zeta)

    def population_policy(self, outcome_mean: Float[Table, "row action"], zeta: float) -> Float[Array, "row action"]:
        """The action with the largest mean, for sure."""
        return jax.nn.one_hot(jnp.argmax(jnp.asarray(outcome_mean), axis=-1), self.n_actions)

    def loss(self, scores: Table, target: Table, zeta: float | Array) -> Float[Array, " row"]:
        return -self._bounded.welfare_factor * jnp.sum(jnp.asarray(scores) * jnp.asarray(target), axis=-1)

    def reduced_loss(self, scores: Table, target: Table, zeta: float | Array) -> Float[Array, " row"]:
        return self.loss(scores, target, zeta)

    def curvature_root(
        self, raw: Float[Table, "row raw"], target: Float[Table, "row score"], zeta: float
    ) -> Float[Array, "row score raw"]:
        raise ValueError(
            "the loss of NegativeWelfare is linear in the scores and has no Gauss-Newton curvature; use a model that "
            "gradients train, such as MLP(), and draw by method='sgld', 'nuts' or 'bootstrap'"
        )


def _gap_loss_range(surrogate: Surrogate, low: float, high: float, zeta: float) -> tuple[float, float]:
    """`loss_range` where targets are gaps to one action; two actions are the baseline gap with one other action."""
    others, width, rho = surrogate.n_actions - 1, high - low, surrogate._huber
    nearest = max(0.0, zeta * (1.0 - 2.0 / others) - width)
    return others * rho(nearest) / zeta, others * rho(width + zeta) / zeta


def project_simplex(points: Float[Table, "row action"]) -> Float[Array, "row action"]:
    """Euclidean projection of each row on the simplex: max(points - c, 0) with c such that it sums to one."""
    return simplex_projection(jnp.asarray(points), jnp)
