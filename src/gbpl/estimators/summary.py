"""A fitted policy on one page: what it learned from, what it is worth, and what that assumes; text, HTML and LaTeX."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.nuisance.nuisances import Nuisances
from gbpl.report.numbers import ascii_number, chance, decimal_places
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from gbpl.estimators.fitted import FittedPolicy

__all__ = ["PolicySummary", "summarize_policy"]

HEADS = ("alternative", "value", "se", "gain", "se", "95 % interval", "chance")
LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
         "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """`facts` by name; `rows` are the policy and what it is compared with, under `HEADS`; `assumptions` in words."""

    title: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        wide = max(len(name) for name, _ in self.facts)
        columns = [max(map(len, column)) for column in zip(HEADS, *self.rows, strict=True)]
        table = [
            "  ".join(text.ljust(columns[0]) if not place else text.rjust(columns[place]) for place, text in pairs)
            for pairs in (list(enumerate(row)) for row in (HEADS, *self.rows))
        ]
        line = "-" * len(table[0])
        facts = [f"{name.ljust(wide)}  {value}" for name, value in self.facts]
        assumed = [f"- {text}" for text in self.assumptions]
        return "\n".join([self.title, line, *facts, line, table[0], line, *table[1:], line, "Assumes:", *assumed])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self.facts)
        heads = "".join(f"<th>{escape(head)}</th>" for head in HEADS)
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        assumed = "".join(f"<li>{escape(text)}</li>" for text in self.assumptions)
        return (
            f"<h4>{escape(self.title)}</h4><table>{facts}</table><table><thead><tr>{heads}</tr></thead>"
            f"<tbody>{rows}</tbody></table><p>Assumes:</p><ul>{assumed}</ul>"
        )

    def to_latex(self) -> str:
        """A `table` with `tabular` inside; facts and assumptions are its notes. It needs the package booktabs."""
        body = [" & ".join(map(_latex, row)) + r" \\" for row in self.rows]
        notes = "; ".join(f"{name}: {value}" for name, value in self.facts)
        return "\n".join([
            r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(HEADS) - 1)}}}", r"\toprule", " & ".join(map(_latex, HEADS)) + r" \\",
            r"\midrule", *body, r"\bottomrule", r"\end{tabular}", "",
            rf"\footnotesize {_latex(notes)}. Assumes: {_latex('; '.join(self.assumptions))}.", r"\end{table}",
        ])  # fmt: skip


def _latex(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def summarize_policy(policy: FittedPolicy) -> PolicySummary:
    """The summary of a fitted policy, by rows that nothing of it has seen."""
    training = policy.training("summarize it where it was fitted")
    feedback, nuisances = training.feedback, training.nuisances
    value, gains = policy.cross_fitted_value(), policy.gains()
    singles = [option for option in training.evaluator("dr").alternatives() if option.action is not None]
    places = decimal_places(value.se)
    own = ascii_number(value.estimate, places), ascii_number(value.se, places)
    rows: list[tuple[str, ...]] = [("the policy", *own, "", "", "", "")]
    for option, gain in zip(singles, gains.values, strict=True):
        low, high = gain.interval()
        rows.append((
            option.label,
            *(ascii_number(x, places) for x in (option.value.estimate, option.value.se, gain.estimate, gain.se)),
            f"{ascii_number(low, places)} to {ascii_number(high, places)}",
            chance(gain.probability_positive).replace("\u00a0", " "),
        ))  # fmt: skip
    return PolicySummary(
        f"{type(policy).__name__} policy for {len(policy.actions_)} actions",
        _facts(policy, training, deterministic(policy.predict_proba(feedback.x))),
        tuple(rows),
        _assumptions(nuisances, feedback.groups),
    )


def _facts(policy: Any, training: Any, given: np.ndarray) -> tuple[tuple[str, str], ...]:
    feedback, labels = training.feedback, policy.actions_.tolist()
    shares = np.bincount(given, minlength=len(labels)) / len(given)
    groups = None if feedback.groups is None else len(np.unique(feedback.groups))
    seed = policy.random_state
    return (
        ("rows", f"{len(feedback):,}"),
        ("features", f"{policy.n_features_in_:,}"),
        ("clusters", "none: every row is its own" if groups is None else f"{groups:,} groups of rows"),
        ("weights", "none" if feedback.weights is None else "sample weights"),
        ("feedback", "full: outcomes of every action" if training.nuisances is None else "logged: one action per row"),
        ("gives", ", ".join(f"{label} to {share:.0%}" for label, share in zip(labels, shares, strict=True))),
        ("members", f"{len(policy.member_weights_)}: models and zetas over {policy.committee} folds"),
        ("seeds", f"1 (random_state={seed!r})"),
        ("chance that it beats every single action", chance(policy.gains().chance).replace("\u00a0", " ")),
    )


def _assumptions(nuisances: Nuisances | None, groups: Any) -> tuple[str, ...]:
    independent = "rows are independent" if groups is None else "groups of rows are independent of each other"
    common = (
        f"{independent}, and new rows come from where these came from",
        "what one row gets does not change the outcome of another",
        "errors count the rows and that the policy was learned from them; not another seed, nor another learner",
    )
    if nuisances is None:
        return common
    if nuisances.estimated:
        return ("propensities are estimated, and right; nothing unrecorded moved both action and outcome", *common)
    return ("the given propensities are right", *common)
