"""What is wanted of several outcomes, weights or guards, and the objectives that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbpl.value.guards import Guard, check_against, read_guards

__all__ = ["TRADEOFFS", "Aims", "Objective"]

TRADEOFFS = (np.inf, 4.0, 2.5, 1.6, 1.0, 0.6, 0.4, 0.2, 0.0)  # lambda along a front, the most careful first

TOLL = 2.0  # doubts that a row pays for leaving the default, see `Aims.objectives`


@dataclass(frozen=True, slots=True)
class Objective:
    """sum_j weights_j Y_j, less a `toll` for leaving the default; `tradeoff` is lambda on a front."""

    label: str
    tradeoff: float | None
    weights: tuple[float, ...]
    toll: float = 0.0


@dataclass(frozen=True, slots=True)
class Aims:
    """Outcomes, the first of which is to be raised, and either guards of the others or a weight for each.

    Changes are measured `against` the default action for all, the policy that wrote the log, or the policy that is
    `"best"` for the guarded outcome. The last makes the order lexicographic: the guarded outcome may fall short of its
    best by the bound, and within that the first is raised as far as possible.
    """

    outcomes: tuple[str, ...]
    guards: tuple[Guard, ...] = ()
    weights: tuple[float, ...] | None = None
    against: str = "default"
    level: float = 0.95

    @classmethod
    def of(
        cls, outcomes: Sequence[str], guard: Mapping[str, str] | None = None,
        weights: Mapping[str, float] | None = None, *, against: str = "default", level: float = 0.95,
    ) -> Aims:  # fmt: skip
        """Checked."""
        names, guards = tuple(outcomes), read_guards(guard)
        check_against(against)
        if not 0.5 <= level < 1.0:
            raise ValueError(f"level must be from 0.5 to below 1, got {level}; try 0.95")
        if bool(guards) == bool(weights):
            raise ValueError(
                "give either guard, such as {'complaints': '<=0.01'}, or weights, such as {'complaints': -5}, of "
                "several outcomes"
            )
        unknown = next((name for name in [*(guard or {}), *(weights or {})] if name not in names), None)
        if unknown is not None:
            raise ValueError(f"{unknown!r} is not one of the outcomes: {', '.join(map(repr, names))}")
        if any(one.outcome == names[0] for one in guards):
            raise ValueError(
                f"{names[0]!r} is the outcome to raise, and cannot guard itself; name another outcome first"
            )
        if against == "best" and len(guards) != 1:
            raise ValueError("against='best' compares with the best policy for the guarded outcome: give one guard")
        if guards:
            return cls((names[0], *(one.outcome for one in guards)), guards, None, against, level)
        numbers = {name: float(weight) for name, weight in (weights or {}).items()}
        if not np.isfinite(list(numbers.values())).all() or not any(numbers.values()):
            raise ValueError(f"weights must be finite numbers, not all of them zero, got {dict(weights or {})}")
        numbers.setdefault(names[0], 1.0)
        listed = tuple(name for name in names if name in numbers)
        return cls(listed, (), tuple(numbers[name] for name in listed), against, level)

    @property
    def directions(self) -> tuple[float, ...]:
        """1 for outcomes of which more is wanted, else -1."""
        if self.weights is not None:
            return tuple(-1.0 if weight < 0.0 else 1.0 for weight in self.weights)
        return (1.0, *(one.direction for one in self.guards))

    def objectives(self, spreads: Sequence[float], doubts: Sequence[float]) -> list[Objective]:
        """What is fitted; with guards Y_0 + lambda sum_g (s_0 / s_g) (d_g Y_g - 2 k_g 1[a]), s spreads, d directions.

        1[a] is one but for the default action. Where lambda is infinite, the guarded outcomes count alone. A guard is
        shown to hold by the limit of the change: with a share p of rows that leave the default, which puts the limit
        k sqrt(p) away from the change, one more adds k / (2 sqrt(p)) to it. So every row that leaves pays twice the
        `doubt` k, which is right for p = 1/16: a policy that would leave the default wherever noise says that a guarded
        outcome improves could not be shown to keep anything.
        """
        if self.weights is not None:
            return [Objective("the weights", None, self.weights)]
        units = [spreads[0] / spread for spread in spreads[1:]]
        toward = [one.direction * unit for one, unit in zip(self.guards, units, strict=True)]
        toll = TOLL * sum(unit * doubt for unit, doubt in zip(units, doubts, strict=True))
        made = []
        for tradeoff in TRADEOFFS:
            alone = np.isinf(tradeoff)
            size = 1.0 if alone else tradeoff
            weights = (0.0 if alone else 1.0, *(part * size for part in toward))
            names = " and ".join(self.outcomes[1:])
            label = f"{names} alone" if alone else f"lambda {tradeoff:g}" if tradeoff else f"{self.outcomes[0]} alone"
            made.append(Objective(label, tradeoff, weights, toll * size))
        return made

    def to_dict(self) -> dict[str, Any]:
        """For a summary."""
        kind = "guard" if self.guards else "weights"
        return {"kind": kind, "outcomes": list(self.outcomes), "against": self.against, "level": self.level}
