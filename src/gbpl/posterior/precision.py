"""The precision of a Gaussian over the last layer, H = scale sum_i weight_i (C_i (x) phi_i phi_i') + prior I.

Whole, its order is weights times actions: with fifty actions it takes gigabytes per member, and minutes. Beyond `WHOLE`
it is replaced by the Kronecker product of its two sides,

    (sum_i weight_i phi_i phi_i') (x) (sum_i weight_i C_i / sum_i weight_i),

which is exact where the rows' curvatures are the same, or their features (Ritter, Botev and Barber 2018), and whose
factors have the order of the one side and of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from gbpl.posterior.curvature import cholesky_root, gauss_newton, sides
from gbpl.runtime.threads import few_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float

    from gbpl.posterior.problem import Problem

__all__ = ["WHOLE", "Kronecker", "Precision", "Whole", "factor_sums", "last_layer_precision", "slices"]

WHOLE = 2_500  # order up to which the matrix is made: 50 MB
BLOCK = 10_000_000  # numbers in memory at a time: 80 MB


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A precision by its lower Cholesky factor."""

    root: Float[np.ndarray, "weight weight"]

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.root.nbytes

    def spread(self, normals: Float[np.ndarray, "weight draw"]) -> Float[np.ndarray, "weight draw"]:
        """H^{-1/2} times standard normals: draws with covariance H^{-1}."""
        with few_threads(len(self.root)):
            return scipy.linalg.solve_triangular(self.root, normals, lower=True, trans="T", check_finite=False)

    def solve(self, right: Float[np.ndarray, "weight draw"]) -> Float[np.ndarray, "weight draw"]:
        """H^{-1} times the columns."""
        with few_threads(len(self.root)):
            return scipy.linalg.cho_solve((self.root, True), right, check_finite=False)

    def sums(self, scale: float) -> tuple[float, float]:
        """log det M and tr(M^-1 - I) of M = scale^2 H."""
        return factor_sums(self.root, scale)


@dataclass(frozen=True, eq=False)
class Kronecker:
    """A precision (left (x) right) + prior I, weights in the order (basis, raw)."""

    left: Float[np.ndarray, "basis basis"]
    right: Float[np.ndarray, "raw raw"]
    prior: float

    @cached_property
    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Eigenvectors of both sides, and the eigenvalues of the whole."""
        with few_threads(len(self.left)):
            (of_left, u), (of_right, v) = scipy.linalg.eigh(self.left), scipy.linalg.eigh(self.right)
        return u, v, np.outer(np.maximum(of_left, 0.0), np.maximum(of_right, 0.0)) + self.prior

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return 2 * (self.left.nbytes + self.right.nbytes)

    @property
    def root(self) -> Float[np.ndarray, "weight weight"]:
        """Lower Cholesky factor, written out: for small ones."""
        whole = np.kron(self.left, self.right)
        whole[np.diag_indices_from(whole)] += self.prior
        return np.linalg.cholesky(whole)

    def spread(self, normals: Float[np.ndarray, "weight draw"]) -> Float[np.ndarray, "weight draw"]:
        """H^{-1/2} times standard normals: draws with covariance H^{-1}."""
        u, v, values = self._parts
        return self._turned(u, v, normals.reshape(*values.shape, -1) / np.sqrt(values)[..., None])

    def solve(self, right: Float[np.ndarray, "weight draw"]) -> Float[np.ndarray, "weight draw"]:
        """H^{-1} times the columns."""
        u, v, values = self._parts
        turned = self._turned(u.T, v.T, right.reshape(*values.shape, -1)).reshape(*values.shape, -1)
        return self._turned(u, v, turned / values[..., None])

    @staticmethod
    def _turned(left: np.ndarray, right: np.ndarray, block: np.ndarray) -> Float[np.ndarray, "weight draw"]:
        """(left (x) right) times the columns of a block."""
        with few_threads(len(left)):
            return np.matmul(right, np.tensordot(left, block, axes=1)).reshape(-1, block.shape[-1])

    def sums(self, scale: float) -> tuple[float, float]:
        """log det M and tr(M^-1 - I) of M = scale^2 H."""
        values = scale**2 * self._parts[2]
        return float(np.sum(np.log(values))), float(np.sum(1.0 / values - 1.0))


Precision = Whole | Kronecker


def last_layer_precision(problem: Problem, *, scale: float, prior: float) -> Precision:
    """H of a member at its MAP; whole where its order is at most `WHOLE`, or the curvature is known."""
    order = (problem.params[-1]["weight"].shape[0] + 1) * problem.surrogate.n_raw
    if order > WHOLE and problem.curvature is None:
        left, right = sides(problem)
        return Kronecker(scale * left, right, prior)
    precision = gauss_newton(problem)
    precision *= scale
    precision[np.diag_indices_from(precision)] += prior
    with few_threads(order):
        return Whole(cholesky_root(precision))


def factor_sums(factor: Float[np.ndarray, "weight weight"], scale: float = 1.0) -> tuple[float, float]:
    """log det M and tr(M^-1 - I) of M = scale^2 L L', from its lower factor L."""
    inverse = 0.0
    for block in slices(len(factor), len(factor)):
        columns = np.eye(len(factor), block.stop - block.start, k=-block.start)
        inverse += float(np.sum(scipy.linalg.solve_triangular(factor, columns, lower=True, check_finite=False) ** 2))
    return 2.0 * float(np.sum(np.log(scale * np.diag(factor)))), inverse / scale**2 - len(factor)


def slices(count: int, size: int) -> Iterator[slice]:
    """Slices of `count` things of `size` numbers each, of at most BLOCK numbers unless one thing has more."""
    step = max(1, BLOCK // max(size, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
