"""What a refuter says: a verdict, a sentence with the numbers, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gbpl.runtime.json import plain

__all__ = ["LEVEL", "PLACEBO_LEVEL", "VERDICTS", "CheckReport", "Finding", "by_level"]

VERDICTS = ("passed", "doubt", "failed")
LEVEL = 0.05  # the chance that any of the tests with a level raises an alarm where nothing is wrong, at most
SEVERE = 0.01  # the same, for a verdict of "failed"
PLACEBO_LEVEL = 0.01  # the p-value that the actions must reach to be told apart from shuffled ones


@dataclass(frozen=True, slots=True)
class Finding:
    """One test: `verdict` is one of `VERDICTS`, `sentence` says what was found and what to do.

    `p_value` is that of the test by itself, before the correction for several tests; None where the verdict is by a
    rule and not by a test.
    """

    name: str
    verdict: str
    sentence: str
    statistic: float | None = None
    p_value: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}, got {self.verdict!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        made: dict[str, Any] = plain(
            {
                "name": self.name, "verdict": self.verdict, "sentence": self.sentence, "statistic": self.statistic,
                "p_value": self.p_value, "details": dict(self.details),
            }
        )  # fmt: skip
        return made


def by_level(p_value: float, tests: int) -> str:
    """The verdict of one of `tests` tests by Bonferroni: alarms in a share of at most `LEVEL` of clean tables."""
    adjusted = tests * p_value
    return "failed" if adjusted <= SEVERE else "doubt" if adjusted <= LEVEL else "passed"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings of a check, in order; `seconds` is how long it took."""

    findings: Sequence[Finding]
    seconds: float = 0.0

    def __getitem__(self, name: str) -> Finding:
        known = {finding.name: finding for finding in self.findings}
        if name not in known:
            raise KeyError(f"no finding is named {name!r}; there are {', '.join(known)}")
        return known[name]

    @property
    def verdict(self) -> str:
        """The worst of the verdicts."""
        return max((finding.verdict for finding in self.findings), key=VERDICTS.index, default="passed")

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return self.verdict == "passed"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON, the summary of a study and the report."""
        return {
            "verdict": self.verdict,
            "level": LEVEL,
            "placebo_level": PLACEBO_LEVEL,
            "seconds": round(self.seconds, 1),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        width = max((len(finding.name) for finding in self.findings), default=0)
        return "\n".join(f"{one.verdict:>6}  {one.name:<{width}}  {one.sentence}" for one in self.findings)

    __repr__ = __str__
