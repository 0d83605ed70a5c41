"""How things stand with a watched policy at one row, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from gbpl.report.numbers import decimal_places, number
from gbpl.watch.budget import CALIBRATION, DRIFT, GAIN, LATER, VALUE
from gbpl.watch.drift import SHIFT, SPREAD
from gbpl.watch.terms import Terms
from gbpl.watch.version import KEEP_WATCHING, PROMOTE, Version

__all__ = ["Bounds", "Reading"]


class Bounds(NamedTuple):
    """A lower bound, an estimate, and an upper bound, which hold at every row at once."""

    lower: float
    estimate: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known at one row; bounds are in outcome units, of averages over the rows of this version so far.

    `verdict` is promote (the gain over the baseline is above zero), roll back (below zero, or, once promoted, below
    zero since some row), or keep watching; `verdict_row` is the row that settled it. `surplus` is how much more the
    policy gains than it expects. `alarms` name what has left its limits; they share the error budget. `by_action` and
    `drift` describe, and have no test of their own but for the row at which a feature was found to have `moved`.
    """

    rows: int
    version: int
    verdict: str
    verdict_row: int | None
    promoted_row: int | None
    baseline: str
    value: Bounds
    gain: Bounds
    surplus: Bounds | None
    surplus_row: int | None
    by_action: Sequence[Mapping[str, Any]]
    drift: Sequence[Mapping[str, Any]]
    history: Sequence[Sequence[float]]
    ended: Sequence[Mapping[str, Any]]
    failure_probability: float
    version_budget: float
    outcome_range: tuple[float, float]
    cut: bool
    net_of_cost: bool

    @classmethod
    def of(cls, version: Version, terms: Terms, ended: Sequence[Mapping[str, Any]], policy: Any) -> Self:
        low, high = terms.net_range
        width, (value, gain), extra = high - low, version.bounds(), version.calibration()
        return cls(
            rows=version.rows, version=version.number, verdict=version.verdict,
            verdict_row=version.promoted if version.rolled_back is None else version.rolled_back,
            promoted_row=version.promoted, baseline=terms.baseline_name,
            value=Bounds(*(low + width * part for part in value)), gain=Bounds(*(width * part for part in gain)),
            surplus=None if extra is None else Bounds(*(width * part for part in extra)),
            surplus_row=version.miscalibrated,
            by_action=_by_action(version, terms, policy), drift=_drift(version, policy),
            history=[
                [row[0], *(low + width * part for part in row[1:4]), *(width * part for part in row[4:])]
                for row in version.history
            ],
            ended=ended, failure_probability=terms.failure_probability, version_budget=version.budget,
            outcome_range=terms.outcome_range, cut=terms.cut, net_of_cost=any(terms.costs),
        )  # fmt: skip

    @property
    def alarms(self) -> list[str]:
        """What has left its limits, in words."""
        said = []
        if self.surplus is not None and self.surplus_row is not None:
            too = "less" if self.surplus.estimate < 0.0 else "more"
            said.append(f"the policy gains {too} than it expects, found at row {self.surplus_row:,}")
        moved = [f"{entry['feature']} (row {entry['moved']:,})" for entry in self.drift if entry["moved"] is not None]
        if moved:
            said.append(f"these features do not look as they did when the policy learned: {', '.join(moved)}")
        return said

    def sentence(self) -> str:
        """The verdict in one sentence, with its numbers."""
        over, places = f"over {self.baseline}", decimal_places((self.gain.upper - self.gain.lower) / 4.0)
        low, high = (number(end, places) for end in (self.gain.lower, self.gain.upper))
        now = f"at row {self.rows:,} the gain {over} is {low} to {high} per row"
        if self.verdict == PROMOTE:
            return f"Promote: at row {self.verdict_row:,} the lower bound of the gain passed zero; {now}."
        if self.verdict == KEEP_WATCHING:
            return f"Keep watching: {now}, which does not settle its sign."
        if self.promoted_row is None:
            return f"Roll back: at row {self.verdict_row:,} the upper bound of the gain fell below zero; {now}."
        return (
            f"Roll back: by row {self.verdict_row:,} the policy, promoted at row {self.promoted_row:,}, had begun to "
            f"lose; {now}, on average over all rows."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        made = asdict(self)
        for name in ("value", "gain", "surplus"):
            part = getattr(self, name)
            made[name] = None if part is None else part._asdict()
        return made | {
            "sentence": self.sentence(), "alarms": self.alarms, "limits": {"shift": SHIFT, "spread": SPREAD},
            "shares": {
                "gain": list(GAIN), "gain since promotion": LATER, "value": list(VALUE),
                "expected gain": list(CALIBRATION), "drift": DRIFT,
            },
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [
            self.sentence(),
            f"Value per row: {number(self.value.estimate)} ({number(self.value.lower)} to {number(self.value.upper)}).",
            *(f"Alarm: {alarm}." for alarm in self.alarms),
            f"All of this holds at every row, with probability at least {1.0 - self.failure_probability:.4g} over the "
            "whole life of the policy.",
        ]
        return "\n".join(lines)

    __repr__ = __str__


def _by_action(version: Version, terms: Terms, policy: Any) -> list[dict[str, Any]]:
    """What the policy gives to whom, then and now, and what those rows gain."""
    recorded = {str(part["label"]): part.get("share") for part in (policy.summary or {}).get("actions") or []}
    width, rows = terms.net_range[1] - terms.net_range[0], max(1, version.rows)
    expects = version.calibration() is not None
    made = []
    for column, label in enumerate(terms.actions):
        given, gain, expected, taken = version.tallies[:, column].tolist()
        made.append(
            {
                "action": str(label), "share": given / rows, "share_learned": recorded.get(str(label)),
                "share_taken": taken / rows, "gain": width * gain / given if given else None,
                "expected_gain": width * expected / given if given and expects else None,
            }
        )  # fmt: skip
    return made


def _drift(version: Version, policy: Any) -> list[dict[str, Any]]:
    """Features by how far their mean has moved, those found to have moved first."""
    shifts, moved = version.drift.shifts().tolist(), version.drift.moved
    made = [
        {"feature": name, "shift": shift, "moved": moved.get(column)}
        for column, (name, shift) in enumerate(zip(policy.feature_labels(), shifts, strict=True))
    ]
    return sorted(made, key=lambda entry: (entry["moved"] is None, -abs(entry["shift"])))
