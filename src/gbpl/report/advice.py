"""What to do: use the policy, give everybody one action, keep the default, or gather more rows.

Something counts as shown from a chance of 0.9 on, the likely of `words.VERDICTS`:

- the policy is advised where it is shown to beat every single action, or the default while no single action is;
- else the best single action, where that is shown to beat the default;
- else the default is kept; and rows are to be gathered, where at most ten times as many would show the policy's gain.

With n rows and a gain g of standard error s, N rows show a gain of that size with power 0.8 if
N = n ((z_0.9 + z_0.8) s / g)^2: the report of as many rows would then advise it in 8 of 10 samples.
controls.js follows the same rules when costs are changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from gbpl.report.markup import Sentence
from gbpl.report.numbers import chance, count, percent, reach, two_digits
from gbpl.report.reading import LEVEL, Study
from gbpl.report.words import PATTERNS, VERDICTS, rival

__all__ = ["Advice", "Gain", "advice", "more_rows", "policy_over", "single_over"]

SHOWN = next(least for least, key, _ in VERDICTS if key == "likely")
POWER = 0.8
WANTED = NormalDist().inv_cdf(SHOWN) + NormalDist().inv_cdf(POWER)  # standard errors from zero to the gain
MOST = 10.0  # times the rows there are, beyond which gathering more is no advice


@dataclass(frozen=True, slots=True)
class Gain:
    """A gain, its standard error, the chance that it is above zero, and the ends of its interval."""

    gain: float
    se: float
    chance: float
    ends: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Advice:
    """`key` is policy, single, default, gather or unknown; `against`: the policy decides otherwise; `same`: so."""

    key: str
    headline: Sentence
    reason: Sentence
    more_rows: int | None = None
    against: bool = False
    same: bool = False

    def __str__(self) -> str:
        return f"{self.headline}{self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """For the summary: what to do, why, the rows to gather if any, and whether the policy itself does otherwise."""
        return {"do": self.key, "text": str(self), "more_rows": self.more_rows, "against_policy": self.against}


def more_rows(rows: float | None, gain: float, se: float) -> int | None:
    """Rows to gather until a gain of this size shows with power 0.8, to two digits; None without one, or beyond `MOST`.

    >>> more_rows(1000, 0.1, 0.1)
    3500
    """
    if not rows or gain <= 0.0 or se <= 0.0:
        return None
    times = (WANTED * se / gain) ** 2 - 1.0
    return int(two_digits(rows * times)) if 0.0 < times <= MOST else None


def advice(study: Study) -> Advice:
    """The advice of a study, in words."""
    best, default = study.best, study.default_place
    rival_gain, usual = policy_over(study, best), policy_over(study, default)
    if best is None or default is None or rival_gain is None or usual is None or study.chance is None:
        return Advice("unknown", Sentence(PATTERNS["advise_unknown"]), Sentence(""))
    single = None if best == default else single_over(study, best, default)
    key = _key(study.chance, usual.chance, None if single is None else single.chance)
    rows = study.data.get("rows")
    more = more_rows(rows, usual.gain, usual.se) if key == "default" else None
    key = "gather" if more is not None else key
    settle = more_rows(rows, rival_gain.gain, rival_gain.se)
    action = study.alternatives[best].get("action")
    same = study.only is not None and study.only == (action if key == "single" else study.summary["default"])
    parts = _reasons(key, study.chance, rival_gain.gain, same=same, default_is_best=best == default)
    values = _values(study, best, usual, single, rival_gain.gain, more, settle)
    head = Sentence(PATTERNS[f"advise_{key}"], values)
    return Advice(
        key, head, Sentence("".join(PATTERNS[part] for part in parts), values), more, key != "policy" and not same, same
    )


def _key(every: float, usual: float, single: float | None) -> str:
    """By the chances that the policy beats every single action and the default, and that one of them does."""
    if every >= SHOWN:
        return "policy"
    if single is not None and single >= SHOWN:
        return "single"
    return "policy" if usual >= SHOWN else "default"


def _reasons(key: str, sure: float, gain: float, *, same: bool, default_is_best: bool) -> list[str]:
    """Keys of the sentences after the headline."""
    if key == "single":
        return ["why_single", "and_same" if same else "and_better" if sure > 0.5 and gain > 0.0 else "and_worse"]
    if key == "policy":
        return ["why_policy", *(["and_unshown"] if sure < SHOWN and not default_is_best else [])]
    return ["why_same"] if same else [f"why_{key}"]


def policy_over(study: Study, place: int | None) -> Gain | None:
    """The policy's gain over an alternative."""
    item = {} if place is None else study.alternatives[place]
    gain, se, sure = (item.get(key) for key in ("gain", "gain_se", "chance"))
    ends = None if place is None else study.gain_interval(place)
    return None if gain is None or se is None or sure is None or ends is None else Gain(gain, se, sure, ends)


def single_over(study: Study, place: int, default: int) -> Gain | None:
    """The gain of a single action over the default one, by the moments of both."""
    moments, k = study.summary.get("moments") or {}, len(study.actions)
    mean, covariance = moments.get("mean") or [], moments.get("covariance") or []
    if len(mean) != 1 + 2 * k or [len(row) for row in covariance] != [len(mean)] * len(mean):
        return None
    difference = [a - b for a, b in zip(study.mix(place), study.mix(default), strict=True)]
    gain = _dot(difference, mean[1 : 1 + k])
    rows = [_dot(difference, row[1 : 1 + k]) for row in covariance[1 : 1 + k]]
    se = max(_dot(difference, rows), 0.0) ** 0.5
    sure = NormalDist().cdf(gain / se) if se > 0.0 else float(gain > 0.0)
    return Gain(gain, se, sure, (gain - reach(LEVEL) * se, gain + reach(LEVEL) * se))


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _values(
    study: Study, best: int, usual: Gain, single: Gain | None, gain: float, more: int | None, settle: int | None
) -> dict[str, str]:
    """What stands in the sentences; `d` is the policy over the default, `s` the best single action over it."""
    values = {
        "default": study.default, "per": study.unit.per, "level": percent(LEVEL), "chance": chance(study.chance),
        "costs": study.money(gain), "more": count(more),
        "settle": "" if settle is None else f"; about {count(settle)} more rows would settle it",
        **rival(study, best),
    }  # fmt: skip
    for mark, found in (("d", usual), ("s", single)):
        if found is not None:
            low, high = map(study.money, found.ends)
            values |= {
                f"gain_{mark}": study.money(found.gain, signed=True), f"low_{mark}": low, f"high_{mark}": high,
                f"chance_{mark}": chance(found.chance), f"total_{mark}": study.total(found.gain),
            }  # fmt: skip
    return values
