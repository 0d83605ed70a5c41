"""Coverage of welfare intervals by simulation from a design (appendix on welfare uncertainty).

The paper's procedure, as a tool: where the truth is known, count how often an interval contains it. Use it to check a
posterior on data made to look like your own; `gbpl.posterior.eta` calibrates from the data alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from gbpl.datasets import LoggedSample
from gbpl.estimators.gbplnet import GBPLNet

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["EtaCoverage", "eta_coverage"]


@dataclass(frozen=True, slots=True, eq=False)
class EtaCoverage:
    """Results of `eta_coverage`, one row per eta and one column per level.

    `coverage` is that of the population target's welfare, `width` the mean width of the intervals. `of_fits` is the
    coverage of what the fits are worth on average: the target less what learning from n rows costs, `shortfall`.
    """

    etas: tuple[float, ...]
    levels: tuple[float, ...]
    coverage: Float[np.ndarray, "eta level"]
    width: Float[np.ndarray, "eta level"]
    of_fits: Float[np.ndarray, "eta level"]
    shortfall: float
    replications: int
    ends: Float[np.ndarray, "replication eta level end"] = field(repr=False)

    @property
    def coverage_se(self) -> Float[np.ndarray, "eta level"]:
        """Monte Carlo standard errors of `coverage`."""
        return np.sqrt(self.coverage * (1.0 - self.coverage) / self.replications)

    def closest(self, level: float = 0.9) -> float:
        """The eta whose coverage comes closest to the level: the paper's choice."""
        if level not in self.levels:
            raise ValueError(f"level must be one of {', '.join(map(str, self.levels))}, got {level}")
        return self.etas[int(np.argmin(np.abs(self.coverage[:, self.levels.index(level)] - level)))]

    def to_dict(self) -> dict[str, list[float]]:
        """Columns by name, one row per eta and level, as `pandas.DataFrame` or `polars.DataFrame` take them."""
        cells = [(e, k) for e in range(len(self.etas)) for k in range(len(self.levels))]
        columns = {"coverage": self.coverage, "se": self.coverage_se, "width": self.width, "of_fits": self.of_fits}
        named = {name: [float(table[cell]) for cell in cells] for name, table in columns.items()}
        return {"eta": [self.etas[e] for e, _ in cells], "level": [self.levels[k] for _, k in cells], **named}

    def __str__(self) -> str:
        lines = ["eta      " + "".join(f"{100 * level:>13g} %" for level in self.levels)]
        for eta, rates, widths in zip(self.etas, self.coverage, self.width, strict=True):
            cells = "".join(f"{rate:7.3f} ({w:.3g})".rjust(15) for rate, w in zip(rates, widths, strict=True))
            lines.append(f"{eta:<9g}{cells}")
        return "\n".join(lines) + f"\ncoverage (width), {self.replications} replications"


def eta_coverage(
    design: Any,
    eta_grid: Sequence[float],
    *,
    levels: Sequence[float] = (0.5, 0.8, 0.9, 0.95),
    replications: int = 100,
    estimator: GBPLNet | None = None,
    n: int = 1000,
    evaluation_rows: int = 2000,
    draws: int = 400,
    of: str | None = None,
    start: int = 0,
) -> EtaCoverage:
    """Fit, draw and count over samples of a design with known truth (a `gbpl.datasets` design, plain or logged).

    `estimator` is the policy to fit, `GBPLNet(zeta=1.0, eta=1.0)` if None; it needs one zeta, since the target depends
    on zeta: the welfare of the population minimiser (`Surrogate.population_policy`), played as a randomized policy on
    `evaluation_rows` new rows, with known means. Each replication is fitted once and its posterior drawn at every eta:
    eta counts in the fit only through the prior, as one over n. Replication r has data seed start + r.
    """
    etas, wanted = tuple(float(eta) for eta in eta_grid), tuple(float(level) for level in levels)
    if not etas or not all(0 < eta < np.inf for eta in etas):
        raise ValueError(f"eta_grid must hold numbers > 0, got {list(eta_grid)}; try [0.5, 1, 2, 4]")
    if not wanted or not all(0 < level < 1 for level in wanted):
        raise ValueError(f"levels must lie between 0 and 1, got {list(levels)}; try [0.5, 0.9]")
    if replications < 2:
        raise ValueError(f"replications must be >= 2, got {replications}; a coverage needs hundreds")
    template = GBPLNet(zeta=1.0, eta=1.0) if estimator is None else estimator
    if isinstance(template.zeta, str) or np.iterable(template.zeta):
        raise ValueError(f"the estimator must have one zeta, since the target depends on it, got {template.zeta!r}")
    ends = np.empty((replications, len(etas), len(wanted), 2))
    target, welfare = np.empty(replications), np.empty(replications)
    for number in range(replications):
        seed = start + number
        policy = clone(template).set_params(random_state=seed)
        sample = design.sample(n, seed=seed)
        if isinstance(sample, LoggedSample):
            policy.fit(sample.x, sample.outcome, action=sample.action, propensity=sample.propensity)
        else:
            policy.fit(sample.x, sample.outcomes)
        fresh = design.sample(evaluation_rows, seed=10**6 + seed)
        best = np.asarray(policy.surrogate_.population_policy(fresh.outcome_mean, float(template.zeta)))
        target[number] = np.mean(np.sum(best * fresh.outcome_mean, axis=1))
        welfare[number] = np.mean(np.sum(policy.predict_proba(fresh.x) * fresh.outcome_mean, axis=1))
        for place, eta in enumerate(etas):
            drawn = policy.posterior("last_layer", eta=eta).welfare(
                fresh.x, fresh.outcome_mean, rule="randomized", of=of, draws=draws, seed=seed
            )
            ends[number, place] = [drawn.interval(level) for level in wanted]

    def held(values: np.ndarray) -> np.ndarray:
        inside = (ends[..., 0] <= values[:, None, None]) & (values[:, None, None] <= ends[..., 1])
        return inside.mean(axis=0)

    shortfall = float(np.mean(target - welfare))
    return EtaCoverage(
        etas=etas,
        levels=wanted,
        coverage=held(target),
        width=np.mean(ends[..., 1] - ends[..., 0], axis=0),
        of_fits=held(target - shortfall),
        shortfall=shortfall,
        replications=replications,
        ends=ends,
    )
