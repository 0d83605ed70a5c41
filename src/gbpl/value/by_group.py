"""Who gets what, by group: shares of the actions, values and gains in parts of the rows, all of them together.

The value in a group g of rows is sum_{i in g} w_i psi_i / sum_{i in g} w_i, with psi_i the influence values of the
policy's value, so its own are value_g + 1[i in g] (psi_i - value_g) / P(g): it is a `Value` of all rows, and groups,
their differences and bands over all of them follow as for any other values. What learning a policy adds to the error of
a row (`value.dependence`, inflation, what is extrapolated) is that of the rows of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t

from gbpl.report.numbers import ascii_number, decimal_places
from gbpl.value.estimate import Value
from gbpl.value.gains import Gains

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["GroupTable", "group_table", "independent_rows", "value_in"]

ANY = -np.inf, np.inf
TAIL = 0.975
SPAN = ("estimate", "se", "low", "high", "band_low", "band_high")


@dataclass(frozen=True, slots=True, eq=False)
class GroupTable:
    """Groups of the rows by one column, each with what it gets and what that brings.

    `shares` are those of every action in every group, group by group; `values` and `gains`, over giving the group the
    `default` action, are of decisions by fits that saw nothing of the row's fold. `gain_differences` are each group's
    gain less that of all other rows, `share_differences` the same for the share that gets any action but the default;
    None where there is one group. Each is a `Gains`: intervals one by one, bands for all groups together, and `same`,
    the p-value of all of them being zero.
    """

    column: str
    labels: tuple[str, ...]
    rows: tuple[int, ...]
    actions: tuple[Any, ...]
    default: int
    shares: Gains
    values: Gains
    gains: Gains
    gain_differences: Gains | None
    share_differences: Gains | None

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Plain numbers: for each group its rows, and estimate, error, interval and band of everything."""
        spans = {
            name: _spans(getattr(self, name), level, within)
            for name, within in (
                ("shares", (0.0, 1.0)),
                ("values", ANY),
                ("gains", ANY),
                ("gain_differences", ANY),
                ("share_differences", (-1.0, 1.0)),
            )
        }
        count = len(self.actions)
        groups = [
            {
                "label": label, "rows": self.rows[at], "shares": spans["shares"][at * count : (at + 1) * count],
                "value": spans["values"][at], "gain": spans["gains"][at],
                "gain_difference": spans["gain_differences"][at] if spans["gain_differences"] else None,
                "share_difference": spans["share_differences"][at] if spans["share_differences"] else None,
            }
            for at, label in enumerate(self.labels)
        ]  # fmt: skip
        same = {
            name: None if part is None else part.p_value
            for name, part in (("gain", self.gain_differences), ("share", self.share_differences))
        }
        return {"column": self.column, "same": same, "groups": groups}

    def __str__(self) -> str:
        count, columns = len(self.actions), self.to_dict()["groups"]
        others = [a for a in range(count) if a != self.default]
        head = "".join(f"{str(self.actions[a])[:12]:>14}" for a in others)
        lines = [f"{self.column[:28]:<28} {'rows':>8}{head} {'gain':>10} {'all together, 95 %':>24}"]
        for one in columns:
            places = decimal_places(one["gain"]["se"])
            ends = (one["gain"][name] for name in ("estimate", "band_low", "band_high"))
            gain, low, high = (ascii_number(end, places) for end in ends)
            shares = "".join(f"{one['shares'][a]['estimate']:>14.1%}" for a in others)
            lines.append(f"{one['label'][:28]:<28} {one['rows']:>8,}{shares} {gain:>10} {f'{low} to {high}':>24}")
        if self.gain_differences is not None and self.share_differences is not None:
            p, q = self.gain_differences.p_value, self.share_differences.p_value
            lines.append(f"no difference between groups: p = {p:.3f} of the gains, {q:.3f} of the shares")
        return "\n".join(lines)

    __repr__ = __str__


def _spans(gains: Gains | None, level: float, within: tuple[float, float]) -> list[dict[str, float]]:
    if gains is None:
        return []
    columns = [gains.estimates, gains.ses, *gains.intervals(level).T, *gains.bands(level).T]
    columns[2:] = [np.clip(ends, *within) for ends in columns[2:]]
    return [dict(zip(SPAN, map(float, row), strict=True)) for row in zip(*columns, strict=True)]


def independent_rows(
    inside: Bool[np.ndarray, " row"], weights: Float[np.ndarray, " row"] | None, groups: Int[np.ndarray, " row"] | None
) -> float:
    """How many independent rows of equal weight the rows inside stand for: (sum w)^2 / sum_g (sum_{i in g} w_i)^2."""
    own = np.where(inside, 1.0 if weights is None else weights, 0.0)
    sums = own if groups is None else np.bincount(groups, own)
    return float(sums.sum() ** 2 / np.sum(sums**2))


def value_in(value: Value, inside: Bool[np.ndarray, " row"], more: Float[np.ndarray, " row"] | None = None) -> Value:
    """The value in a part of the rows; `more` is what in each row's value is extrapolated, half of it allowed for.

    The error is larger by the ratio of the 97.5 % quantiles of Student's t for the rows of the part and for all rows.

    >>> part = value_in(Value(np.array([1.0, 3.0] * 500 + [9.0]), "dr"), np.arange(1001) < 1000)
    >>> round(part.estimate, 6), round(part.se, 3)
    (2.0, 0.032)
    """
    share = float(np.average(inside, weights=value.weights))
    ratio = inside / share
    mean = float(np.average(ratio * value.influence, weights=value.weights))
    count, every = (independent_rows(rows, value.weights, value.groups) for rows in (inside, inside | True))
    few = np.nan
    if count > 1.0:  # as if these were all rows, with Student's t of so many
        wider = t.ppf(TAIL, count - 1.0) / t.ppf(TAIL, value.freedom)
        few = count / (count - 1.0) * (every - 1.0) / every * wider**2
    extrapolated = 0.0 if more is None else 0.5 * abs(float(np.average(ratio * more, weights=value.weights)))
    return replace(
        value,
        influence=mean + ratio * (value.influence - mean) * np.sqrt(few),
        dependence=None if value.dependence is None else ratio[:, None] * value.dependence,
        allowance=extrapolated,
        unseen=None if value.unseen is None else value.unseen / share,
    )


def _difference(value: Value, inside: Bool[np.ndarray, " row"], parts: tuple[Value, Value]) -> Value:
    """One part less the other rows; folds depend on each other through both, with opposite signs."""
    made = parts[0] - parts[1]
    if value.dependence is None:
        return made
    assert parts[0].dependence is not None
    assert parts[1].dependence is not None
    return replace(made, dependence=parts[0].dependence - parts[1].dependence)


def _share_in(value: Value, inside: Bool[np.ndarray, " row"], place: int, places: int) -> Value:
    """A share in a part of the rows; its error is that of a share two rows of each kind nearer to a half.

    The variance of Agresti and Coull (1998), p (1 - p) / (n + 4) with p = (n share + 2) / (n + 4), is not zero where
    all rows are of one kind; what it has more than that of the rows is the part's own.
    """
    made = value_in(value, inside)
    count = independent_rows(inside, value.weights, value.groups)
    near = (count * made.estimate + 2.0) / (count + 4.0)
    more = near * (1.0 - near) / (count + 4.0) - made.se**2
    return replace(made, unseen=np.sqrt(max(more, 0.0)) * np.eye(places)[place]) if more > 0.0 else made


def group_table(
    column: str,
    labels: Sequence[str],
    place: Int[np.ndarray, " row"],
    *,
    value: Value,
    usual: Value,
    given: Float[np.ndarray, "row action"],
    actions: Sequence[Any],
    default: int,
    more: Float[np.ndarray, " row"] | None = None,
) -> GroupTable:
    """The groups of rows, `place` of `labels`, under a policy of known `value`; `usual` is that of the default action.

    `given` are the policy's decisions for the rows, `more` what in their values is extrapolated (`Training.learned`).
    """
    counts = np.bincount(place, minlength=len(labels))
    kept = np.flatnonzero(counts).tolist()
    inside = [place == at for at in kept]
    names = tuple(labels[at] for at in kept)
    gain, plain = value - usual, {"weights": value.weights, "groups": value.groups, "inflation": value.inflation}
    taken = [Value(np.asarray(one, np.float64), "share", **plain) for one in given.T]  # type: ignore[arg-type]
    other = Value(1.0 - given[:, default], "share", **plain)  # type: ignore[arg-type]
    gains = [value_in(gain, rows, more) for rows in inside]
    gain_differences = share_differences = None
    if len(kept) > 1:
        gain_differences = Gains(names, tuple(
            _difference(gain, rows, (own, value_in(gain, ~rows, more))) for rows, own in zip(inside, gains, strict=True)
        ))  # fmt: skip
        size = 2 * len(kept)
        share_differences = Gains(names, tuple(
            _share_in(other, rows, at, size) - _share_in(other, ~rows, len(kept) + at, size)
            for at, rows in enumerate(inside)
        ))  # fmt: skip
    return GroupTable(
        column=column,
        labels=names,
        rows=tuple(counts[kept].tolist()),
        actions=tuple(actions),
        default=default,
        shares=Gains(
            tuple(f"{name}: {action}" for name in names for action in actions),
            tuple(_share_in(one, rows, at, len(kept)) for at, rows in enumerate(inside) for one in taken),
        ),
        values=Gains(names, tuple(value_in(value, rows, more) for rows in inside)),
        gains=Gains(names, tuple(gains)),
        gain_differences=gain_differences,
        share_differences=share_differences,
    )
