"""Whether what a learner says about itself is true, by simulation: the numbers that a user reads, beside the truth.

Samples of a design with known means are fitted as a user would fit them, and what the policy says of its value, of its
gains over single actions and of its chances is counted against what is true. Use it on data made to look like your own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from gbpl.estimators.gbpl import GBPL
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.estimators.many import fit_many, hold_out_many
from gbpl.feedback.read import ARGUMENTS

__all__ = ["CoverageStudy", "Replication", "coverage_study"]

EVALUATION_SEED = 10**6


@dataclass(frozen=True, slots=True)
class Replication:
    """What one fit says, beside the truth.

    `value` and each of `gains` (over giving everybody one action) are estimate, standard error, low and high end, and
    truth. `chance` is that of being better than every single action, `better` whether it is. `half` is the standard
    error of the value on half of the rows: what learning on one half and evaluating on the other would have.
    """

    seed: int
    value: tuple[float, ...]
    gains: tuple[tuple[float, ...], ...]
    band: bool
    chance: float
    better: bool
    half: float
    regret: float
    seconds: tuple[float, float]


@dataclass(frozen=True, eq=False)
class CoverageStudy:
    """Results of `coverage_study`: what was counted over replications at one level, each with its Monte Carlo error.

    Studies of the same design over other seeds can be added.
    """

    level: float
    replications: tuple[Replication, ...] = field(repr=False)

    def __add__(self, other: CoverageStudy) -> CoverageStudy:
        if self.level != other.level:
            raise ValueError(f"studies at levels {self.level} and {other.level} cannot be added; use the same level")
        return CoverageStudy(self.level, self.replications + other.replications)

    def __len__(self) -> int:
        return len(self.replications)

    def _share(self, hits: np.ndarray) -> tuple[float, float]:
        """A share and its standard error; rows are replications, and columns of one depend on each other."""
        each = np.asarray(hits, float).reshape(len(self), -1).mean(axis=1)
        return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))

    @property
    def value_coverage(self) -> tuple[float, float]:
        """Share of intervals of the policy's value that contain it, and its standard error."""
        value = np.array([one.value for one in self.replications])
        return self._share((value[:, 2] <= value[:, 4]) & (value[:, 4] <= value[:, 3]))

    @property
    def gain_coverage(self) -> tuple[float, float]:
        """The same for the gains over single actions."""
        gains = np.array([one.gains for one in self.replications])
        return self._share((gains[..., 2] <= gains[..., 4]) & (gains[..., 4] <= gains[..., 3]))

    @property
    def worst_gain_coverage(self) -> float:
        """Coverage of the gain over the action whose gain is covered least."""
        gains = np.array([one.gains for one in self.replications])
        return float(np.mean((gains[..., 2] <= gains[..., 4]) & (gains[..., 4] <= gains[..., 3]), axis=0).min())

    @property
    def band_coverage(self) -> tuple[float, float]:
        """Share of samples in which the simultaneous bands contain the gains over all actions."""
        return self._share(np.array([one.band for one in self.replications]))

    @property
    def z(self) -> tuple[float, float]:
        """Mean and standard deviation of (estimate - truth) / standard error of the value; 0 and 1 are right."""
        value = np.array([one.value for one in self.replications])
        z = (value[:, 0] - value[:, 4]) / value[:, 1]
        return float(z.mean()), float(z.std(ddof=1))

    def said(self, chance: float) -> tuple[int, int]:
        """In how many samples the chance of being better than every action is above this, and in how many it is."""
        sure = [one for one in self.replications if one.chance > chance]
        return len(sure), sum(one.better for one in sure)

    @property
    def width(self) -> float:
        """Width of the value's intervals as a share of those of a half-and-half split."""
        return float(np.mean([one.value[1] / one.half for one in self.replications]))

    @property
    def regret(self) -> tuple[float, float]:
        """Welfare of the best rule less the policy's, and its standard error."""
        return self._share(np.array([one.regret for one in self.replications]))

    def to_dict(self) -> dict[str, Any]:
        """Every number by name."""
        (covered, covered_se), (gains, gains_se), (bands, _) = (
            self.value_coverage,
            self.gain_coverage,
            self.band_coverage,
        )
        (mean, sd), (regret, regret_se) = self.z, self.regret
        fit, held = np.median([one.seconds for one in self.replications], axis=0)
        return {
            "replications": len(self), "level": self.level, "value_coverage": covered, "value_coverage_se": covered_se,
            "gain_coverage": gains, "gain_coverage_se": gains_se, "worst_gain_coverage": self.worst_gain_coverage,
            "band_coverage": bands, "z_mean": mean, "z_sd": sd, "width": self.width, "said_90": self.said(0.9),
            "said_95": self.said(0.95), "regret": regret, "regret_se": regret_se, "seconds_fit": float(fit),
            "seconds_held_out": float(held),
        }  # fmt: skip

    def records(self) -> list[dict[str, Any]]:
        """The replications as plain dictionaries, for JSON; `CoverageStudy.of_records` reads them."""
        return [asdict(one) for one in self.replications]

    @classmethod
    def of_records(cls, records: list[Mapping[str, Any]], level: float = 0.9) -> CoverageStudy:
        return cls(level, tuple(Replication(**one) for one in records))

    def __str__(self) -> str:
        found = self.to_dict()
        sure, right = found["said_90"]
        return (
            f"{len(self)} replications, {100 * self.level:g} % intervals\n"
            f"value covered        {found['value_coverage']:.3f} (se {found['value_coverage_se']:.3f})\n"
            f"gains covered        {found['gain_coverage']:.3f} (se {found['gain_coverage_se']:.3f})\n"
            f"all gains in bands   {found['band_coverage']:.3f}\n"
            f"z of the value       mean {found['z_mean']:+.2f}, sd {found['z_sd']:.2f}\n"
            f"said > 90 % better   {sure} times, right {right} times\n"
            f"width                {found['width']:.2f} of a half-and-half split's\n"
            f"regret               {found['regret']:.4g} (se {found['regret_se']:.2g})"
        )


def coverage_study(
    design: Any,
    *,
    n: int = 1000,
    replications: int = 100,
    estimator: GBPLNet | None = None,
    level: float = 0.9,
    evaluation_rows: int = 20_000,
    together: int = 1,
    start: int = 0,
) -> CoverageStudy:
    """Fit samples of a design with known truth, and count how often what the policy says is true.

    `design.sample(n, seed=...)` gives a sample: a design of `gbpl.datasets`, plain or logged, or any object with `x`,
    `outcome_mean` and either `outcomes`, or `outcome`, `action` and (known propensities) `propensity`; `controls`,
    `cost`, `sample_weight` and `groups` are passed to `fit` where it has them. `estimator` is `GBPL()` if None. The
    truth is that of the rule of `predict` on `evaluation_rows` new rows, less costs, weighted by their weights.
    Replication r has data seed and `random_state` start + r. As many as `together` are fitted as one stack.

    >>> from gbpl import FitConfig, MLP
    >>> from gbpl.datasets import BinaryDesign
    >>> fast = GBPLNet(model=MLP(hidden=(4,)), fit_config=FitConfig(max_epochs=2))
    >>> len(coverage_study(BinaryDesign("DGP3"), n=60, replications=2, estimator=fast, evaluation_rows=100))
    2
    """
    if replications < 2 or together < 1:
        raise ValueError(
            f"replications must be >= 2 and together >= 1, got {replications} and {together}; a coverage needs hundreds"
        )
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}; try 0.9")
    template = GBPL(progress=False) if estimator is None else estimator
    if template.committee is None:
        raise ValueError("coverage_study needs a committee, got committee=None; its values are cross-fitted")
    fresh = design.sample(evaluation_rows, seed=EVALUATION_SEED)
    found: list[Replication] = []
    for first in range(start, start + replications, together):
        seeds = range(first, min(first + together, start + replications))
        policies = [clone(template).set_params(random_state=seed) for seed in seeds]
        begun = time.process_time()
        fit_many(policies, [_arguments(design.sample(n, seed=seed)) for seed in seeds])
        fitted = time.process_time()
        hold_out_many(policies)
        seconds = (fitted - begun) / len(seeds), (time.process_time() - fitted) / len(seeds)
        found += [_counted(policy, seed, fresh, level, seconds) for policy, seed in zip(policies, seeds, strict=True)]
    return CoverageStudy(level, tuple(found))


def _arguments(sample: Any) -> dict[str, Any]:
    """What a user would give `fit`."""
    named = {name: getattr(sample, name, None) for name in ARGUMENTS}
    logged = named["action"] is not None
    named |= {"X": sample.x, "y": sample.outcome if logged else sample.outcomes}
    return {name: given for name, given in named.items() if given is not None}


def _counted(policy: GBPLNet, seed: int, fresh: Any, level: float, seconds: tuple[float, float]) -> Replication:
    means, weight = np.array(fresh.outcome_mean), getattr(fresh, "sample_weight", None)
    cost = getattr(fresh, "cost", None)
    if cost is not None:
        means -= np.array([cost[label] for label in policy.actions_.tolist()]) if isinstance(cost, Mapping) else cost
    place = {label: number for number, label in enumerate(policy.actions_.tolist())}
    chosen = np.array([place[label] for label in policy.predict(fresh.x).tolist()])
    worth = float(np.average(means[np.arange(len(means)), chosen], weights=weight))
    single = np.average(means, axis=0, weights=weight)
    value, gains = policy.cross_fitted_value(), policy.gains()
    true_gains = worth - single
    (low, high), bands = value.interval(level), gains.bands(level)
    ends = gains.intervals(level)
    plain = type(value)(value.influence, value.estimator, value.weights, value.groups)
    return Replication(
        seed=seed,
        value=(value.estimate, value.se, low, high, worth),
        gains=tuple(
            (float(g), float(s), float(a), float(b), float(t))
            for g, s, (a, b), t in zip(gains.estimates, gains.ses, ends, true_gains, strict=True)
        ),
        band=bool(np.all((bands[:, 0] <= true_gains) & (true_gains <= bands[:, 1]))),
        chance=gains.chance,
        better=bool(np.all(true_gains > 1e-12)),
        half=float(np.sqrt(2.0)) * plain.se,
        regret=float(np.average(means.max(axis=1), weights=weight)) - worth,
        seconds=seconds,
    )
