"""The generalized posterior of one member, and what every method of sampling it has in common (section 3).

A member's generalized posterior is exp(-Phi(w)) up to a constant, with

    Phi(w) = eta sum_i weight_i loss(w; z_i) + |w|^2 / (2 prior_sd^2).

A draw is a member: `sample` returns parameters with a leading draw axis, and draws are applied to rows as members are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.models.base import ScoreModel
from gbpl.models.prior import squared_norm
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float, Int

__all__ = [
    "GaussianPosterior", "JointPosterior", "MemberPosterior", "PosteriorError", "PosteriorWarning", "Problem",
    "flatten", "unflatten",
]  # fmt: skip


class PosteriorError(ValueError):
    """A posterior is not available as requested: the message says why and what to do."""


class PosteriorWarning(UserWarning):
    """The draws should not be trusted as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """One member's generalized posterior and its MAP.

    `x` are the (standardised) features and `target` the targets of the member's training rows; `weights` have mean
    one, None if all are one. `params` is the MAP, a tree without member axis. `rows` are the numbers of the training
    rows in the table the members of a committee share. `phi` are the features of the training rows where they
    differ from those of new rows (`ForestFeatures`). `curvature` is the last layer's Gauss-Newton matrix where it
    is known from more rows, of which these are a sample (`gbpl.passes.fit`), scaled down to their number.
    """

    model: ScoreModel
    surrogate: Surrogate
    x: Float[np.ndarray, "row feature"]
    target: Float[np.ndarray, "row score"]
    weights: Float[np.ndarray, " row"] | None
    zeta: float
    eta: float
    prior_sd: float
    params: Any
    seed: int = 0
    rows: Int[np.ndarray, " row"] | None = None
    phi: Float[np.ndarray, "row hidden"] | None = None
    curvature: Float[np.ndarray, "weight weight"] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def log_prior(self, params: Any) -> Float[Array, ""]:
        """-|w|^2 / (2 prior_sd^2), without its constant."""
        return -squared_norm(params) / (2.0 * self.prior_sd**2)

    def row_losses(self, params: Any, x: Array, target: Array) -> Float[Array, " row"]:
        """Reduced loss of each row: the loss less a constant that does not depend on the parameters."""
        return self.surrogate.row_loss(self.model.apply(params, x), target, self.zeta)

    def log_density(self, params: Any) -> Float[Array, ""]:
        """-Phi(w) on all rows, without the constants."""
        losses = self.row_losses(params, jnp.asarray(self.x), jnp.asarray(self.target))
        weighted = losses if self.weights is None else losses * jnp.asarray(self.weights)
        return self.log_prior(params) - self.eta * jnp.sum(weighted)


@partial(jax.jit, static_argnames="model")
def _apply_all(params: Any, x: Array, *, model: ScoreModel) -> Float[Array, "draw row raw"]:
    return jax.vmap(lambda p: model.apply(p, x))(params)


class MemberPosterior(ABC):
    """Draws from one member's generalized posterior; a method is a subclass in a file of its own.

    Every method has the same order: build (`__init__`), state (properties), draw (`sample`, `joint_sample`), evaluate
    (`raw`, `answer`).
    """

    method: ClassVar[str]

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """Quality of the draws; empty for methods that draw exactly."""
        return {}

    @abstractmethod
    def sample(self, draws: int, *, seed: int) -> Any:
        """Parameters with a leading draw axis (numpy float32), the same for the same seed."""

    def raw(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row raw"]:
        """Raw outputs of draws on rows; a method whose draws share their features does this faster."""
        return _apply_all(params, x, model=self.problem.model)


class JointPosterior(MemberPosterior):
    """A method whose draws can be made jointly for all members of a committee, and applied to first order."""

    @abstractmethod
    def joint_sample(self, draws: int, *, seed: int) -> Any:
        """Draws as in `sample`, made so that members that share rows move together."""

    @abstractmethod
    def answer(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row score"]:
        """Scores of joint draws on rows, to first order around the MAP."""


class GaussianPosterior(MemberPosterior):
    """A method whose draws come from a Gaussian, so that its divergence from the prior is known."""

    mean: Float[np.ndarray, " weight"]

    @abstractmethod
    def relative_precision(self) -> tuple[float, float]:
        """log det M and tr(M^-1 - I) of M = prior_sd^2 H, H the precision of the draws: what the KL needs of H."""


def flatten(params: Any) -> tuple[Float[np.ndarray, " weight"], Any]:
    """A tree of parameters as one float64 vector, and what `unflatten` needs to undo it."""
    leaves, tree = jax.tree.flatten(params)
    shapes = [np.shape(leaf) for leaf in leaves]
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in leaves]), (tree, shapes)


def unflatten(vectors: Float[np.ndarray, "draw weight"], form: Any) -> Any:
    """Rows of weights as a tree with a leading draw axis, float32."""
    tree, shapes = form
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(np.asarray(vectors, np.float32), ends[:-1], axis=1)
    leaves = [part.reshape(len(vectors), *shape) for part, shape in zip(parts, shapes, strict=True)]
    return jax.tree.unflatten(tree, leaves)
