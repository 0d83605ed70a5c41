"""Points with error bars: the zeta path, expected against estimated gains, what deferring costs, eta's coverage.

An error bar carries its mean and standard error, so that charts.js can redraw it at another level; axes have room for
the widest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gbpl.report.markup import Child, Tag, tag
from gbpl.report.numbers import number, percent, reach
from gbpl.report.svg import Scale, axis_below, axis_left, figure, fit, segment, text

__all__ = ["coverage_chart", "deferral_chart", "groups_chart", "reliability_chart", "weights_chart", "zeta_chart"]

WIDEST = 0.99
HEIGHT = 190.0
MOST_DOTS = 15
ONE_LINE = 6  # zetas whose labels stand side by side on a phone
LEAST_LEFT = 52  # for the word under the ticks


def _error_bar(
    x: str, mean: float, se: float | None, scale: Scale, height: float, level: float, series: int = 0, shift: int = 0
) -> Tag | str:
    if se is None:
        return ""
    ends = [scale.down(mean + side * reach(level) * se, height) for side in (-1.0, 1.0)]
    moved = {"transform": f"translate({shift} 0)"} if shift else {}
    return segment(
        x, ends[0], x, ends[1], "error second" if series else "error", data_mean=float(mean), data_se=float(se), **moved
    )


def _reaches(means: Sequence[float | None], errors: Sequence[float | None]) -> list[float]:
    return [
        mean + side * reach(WIDEST) * (se or 0.0)
        for mean, se in zip(means, errors, strict=True)
        if mean is not None
        for side in (-1.0, 1.0)
    ]


def _scaled(scale: Scale) -> dict[str, object]:
    return {"data_low": float(scale.low), "data_high": float(scale.high)}


def zeta_places(path: dict[str, Any]) -> tuple[list[float], dict[float, str], list[float]]:
    """The zetas from small to large, the place of each across, and the corrections there are."""
    zetas = sorted({float(value) for value in path["zeta"]})
    places = {zeta: f"{100.0 * (i + 0.5) / len(zetas):.5g}%" for i, zeta in enumerate(zetas)}
    corrections = sorted({float(value) for value in path.get("correction") or [1.0]}, reverse=True)
    return zetas, places, corrections


def _shift(path: dict[str, Any], zeta: float, series: int) -> int:
    """Pixels aside, where a zeta was fitted with both corrections."""
    return 14 * series - 7 if sum(float(other) == float(zeta) for other in path["zeta"]) > 1 else 0


def zeta_chart(path: dict[str, Any], level: float) -> Tag:
    """Welfare out of fold at each zeta, a mark for each correction."""
    _, places, corrections = zeta_places(path)
    scale = fit(_reaches(path["welfare"], path["welfare_se"]))
    left, room = axis_left(scale, HEIGHT, "welfare out of fold, per row")
    marks: list[Child] = [left]
    chosen = path.get("correction") or [1.0] * len(path["zeta"])
    for zeta, welfare, se, correction in zip(path["zeta"], path["welfare"], path["welfare_se"], chosen, strict=True):
        if welfare is None:
            continue
        series = corrections.index(float(correction))
        shift = _shift(path, zeta, series)
        x, y = places[float(zeta)], scale.down(welfare, HEIGHT)
        marks += [_error_bar(x, welfare, se, scale, HEIGHT, level, series, shift), mark_of(series, x, y, shift)]
    label = f"Welfare out of fold with error bars at {len(places)} values of zeta; the table after it has the numbers."
    return figure(
        *marks,
        label=label,
        height=HEIGHT,
        below=6.0,
        above=30.0,
        left=max(room, LEAST_LEFT),
        right=14,
        **_scaled(scale),
    )


def mark_of(series: int, x: str, y: float, shift: int = 0) -> Tag:
    """A dot for the first series, a square for the second."""
    if series == 0:
        return tag("circle", cx=x, cy=y, r=5, class_="point", transform=f"translate({shift} 0)" if shift else None)
    return tag(
        "rect", x=x, y=y - 4.5, width=9, height=9, class_="point second", transform=f"translate({shift - 4.5:g} 0)"
    )


def weights_chart(path: dict[str, Any], zeta_labels: dict[float, str]) -> Tag:
    """What each zeta counts in the policy, under the points above, with the labels of both."""
    height = 44.0
    zetas, places, corrections = zeta_places(path)
    _, room = axis_left(fit(_reaches(path["welfare"], path["welfare_se"])), HEIGHT)
    marks: list[Child] = [segment("0", height, "100%", height, "zero")]
    chosen = path.get("correction") or [1.0] * len(path["zeta"])
    most = max([value for value in path["weight"] if value is not None] + [1e-9])
    for zeta, weight, correction in zip(path["zeta"], path["weight"], chosen, strict=True):
        series, size = corrections.index(float(correction)), height * (weight or 0.0) / most
        shift = _shift(path, zeta, series) - 6
        marks.append(
            tag("rect", x=places[float(zeta)], y=round(height - size, 2), width=12,
                height=round(size, 2), class_="weight second" if series else "weight",
                transform=f"translate({shift} 0)")
        )  # fmt: skip
    lines = 2 if len(zetas) > ONE_LINE else 1
    for i, zeta in enumerate(zetas):
        y = height + 17.0 + 14.0 * (i % lines)
        marks.append(text(zeta_labels[zeta], places[zeta], y, anchor="middle", class_="tick"))
    marks.append(text("weight", "-6", height - 2.0, anchor="end", class_="tick"))
    shares = ", ".join(
        f"{zeta_labels[float(z)]}: {percent(w)}" for z, w in zip(path["zeta"], path["weight"], strict=True)
    )
    return figure(
        *marks,
        label=f"Weight of each zeta: {shares}.",
        height=height,
        below=12.0 + 14.0 * lines,
        above=14.0,
        left=max(room, LEAST_LEFT),
        right=14,
    )


def groups_chart(groups: Sequence[dict[str, Any]], level: float) -> Tag:
    """Expected against estimated gain; on the diagonal the two are the same."""
    expected = [group["expected"] for group in groups]
    across = fit(expected, padding=0.1)
    up = fit([*_reaches([g["estimate"] for g in groups], [g["se"] for g in groups]), *expected], zero=True)
    left, room = axis_left(up, HEIGHT, "estimated gain, per row")
    ends = max(across.low, up.low), min(across.high, up.high)
    marks: list[Child] = [
        left,
        axis_below(across, HEIGHT, grid=False, inside=False),
        segment("0", up.down(0.0, HEIGHT), "100%", up.down(0.0, HEIGHT), "zero"),
        segment(
            across.across(ends[0]),
            up.down(ends[0], HEIGHT),
            across.across(ends[1]),
            up.down(ends[1], HEIGHT),
            "diagonal",
        ),
        text("expected gain, per row →", "100%", HEIGHT + 34.0, anchor="end", class_="tick"),
    ]
    for group in groups:
        x = across.across(group["expected"])
        marks.append(_error_bar(x, group["estimate"], group["se"], up, HEIGHT, level))
        said = tag("title", f"expected {number(group['expected'])}, estimated {number(group['estimate'])}")
        marks.append(tag("circle", said, cx=x, cy=up.down(group["estimate"], HEIGHT), r=5, class_="point"))
    parts = "; ".join(f"expected {number(g['expected'])}, estimated {number(g['estimate'])}" for g in groups)
    return figure(
        *marks,
        label=f"Gain by group: {parts}.",
        height=HEIGHT,
        below=42.0,
        above=30.0,
        left=room,
        right=14,
        **_scaled(up),
    )


def reliability_chart(groups: Sequence[dict[str, Any]], level: float) -> Tag:
    """Estimated gain of the most probable action by how sure the policy is, and the gain that was expected."""
    across = fit([group["said"] for group in groups], padding=0.1)
    expected = [group["expected"] for group in groups]
    up = fit([*_reaches([g["estimate"] for g in groups], [g["se"] for g in groups]), *expected], zero=True)
    left, room = axis_left(up, HEIGHT, "gain over the second most probable action, per row")
    zero = segment("0", up.down(0.0, HEIGHT), "100%", up.down(0.0, HEIGHT), "zero")
    below = text("probability that it is the best →", "100%", HEIGHT + 34.0, anchor="end", class_="tick")
    marks: list[Child] = [left, axis_below(across, HEIGHT, grid=False, inside=False), zero, below]
    places = [(across.across(group["said"]), up.down(group["expected"], HEIGHT)) for group in groups]
    marks += [segment(a[0], a[1], b[0], b[1], "diagonal") for a, b in pairwise(places)]
    for group in groups:
        x = across.across(group["said"])
        marks.append(_error_bar(x, group["estimate"], group["se"], up, HEIGHT, level))
        said = tag("title", f"expected {number(group['expected'])}, estimated {number(group['estimate'])}")
        marks.append(tag("circle", said, cx=x, cy=up.down(group["estimate"], HEIGHT), r=5, class_="point"))
    parts = "; ".join(
        f"{percent(g['said'])} sure, expected {number(g['expected'])}, estimated {number(g['estimate'])}"
        for g in groups
    )
    return figure(
        *marks, label=f"Gain by how sure the policy is: {parts}.", height=HEIGHT, below=42.0, above=30.0, left=room,
        right=14, **_scaled(up),
    )  # fmt: skip


def deferral_chart(curve: Sequence[dict[str, Any]], level: float, chosen: int) -> Tag:
    """Welfare by the threshold of deferral; the ring is the chosen one."""
    scale = fit(_reaches([entry["welfare"] for entry in curve], [entry["se"] for entry in curve]))
    across = Scale(0.0, 1.0)
    left, room = axis_left(scale, HEIGHT, "welfare if close calls get the default, per row")
    marks: list[Child] = [left, axis_below(across, HEIGHT, grid=False, inside=False)]
    places = [(across.across(entry["level"]), scale.down(entry["welfare"], HEIGHT)) for entry in curve]
    for entry, (x, _) in zip(curve, places, strict=True):
        marks.append(_error_bar(x, entry["welfare"], entry["se"], scale, HEIGHT, level))
    marks += [segment(a[0], a[1], b[0], b[1], "path") for a, b in pairwise(places)]
    marks += [tag("circle", cx=x, cy=y, r=3, class_="point") for x, y in places]
    marks.append(tag("circle", cx=places[chosen][0], cy=places[chosen][1], r=8, class_="ring", data_mark="chosen"))
    label = (
        f"Welfare by threshold: {number(curve[0]['welfare'])} at {number(curve[0]['level'])}, "
        f"{number(curve[-1]['welfare'])} at {number(curve[-1]['level'])}."
    )
    return figure(
        *marks, label=label, height=HEIGHT, below=30.0, above=30.0, left=room, right=14, id="deferral", **_scaled(scale)
    )


def coverage_chart(coverage: dict[str, Any], eta: float | None) -> Tag | None:
    """Coverage by eta, the level it should have, and the eta that was taken."""
    given = zip(coverage.get("eta") or [], coverage.get("coverage") or [], strict=False)
    pairs = [(e, c) for e, c in given if e and e > 0 and c is not None]
    if len(pairs) < 2 or any(not 0.0 <= c <= 1.0 for _, c in pairs):
        return None
    height = 140.0
    across, up = Scale(min(e for e, _ in pairs), max(e for e, _ in pairs), log=True), Scale(0.0, 1.0)
    left, room = axis_left(up, height, "coverage")
    marks: list[Child] = [left, axis_below(across, height, grid=False, inside=False)]
    places = [(across.across(e), up.down(c, height)) for e, c in sorted(pairs)]
    marks += [segment(a[0], a[1], b[0], b[1], "path") for a, b in pairwise(places)]
    if len(places) <= MOST_DOTS:
        marks += [tag("circle", cx=x, cy=y, r=3, class_="point") for x, y in places]
    wanted = coverage.get("level")
    if wanted is not None:
        marks.append(segment("0", up.down(wanted, height), "100%", up.down(wanted, height), "diagonal"))
    if eta is not None and across.low <= eta <= across.high:
        marks.append(segment(across.across(eta), 0.0, across.across(eta), height, "estimate"))
    marks.append(text("eta →", "100%", height + 32.0, anchor="end", class_="tick"))
    parts = "; ".join(f"{percent(c)} at {number(e)}" for e, c in sorted(pairs))
    return figure(
        *marks, label=f"Coverage by eta: {parts}.", height=height, below=40.0, above=30.0, left=room, right=14
    )
