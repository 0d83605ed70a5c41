"""Curvature of the members by all rows, which is what a last-layer posterior needs of them (section 6).

Its size and work grow with the square of actions times hidden units: beyond `MOST_CURVATURE` numbers it is left to the
sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.fitting.apply import has_last_layer
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.outcome_models import OutcomeTables
from gbpl.path.path import PathFit
from gbpl.path.plan import scaled_targets
from gbpl.posterior.curvature import gauss_newton
from gbpl.runtime.pipeline import ahead, one_behind

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["curvatures"]

MOST_CURVATURE = 150_000  # up to three actions of the default network: more would take longer than learning


def curvatures(
    fit: PathFit, passes: Passes, outcomes: OutcomeTables
) -> tuple[Float[np.ndarray, "weight weight"], ...] | None:
    """Gauss-Newton matrices of the members that count, by all the rows that each has learned from, over `thinning`.

    None if they are too large, the model has no last layer, or the loss no curvature. Weights of rows are in units of
    their mean over the member's rows, as `PathFit.problems` has them for the sample.
    """
    size = (fit.params[-1]["weight"].shape[1] + 1) * fit.surrogate.n_raw if has_last_layer(fit.model) else 0
    if fit.surrogate.linear or not 0 < size**2 <= MOST_CURVATURE:
        return None
    problems = fit.problems()
    sums = [np.zeros((size, size)) for _ in problems]
    rows, weights = np.zeros(len(problems)), np.zeros(len(problems))
    for (chunk, x, fold), tables in ahead(_read(passes, outcomes)):
        weight = np.ones(len(chunk)) if chunk.weight is None else chunk.weight.astype(np.float64)
        targets = scaled_targets(fit.surrogate, tables, fit.scale).reshape(len(tables), len(x), -1)
        for number, (problem, member) in enumerate(zip(problems, fit.members, strict=True)):
            own = fold != member.fold
            part = replace(problem, x=x[own], target=targets[member.table][own], weights=weight[own])
            sums[number] += gauss_newton(part, one_of_many=True)
            rows[number] += own.sum()
            weights[number] += weight[own].sum()
    parts = zip(sums, rows, weights, strict=True)
    return tuple(total * (count / (weight * fit.thinning)) for total, count, weight in parts)


def _read(passes: Passes, outcomes: OutcomeTables) -> Iterator[tuple[ReadChunk, list[Float[np.ndarray, "row action"]]]]:
    begun = ((read, outcomes.start(read)) for read in passes.in_order())
    for read, pending in one_behind(begun):
        yield read, outcomes.finish(read, pending)
        passes.tidy()
