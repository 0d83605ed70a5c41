"""Any method over a last layer alone, for models whose features are fixed once they are grown (ForestFeatures).

Such a model is a linear score in features that stay as they are, so draws of a linear score cover everything that
the model has learned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from gbpl.models.networks import Linear
from gbpl.posterior.curvature import features, last_layer, last_layer_draws
from gbpl.posterior.problem import MemberPosterior, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float

__all__ = ["OnFeatures"]


class OnFeatures(MemberPosterior):
    """Draws of the last layer by `kind`, one of the other methods, and the fixed layers before it."""

    def __init__(self, problem: Problem, kind: type[MemberPosterior], **options: Any) -> None:
        super().__init__(problem)
        phi = problem.phi
        if phi is None:
            phi = np.asarray(features(problem.params, problem.x, model=problem.model))[:, :-1]
        linear = replace(problem, model=Linear(), x=phi, phi=None, params=problem.params[-1:])
        self.inner = kind(linear, **options)

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        return self.inner.diagnostics

    def sample(self, draws: int, *, seed: int) -> Any:
        drawn = last_layer(self.inner.sample(draws, seed=seed))
        return last_layer_draws(self.problem, drawn.reshape(len(drawn), -1))

    def raw(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row raw"]:
        basis = features(self.problem.params, x, model=self.problem.model)
        return jnp.einsum("nb,dbk->dnk", basis, last_layer(params))
