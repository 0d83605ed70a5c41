"""A study in plain text: the advice, the decision, and the alternatives, as the report says them."""

from __future__ import annotations

from gbpl.report.numbers import MINUS, chance, number
from gbpl.report.reading import Study
from gbpl.report.sections import decision

__all__ = ["study_text"]


def study_text(study: Study) -> str:
    """Sentences and a small table, in signs that every terminal can show."""
    said = decision(study)
    sentences = [said["advice"], *said["cautions"], said["given"], said["limited"], said["worth"],
                 f"{said['verdict']}{said['verdict_gain']}"]  # fmt: skip
    heads = ("alternative", "value", "gain", "95 % interval", "chance")
    rows: list[tuple[str, ...]] = [heads]
    for place, item in enumerate(study.alternatives):
        ends = study.gain_interval(place)
        span = "" if ends is None else " to ".join(number(end, study.places) for end in ends)
        values = (number(item.get(key), study.places) for key in ("value", "gain"))
        rows.append((str(item.get("label")), *values, span, chance(item.get("chance"))))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(text.rjust(wide[at]) if at else text.ljust(wide[at]) for at, text in enumerate(row)) for row in rows
    ]
    lines = [
        str(study.summary.get("title") or "Study"),
        *(str(one) for one in sentences if one is not None),
        "",
        *table,
    ]
    return "\n".join(lines).replace(MINUS, "-").replace("\u00a0", " ")
