"""Guardrails: what must not happen to a second outcome while the first is raised, and when that is shown.

A guard such as `complaints<=0.01` bounds the change of an outcome's mean from what it is compared with; with
`complaints<=1%` the bound is a share of that mean. It holds where the one-sided limit of the change keeps the bound.
Policies are tried in an order that is fixed beforehand, from the most careful to the least, and the walk ends at the
first one for which a guard does not hold: then all that were passed keep their guards with probability `level`, with no
price for their number (fixed-sequence testing; Maurer, Hothorn and Lehmacher 1995; Angelopoulos et al. 2021). Where
several guards must hold, each is tested at the full level (intersection-union; Berger 1982).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import t

from gbpl.value.estimate import Value

__all__ = [
    "AGAINST",
    "Guard",
    "GuardResult",
    "check_against",
    "read_guards",
    "relative_change",
    "split_guard",
    "walked",
]

AGAINST = ("default", "logging", "best")  # what changes are measured from
EXAMPLE = "such as '<=0.01' (an increase of at most 0.01) or '>=-2%' (a loss of at most 2 % of the mean)"
BOUND = re.compile(r"\s*(<=|>=)\s*([^%\s]+)\s*(%?)\s*")


@dataclass(frozen=True, slots=True)
class Guard:
    """The change of an outcome's mean must be at most (`<=`) or at least (`>=`) the bound; a share if `relative`."""

    outcome: str
    sign: str
    bound: float
    relative: bool = False

    @classmethod
    def of(cls, outcome: str, text: Any) -> Guard:
        """Read `<=0.01`, `>=-2%` and so on.

        >>> Guard.of("complaints", "<= 1%")
        Guard(outcome='complaints', sign='<=', bound=0.01, relative=True)
        """
        found = BOUND.fullmatch(text) if isinstance(text, str) else None
        try:
            bound = float(found[2]) if found else math.nan
        except ValueError:
            bound = math.nan
        if found is None or math.isnan(bound):
            raise ValueError(f"the guard of {outcome!r} must be a sign and a bound, {EXAMPLE}, got {text!r}")
        return cls(outcome, found[1], bound / 100.0 if found[3] else bound, bool(found[3]))

    @property
    def direction(self) -> float:
        """1 where more of the outcome is better, else -1."""
        return 1.0 if self.sign == ">=" else -1.0

    def __str__(self) -> str:
        return f"{self.outcome}{self.sign}{100.0 * self.bound:g}%" if self.relative else (
            f"{self.outcome}{self.sign}{self.bound:g}"
        )  # fmt: skip

    def result(self, value: Value, base: Value, level: float) -> GuardResult:
        """Whether it holds for a policy of this value beside `base`, by rows that neither has seen."""
        change = relative_change(value, base) if self.relative else value - base
        reach = float(t.ppf(level, change.freedom)) * change.se
        limit = change.estimate - self.direction * reach
        return GuardResult(self, change.estimate, change.se, limit, value.estimate, base.estimate)


@dataclass(frozen=True, slots=True)
class GuardResult:
    """A guard for one policy: the change, its one-sided `limit`, and the means of the policy and the baseline."""

    guard: Guard
    change: float
    se: float
    limit: float
    value: float
    base: float

    @property
    def holds(self) -> bool:
        """Whether the limit keeps the bound; not where it is not a number."""
        return bool(self.guard.direction * (self.limit - self.guard.bound) >= 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        guard = self.guard
        return {
            "outcome": guard.outcome, "text": str(guard), "sign": guard.sign, "bound": guard.bound,
            "relative": guard.relative, "change": self.change, "se": self.se, "limit": self.limit,
            "value": self.value, "base": self.base, "holds": self.holds,
        }  # fmt: skip


def relative_change(value: Value, base: Value) -> Value:
    """V / V_0 - 1 with its error by the delta method: influence values (psi - R psi_0) / V_0 + R - 1, R = V / V_0.

    NaN where the mean of the baseline is not above zero: a share of it has no meaning.
    """
    below = base.estimate
    if not below > 0.0:
        return replace(value, influence=np.full(len(value.influence), np.nan), what="relative change")
    ratio = value.estimate / below
    scaled = replace(
        base, influence=base.influence * ratio, allowance=base.allowance * ratio,
        dependence=None if base.dependence is None else base.dependence * ratio,
        unseen=None if base.unseen is None else base.unseen * ratio,
    )  # fmt: skip
    less = value - scaled  # its mean is zero
    return replace(
        less, influence=less.influence / below + ratio - 1.0, allowance=less.allowance / below,
        dependence=None if less.dependence is None else less.dependence / below,
        unseen=None if less.unseen is None else less.unseen / below, what="relative change",
    )  # fmt: skip


def walked(holds: Sequence[bool]) -> int:
    """How many of the first hold, one after the other.

    >>> walked([True, True, False, True])
    2
    """
    return next((place for place, one in enumerate(holds) if not one), len(holds))


def read_guards(given: Mapping[str, Any] | None) -> tuple[Guard, ...]:
    """Guards from a mapping of outcome to text, checked."""
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"guard must be a mapping from outcome to bound, {EXAMPLE}, got {given!r}")
    return tuple(Guard.of(name, text) for name, text in (given or {}).items())


def split_guard(text: str) -> tuple[str, str]:
    """Column and bound of a guard as the command line has it.

    >>> split_guard("complaints<=1%")
    ('complaints', '<=1%')
    """
    places = [place for sign in ("<=", ">=") if (place := text.rfind(sign)) > 0]
    if not places:
        raise ValueError(f"a guard must be COLUMN<=NUMBER or COLUMN>=NUMBER, such as 'complaints<=0.01', got {text!r}")
    name, bound = text[: max(places)].strip(), text[max(places) :]
    Guard.of(name, bound)
    return name, bound


def check_against(against: str) -> None:
    """Refuse what changes cannot be measured from."""
    if against not in AGAINST:
        raise ValueError(
            f"against must be one of {', '.join(AGAINST)}, got {against!r}: the default action for all, the policy "
            "that wrote the log, or the policy that is best for the guarded outcome"
        )
