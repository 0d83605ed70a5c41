"""Generalized Gauss-Newton curvature of the surrogate in the raw output (appendix on the Gaussian approximation).

The squashing is part of the model, so its derivative is in the curvature: for row i with Jacobian D_i of the scores
in the raw outputs, C_i = zeta D_i' D_i (for the robust loss only the coordinates inside the threshold count).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from gbpl.surrogates import Surrogate

__all__ = ["curvature_root"]


def curvature_root(
    surrogate: Surrogate, raw: Float[Array, "row raw"], target: Float[Array, "row score"], zeta: float
) -> Float[Array, "row score raw"]:
    """A_i with A_i' A_i = C_i: the score's Jacobian times the root of the loss's second derivative in the score."""

    def row(r: Array, t: Array) -> Array:
        jacobian = jax.jacfwd(lambda v: surrogate.scores(v[None])[0])(r)
        inside = jnp.abs(t - zeta * surrogate.scores(r[None])[0]) <= surrogate.huber
        return jnp.sqrt(jnp.asarray(zeta)) * jnp.where(inside[:, None], jacobian, 0.0)

    return jax.vmap(row)(jnp.asarray(raw), jnp.asarray(target))
