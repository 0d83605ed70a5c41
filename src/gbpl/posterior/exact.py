"""The generalized posterior itself, where it is Gaussian: a linear score without squashing (section 4.4)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gbpl.models.base import FixedFeatures
from gbpl.posterior.curvature import require_last_layer, training_blocks
from gbpl.posterior.gaussian import LastLayerGaussian
from gbpl.posterior.precision import Kronecker
from gbpl.posterior.problem import PosteriorError, Problem

__all__ = ["Exact"]


class Exact(LastLayerGaussian):
    """The generalized posterior itself, where it is Gaussian: a linear score without squashing.

    Lambda = eta zeta Phi' W Phi + I / prior_sd^2 and mean Lambda^{-1} eta Phi' W t, the same for each score (Gaussian
    pseudo-likelihood, section 4.4).
    """

    method: ClassVar[str] = "exact"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        require_last_layer(problem.model, self.method)
        if len(problem.params) > 1 and not isinstance(problem.model, FixedFeatures):
            raise PosteriorError(
                f"the 'exact' posterior needs a model linear in its parameters (Linear, RandomFeatures), got "
                f"{problem.model}; use method='last_layer'"
            )
        if problem.surrogate.squash or problem.surrogate.huber != float("inf"):
            raise PosteriorError(
                "the 'exact' posterior needs an unsquashed, squared loss: fit with surrogate=Binary(squash=False) or "
                "FullVector(K, squash=False), or use method='last_layer'"
            )
        basis_size = problem.params[-1]["weight"].shape[0] + 1
        gram = np.zeros((basis_size, basis_size))
        moment = np.zeros((basis_size, problem.surrogate.n_raw))
        for _, basis, target, weight in training_blocks(problem):
            phi = np.asarray(basis, np.float64)
            weighted = phi * weight[:, None]
            gram += weighted.T @ phi
            moment += weighted.T @ target
        prior = 1.0 / problem.prior_sd**2
        self.precision = Kronecker(problem.eta * problem.zeta * gram, np.eye(problem.surrogate.n_raw), prior)
        self.mean = self.precision.solve(problem.eta * moment.reshape(-1, 1)).ravel()
