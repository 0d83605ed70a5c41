"""What a language must say for a small rule to be written in it, and the rule said in these words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from gbpl.decisions.scorecard import Scorecard
from gbpl.decisions.tree import LEAF, Tree
from gbpl.tables.features import NumberColumn

if TYPE_CHECKING:
    import numpy as np

    from gbpl.tables.encoder import Encoder

__all__ = ["Features", "Language", "Rules", "said"]

Said = TypeVar("Said")


class Rules(Protocol):
    """A small rule, as `gbpl.frozen.small_rule.SmallRule` holds it."""

    @property
    def rule(self) -> Tree | Scorecard: ...
    @property
    def actions_(self) -> np.ndarray: ...
    @property
    def feature_names(self) -> tuple[str, ...]: ...
    @property
    def encoder(self) -> Encoder | None: ...


class Language(Protocol[Said]):
    """Numbers, conditions and decisions in one language; `Said` is what a piece of it is: text, or JSON."""

    def label(self, number: int) -> Said:
        """The decision for an action, by its column number."""
        ...

    def nothing(self) -> Said:
        """No decision."""
        ...

    def number(self, column: str, fill: float | None) -> Said:
        """A column of numbers, `fill` where it is missing."""
        ...

    def above(self, value: Said, cut: float) -> Said:
        """value > cut."""
        ...

    def always(self, true: bool) -> Said:
        """A condition that every row meets, or none."""
        ...

    def missing(self, column: str, *, text: bool) -> Said:
        """A column without a value; `text`: of categories."""
        ...

    def level(self, column: str, text: str) -> Said:
        """A column with this level."""
        ...

    def other(self, column: str, levels: Sequence[str], or_missing: bool) -> Said:
        """A column with a level that is none of these."""
        ...

    def either(self, conditions: Sequence[Said]) -> Said:
        """Where one or more of the conditions hold."""
        ...

    def every(self, conditions: Sequence[Said]) -> Said:
        """Where all conditions hold."""
        ...

    def enough(self, start: int, points: Sequence[tuple[Said, int]]) -> Said:
        """Where `start` and the points of the conditions that hold add up to zero or more."""
        ...

    def choose(self, condition: Said, then: Said, otherwise: Said) -> Said:
        """A decision where a condition holds, and another where it does not."""
        ...


class Features:
    """Encoded features by raw columns: `Encoder.apply`, one condition at a time."""

    def __init__(self, names: Sequence[str], encoder: Encoder | None) -> None:
        self.names = names
        parts = () if encoder is None else encoder.parts
        self.places = [(part, place) for part in parts for place in range(len(part.names))]

    def above(self, say: Language[Said], feature: int, cut: float) -> Said:
        """The condition that a feature is above `cut`. Marks and levels are 0 or 1: above 0.5 they are there."""
        if not self.places:
            return say.above(say.number(self.names[feature], None), cut)
        part, place = self.places[feature]
        if isinstance(part, NumberColumn) and place == 0:
            return say.above(say.number(part.name, part.fill), cut)
        if not 0.0 <= cut < 1.0:
            return say.always(cut < 0.0)
        return self.there(say, feature)

    def there(self, say: Language[Said], feature: int) -> Said:
        """The condition that a mark or level is there."""
        part, place = self.places[feature]
        if isinstance(part, NumberColumn):
            return say.missing(part.name, text=False)
        place += part.single
        if place < len(part.levels):
            return say.level(part.name, part.levels[place])
        if part.other and place == len(part.levels):
            return say.other(part.name, part.levels, not part.missing)
        return say.missing(part.name, text=True)


def said(small: Rules, say: Language[Said]) -> Said:
    """A small rule in a language. Without an encoder nothing is decided where a number that it asks for is missing."""
    rule, features = small.rule, Features(small.feature_names, small.encoder)
    whole = _tree(rule, say, features, 0) if isinstance(rule, Tree) else _card(rule, say, features, 0)
    used = dict.fromkeys(int(number) for number in rule.feature.tolist() if number != LEAF)
    if small.encoder is not None or not used:
        return whole
    gone = [say.missing(small.feature_names[number], text=False) for number in used]
    return say.choose(say.either(gone), say.nothing(), whole)


def _tree(tree: Tree, say: Language[Said], features: Features, node: int) -> Said:
    if tree.feature[node] == LEAF:
        return say.label(int(tree.action[node]))
    right, left = (_tree(tree, say, features, int(side[node])) for side in (tree.right, tree.left))
    return say.choose(features.above(say, int(tree.feature[node]), float(tree.threshold[node])), right, left)


def _card(card: Scorecard, say: Language[Said], features: Features, action: int) -> Said:
    """The action if it has as many points as each later one, else the decision among those.

    That is the first of those with most points; of two the later one, as everywhere.
    """
    last = len(card.start) - 1
    if action == last:
        return say.label(action)
    met = [
        features.above(say, feature, cut)
        for feature, cut in zip(card.feature.tolist(), card.threshold.tolist(), strict=True)
    ]

    def ahead(of: int, than: int) -> Said:
        more = (card.points[:, of] - card.points[:, than]).tolist()
        return say.enough(
            int(card.start[of] - card.start[than]),
            [(condition, points) for condition, points in zip(met, more, strict=True) if points],
        )

    if last == 1:
        return say.choose(ahead(1, 0), say.label(1), say.label(0))
    wins = say.every([ahead(action, later) for later in range(action + 1, last + 1)])
    return say.choose(wins, say.label(action), _card(card, say, features, action + 1))
