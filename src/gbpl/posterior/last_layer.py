"""Gaussian approximation over the last layer, hidden layers fixed at the MAP (appendix on GBPLNet).

The precision is the generalized Gauss-Newton one, H = eta sum_i weight_i (C_i (x) phi_i phi_i') + I / prior_sd^2
(`gbpl.posterior.curvature`).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gbpl.posterior.curvature import cholesky_root, gauss_newton, last_layer, require_last_layer
from gbpl.posterior.gaussian import LastLayerGaussian
from gbpl.posterior.problem import Problem
from gbpl.runtime.threads import few_threads

__all__ = ["LastLayer"]


class LastLayer(LastLayerGaussian):
    """N(MAP, H^{-1}) over the last layer."""

    method: ClassVar[str] = "last_layer"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        require_last_layer(problem.model, self.method)
        self.mean = last_layer(problem.params).astype(np.float64).ravel()
        precision = gauss_newton(problem)
        precision *= problem.eta
        precision[np.diag_indices_from(precision)] += 1.0 / problem.prior_sd**2
        with few_threads(len(precision)):
            self.root = cholesky_root(precision)
