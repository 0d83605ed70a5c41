"""What could be wrong: every check of the page on one list, the worst first, each with a mark, a word and a sentence.

A group's interval at level 0.95 misses the expected gain in 5 of 100 groups where nothing is wrong; so groups leave a
doubt where as many misses have a probability below 5 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from gbpl.report.markup import Sentence
from gbpl.report.numbers import count, number, percent, reach
from gbpl.report.reading import LEVEL, Study

__all__ = ["Doubt", "doubts"]

ORDER = {"failed": ("\u2717", "Failed"), "doubt": ("?", "Doubt"), "open": ("\u2013", "Not checked"),
         "passed": ("\u2713", "Passed")}  # fmt: skip
RARE = 0.05
STRONG = 2.0  # factor of the odds by which hidden confounding rarely moves an action, once the features are known


@dataclass(frozen=True, slots=True)
class Doubt:
    """One line: `key` of `ORDER`, what was looked at, what was found, and the section that says more."""

    key: str
    name: str
    says: Sentence
    link: str

    @property
    def mark(self) -> str:
        return ORDER[self.key][0]

    @property
    def word(self) -> str:
        return ORDER[self.key][1]


def doubts(study: Study) -> dict[str, Any]:
    """The list, worst first, and how many are of each kind, in words."""
    makers: tuple[Callable[[Study], Doubt | None], ...] = (
        _data, _tests, _overlap, _hidden, _expected, _sure, _guarded, _kept, _certified
    )  # fmt: skip
    made = [maker(study) for maker in makers]
    order = list(ORDER)
    listed = sorted((one for one in made if one is not None), key=lambda one: order.index(one.key))
    counts = [(key, sum(one.key == key for one in listed)) for key in order]
    parts = [f"{count(many)} {ORDER[key][1].lower()}" for key, many in counts if many]
    return {"rows": listed, "says": f"Of {count(len(listed))} checks: {', '.join(parts)}."}


def _data(study: Study) -> Doubt | None:
    if study.warned:
        return Doubt("failed", "The data", Sentence("Something looks wrong with them: settle that first."), "alarm")
    return None


def _tests(study: Study) -> Doubt:
    found = [one or {} for one in (study.summary.get("check") or {}).get("findings") or []]
    if not found:
        asked = Sentence("Nobody tried to break the result; gbpl fit --check does.")
        return Doubt("open", "Attempts to break it", asked, "check")
    bad = {key: [one for one in found if one.get("verdict") == key] for key in ("failed", "doubt")}
    key = next((key for key, some in bad.items() if some), "passed")
    if key == "passed":
        return Doubt(key, "Attempts to break it", Sentence(f"All {count(len(found))} failed to."), "check")
    names = [str(one.get("name")) for some in bad.values() for one in some][:3]
    values = {f"n{i}": name for i, name in enumerate(names)}
    listed = ", ".join(f"{{n{i}:name}}" for i in range(len(names)))
    return Doubt(key, "Attempts to break it", Sentence(f"Look at: {listed}.", values), "check")


def _overlap(study: Study) -> Doubt | None:
    part = study.summary.get("overlap")
    if study.data.get("feedback") != "logged":
        return None
    if not part:
        return Doubt("open", "Overlap", Sentence("It was not looked at whether the log tried everything."), "overlap")
    if part.get("reasons"):
        return Doubt("doubt", "Overlap", Sentence("The log says little about some actions or rows."), "overlap")
    return Doubt("passed", "Overlap", Sentence("Every action was tried on all kinds of rows."), "overlap")


def _hidden(study: Study) -> Doubt | None:
    """Known propensities leave nothing hidden; estimated ones are judged by the factor that would hide the gain."""
    if study.data.get("feedback") != "logged":
        return None
    part, overlap = study.summary.get("sensitivity") or {}, study.summary.get("overlap") or {}
    if not part.get("gammas"):
        if overlap.get("estimated") or not overlap:
            unknown = Sentence("Propensities are estimated, and what is not recorded may have moved them.")
            return Doubt("open", "Hidden causes", unknown, "record")
        known = Sentence("The chances of the actions are known, so nothing hidden can have moved them.")
        return Doubt("passed", "Hidden causes", known, "overlap")
    limit, most = part.get("breakdown_limit"), number(part.get("most"))
    if limit is None:
        strong = Sentence("No factor of the odds up to {most} would put the gain in doubt.", {"most": most})
        return Doubt("passed", "Hidden causes", strong, "confounding")
    if limit <= 1.0:
        return Doubt("doubt", "Hidden causes", Sentence("The gain is not certain even without any."), "confounding")
    pattern = "One that changes the odds of an action by {limit:b} would put the gain in doubt."
    said = Sentence(pattern, {"limit": number(limit, 2)})
    return Doubt("passed" if limit >= STRONG else "doubt", "Hidden causes", said, "confounding")


def _inside(groups: Sequence[dict[str, Any]]) -> tuple[int, int, str] | None:
    """Groups whose interval contains what was expected, all groups, and the verdict."""
    keys = ("expected", "estimate", "se")
    known = [group for group in groups if group and all(group.get(key) is not None for key in keys)]
    if not known:
        return None
    inside = sum(abs(group["expected"] - group["estimate"]) <= reach(LEVEL) * group["se"] for group in known)
    rare = at_least(len(known) - inside, len(known), 1.0 - LEVEL) < RARE
    return inside, len(known), "doubt" if rare else "passed"


def at_least(misses: int, tries: int, chance: float) -> float:
    """Probability of so many misses or more: sum_k (n over k) p^k (1 - p)^(n - k)."""
    return sum(comb(tries, k) * chance**k * (1.0 - chance) ** (tries - k) for k in range(misses, tries + 1))


def _expected(study: Study) -> Doubt | None:
    found = _inside((study.summary.get("calibration") or {}).get("groups") or [])
    if found is None:
        return None
    inside, groups, key = found
    values = {"inside": count(inside), "groups": count(groups)}
    said = Sentence("They came as expected in {inside:b} of {groups} groups of rows.", values)
    return Doubt(key, "Expected gains", said, "calibration")


def _sure(study: Study) -> Doubt | None:
    found = _inside((study.summary.get("calibration") or {}).get("reliability") or [])
    if found is None:
        return None
    inside, groups, key = found
    pattern = "Where the policy is sure it gains, as expected in {inside:b} of {groups} groups."
    return Doubt(key, "Sureness", Sentence(pattern, {"inside": count(inside), "groups": count(groups)}), "sureness")


def _guarded(study: Study) -> Doubt | None:
    """Guards on other outcomes: all shown to hold, or which not."""
    guards = [guard for guard in (study.summary.get("several") or {}).get("guards") or [] if guard]
    if not guards:
        return None
    if (study.summary.get("several") or {}).get("fallback"):
        return Doubt("doubt", "Guards", Sentence("No policy is shown to keep them; the default does."), "several")
    broken = [str(guard.get("text")) for guard in guards if not guard.get("holds")]
    if not broken:
        return Doubt("passed", "Guards", Sentence(f"All {count(len(guards))} are shown to hold."), "several")
    values = {f"g{i}": text for i, text in enumerate(broken[:3])}
    listed = ", ".join(f"{{g{i}:name}}" for i in range(len(values)))
    return Doubt("failed", "Guards", Sentence(f"Not shown to hold: {listed}.", values), "several")


def _kept(study: Study) -> Doubt | None:
    """The bound between groups, on rows that were not learned from."""
    bound = (study.summary.get("by_group") or {}).get("bound") or {}
    most, gap = bound.get("bound"), bound.get("held_out_gap")
    if most is None or gap is None:
        return None
    values = {"column": str(bound.get("column"))}
    if gap <= most:
        return Doubt(
            "passed", "Groups", Sentence("The bound between groups of {column:name} is kept.", values), "groups"
        )
    said = Sentence("On rows not learned from, groups of {column:name} differ by more than the bound.", values)
    return Doubt("doubt", "Groups", said, "groups")


def _certified(study: Study) -> Doubt | None:
    part = study.summary.get("certificate") or {}
    gain, failure = (part.get("gain") or {}).get("lower"), part.get("failure_probability")
    if part.get("lower") is None or gain is None:
        return None
    if gain <= 0.0:
        none = Sentence("No gain over the best single action is certified.")
        return Doubt("doubt", "Certificate", none, "certificate")
    sure = percent(None if failure is None else 1.0 - failure)
    pattern = "A gain of {gain:b} or more holds with a probability of {sure}."
    return Doubt("passed", "Certificate", Sentence(pattern, {"gain": study.money(gain), "sure": sure}), "certificate")
