"""What the sections for the analyst show: overlap, zeta path, calibration, certificate, record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.report import bars, points, words
from gbpl.report.cells import Cell
from gbpl.report.markup import Sentence
from gbpl.report.numbers import UNKNOWN, count, number, percent, reach
from gbpl.report.reading import LEVEL, Study
from gbpl.report.sections import SHOWN

__all__ = ["calibration", "certificate", "overlap", "record", "zeta"]

FEEDBACK = {
    "logged": "logged: one action and one outcome per row",
    "full": "full: the outcome of every action is known",
}


def overlap(study: Study) -> dict[str, Any] | None:
    part = study.summary.get("overlap")
    if not part:
        return None
    edges, histogram = part.get("histogram_edges"), part.get("histogram") or []
    names = [str(name) for name in part.get("actions") or study.names]
    charts = []
    for a, (name, sides) in enumerate(zip(names, histogram, strict=False)):
        if edges and sides:
            charts.append((name, bars.propensity_chart(edges, sides, part.get("clip"), study.slots.style(a), name)))
    return {
        "says": words.propensity_words(part),
        "reasons": part.get("reasons") or [],
        "rows": [_overlap_row(part, a, name) for a, name in enumerate(names)],
        "shown": charts[:SHOWN],
        "folded": charts[SHOWN:],
        "log": bool(edges) and edges[0] > 0.0,
        "clip": number(part.get("clip")),
        "facts": _overlap_facts(part),
        "by_clip": [
            [
                Cell(number(row.get("clip")), row.get("clip")),
                Cell(number(row.get("welfare"), study.places), row.get("welfare")),
                Cell(number(row.get("se"), study.places), row.get("se")),
                Cell(percent(row.get("clipped_fraction")), row.get("clipped_fraction")),
                Cell(count(row.get("effective_size")), row.get("effective_size")),
            ]
            for row in part.get("welfare_by_clip") or []
        ],
    }


def _overlap_row(part: dict[str, Any], a: int, name: str) -> list[Cell]:
    def entry(key: str) -> float | None:
        values: Sequence[float | None] = part.get(key) or []
        return values[a] if a < len(values) else None

    return [
        Cell(name, name, name=True),
        Cell(count(entry("counts")), entry("counts")),
        Cell(count(entry("effective_size_by_action")), entry("effective_size_by_action")),
        Cell(number(entry("smallest_propensity")), entry("smallest_propensity")),
        Cell(percent(entry("outside_by_action")), entry("outside_by_action")),
    ]


def _overlap_facts(part: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Rows with a clipped propensity", percent(part.get("clipped_fraction"))),
        ("Rows outside common support", percent(part.get("outside_support"))),
        ("Rows after weighting (effective size)", count(part.get("effective_size"))),
        ("Largest difference between two actions' scores in a row", number(part.get("largest"))),
        ("99 of 100 rows have at most", number(part.get("quantile_99"))),
    ]


def zeta(study: Study) -> dict[str, Any] | None:
    path = study.summary.get("zeta_path")
    if not path or not path.get("zeta") or any(path.get(key) is None for key in ("welfare", "welfare_se", "weight")):
        return None
    labels = {float(value): _two_digits(value) for value in path["zeta"]}
    corrections = path.get("correction") or [1.0] * len(path["zeta"])
    rows = [
        [
            Cell(labels[float(value)], value),
            *([Cell(_correction(corrections[i]), corrections[i])] if len(set(corrections)) > 1 else []),
            Cell(number(path["welfare"][i], study.places), path["welfare"][i]),
            Cell(number(path["welfare_se"][i], study.places), path["welfare_se"][i]),
            Cell(percent(path["weight"][i]), path["weight"][i]),
        ]
        for i, value in enumerate(path["zeta"])
    ]
    return {
        "says": words.zeta_words(path, [labels[float(value)] for value in path["zeta"]]),
        "chart": points.zeta_chart(path, LEVEL),
        "weights": points.weights_chart(path, labels),
        "series": [_correction(value) for value in sorted(set(corrections), reverse=True)]
        if len(set(corrections)) > 1
        else [],
        "rows": rows,
    }


def _two_digits(value: float) -> str:
    """Short enough for an axis on a phone; the third digit of a zeta does not matter."""
    return number(float(f"{value:.1e}"))


def _correction(share: float | None) -> str:
    if share in (0.0, 1.0):
        return "doubly robust" if share else "outcome model alone"
    return f"correction {number(share)}"


def _complete(part: dict[str, Any], name: str, keys: Sequence[str]) -> list[dict[str, Any]]:
    """The entries of a list that have all of these numbers."""
    return [entry for entry in part.get(name) or [] if all(entry.get(key) is not None for key in keys)]


def calibration(study: Study) -> dict[str, Any] | None:
    part = study.summary.get("calibration")
    if not part:
        return None
    groups = _complete(part, "groups", ("expected", "estimate", "se"))
    inside = sum(abs(group["expected"] - group["estimate"]) <= reach(LEVEL) * group["se"] for group in groups)
    values = {"inside": count(inside), "groups": count(len(groups)), "level": percent(LEVEL)}
    coverage, sure = part.get("coverage"), _complete(part, "reliability", ("said", "expected", "estimate", "se"))
    return {
        "reliability": points.reliability_chart(sure, LEVEL) if sure else None,
        "sure": [
            [
                Cell(percent(group["said"]), group["said"]),
                *(Cell(number(group[key], study.places), group[key]) for key in ("expected", "estimate", "se")),
                Cell(count(group.get("rows")), group.get("rows")),
            ]
            for group in sure
        ],
        "says": Sentence(words.PATTERNS["groups"], values) if groups else None,
        "chart": points.groups_chart(groups, LEVEL) if groups else None,
        "rows": [
            [
                Cell(number(group["expected"], study.places), group["expected"]),
                Cell(number(group["estimate"], study.places), group["estimate"]),
                Cell(number(group["se"], study.places), group["se"]),
                Cell(count(group.get("rows")), group.get("rows")),
            ]
            for group in groups
        ],
        "groups": groups,
        "eta": words.calibration_words(part, number(part.get("eta"))),
        "coverage": points.coverage_chart(coverage, part.get("eta")) if coverage else None,
        "wanted": percent((coverage or {}).get("level")),
    }


def certificate(study: Study) -> dict[str, Any] | None:
    part = study.summary.get("certificate")
    if not part or part.get("lower") is None:
        return None
    places, failure, gain = study.places, part.get("failure_probability"), part.get("gain")
    own = part.get("of") == "policy"  # files written before there was one are about draws
    values = {
        "sure": percent(None if failure is None else 1.0 - failure),
        "lower": number(part["lower"], places),
        "best": study.called(part.get("best_action")),
        "gain": number((gain or {}).get("lower"), places),
    }
    whose = "this policy is" if own else "policies drawn from the posterior are"
    pattern = f"With a probability of at least {{sure}}, {whose} worth {{lower:b}} per row or more."
    if gain and gain.get("lower") is not None:
        pattern += (
            " With the same probability it gains {gain:b} per row or more over giving everybody {best:name}."
            if gain["lower"] > 0.0
            else " No gain over giving everybody {best:name} is certified: it is at least {gain:b}."
        )
    elif (single := part.get("best_action_lower")) is not None:
        pattern += " Of giving everybody {best:name}, {single:b} can be certified."
        values["single"] = number(single, places)
    facts = [("Worth at least", values["lower"]), ("Worth at most", number(part.get("upper"), places))]
    facts.append(("Estimate on the same rows", number(part.get("estimate"), places)))
    for label, bound in (part.get("gains") or {}).items():
        facts.append(
            (
                f"Gain over giving everybody {study.called(label)}, at least (all together)",
                number((bound or {}).get("lower"), places),
            )
        )
    if part.get("over_logging"):
        facts.append(("Gain over what was done, at least", number(part["over_logging"].get("lower"), places)))
    facts += [("Rows that certify", count(part.get("n"))), ("Rows learned from", count(part.get("learned")))]
    facts.append(("Probability that a bound holds, at least", values["sure"]))
    return {
        "says": Sentence(pattern, values),
        "facts": [(name, shown) for name, shown in facts if shown != UNKNOWN],
        "own": own,
        "caveats": part.get("caveats") or [],
        "text": part.get("text"),
    }


def record(study: Study) -> dict[str, Any]:
    """For the record: data, actions, settings, versions."""
    data, seconds = study.data, study.summary.get("seconds")
    logged = any(action.get("logged_rows") is not None for action in study.actions)
    facts = [
        ("Source", data.get("source")),
        ("Rows used", count(data.get("rows"))),
        ("Rows left out", count(data.get("dropped"))),
        ("Feedback", FEEDBACK.get(str(data.get("feedback")))),
        ("Outcome", data.get("outcome") or ", ".join(map(str, data.get("outcomes") or [])) or None),
        ("Action", data.get("action")),
        ("Features", ", ".join(map(str, data.get("features") or [])) or None),
        ("Controls (not used to decide)", ", ".join(map(str, data.get("controls") or [])) or None),
        ("Propensity", data.get("propensity")),
        ("Weight", data.get("weight")),
        ("Group", data.get("group")),
        ("Fitted on", study.summary.get("created")),
        ("Seconds of the fit", None if seconds is None else number(seconds)),
    ]  # fmt: skip
    return {
        "facts": [(name, str(value)) for name, value in facts if value is not None],
        "notes": [str(note) for note in data.get("notes") or []],
        "actions": [_action_row(action, logged) for action in study.actions],
        "logged": logged,
        "settings": [(str(k), _plain(v)) for k, v in (study.summary.get("settings") or {}).items()],
        "versions": [(str(k), _plain(v)) for k, v in (study.summary.get("versions") or {}).items()],
    }


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, float) else "none" if value is None else str(value)


def _action_row(action: dict[str, Any], logged: bool) -> list[Cell]:
    capacity = action.get("capacity")
    held = "no limit" if capacity is None else percent(capacity)
    return [
        Cell(str(action.get("label")), str(action.get("label")), name=True),
        Cell(number(action.get("cost")), action.get("cost")),
        Cell(held, capacity),
        Cell(percent(action.get("share")), action.get("share")),
        *([Cell(count(action.get("logged_rows")), action.get("logged_rows"))] if logged else []),
    ]
