"""What the sections on the decision show, as the template takes it; None where the summary knows nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gbpl.report import bars, points, words
from gbpl.report.advice import advice
from gbpl.report.cells import Cell, span
from gbpl.report.intervals import GainRow, density_chart, density_curve, forest_chart
from gbpl.report.markup import Sentence, Tag
from gbpl.report.numbers import chance, count, exponent, number, percent, reach
from gbpl.report.reading import LEVEL, Study
from gbpl.report.rule import small_rule
from gbpl.report.tree import fits_side_by_side, grown, rules

__all__ = ["SHOWN", "alternatives", "decision", "disagreement", "welfare", "who"]

SHOWN = 6  # features and propensities before the rest is folded away
FOREST = 16  # alternatives in the forest plot; all are in the table


def decision(study: Study) -> dict[str, Any]:
    """What to do, the paragraph and the figures under it."""
    estimate = study.welfare.get("estimate")
    pattern = "worth_unknown" if estimate is None else "worth_net" if study.welfare.get("net_of_cost") else "worth"
    values = {
        "outcome": study.outcome, "value": study.money(estimate), "per": study.unit.per,
        **span(study.interval(), study.places, study.unit.sign),
    }  # fmt: skip
    key, badge, gain = _verdict(study)
    return {
        "advice": advice(study),
        "cautions": words.cautions(study.summary),
        "given": words.given(study.actions, study.names),
        "limited": words.limited(study.actions, study.names),
        "worth": Sentence(words.PATTERNS[pattern], values),
        "mean": Sentence(words.PATTERNS[pattern.replace("worth", "mean") if estimate is not None else pattern], values),
        "numbers": values,
        "verdict": Sentence(words.PATTERNS[key], gain),
        "verdict_gain": Sentence(words.PATTERNS[f"{key}_gain"], gain),
        "verdict_short": Sentence(words.PATTERNS[f"short_{key}"], gain),
        "gain": gain,
        "key": key,
        "badge": badge,
        "compared": study.best is not None,
        "share_bar": _share_bar(study),
    }


def _verdict(study: Study) -> tuple[str, str, dict[str, str]]:
    """Key of the pattern that says whether the policy beats the best single action, its badge, and its values."""
    best = study.best
    chosen = study.alternatives[best] if best is not None else {}
    sure, gain = study.chance, chosen.get("gain")
    key, badge = words.verdict(sure if gain is not None else None)
    if best is not None and study.only is not None and study.only == chosen.get("action"):
        key, badge = "same", "Nothing to gain"
    ends = None if best is None else study.gain_interval(best)
    of_rival = {"best": "unknown"} if best is None else words.rival(study, best)
    values = of_rival | {"gain": study.money(gain, signed=True), "chance": chance(sure), "per": study.unit.per}
    return key, badge, values | span(ends, study.places, study.unit.sign)


def _share_bar(study: Study) -> Tag | None:
    shares = [action.get("share") for action in study.actions]
    if not shares or any(share is None for share in shares):
        return None
    gathered = study.slots.gather(shares)
    return bars.share_bar(gathered, study.slots, f"Shares of the actions: {study.slots.words(gathered)}", height=22)


def welfare(study: Study) -> dict[str, Any] | None:
    quantiles, estimate, ends = study.welfare.get("quantiles"), study.welfare.get("estimate"), study.interval()
    if not quantiles or estimate is None or ends is None:
        return None
    curve = density_curve(quantiles)
    sign = study.unit.sign
    values = {"value": study.money(estimate), "per": study.unit.per, **span(ends, study.places, sign)}
    label = str(Sentence(words.PATTERNS["density_label"], values))
    return {
        "says": Sentence(words.PATTERNS["welfare"], values),
        "chart": None if curve is None else density_chart(curve, estimate, *ends, label),
        "curve": curve,
        "se": number(study.welfare.get("se"), study.places),
        "spread": number(study.welfare.get("spread"), study.places),
        "span": values,
    }


def alternatives(study: Study) -> dict[str, Any] | None:
    if not study.alternatives:
        return None
    places, best = study.places, study.best
    rows = []
    for place, item in enumerate(study.alternatives):
        ends, band = study.gain_interval(place), study.band(place)
        rows.append(
            {
                "label": str(item.get("label")),
                "best": place == best,
                "value": Cell(number(item.get("value"), places), item.get("value")),
                "gain": Cell(number(item.get("gain"), places), item.get("gain")),
                "span": Cell(span(ends, places)["span"], ends[0] if ends else None),
                "band": Cell(span(band, places)["span"], band[0] if band else None),
                "chance": Cell(chance(item.get("chance")), item.get("chance")),
            }
        )
    return {
        "says": _compared(study),
        "rows": rows,
        "chart": _forest(study),
        "shown": min(FOREST, len(rows)),
        "all": len(rows),
    }


def _compared(study: Study) -> Sentence:
    if study.best is None or study.alternatives[study.best].get("gain") is None:
        return Sentence(words.PATTERNS["alternatives_unknown"])
    chosen, places = study.alternatives[study.best], study.places
    return Sentence(
        words.PATTERNS["alternatives"],
        {
            **words.rival(study, study.best),
            "per": study.unit.per,
            "best_value": study.money(chosen.get("value")),
            "value": study.money(study.welfare.get("estimate")),
            "gain": study.money(chosen["gain"], signed=True),
            **span(study.gain_interval(study.best), places, study.unit.sign),
        },
    )


def _forest(study: Study) -> Tag | None:
    """The best alternatives, in the order of the summary; the log's policy is always among them."""
    items = study.alternatives
    known = [i for i, item in enumerate(items) if item.get("gain") is not None and item.get("gain_quantiles")]
    ranked = sorted(known, key=lambda i: (items[i].get("action") is not None, items[i]["gain"]))
    rows: list[GainRow] = []
    reaches: list[float] = []
    for place in sorted(ranked[:FOREST]):
        gain, ends, widest = items[place]["gain"], study.gain_interval(place), study.gain_interval(place, 0.99)
        if ends is None or widest is None:
            continue
        label, written = str(items[place].get("label")), number(gain, study.places)
        rows.append(GainRow(place, label, gain, *ends, written, place == study.best))
        reaches += widest
    label = str(Sentence(words.PATTERNS["forest_label"], {"level": percent(LEVEL)}))
    return forest_chart(rows, reaches, label) if rows else None


def who(study: Study) -> dict[str, Any]:
    features = [_feature(study, item) for item in study.summary.get("who") or []]
    ruled = small_rule(study) is not None  # a rule with a price answers what a tree that imitates would
    tree = None if ruled else study.summary.get("tree")
    root = grown(tree)
    return {
        "says": words.important(study.summary.get("who") or []) if features else None,
        "shown": features[:SHOWN],
        "folded": features[SHOWN:],
        "tree_says": None if ruled else words.tree_words(tree),
        "root": root if root is not None and root.depth > 0 else None,
        "reviewed": _is_reviewed(study),
        "wide": root is not None and fits_side_by_side(root, study.names),
        "rules": rules(root) if root is not None and root.depth > 0 else [],
    }


def _is_reviewed(study: Study) -> bool:
    """Whether somebody asked for rows to be reviewed by a person."""
    level = (study.summary.get("disagreement") or {}).get("level")
    return bool(study.summary.get("reviewed")) or (level is not None and level < 1.0)


def _feature(study: Study, item: dict[str, Any]) -> dict[str, Any]:
    slots = study.slots
    rows = []
    for part in item.get("bins") or []:
        shares = slots.gather(part.get("shares") or [])
        top = max(range(len(shares)), key=lambda s: shares[s], default=None)
        label = str(part.get("label"))
        rows.append(
            {
                "label": label,
                "rows": count(part.get("rows")),
                "bar": bars.share_bar(shares, slots, f"{label}: {slots.words(shares)}"),
                "top": None if top is None else (bars.swatch(top), slots.labels[top], percent(shares[top])),
                "deferred": percent(part.get("deferred")),
            }
        )
    return {"name": str(item.get("feature")), "importance": number(item.get("importance"), 2), "bins": rows}


def disagreement(study: Study) -> dict[str, Any] | None:
    part = study.summary.get("disagreement") or {}
    curve = [e for e in part.get("curve") or [] if e.get("level") is not None and e.get("share") is not None]
    level = part.get("level")
    if not curve or level is None:
        return None
    chosen = min(range(len(curve)), key=lambda i: abs(curve[i]["level"] - level))
    entry = curve[chosen]
    total = study.data.get("rows")
    shown = part.get("edges") and part.get("counts") and len(part["edges"]) > 1
    drawn = [e for e in curve if e.get("welfare") is not None]
    histogram = None
    if shown:
        histogram = bars.disagreement_chart(part["edges"], part["counts"], study.slots, entry["level"])
    reviewed = study.summary.get("reviewed")
    away = (reviewed or {}).get("rows")
    return {
        "asked": _is_reviewed(study),
        "reviewed": reviewed is not None,
        "review": review_words(entry, total) if reviewed is None else words.reviewed_words(study, reviewed),
        "for_person": count(away if reviewed else None if total is None else total * entry["share"]),
        "for_person_share": percent(
            (None if not total or away is None else away / total) if reviewed else entry["share"]
        ),
        "says": deferral_words(study, entry),
        "histogram": histogram,
        "chart": points.deferral_chart(curve, LEVEL, chosen) if len(drawn) == len(curve) > 1 else None,
        "curve": curve,
        "level": entry["level"],
        "threshold": number(entry["level"], 2),
        "fitted": "" if reviewed else f" at a threshold of {number(level, 2)}",
        "step": _step([e["level"] for e in curve]),
        "rows": [_review_row(row) for row in study.summary.get("review") or []],
    }


def _step(levels: Sequence[float]) -> float:
    """Of the control: the distance of the levels where they are even, else small enough to reach each."""
    steps = [b - a for a, b in pairwise(levels)]
    return steps[0] if steps and max(steps) - min(steps) < 1e-9 else 0.01


def review_words(entry: dict[str, Any], total: float | None) -> Sentence:
    values = {
        "count": count(None if total is None else total * entry["share"]),
        "rows": count(total),
        "share": percent(entry["share"]),
        "threshold": number(entry["level"], 2),
    }
    return Sentence(words.PATTERNS["review" if entry["share"] > 0 else "review_none"], values)


def deferral_words(study: Study, entry: dict[str, Any]) -> Sentence:
    welfare, se, total = entry.get("welfare"), entry.get("se"), study.data.get("rows")
    ends = None if welfare is None or se is None else (welfare - reach(LEVEL) * se, welfare + reach(LEVEL) * se)
    values = {
        "threshold": number(entry["level"], 2),
        "count": count(None if total is None else total * entry["share"]),
        "share": percent(entry["share"]),
        "default": study.default,
        "welfare": study.money(welfare),
        "per": study.unit.per,
        **span(ends, study.places, study.unit.sign),
    }
    return Sentence(words.PATTERNS["defer" if entry["share"] > 0 else "defer_none"], values)


def _review_row(row: dict[str, Any]) -> list[Cell]:
    pair = [row.get("kept"), row.get("deferred")]
    largest = max((abs(value) for value in pair if value is not None), default=0.0)
    places = min(max(3 - exponent(largest), 0), 10) if largest > 0.0 else 0
    written = [number(value, places) if row.get("kind") == "number" else percent(value) for value in pair]
    return [
        Cell(str(row.get("feature")), str(row.get("feature")), name=True),
        *(Cell(text, value) for text, value in zip(written, pair, strict=True)),
        Cell(number(row.get("difference"), 2), row.get("difference")),
    ]
