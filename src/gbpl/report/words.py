"""The sentences of the report; those that follow the controls go to the page as patterns, so each is written once.

`VERDICTS` puts a chance into words: at least 0.975 is clear, at least 0.9 is likely, and the rest is not settled, or
the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.report.markup import Sentence
from gbpl.report.numbers import amount, count, of_rows, percent, two_digits
from gbpl.report.svg import shorten

__all__ = [
    "ADVISED", "GLOSSARY", "LEAST", "PATTERNS", "TIPS", "VERDICTS", "calibration_words", "cautions", "given",
    "important", "limited", "limited_by", "listed", "propensity_words", "reviewed_words", "rival", "rivals",
    "tree_words", "verdict", "zeta_words",
]  # fmt: skip

VERDICTS = (  # from this chance on: key of the pattern, words of the badge
    (0.975, "clear", "Clear"),
    (0.9, "likely", "Likely"),
    (0.1, "unsettled", "Not settled"),
    (0.0, "unlikely", "Probably not"),
)
ADVISED = " \u00b7 advised"
LEAST = 0.005  # importance of a feature worth naming
_BETTER = "{level} interval {low} to {high}; chance that it beats every {rivals}: {chance:b}"
_OVER_DEFAULT = "({level} interval {low_d} to {high_d}; chance that it gains at all: {chance_d:b})"
PATTERNS = {
    "worth": "Under it, the mean of {outcome:name} is {value:b} per {per} ({level} interval {low} to {high}).",
    "worth_net": "Under it, the mean of {outcome:name} less costs is {value:b} per {per} "
    "({level} interval {low} to {high}).",
    "mean": "Under the policy, the mean of {outcome:name} is {value:b} ({low} to {high}).",
    "mean_net": "Under the policy, the mean of {outcome:name} less costs is {value:b} ({low} to {high}).",
    "worth_unknown": "What the policy is worth is not known.",
    "clear": "The policy clearly beats {how}{best:name}{lot}",
    "likely": "The policy probably beats {how}{best:name}{lot}, with some doubt left",
    "unsettled": "The data do not show whether the policy beats {how}{best:name}{lot}",
    "unlikely": "The policy is probably no better than {how}{best:name}{lot}",
    "same": "This is the same as giving everybody {best:name}",
    "unknown": "What the policy gains over the best single action is not known",
    "clear_gain": f": it gains {{gain:b}} per {{per}} ({_BETTER}).",
    "likely_gain": f": it gains {{gain:b}} per {{per}} ({_BETTER}).",
    "unsettled_gain": f": the estimated gain is {{gain:b}} per {{per}} ({_BETTER}).",
    "unlikely_gain": f": the estimated gain is {{gain:b}} per {{per}} ({_BETTER}).",
    "same_gain": ", so there is nothing to gain over it. (Values here are of policies learned without part of the "
    "rows, some of which decide otherwise; hence the difference.)",
    "unknown_gain": ".",
    "advise_policy": "Use the policy.",
    "advise_single": "{give}{best:name}{lot}.",
    "advise_default": "Keep {default:name} for everybody.",
    "advise_gather": "Keep {default:name} for everybody for now, and gather about {more:b} more rows.",
    "advise_unknown": "There is no advice: what the policy gains is not known.",
    "why_policy": " Compared with {default:name} for everybody, it gains {gain_d:b} per {per} "
    f"{_OVER_DEFAULT}{{total_d}}.",
    "why_single": " Compared with {default:name} for everybody, that gains {gain_s:b} per {per} "
    "({level} interval {low_s} to {high_s}; chance that it gains at all: {chance_s:b}){total_s}.",
    "why_default": " Nothing is shown to be better. The estimated gain of the policy over it is {gain_d:b} per {per} "
    f"{_OVER_DEFAULT}.",
    "why_gather": " The estimated gain of the policy over it is {gain_d:b} per {per} "
    f"{_OVER_DEFAULT}{{total_d}}, which is not clear of the noise. With that many more rows, a gain of this size would "
    "show in 8 of 10 samples.",
    "why_same": " That is what the policy does.",
    "and_same": " That is what the policy does.",
    "and_better": " The policy may do better still (chance {chance:b}): use it if deciding row by row costs less than "
    "{costs:b} per {per}{settle}.",
    "and_worse": " The policy is not shown to do better than that.",
    "and_unshown": " It is not shown to beat {how}{best:name}{lot}.",
    "options": "Gains over {default:name} for everybody, per {per}, with {level} intervals.",
    "options_label": "Gain of the policy and of the best single actions over {default} for everybody, per {per}, with "
    "{level} intervals, around a line at zero.",
    "whom_policy": "",
    "whom_single": "Everybody alike, by this advice. ",
    "whom_default": "Nothing changes, by this advice. ",
    "whom_gather": "Nothing changes for now, by this advice. ",
    "whom_unknown": "",
    "brings_policy": "{option:name} over {default:name} for everybody, per {per}",
    "brings_single": "{option:name} over {default:name} for everybody, per {per}",
    "brings_default": "what the policy would gain over {default:name} for everybody, per {per}",
    "brings_gather": "what the policy would gain over {default:name} for everybody, per {per}",
    "brings_same": "nothing new is done; this is what fits without part of the rows gain over {default:name} for "
    "everybody, per {per}",
    "brings_unknown": "the policy over {default:name} for everybody, per {per}",
    "short_clear": ": {gain:b} per {per} ({level} interval {low} to {high}).",
    "short_likely": ": {gain:b} per {per} ({level} interval {low} to {high}).",
    "short_unsettled": ": {gain:b} per {per} ({level} interval {low} to {high}).",
    "short_unlikely": ": {gain:b} per {per} ({level} interval {low} to {high}).",
    "short_same": ".",
    "short_unknown": ".",
    "bars_label": "Mean outcome: {first} {before}, {second} {after}.",
    "dots_label": "20 equally likely values of the gain over {how}{best}{lot}: {above} are above zero.",
    "review": "{count:b} of {rows} rows ({share}) are close calls, with a disagreement above {threshold}: "
    "have a person look at them.",
    "review_none": "No row has a disagreement above {threshold}: there are no close calls to look at.",
    "welfare": "The policy is worth {value:b} per {per}; the {level} interval runs from {low:b} to {high:b}.",
    "alternatives": "The best {rivals}, {how}{best:name}{lot}, is worth {best_value:b} per {per}. "
    "The policy is worth {value:b}: a gain of {gain:b} ({level} interval {low} to {high}).",
    "alternatives_unknown": "The alternatives cannot be compared: their values are not known.",
    "defer": "At a disagreement above {threshold:b}, {count:b} rows ({share}) go to a person. If all of these got "
    "{default:name} instead, the policy would be worth {welfare:b} per {per} ({level} interval {low} to {high}).",
    "defer_none": "At a disagreement above {threshold:b}, no row goes to a person. A lower level shows how many rows "
    "are close calls, and what it would cost if all of them got {default:name}.",
    "bad_cost": "{action:name}: a cost must be a number of {least} or more; {before:b}, that of the fit, is used. ",
    "groups": "In {inside:b} of {groups:b} groups, the {level} interval of the gain contains the expected gain.",
    "budget": "With {budget:b} in all, {spend} per {per}, the gain over {default:name} for everybody is {gain:b} per "
    "{per}, {total:b} in all. The band for all budgets together runs from {low} to {high} per {per} ({level}). The "
    "last place brings {price:b} for each unit of money.",
    "budget_label": "Gain in all against the budget in all, with a band ({level}). At {budget}: {total}.",
    "bad_budget": "A budget must be a number from 0 to {most}; {budget} is shown.",
    "density_label": "Curve of plausible values of what the policy is worth: estimate {value}, {level} interval "
    "{low} to {high}.",
    "forest_label": "What the policy gains over each alternative, with {level} intervals, around a line at zero. "
    "The table after it has the numbers.",
    "spoken": "{level} intervals. Worth {value}, {low} to {high}. Gain over {best:name} {gain}, {gain_low} to "
    "{gain_high}, chance {chance}.",
    "changed": "These are not the costs of the fit. The policy is the same and decides as before; what it and each "
    "single action are worth is recomputed. Other sections keep the costs of the fit.",
    "changed_cost": " {action:name} costs {cost:b} instead of {before}.",
    "changed_logged": " What was done in the log cannot be recomputed and is left out.",
}


def rival(study: Any, place: int) -> dict[str, str]:
    """The best alternative in sentences: one action for everybody, or for as many as can get it."""
    item = study.alternatives[place]
    share = item.get("share")
    limited = share is not None and share < 1.0
    others = f" by lot and {study.default} to the others" if limited else ""
    return {
        "best": study.name(item.get("action")),
        "how": "giving " if limited else "giving everybody ",
        "give": "Give " if limited else "Give everybody ",
        "lot": f" to {percent(share)} of the rows{others}" if limited else "",
        "rivals": rivals(study),
    }


def rivals(study: Any) -> str:
    """What the policy is compared with, one of them."""
    limit = limited_by(study)
    return "single action" if limit is None else f"simple rule within the {limit}"


def limited_by(study: Any) -> str | None:
    """What lets some action be given to a share of the rows only: a budget or a capacity; None where nothing does."""
    if not any((item.get("share") or 1.0) < 1.0 for item in study.alternatives):
        return None
    return "capacity" if study.summary.get("budget") is None else "budget"


TIPS = {  # of the heads of columns
    "All together": "Intervals that contain the gains over all of these at once",
    "Chance": "Chance that the policy is better than this",
    "Effective rows": "As many rows of equal weight would say as much about the action",
    "Smallest propensity": "The least likely that the action was for any row",
    "Outside support": "Rows that hardly ever got the action",
    "Difference in SD": "Difference of the means in standard deviations of the feature",
    "Standard error": "How much the number would vary from one sample to the next",
    "Weight": "How much it counts in the policy",
    "Fitted to": "Which estimates of the outcomes the members learned from",
    "Clip": "Propensities below it are raised to it",
    "Sure": "Probability that the most probable action is the best",
}
GLOSSARY = (
    ("policy", "a rule that gives each row an action"),
    ("single action", "giving everybody the same action"),
    ("default", "the action that people get otherwise"),
    ("gain", "what the policy is worth less what the alternative is worth, per row"),
    ("interval", "a range that contains the true value in as many samples as its level says"),
    ("chance", "how probable it is, given the rows, that the policy is better"),
    ("disagreement", "how split the policies that fit the data are on a row: 0 if all decide alike, 1 if evenly split"),
    ("propensity", "the probability with which an action was taken for a row like this one"),
    ("overlap", "that every kind of row was seen with every action"),
    ("hidden confounding", "something not in the data that moved both the action and the outcome"),
    ("certificate", "a lower bound of the value that holds for any distribution with the stated probability"),
    ("posterior", "the policies that fit the data, each as often as it is plausible"),
    ("zeta", "the setting that pulls a policy towards a coin flip: large is cautious, small is bold"),
    ("eta", "the setting that says how much the rows count against the prior"),
)


def cautions(summary: Any) -> list[Sentence]:
    """What to settle before acting on the advice: tests that failed, and a log that says little."""
    found = (summary.get("check") or {}).get("findings") or []
    failed = sum((one or {}).get("verdict") == "failed" for one in found)
    said = []
    if failed:
        tests = "A test" if failed == 1 else f"{count(failed)} tests"
        said.append(Sentence(f"{tests} of the result failed (see What would break it?): settle that before you act."))
    if (summary.get("overlap") or {}).get("reasons"):
        said.append(Sentence("The log says little about some actions or rows (see Overlap): act with care."))
    return said


def verdict(chance: float | None) -> tuple[str, str]:
    """Key of the pattern for a chance, and the words of its badge."""
    if chance is None:
        return "unknown", "Not known"
    return next((key, badge) for least, key, badge in VERDICTS if chance >= least)


def reviewed_words(study: Any, reviewed: dict[str, Any]) -> Sentence:
    """How many rows a person looks at, and what that is worth."""
    rows, value = reviewed.get("rows"), reviewed.get("value")
    if not rows:
        return Sentence("There is no row where a person's look is worth anything.")
    worth = None if value is None else amount(two_digits(value), None, study.unit.sign)
    return Sentence(
        "Have a person look at the {rows:b} rows that are marked in the decisions: there a look is worth most, at most "
        "about {worth} in all, if it finds the best action each time.",
        {"rows": count(rows), "worth": worth or "an unknown amount"},
    )


def listed(parts: Sequence[str], last: str = " and ") -> str:
    return last.join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def given(actions: Sequence[dict[str, Any]], names: Sequence[str], most: int = 4) -> Sentence:
    """Who gets what: the actions by share, the rarest together."""
    shares = list(zip((action.get("share") for action in actions), names, strict=True))
    ranked = sorted(((share, label) for share, label in shares if share), key=lambda pair: -float(pair[0]))
    if not ranked or any(share is None for share, _ in shares):
        return Sentence("Who gets what is not known.")
    if len(ranked) == 1:
        return Sentence("The policy gives everybody {a0:name}.", {"a0": ranked[0][1]})
    shown = ranked if len(ranked) <= most else ranked[: most - 1]
    words = [f"{{a{i}:name}} to {{s{i}:b}}" for i in range(len(shown))]
    values = {f"a{i}": label for i, (_, label) in enumerate(shown)}
    values |= {f"s{i}": of_rows(share).removesuffix(" rows" if i else "") for i, (share, _) in enumerate(shown)}
    if len(shown) < len(ranked):
        words.append("one of {others} other actions to the rest")
        values["others"] = count(len(ranked) - len(shown))
    return Sentence(f"The policy gives {listed(words)}.", values)


def limited(actions: Sequence[dict[str, Any]], names: Sequence[str]) -> Sentence | None:
    """Which actions only so many can get."""
    limits = [(name, action["capacity"]) for name, action in zip(names, actions, strict=True) if action.get("capacity")]
    if not limits:
        return None
    values = {f"a{i}": name for i, (name, _) in enumerate(limits)}
    values |= {f"c{i}": percent(limit) for i, (_, limit) in enumerate(limits)}
    words = [f"{{c{i}}} of the rows can get {{a{i}:name}}" for i in range(len(limits))]
    return Sentence(f"At most {listed(words)}.", values)


def important(who: Sequence[dict[str, Any]]) -> Sentence:
    """Which features the decision turns on."""
    names = [shorten(str(item.get("feature")), 60) for item in who if (item.get("importance") or 0.0) >= LEAST][:3]
    if not names:
        return Sentence("No feature stands out: who gets what hardly depends on any of them by itself.")
    values = {f"f{i}": name for i, name in enumerate(names)}
    return Sentence(
        f"The decision turns most on {listed([f'{{f{i}:name}}' for i in range(len(names))], ', then ')}.", values
    )


def tree_words(tree: dict[str, Any] | None) -> Sentence:
    """What the small tree is, and how far it can be trusted."""
    if not tree or not tree.get("nodes"):
        return Sentence("There is no small tree of this policy.")
    fidelity = tree.get("fidelity")
    if fidelity is None:
        return Sentence("All rows get the same action, so there is nothing for a tree to split.")
    trust = (
        "It can stand in for the policy in conversation." if fidelity >= 0.9
        else "It is a sketch: use the policy itself to decide." if fidelity >= 0.7
        else "It misses much of what the policy does: use the policy itself to decide."
    )  # fmt: skip
    return Sentence(f"This small tree decides as the policy does in {{rows:b}}. {trust}", {"rows": of_rows(fidelity)})


def propensity_words(overlap: dict[str, Any]) -> Sentence:
    """Whether the log has enough about every action."""
    source = "estimated from the rows" if overlap.get("estimated") else "known"
    if not overlap.get("reasons"):
        return Sentence(f"No sign of weakness: every action was tried on all kinds of rows (propensities {source}).")
    number = len(overlap["reasons"])
    reasons = "this reason" if number == 1 else f"{number} reasons"
    return Sentence(
        f"The log says little about some actions or rows, for {reasons}; read all values here with care "
        f"(propensities {source})."
    )


def zeta_words(path: dict[str, Any], shown: Sequence[str]) -> Sentence:
    """Where on the path the policy sits, and whether that matters; `shown` are the zetas as they are labelled."""
    welfare, error = path["welfare"], path["welfare_se"]
    weights: dict[str, float] = {}
    for name, weight in zip(shown, path["weight"], strict=True):
        weights[name] = weights.get(name, 0.0) + (weight or 0.0)
    main = max(weights, key=lambda name: weights[name])
    known = [value for value in welfare if value is not None]
    errors = [value for value in error if value is not None]
    flat = bool(known) and bool(errors) and max(known) - min(known) <= 2.0 * max(errors)
    rest = "the whole path is worth nearly the same" if flat else "parts of the path are worth clearly less"
    return Sentence(
        f"The policy leans most on zeta {{zeta:b}} ({{weight}} of the weight); {rest}.",
        {"zeta": main, "weight": percent(weights[main])},
    )


def calibration_words(calibration: dict[str, Any], eta: str) -> Sentence:
    note = str(calibration.get("eta_note") or "")
    if calibration.get("reliability"):
        return Sentence("The spread of the posterior is that between folds, zetas and models.", {})
    if calibration.get("eta") is None:
        pattern = "The loss scale eta, which sets the spread of the posterior, was not calibrated"
        return Sentence(f"{pattern}: {{note:name}}." if note else f"{pattern}.", {"note": note})
    choice = note if note.startswith("eta ") else f"eta {eta}, {note}" if note else f"eta {eta}"
    return Sentence("The spread of the posterior is set by the loss scale: {choice:name}.", {"choice": choice})
