"""The first screen: what to do, for whom, what it brings and how sure, with one picture of each.

What could be wrong is in `doubts`. controls.js follows the same rules when the level or the costs change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.report import bars, words
from gbpl.report.advice import Advice, Gain, advice, policy_over, single_over
from gbpl.report.cells import span
from gbpl.report.intervals import GainRow, forest_chart
from gbpl.report.markup import Child, Sentence, Tag, tag
from gbpl.report.numbers import percent, quantile, reach
from gbpl.report.reading import LEVEL, Study
from gbpl.report.svg import axis_below, figure, fit, segment, shorten, text

__all__ = ["glance"]

OPTIONS = 3  # single actions beside the policy in the picture of the choice
WIDEST = 0.99
DOTS = 20  # equally likely values: each is 5 %
ROW = 40.0  # of an option
COLUMNS = 12  # of dots across the picture
TALL = 76.0
DOT = 14.0  # pixels from one dot to the next above it
BINS = 6  # of the first feature that there is room for
BIN = 18  # letters of a bin
BAR = 16.0
STEP = 42.0  # from one bar to the next


def glance(study: Study) -> dict[str, Any]:
    """Sentences and pictures of the first screen; pictures are None where their numbers are not known."""
    found = advice(study)
    return {
        "options": _options(study, found),
        "whom": Sentence(words.PATTERNS[f"whom_{found.key}"], {"best": _best_name(study), "default": study.default}),
        "important": words.important(study.summary.get("who") or []) if study.summary.get("who") else None,
        "feature": _feature(study),
        "brings": _brings(study, found),
        "dots": _dots(study),
    }


def _feature(study: Study) -> dict[str, Any] | None:
    """Who gets what over the range of the feature that matters most."""
    first = next(iter(study.summary.get("who") or []), None) or {}
    bins = first.get("bins") or []
    if (first.get("importance") or 0.0) < words.LEAST or not 1 < len(bins) <= BINS:
        return None
    rows = []
    for part in bins:
        shares, label = study.slots.gather(part.get("shares") or []), shorten(str(part.get("label")), BIN)
        rows.append((label, bars.share_bar(shares, study.slots, f"{label}: {study.slots.words(shares)}", height=12)))
    return {"name": shorten(str(first.get("feature")), 2 * BIN), "rows": rows}


def _best_name(study: Study) -> str:
    return "" if study.best is None else words.rival(study, study.best)["best"]


def chosen(study: Study, found: Advice) -> tuple[str, float | None, Gain] | None:
    """Label, value and gain over the default of what is advised; of the policy where that is to change nothing."""
    default = study.default_place
    if default is None:
        return None
    if found.key == "single" and study.best is not None:
        single, item = single_over(study, study.best, default), study.alternatives[study.best]
        return None if single is None else (study.short(study.best), item.get("value"), single)
    gain = policy_over(study, default)
    return None if gain is None else ("the policy", study.welfare.get("estimate"), gain)


def _brings(study: Study, found: Advice) -> dict[str, Any] | None:
    """The gain over the default of what is advised, in all too, and as a bar beside that of the default."""
    advised, default = chosen(study, found), study.default_place
    if advised is None or default is None:
        return None
    label, value, gain = advised
    before = study.alternatives[default]
    pair = [(study.short(default), before.get("value")), (label, value)]
    key = "same" if found.same and found.key in ("default", "gather") else found.key
    values = {"option": label, "default": study.default, "per": study.unit.per}
    return {
        "says": Sentence(words.PATTERNS[f"brings_{key}"], values),
        "gain": study.money(gain.gain, signed=True),
        "total": study.total(gain.gain).removeprefix(", "),
        "chart": _bars(study, pair),
        **span(gain.ends, study.places, study.unit.sign),
    }


def _bars(study: Study, pair: Sequence[tuple[str, float | None]]) -> Tag | None:
    """Two bars from zero, and what the second has more or less than the first."""
    known = [(label, value) for label, value in pair if value is not None]
    if len(known) < len(pair):
        return None
    values = [value for _, value in known]
    low, high = min(0.0, *values), max(0.0, *values)
    width = (high - low) or 1.0
    marks: list[Child] = []
    for place, (label, value) in enumerate(known):
        y = STEP * place
        marks += [
            text(label, "0", y + 12.0, class_="name", data_bar_name=place),
            text(study.money(value), "100%", y + 12.0, anchor="end", class_="value", data_bar_value=place),
            _bar(0.0, value, low, width, y + 18.0, "bar now", place),
        ]
    less = values[1] < values[0]
    marks.append(_bar(values[0], values[1], low, width, STEP + 18.0, "bar less" if less else "bar more", 2))
    label = str(Sentence(words.PATTERNS["bars_label"], _bar_words(study, known)))
    return figure(*marks, label=label, height=2 * STEP, below=4.0, above=0.0, id="bars")


def _bar_words(study: Study, known: Sequence[tuple[str, float]]) -> dict[str, str]:
    (first, before), (second, after) = known
    return {"first": first, "before": study.money(before), "second": second, "after": study.money(after)}


def _bar(start: float, end: float, low: float, width: float, y: float, kind: str, place: int) -> Tag:
    x, size = (min(start, end) - low) / width, abs(end - start) / width
    return tag("rect", x=f"{100 * x:.6g}%", width=f"{100 * size:.6g}%", y=y, height=BAR, class_=kind, data_bar=place)


def _options(study: Study, found: Advice) -> dict[str, Any] | None:
    """Gains over the default: of the policy, then of the best single actions."""
    default = study.default_place
    policy = None if default is None else policy_over(study, default)
    if default is None or policy is None:
        return None
    widest = study.gain_interval(default, WIDEST)
    rows = [_option(study, 0, "the policy", policy, found.key == "policy")]
    reaches = list(widest or policy.ends)
    single = [
        (item["value"], place)
        for place, item in enumerate(study.alternatives)
        if item.get("action") is not None and place != default and item.get("value") is not None
    ]
    for _, place in sorted(single, key=lambda pair: (-pair[0], pair[1]))[:OPTIONS]:
        gain = single_over(study, place, default)
        if gain is None:
            continue
        rows.append(_option(study, len(rows), study.short(place), gain, found.key == "single" and place == study.best))
        reaches += [gain.gain + side * reach(WIDEST) * gain.se for side in (-1.0, 1.0)]
    values = {"level": percent(LEVEL), "default": study.default, "per": study.unit.per}
    label = str(Sentence(words.PATTERNS["options_label"], values))
    return {
        "says": Sentence(words.PATTERNS["options"], values),
        "chart": forest_chart(
            rows, reaches, label, id="options", sides=("\u2190 worse", "better \u2192"), row_height=ROW
        ),
    }


def _option(study: Study, number: int, label: str, gain: Gain, advised: bool) -> GainRow:
    written = study.money(gain.gain, signed=True)
    return GainRow(number, f"{label}{words.ADVISED if advised else ''}", gain.gain, *gain.ends, written, advised)


def _dots(study: Study) -> Tag | None:
    """Equally likely values of the gain over the best single action; those above zero are filled."""
    quantiles = None if study.best is None else study.alternatives[study.best].get("gain_quantiles")
    if study.best is None or not quantiles:
        return None
    values = [quantile(quantiles, (i + 0.5) / DOTS) for i in range(DOTS)]
    scale = fit(values, zero=True)
    columns = [min(int(scale.at(value) * COLUMNS), COLUMNS - 1) for value in values]
    step = min(DOT, (TALL - 2.0) / max(columns.count(column) for column in columns))
    marks: list[Child] = [axis_below(scale, TALL, grid=False, narrow=True), segment("0", TALL, "100%", TALL, "grid")]
    marks.append(segment(scale.across(0.0), 0.0, scale.across(0.0), TALL, "zero", data_mark="zero"))
    for place, (value, column) in enumerate(zip(values, columns, strict=True)):
        above = columns[:place].count(column)
        marks.append(
            tag("circle", cx=f"{100 * (column + 0.5) / COLUMNS:.6g}%", cy=round(TALL - 8.0 - step * above, 2), r=6,
                class_="dot" if value > 0.0 else "dot hollow", data_dot=place)
        )  # fmt: skip
    more = {"above": str(sum(value > 0.0 for value in values)), **words.rival(study, study.best)}
    label = str(Sentence(words.PATTERNS["dots_label"], more))
    return figure(*marks, label=label, height=TALL, below=24.0, above=4.0, left=2, right=2, id="dots")
