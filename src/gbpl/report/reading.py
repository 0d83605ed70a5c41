"""A summary as the report reads it: cleaned, checked, and with the figures that the first paragraph needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gbpl.report.bars import Slots
from gbpl.report.numbers import amount, count, decimal_places, interval, percent, two_digits
from gbpl.report.schema import check_summary
from gbpl.report.svg import shorten
from gbpl.runtime.json import plain

__all__ = ["FORMAT", "LEVEL", "LONGEST_UNIT", "Study", "Unit", "read"]

FORMAT = 1
LEVEL = 0.95
LONGEST_UNIT = 20
LONGEST_NAME = 60  # letters of a name in a sentence; tables have all of it
SHORT_NAME = 24  # letters of an alternative in the first pictures
PARTS = (
    "title", "created", "data", "actions", "default", "welfare", "alternatives", "moments", "who", "tree",
    "disagreement", "review", "overlap", "sensitivity", "zeta_path", "calibration", "check", "certificate", "settings",
    "versions", "seconds", "bands", "unit", "reviewed", "warnings",
    "budget", "small_rule", "by_group", "explained", "several",
)  # fmt: skip
DATA = (
    "source", "rows", "dropped", "feedback", "outcome", "action", "outcomes", "features", "controls", "propensity",
    "weight", "group", "notes",
)  # fmt: skip
# Control characters have no place in a page, and lone surrogates none in a file; both come with odd file names.
NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Unit:
    """How amounts are written: `sign` of the outcome's unit, `per` what a row is, and how many totals are for."""

    sign: str = ""
    per: str = "row"
    population: int | None = None


@dataclass(frozen=True, slots=True)
class Study:
    """Parts of a summary, {} or [] where there is nothing; `places` are the decimals of values in outcome units."""

    summary: dict[str, Any]
    data: dict[str, Any]
    actions: list[dict[str, Any]]
    welfare: dict[str, Any]
    alternatives: list[dict[str, Any]]
    slots: Slots
    places: int | None
    outcome: str
    default: str
    names: list[str]
    unit: Unit = Unit()

    @property
    def default_place(self) -> int | None:
        """Place of the default action among the alternatives."""
        number = self.summary.get("default")
        return next((i for i, item in enumerate(self.alternatives) if item.get("action") == number is not None), None)

    def mix(self, place: int) -> list[float]:
        """Share of the rows that get each action under an alternative: one action, and the default beyond its limit."""
        item, number = self.alternatives[place], self.summary.get("default")
        share, shares = item.get("share"), [0.0] * len(self.actions)
        share = 1.0 if share is None else share
        if isinstance(number, int) and 0 <= number < len(shares):
            shares[number] += 1.0 - share
        if isinstance(item.get("action"), int) and 0 <= item["action"] < len(shares):
            shares[item["action"]] += share
        return shares

    def money(self, value: float | None, *, signed: bool = False) -> str:
        """A value or a gain with its unit."""
        return amount(value, self.places, self.unit.sign, signed=signed)

    def total(self, gain: float | None) -> str:
        """What a gain per row is for all of them, in words."""
        if gain is None or not self.unit.population:
            return ""
        whole = amount(two_digits(gain * self.unit.population), None, self.unit.sign)
        return f", about {whole} for {count(self.unit.population)}{' rows' if self.unit.per == 'row' else ''}"

    @property
    def best(self) -> int | None:
        """Place of the best single action among the alternatives: as marked, or by value."""
        single = [i for i, item in enumerate(self.alternatives) if item.get("action") is not None]
        marked = [i for i in single if self.alternatives[i].get("best")]
        known = [i for i in single if self.alternatives[i].get("value") is not None]
        return marked[0] if marked else max(known, key=lambda i: self.alternatives[i]["value"], default=None)

    @property
    def only(self) -> int | None:
        """Column of the action that everybody gets, where there is such a one."""
        return next((a for a, action in enumerate(self.actions) if action.get("share") == 1.0), None)

    @property
    def chance(self) -> float | None:
        """Chance that the policy is better than every single action: the smallest of the chances one by one."""
        single = [item.get("chance") for item in self.alternatives if item.get("action") is not None]
        known = [chance for chance in single if chance is not None]
        return min(known) if known and len(known) == len(single) else None

    def band(self, place: int, level: float = LEVEL) -> tuple[float, float] | None:
        """Of the gain over a single action, together with those over all others."""
        item = self.alternatives[place]
        gain, se = item.get("gain"), item.get("gain_se")
        if item.get("action") is None or gain is None or se is None or not self.reaches:
            return None
        _, reach = min(self.reaches, key=lambda pair: abs(pair[0] - level))
        return gain - reach * se, gain + reach * se

    @property
    def reaches(self) -> list[tuple[float, float]]:
        """Levels of bands, and the standard errors that a band of that level reaches to each side."""
        bands = self.summary.get("bands") or {}
        pairs = zip(bands.get("level") or [], bands.get("reach") or [], strict=False)
        return [(level, reach) for level, reach in pairs if level is not None and reach is not None]

    def called(self, label: Any) -> str:
        """The name in sentences of an action by its label."""
        labels = [str(action.get("label")) for action in self.actions]
        return self.names[labels.index(str(label))] if str(label) in labels else shorten(str(label), LONGEST_NAME)

    @property
    def warned(self) -> list[str]:
        """What looks wrong with the data, in sentences."""
        listed = self.summary.get("warnings")
        found = [one.get("sentence") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        return [f"{text[:1].upper()}{text[1:]}." for text in found if isinstance(text, str)]

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        return interval(self.welfare.get("quantiles"), level)

    def gain_interval(self, place: int, level: float = LEVEL) -> tuple[float, float] | None:
        return interval(self.alternatives[place].get("gain_quantiles"), level)

    def short(self, place: int) -> str:
        """An alternative where there is little room: `call for all`."""
        item = self.alternatives[place]
        if item.get("action") is None:
            return shorten(str(item.get("label")), SHORT_NAME)
        share = item.get("share")
        to_whom = "all" if share is None or share >= 1.0 else percent(share)
        return f"{shorten(self.name(item['action']), SHORT_NAME - 8)} for {to_whom}"

    def name(self, action: Any) -> str:
        return self.names[action] if isinstance(action, int) and 0 <= action < len(self.actions) else "unknown"


def read(summary: Mapping[str, Any]) -> Study:
    """Check the format and gather the parts; nothing of the caller's is changed."""
    if not isinstance(summary, Mapping):
        raise TypeError(f"summary must be a mapping, got {type(summary).__name__}; give what the study wrote")
    if summary.get("format") != FORMAT:
        raise ValueError(
            f"the summary's format must be {FORMAT}, got {summary.get('format')!r}; "
            "render it with the version of gbpl that wrote it"
        )
    parts = dict.fromkeys(PARTS) | plain(summary, text=lambda text: NOT_TEXT.sub("\ufffd", text))
    check_summary(parts)
    data = dict.fromkeys(DATA) | (parts["data"] or {})
    actions, welfare = parts["actions"] or [], parts["welfare"] or {}
    alternatives = parts["alternatives"] or []
    place = parts["default"]
    names = [_name(action.get("label"), data["action"]) for action in actions]
    default = names[place] if isinstance(place, int) and 0 <= place < len(names) else "the default action"
    return Study(
        summary=parts,
        data=data,
        actions=actions,
        welfare=welfare,
        alternatives=alternatives,
        slots=Slots.of(actions, names),
        places=_places(welfare, alternatives),
        outcome=shorten(str(data["outcome"] or "the outcome"), LONGEST_NAME),
        default=default,
        names=names,
        unit=_unit(parts["unit"] or {}, data["rows"]),
    )


def _unit(given: Mapping[str, Any], rows: Any) -> Unit:
    """Rows of the data are counted where nothing else is said."""
    population = given.get("population")
    return Unit(
        shorten(str(given.get("sign") or ""), LONGEST_UNIT),
        shorten(str(given.get("per") or "row"), LONGEST_UNIT),
        population if isinstance(population, int) else rows if isinstance(rows, int) else None,
    )


def _name(label: Any, column: Any) -> str:
    """An action as sentences call it: short, and a bare number or truth value, which would be lost there, explained."""
    text = shorten(str(label), LONGEST_NAME)
    bare = re.fullmatch(r"[-+]?[\d.,]+|true|false|yes|no|y|n", text.strip(), re.IGNORECASE)
    if not bare:
        return text
    return f"\u201c{text}\u201d" if column is None else f"{shorten(str(column), LONGEST_NAME)} = {text}"


def _places(welfare: Mapping[str, Any], alternatives: list[dict[str, Any]]) -> int | None:
    """Decimals by the smallest error that is read closely: the policy's and that of its gain over the best action."""
    candidates = [decimal_places(welfare.get("se"))]
    candidates += [decimal_places(item.get("gain_se")) for item in alternatives if item.get("best")]
    known = [places for places in candidates if places is not None]
    if not known:
        return None
    return min(max(known), known[0] + 1)
