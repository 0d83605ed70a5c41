"""Gaussian approximation over the last layer, hidden layers fixed at the MAP (appendix on GBPLNet).

The precision is the generalized Gauss-Newton one, H = eta sum_i weight_i (C_i (x) phi_i phi_i') + I / prior_sd^2
(`gbpl.posterior.curvature`),
or beyond 2,500 weights its Kronecker product (`gbpl.posterior.precision`).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gbpl.posterior.curvature import last_layer, require_curvature, require_last_layer
from gbpl.posterior.gaussian import LastLayerGaussian
from gbpl.posterior.precision import last_layer_precision
from gbpl.posterior.problem import Problem

__all__ = ["LastLayer"]


class LastLayer(LastLayerGaussian):
    """N(MAP, H^{-1}) over the last layer."""

    method: ClassVar[str] = "last_layer"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        require_last_layer(problem.model, self.method)
        require_curvature(problem.surrogate, self.method)
        self.mean = last_layer(problem.params).astype(np.float64).ravel()
        self.precision = last_layer_precision(problem, scale=problem.eta, prior=1.0 / problem.prior_sd**2)
