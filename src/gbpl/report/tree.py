"""The small decision tree: nodes within nodes for drawing, and the same as rules in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gbpl.report.svg import shorten

__all__ = ["Branch", "Rule", "fits_side_by_side", "grown", "rules"]

DEEPEST = 12
LONGEST = 60  # letters of a feature in a question
WIDEST = 96  # letters that a desk has room for side by side


@dataclass(frozen=True, slots=True)
class Branch:
    """A node: a question with two answers, or (`question` None) an action."""

    question: str | None
    action: int | None
    rows: int | None
    share: float | None
    yes: Branch | None = None
    no: Branch | None = None
    otherwise: str = ""

    @property
    def leaves(self) -> int:
        return 1 if self.yes is None or self.no is None else self.yes.leaves + self.no.leaves

    @property
    def depth(self) -> int:
        return 0 if self.yes is None or self.no is None else 1 + max(self.yes.depth, self.no.depth)


@dataclass(frozen=True, slots=True)
class Rule:
    """A way from the root to a leaf."""

    conditions: tuple[str, ...]
    leaf: Branch


def grown(tree: dict[str, Any] | None) -> Branch | None:
    """The tree from its first node; None where there is none."""
    nodes = [node for node in (tree or {}).get("nodes") or [] if node]
    if not nodes:
        return None
    return _branch(nodes[0], {node["id"]: node for node in nodes}, DEEPEST)


def _branch(node: dict[str, Any], by_id: dict[Any, dict[str, Any]], depth: int) -> Branch:
    question, sides = node.get("text"), [by_id.get(node.get("left")), by_id.get(node.get("right"))]
    if question is None or depth == 0 or sides[0] is None or sides[1] is None:
        return Branch(None, node.get("action"), node.get("rows"), node.get("share"))
    yes, no = (_branch(side, by_id, depth - 1) for side in sides if side is not None)
    if yes.question is None and no.question is None and yes.action == no.action:
        return Branch(None, node.get("action"), node.get("rows"), node.get("share"))  # a question without consequence
    asked, otherwise, turned = _answers(str(question), str(node.get("feature")))
    yes, no = (no, yes) if turned else (yes, no)
    return Branch(asked, node.get("action"), node.get("rows"), node.get("share"), yes, no, otherwise)


def _answers(question: str, feature: str) -> tuple[str, str, bool]:
    """What holds where the answer is yes, where it is no, and whether to turn the two round: nobody asks `is it not`.

    A feature's own name may hold any sign, so the question is compared with the name.
    """
    name, _, level = feature.partition("=")
    if level and question == f"{name} is not {level}":
        name, level = shorten(name, LONGEST), shorten(level, LONGEST)
        return f"{name} is {level}", f"{name} is not {level}", True
    if question.startswith(f"{feature} <= "):
        name, limit = shorten(feature, LONGEST), question.removeprefix(f"{feature} <= ")
        return f"{name} \u2264 {limit}", f"{name} > {limit}", False
    question = shorten(question, 2 * LONGEST)
    if question.endswith(" is known"):
        return question, f"{question.removesuffix(' is known')} is missing", False
    return question, f"not ({question})", False


def rules(branch: Branch, before: tuple[str, ...] = ()) -> list[Rule]:
    """Every leaf with the conditions that lead to it."""
    if branch.yes is None or branch.no is None or branch.question is None:
        return [Rule(before, branch)]
    return rules(branch.yes, (*before, branch.question)) + rules(branch.no, (*before, branch.otherwise))


def fits_side_by_side(root: Branch, names: Sequence[str]) -> bool:
    """Whether a desk has room to draw the tree from the top down; else, and on a phone, it goes line by line."""
    room = WIDEST // max(root.leaves, 1)
    questions = [condition for rule in rules(root) for condition in rule.conditions]
    return max(map(len, questions), default=0) <= 2 * room and max(map(len, names), default=0) <= 1.6 * room
