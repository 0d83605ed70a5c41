"""Welfare certificates: lower bounds of a policy's welfare that hold with a stated probability (section 8).

Policies are drawn from the posterior of a fit that has seen nothing of the certifying rows. The prior P of the bound is
uniform over those m draws, and Q any reweighting of them, so KL(Q || P) = sum_j q_j log(m q_j) is exact: there is no
Monte Carlo error in a certificate. A row's value under a policy lies in a known range [low, low + width]; its share of
that range is the one bounded gain, and no constant is left over:

    V(Q) >= low + width (smallest p with kl(p_hat || p) <= (KL + log(2 sqrt(n) / rho)) / n).

The bound holds for all Q at once, so Q is chosen after looking at the rows: q_j proportional to exp(strength p_j), at
the strength with the best bound. Draws come from several loss scales, and the reweighting picks one at a KL of at most
the log of their number. With logged feedback a row's value is low + delta_A (Y - low) / max(e_A, clip): the gain is
never below zero, so clipping can only lower it and the bound still holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.certificates.draws import INVERSE_KL
from gbpl.models.base import check_whole
from gbpl.posterior.methods import METHODS, member_posterior
from gbpl.posterior.problem import PosteriorError, Problem
from gbpl.value.evaluate import check_rule

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Certificate", "CertificateSettings", "short"]

CLOSED_FORM = (
    "exact",
    "last_layer",
    "laplace",
)  # whose requirements on the model are checked before a fit


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSettings:
    """What to certify and how; `draws` are made at each of the five loss scales."""

    outcome_range: tuple[float, float]
    failure_probability: float = 0.05
    rule: str = "deterministic"
    draws: int = 200
    seed: int = 0
    folds: int = 2
    method: str = "last_layer"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.outcome_range is None:
            raise ValueError(
                "outcome_range is missing: a certificate needs the lowest and the highest value an outcome can take, "
                "known without the data, such as outcome_range=(0, 1) for yes or no; cut an outcome without a limit to "
                "a range first, and certify that"
            )
        try:
            low, high = (float(end) for end in self.outcome_range)
        except (TypeError, ValueError):
            low = high = math.nan
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"outcome_range must be finite (low, high) with low < high, got {self.outcome_range!r}")
        object.__setattr__(self, "outcome_range", (low, high))
        if not 0.0 < self.failure_probability < 1.0:
            raise ValueError(f"failure_probability must be in (0, 1), got {self.failure_probability}; try 0.05")
        check_rule(self.rule)
        for name, least in (("draws", 1), ("folds", 2)):
            check_whole(name, getattr(self, name), least)
        if self.method not in METHODS:
            raise PosteriorError(f"method must be one of {', '.join(sorted(METHODS))}, got {self.method!r}")

    def check_model(self, problem: Problem) -> None:
        """Let a method refuse the model on two rows, before anything is fitted."""
        if self.method in CLOSED_FORM:
            few = None if problem.weights is None else problem.weights[:2]
            phi = None if problem.phi is None else problem.phi[:2]
            rows = replace(problem, x=problem.x[:2], target=problem.target[:2], weights=few, phi=phi, curvature=None)
            member_posterior(self.method, rows, **self.options)


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """With probability at least 1 - `failure_probability` over the rows, the certified policy's welfare is >= `lower`.

    The certified policy takes a draw of the posterior with the probabilities `weights` (one array per part) and
    follows its rule; cross-fitted, it first takes one of the parts' posteriors, each with the same probability.
    `estimate` is its mean value on the certifying rows, `kl` its divergence from uniform weights (a mean over parts),
    `n` all certifying rows.

    `forms` are the lower bounds by each form of the theorem, every one at the full failure probability and with its own
    best weights; `lower` is that of the inverse kl, fixed in advance (the best of several forms would not hold at that
    probability). `single_actions` are lower bounds of giving everybody one action, which hold together at the failure
    probability. `vacuous`, with its `reason`, says when the certificate is of no use. Without `certified` the number
    is only a guide; `caveats` say why, and what else there is to know. `what_dominates` splits estimate - lower into
    `kl` and `confidence`, the rest, which falls as one over the square root of n; both are proportional to `range`, the
    width of a row's value, `widening` times that of the outcomes.
    """

    lower: float
    estimate: float
    failure_probability: float
    outcome_range: tuple[float, float]
    kl: float
    n: int
    rule: str
    forms: Mapping[str, float]
    single_actions: Mapping[Any, float]
    vacuous: bool
    reason: str
    certified: bool
    caveats: tuple[str, ...]
    what_dominates: Mapping[str, float]
    weights: tuple[Float[np.ndarray, " draw"], ...]

    @property
    def best_action(self) -> Any:
        """The single action with the highest lower bound."""
        return max(self.single_actions, key=lambda label: self.single_actions[label])

    @property
    def dominant(self) -> str:
        """The largest reason for the gap: "kl", "range" (the row's value is wider than the outcome), or "rows"."""
        if self.what_dominates["kl"] > self.what_dominates["confidence"]:
            return "kl"
        return "range" if self.what_dominates["widening"] > 2.0 else "rows"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for a table or JSON; the weights are left out."""
        return {
            "lower": self.lower, "estimate": self.estimate, "failure_probability": self.failure_probability,
            "outcome_range": list(self.outcome_range), "kl": self.kl, "n": self.n, "rule": self.rule,
            "forms": dict(self.forms), "single_actions": {str(a): v for a, v in self.single_actions.items()},
            "best_action": str(self.best_action), "vacuous": self.vacuous, "reason": self.reason,
            "certified": self.certified, "caveats": list(self.caveats), "what_dominates": dict(self.what_dominates),
            "dominant": self.dominant, "parts": len(self.weights),
        }  # fmt: skip

    def __str__(self) -> str:
        gap, split = self.estimate - self.lower, self.what_dominates
        many = len(self.weights) > 1
        whose = f"posteriors of {len(self.weights)} fits in equal shares, each judged on rows it has not seen,"
        lines = [
            f"{'Certified' if self.certified else 'NOT certified, a guide'}: with probability at least "
            f"{1.0 - self.failure_probability:.4g}, {self.rule} policies drawn from the "
            f"{whose if many else 'posterior'} are worth {short(self.lower)} or more a person on average "
            f"({short(self.estimate)} on the {self.n} rows), outcomes between {self.outcome_range[0]:g} and "
            f"{self.outcome_range[1]:g}.",
            f"Of the difference of {short(gap)}, {short(split['kl'])} is the price of choosing among the draws (KL "
            f"{self.kl:.2g}) and {short(split['confidence'])} that of certainty from {self.n} rows"
            f"{f' in {len(self.weights)} parts' if many else ''}; both are proportional to the range of a row's value, "
            f"{short(split['range'])} ({split['widening']:.3g} times that of the outcomes).",
        ]
        if self.vacuous:
            lines.append(f"Vacuous: {self.reason}.")
        lines += [f"Note: {caveat}." for caveat in self.caveats]
        rows = [(f"{name}{' (the certificate)' if name == INVERSE_KL else ''}", v) for name, v in self.forms.items()]
        rows += [(f"everybody gets {label!r}", value) for label, value in self.single_actions.items()]
        length = max(len(name) for name, _ in rows)
        return "\n".join([*lines, "", *(f"{name:<{length}}  >= {short(value)}" for name, value in rows)])

    __repr__ = __str__


def short(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
