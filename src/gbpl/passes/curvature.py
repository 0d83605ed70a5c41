"""Curvature of the members by all rows, which is what a last-layer posterior needs of them (section 6).

Its size and work grow with the square of actions times hidden units: beyond `MOST_CURVATURE` numbers it is left to the
sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.fitting.apply import has_last_layer
from gbpl.passes.forests import ForestMembers
from gbpl.passes.outcome_models import OutcomeTables
from gbpl.path.path import PathFit
from gbpl.path.plan import scaled_targets
from gbpl.posterior.curvature import gauss_newton
from gbpl.runtime.pipeline import ahead

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["curvatures"]

MOST_CURVATURE = 150_000  # up to three actions of the default network: more would take longer than learning


def curvatures(
    fit: PathFit, outcomes: OutcomeTables, forests: Sequence[ForestMembers] = ()
) -> tuple[Float[np.ndarray, "weight weight"], ...] | None:
    """Gauss-Newton matrices of the members that count, by all the rows that each has learned from, over `thinning`.

    None if they are too large, the model has no last layer, or the loss no curvature. Weights of rows are in units of
    their mean over the member's rows, as `PathFit.problems` has them for the sample.
    """
    if fit.surrogate.linear or not has_last_layer(fit.model):
        return None
    problems = fit.problems()
    sizes = [(problem.params[-1]["weight"].shape[0] + 1) * fit.surrogate.n_raw for problem in problems]
    if max(sizes) ** 2 > MOST_CURVATURE:
        return None
    sums = [np.zeros((size, size)) for size in sizes]
    grown = {(forest.fold, forest.table, part.place): forest for part in forests for forest in part.forests}
    rows, weights = np.zeros(len(problems)), np.zeros(len(problems))
    for (chunk, x, fold), tables in ahead(outcomes.in_order()):
        weight = np.ones(len(chunk)) if chunk.weight is None else chunk.weight.astype(np.float64)
        targets = scaled_targets(fit.surrogate, tables, fit.scale).reshape(len(tables), len(x), -1)
        for number, (problem, member) in enumerate(zip(problems, fit.members, strict=True)):
            own = fold != member.fold
            part = replace(problem, x=x[own], target=targets[member.table][own], weights=weight[own])
            forest = grown.get((member.fold or 0, member.table, member.model or 0))
            if forest is not None:
                part = replace(part, phi=forest.features(x[own], chunk.number[own]))
            sums[number] += gauss_newton(part, one_of_many=True)
            rows[number] += own.sum()
            weights[number] += weight[own].sum()
    parts = zip(sums, rows, weights, strict=True)
    return tuple(total * (count / (weight * fit.thinning)) for total, count, weight in parts)
