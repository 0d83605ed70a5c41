"""Huber's function in place of the square, for the robust variant of every surrogate (section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array

__all__ = ["reduced_huber"]


@jax.custom_jvp
def reduced_huber(s: Array, t: Array, zeta: Array, c: float) -> Array:
    """(rho(t - zeta s) - rho(t)) / zeta as the integral of psi along the path, without cancellation."""
    lo, hi = jnp.minimum(-s, 0.0), jnp.maximum(-s, 0.0)  # the path, in units of zeta
    enter = jnp.clip((-c - t) / zeta, lo, hi)
    leave = jnp.clip((c - t) / zeta, lo, hi)
    inside = (leave - enter) * (t + 0.5 * zeta * (enter + leave))
    return jnp.sign(-s) * (inside + c * (hi - leave) - c * (enter - lo))


@reduced_huber.defjvp
def _jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    s, t, zeta, c = primals
    influence = -jnp.clip(t - zeta * s, -c, c)  # d/ds; the loss is only ever differentiated in the score
    return reduced_huber(s, t, zeta, c), influence * tangents[0]
