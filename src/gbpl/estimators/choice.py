"""A policy chosen among objectives of several outcomes, and what it was chosen from, in numbers and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gbpl.estimators.aims import Aims
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.report.numbers import ascii_number, decimal_places
from gbpl.value.front import Front
from gbpl.value.guards import GuardResult

__all__ = ["Several"]


@dataclass(frozen=True, eq=False)
class Several:
    """A policy chosen among objectives of several outcomes, and the front it was chosen from.

    `policy` decides, saves and freezes as any; its values and gains (`cross_fitted_value`, `gains`) are of the first
    outcome, its expected gains and posterior of its objective. `front.points[chosen]` is where it stands, `guards`
    whether the guards hold there, and `results` the same for every point. Where no policy was shown to keep them, it
    gives everybody the default action (`fallback`). `allowed` are the actions, by number, that may be given to
    everybody: those shown to keep the guards, and the default one.
    """

    aims: Aims
    policy: GBPLNet
    front: Front
    results: tuple[tuple[GuardResult, ...], ...]
    chosen: int
    tested: int
    fallback: bool
    allowed: tuple[int, ...]

    @property
    def left_out(self) -> list[str]:
        """Which single actions the policy is not compared with, and why."""
        labels = self.policy.actions_.tolist()
        return [
            f"giving everybody {label} is left out of the comparison: it is not shown to keep the guards"
            for number, label in enumerate(labels)
            if number not in self.allowed
        ]

    @property
    def guards(self) -> tuple[GuardResult, ...]:
        """Every guard for the chosen policy."""
        return self.results[self.chosen]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, as in the summary of a study."""
        front = self.front.to_dict()
        for place, (point, results) in enumerate(zip(front, self.results, strict=True)):
            holds = all(one.holds for one in results) if results else None
            point |= {"tested": place < self.tested, "holds": holds, "chosen": place == self.chosen}
        return self.aims.to_dict() | {
            "against_label": self.front.against, "chosen": self.chosen, "fallback": self.fallback,
            "guards": [one.to_dict() for one in self.guards], "front": front, "text": self.text,
            "allowed": list(self.allowed),
        }  # fmt: skip

    @property
    def text(self) -> str:
        """The choice and its guards in words."""
        return " ".join([self._choice(), *map(_guard_words, self.guards), *self._changes()])

    def _choice(self) -> str:
        point, default = self.front.points[self.chosen], self.front.points[0].label
        if self.fallback:
            return f"No policy was shown to keep the guards: {default}."
        if not self.aims.guards:
            listed = zip(self.aims.outcomes, self.aims.weights or (), strict=True)
            return f"The objective is {' '.join(f'{weight:+g} {name}' for name, weight in listed)}."
        count = self.tested - (1 if self.front.points[0].weights is None else 0)
        tried = f"the guards were tested along {count} objective{'s' if count > 1 else ''}, the most careful first"
        return f"Of the policies that keep the guards the least careful is chosen ({point.label}; {tried})."

    def _changes(self) -> list[str]:
        changes, ses, guarded = self.front.changes[self.chosen], self.front.ses[self.chosen], len(self.guards)
        said = []
        for name, change, se in zip(self.aims.outcomes, changes.tolist(), ses.tolist(), strict=True):
            if guarded and name != self.aims.outcomes[0]:
                continue
            places = decimal_places(se)
            more, error = ascii_number(change, places), ascii_number(se, places)
            said.append(f"The mean of {name} changes by {more} (se {error}) from {self.front.against}.")
        return [] if self.fallback else said

    def __str__(self) -> str:
        return f"{self.text}\n\n{self.front}"

    __repr__ = __str__


def _guard_words(one: GuardResult) -> str:
    guard, places = one.guard, decimal_places(one.se)

    def amount(x: float) -> str:
        return f"{100.0 * x:.1f} %" if guard.relative else ascii_number(x, None if places is None else places + 1)

    side = "at most" if guard.sign == "<=" else "at least"
    bound = f"{100.0 * guard.bound:g} %" if guard.relative else f"{guard.bound:g}"
    verdict = "holds" if one.holds else "is not shown to hold"
    return (
        f"The guard {guard} {verdict}: {guard.outcome} changes by {amount(one.change)}, {side} {amount(one.limit)} by "
        f"its one-sided limit, and the bound is {bound}."
    )
