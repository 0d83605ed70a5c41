"""Welfare certificates: what a policy is worth at least, with a stated probability (section 8).

By default the certified policy is the fitted one itself, on rows that it has not learned from: there was no choice
after looking, so there is no KL, and a bound by betting knows the variance of the rows
(`gbpl.certificates.certifier`). Draws from its posterior can be certified too, on all rows
(`gbpl.certificates.draws`): there the rows choose among the draws, and the KL is the price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.certificates.certifier import Bound, Certifier
from gbpl.models.base import check_whole
from gbpl.posterior.methods import METHODS, member_posterior
from gbpl.posterior.problem import PosteriorError, Problem
from gbpl.value.evaluate import LOGGING, check_rule

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Certificate", "CertificateSettings", "short"]

CLOSED_FORM = ("exact", "last_layer", "laplace")  # whose requirements on the model are checked before a fit
POLICY, DRAWS = "policy", "draws"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSettings:
    """What to certify and how; `draws` are made at each of the five loss scales."""

    outcome_range: tuple[float, float]
    failure_probability: float = 0.05
    of: str = POLICY
    rule: str = "deterministic"
    share: float = 0.5
    draws: int = 200
    seed: int = 0
    folds: int = 2
    method: str = "last_layer"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.outcome_range is None:
            raise ValueError(
                "outcome_range is missing: a certificate needs the lowest and the highest value an outcome can take, "
                "known without the data, such as outcome_range=(0, 1) for yes or no; without a highest value, such as "
                "for spending, (0, math.inf) bounds the value from below, but no gain"
            )
        try:
            low, high = (float(end) for end in self.outcome_range)
        except (TypeError, ValueError):
            low = high = math.nan
        if not -math.inf < low < high or (math.isinf(high) and self.of == DRAWS):
            raise ValueError(
                f"outcome_range must be (low, high) with a finite low < high, got {self.outcome_range!r}; only "
                f"of='policy' takes an infinite high"
            )
        object.__setattr__(self, "outcome_range", (low, high))
        if not 0.0 < self.failure_probability < 1.0:
            raise ValueError(f"failure_probability must be in (0, 1), got {self.failure_probability}; try 0.05")
        if self.of not in (POLICY, DRAWS):
            raise ValueError(f"of must be 'policy' or 'draws', got {self.of!r}")
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"share, of rows that certify, must be between 0 and 1, got {self.share}; try 0.5")
        check_rule(self.rule)
        for name, least in (("draws", 1), ("folds", 2)):
            check_whole(name, getattr(self, name), least)
        if self.method not in METHODS:
            raise PosteriorError(f"method must be one of {', '.join(sorted(METHODS))}, got {self.method!r}")

    def check_model(self, problem: Problem) -> None:
        """Let a method refuse the model on two rows, before anything is fitted."""
        if self.of == DRAWS and self.method in CLOSED_FORM:
            few = None if problem.weights is None else problem.weights[:2]
            phi = None if problem.phi is None else problem.phi[:2]
            rows = replace(problem, x=problem.x[:2], target=problem.target[:2], weights=few, phi=phi, curvature=None)
            member_posterior(self.method, rows, **self.options)


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """With probability at least 1 - `failure_probability` over the rows, the certified policy's welfare is >= `lower`.

    `value` has the bounds of its welfare: `lower` and `upper`, each by itself at that probability, and other forms of
    the lower bound beside it. `gain` is its gain over giving everybody `best_action`, the best single action by the
    rows learned from; `gains` those over every single action, which hold together; `over_logging` that over the policy
    that wrote the log; `gain_over` bounds that over any policy, and `outcome` what it makes of another outcome. Each
    statement holds by itself at the failure probability. Gains are None where outcomes have no upper end.

    `n` rows (or groups) certify, and `learned` were learned from; `rows` are the numbers of those that certify, where
    they were held out of the rows of the fit. `policy` decides, is saved and loaded with numpy alone, and carries the
    certificate. `vacuous`, with its `reason`, says when nothing better than a single action is certified.

    Of draws (`of="draws"`) it is a statement about picking one of the parts' posteriors, a draw of it with the
    probabilities `weights`, and following it; `kl` is the divergence of those from equal ones, a mean over parts.
    """

    value: Bound
    failure_probability: float
    outcome_range: tuple[float, float]
    rule: str
    learned: int
    best_action: Any
    single_actions: Mapping[Any, float]
    gain: Bound | None = None
    gains: Mapping[Any, Bound] = field(default_factory=dict)
    over_logging: Bound | None = None
    caveats: tuple[str, ...] = ()
    of: str = POLICY
    kl: float = 0.0
    weights: tuple[Float[np.ndarray, " draw"], ...] = ()
    rows: Int[np.ndarray, " row"] | None = None
    certifier: Certifier | None = None
    fitted: Any = None
    evaluator: Any = None

    @property
    def lower(self) -> float:
        """The certified value."""
        return self.value.lower

    @property
    def upper(self) -> float | None:
        """An upper bound of the value, at the same probability by itself."""
        return self.value.upper

    @property
    def estimate(self) -> float:
        """The mean value on the certifying rows."""
        return self.value.estimate

    @property
    def n(self) -> int:
        """Rows, or groups of rows, that certify."""
        return self.value.n

    @property
    def forms(self) -> Mapping[str, float]:
        """Lower bounds by each form; the certificate is the first, fixed in advance."""
        return self.value.forms

    @property
    def reason(self) -> str:
        """Why the certificate shows nothing better than one action for everybody; empty if it does."""
        single = self.single_actions.get(self.best_action, -math.inf)
        if self.gain is not None and self.gain.lower <= 0.0:
            return f"over giving everybody {self.best_action!r} a gain of only {short(self.gain.lower)} is certified"
        if self.gain is None and self.lower <= single:
            return f"giving everybody {self.best_action!r} is certified to be worth {short(single)} or more, not less"
        return ""

    @property
    def vacuous(self) -> bool:
        """Whether there is a `reason`."""
        return bool(self.reason)

    @property
    def policy(self) -> Any:
        """The certified policy, which decides with numpy alone; `save` writes it with its certificate."""
        if self.fitted is None:
            raise ValueError("draws are certified, which no single policy is; certify the policy itself: of='policy'")
        return self.fitted.frozen().with_certificate(self.to_dict())

    def gain_over(self, policy: Any, *, failure_probability: float | None = None) -> Bound:
        """Bounds of the gain over any policy that was fixed before the certifying rows.

        `policy` is a label for everybody, a policy, one label or row of probabilities per certifying row, or "logging".
        """
        certifier, p = self._audited(), self.failure_probability if failure_probability is None else failure_probability
        logging = isinstance(policy, str) and policy == LOGGING
        table = policy if logging else self.evaluator.table(policy, self.rule)
        learned = None
        if logging or (np.ndim(policy) == 0 and not hasattr(policy, "predict")):
            count = 0 if certifier.learned is None else len(certifier.learned)
            learned = policy if logging else np.tile(table[:1], (count, 1))
        made = certifier.bound(p, table, learned)
        if made is None:
            raise ValueError(f"a gain needs outcomes with two ends, got outcome_range={self.outcome_range}")
        return made

    def outcome(self, y: Any, *, outcome_range: tuple[float, float], failure_probability: float | None = None) -> Bound:
        """Bounds of what the policy makes of another outcome of the logged rows: a cost, a side effect, a guardrail.

        `y` has one number per certifying row, or per row of the fit where rows were held out of it.
        """
        certifier, numbers = self._audited(), np.asarray(y, np.float64)
        p = self.failure_probability if failure_probability is None else failure_probability
        if certifier.rows.action is None:
            raise ValueError("another outcome is for a log of actions; here give its table to certificate")
        limits = CertificateSettings(outcome_range=outcome_range, failure_probability=p).outcome_range
        whole = self.rows is not None and len(numbers) == len(certifier.rows) + self.learned
        if numbers.shape != (len(certifier.rows),) and not whole:
            raise ValueError(f"y must have one number per certifying row, {len(certifier.rows)}, got {numbers.shape}")
        if self.rows is None or not whole:
            return certifier.outcome(numbers, limits, p)
        return certifier.outcome(numbers[self.rows], limits, p, np.delete(numbers, self.rows))

    def _audited(self) -> Certifier:
        if self.certifier is None:
            raise ValueError("draws are certified; certify the policy itself for gains: of='policy'")
        return self.certifier

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for a table or JSON; rows and weights are left out."""
        return {
            "of": self.of, "lower": self.lower, "upper": self.upper, "estimate": self.estimate,
            "failure_probability": self.failure_probability, "outcome_range": [
                end if math.isfinite(end) else None for end in self.outcome_range
            ],
            "kl": self.kl, "n": self.n, "learned": self.learned, "rule": self.rule, "forms": dict(self.forms),
            "single_actions": {str(label): lower for label, lower in self.single_actions.items()},
            "best_action": str(self.best_action), "gain": None if self.gain is None else self.gain.to_dict(),
            "gains": {str(label): bound.to_dict() for label, bound in self.gains.items()},
            "over_logging": None if self.over_logging is None else self.over_logging.to_dict(),
            "vacuous": self.vacuous, "reason": self.reason, "caveats": list(self.caveats), "sentence": self.sentence,
        }  # fmt: skip

    @property
    def sentence(self) -> str:
        """The certificate in one sentence."""
        what = "this policy is" if self.of == POLICY else f"{self.rule} policies drawn from the posterior are"
        low, high = self.outcome_range
        range_ = f"between {low:g} and {high:g}" if math.isfinite(high) else f"of at least {low:g}"
        over = ""
        if self.gain is not None:
            over = (
                f" and gains {short(self.gain.lower)} or more over giving everybody {self.best_action!r}"
                if self.gain.lower > 0.0
                else f", and no gain over giving everybody {self.best_action!r} is certified"
            )
        chance = 1.0 - self.failure_probability
        each = ", each with probability" if self.gain is not None and self.gain.lower > 0.0 else ", with probability"
        return (
            f"Certified: {what} worth {short(self.lower)} or more per person on average{over}{each} at least "
            f"{chance:.4g} (outcomes {range_}; {self.n} rows that it has not learned from, on which it is worth "
            f"{short(self.estimate)})."
        )

    def __str__(self) -> str:
        lines = [self.sentence, *(f"Note: {caveat}." for caveat in self.caveats)]
        if self.of == DRAWS:
            lines.append(f"The price of choosing among the draws is a KL of {self.kl:.2g}.")
        rows = [(f"worth, by {name}", value) for name, value in self.forms.items()]
        rows += [(f"gain over {label!r} (all together)", bound.lower) for label, bound in self.gains.items()]
        if self.over_logging is not None:
            rows.append(("gain over what was done", self.over_logging.lower))
        rows += [(f"everybody gets {label!r}", value) for label, value in self.single_actions.items()]
        length = max(len(name) for name, _ in rows)
        table = [f"{name:<{length}}  >= {short(value)}" for name, value in rows]
        if self.upper is not None:
            table.append(f"{'worth, by betting':<{length}}  <= {short(self.upper)}")
        return "\n".join([*lines, "", *table])

    __repr__ = __str__


def short(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
