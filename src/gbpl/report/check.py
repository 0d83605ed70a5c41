"""The section on the tests that tried to break the result."""

from __future__ import annotations

from typing import Any

from gbpl.report.numbers import UNKNOWN, count, number, percent
from gbpl.report.reading import Study

__all__ = ["check"]

ONE = "One test tried to break the result, and did not."
MARKS = {"passed": "\u2713", "doubt": "?", "failed": "\u2717"}


def check(study: Study) -> dict[str, Any] | None:
    """Test, verdict and sentence of each finding; None where no check was run."""
    part = study.summary.get("check")
    if not part or not part.get("findings"):
        return None
    rows = [
        {
            "name": str(one.get("name") or UNKNOWN),
            "verdict": str(one.get("verdict") or "unknown"),
            "mark": MARKS.get(str(one.get("verdict")), UNKNOWN),
            "sentence": str(one.get("sentence") or UNKNOWN).replace("p = ", "p\u00a0=\u00a0"),
        }
        for one in part["findings"]
        if one
    ]
    bad = [row for row in rows if row["verdict"] in ("doubt", "failed")]
    says = f"{count(len(rows))} tests tried to break the result, and none did." if len(rows) > 1 else ONE
    if bad:
        failed = sum(row["verdict"] == "failed" for row in bad)
        doubt = len(bad) - failed
        parts = [f"{count(failed)} failed" if failed else "", f"{count(doubt)} left a doubt" if doubt else ""]
        says = f"Of {count(len(rows))} tests that tried to break the result, {' and '.join(filter(None, parts))}."
    return {
        "says": says,
        "rows": rows,
        "level": percent(part.get("level")),
        "placebo": number(part.get("placebo_level")),
    }
