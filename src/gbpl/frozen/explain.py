"""Why this one? One row's decision: how sure, what each action brings, which columns moved it, what would flip it.

What is explained is the expected gain over the default action of the action decided, or, where that is the default
itself, of the best of the others. Columns move it from its value for the average row of the training data, the mean of
every feature, to that of the row (`frozen.shapley`): exactly, by all coalitions of up to `MOST_PLAYERS` columns that
differ, or where members are additive or forests that nothing squashes (`frozen.closed_form`); else by random orders,
with their error. The features of one raw column, such as the levels of a category, move together.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.frozen.closed_form import additive_or_tree
from gbpl.frozen.committee import Committee, Part
from gbpl.frozen.flip import Flip, nearest_flips
from gbpl.frozen.players import Player, players_of
from gbpl.frozen.shapley import coalitions, from_orders, from_table
from gbpl.report.numbers import ascii_number, decimal_places

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.frozen.policy import NumpyPolicy

__all__ = ["EXACT", "SAMPLED", "ActionGain", "Contribution", "Explanation", "explain"]

EXACT, SAMPLED = "exact", "sampled"
MOST_PLAYERS = 12  # 4,096 coalitions: a twentieth of a second
ROWS, LEAST_PAIRS = 1 << MOST_PLAYERS, 64  # of coalitions along random orders; pairs of orders at least
SHOWN = 8  # columns in the text


@dataclass(frozen=True, slots=True)
class ActionGain:
    """What an action is expected to gain over the default one; None for what is not known.

    `price` is that of an action of limited capacity, which its gain must exceed.
    """

    action: Any
    gain: float
    low: float | None
    high: float | None
    draw_share: float | None
    price: float


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a column adds to the gain, against the average row, whose value is `reference` (None for categories)."""

    column: str
    value: str
    reference: str | None
    contribution: float
    se: float


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Why a row is decided as it is.

    `gains` are those of every action over the `default` one, with intervals of the `level`; `draw_share` is the share
    of posterior draws that take `decided`. `gain`, that of `about`, is `reference_gain`, that of the average row, plus
    the `contributions`, largest first: Shapley values, `mode` "exact" or "sampled". `flips` are the nearest changes
    that would change the decision, without the columns that are `fixed`.
    """

    decided: Any
    default: Any
    draw_share: float | None
    level: float
    gains: tuple[ActionGain, ...]
    about: Any
    gain: float
    reference_gain: float
    contributions: tuple[Contribution, ...]
    mode: str
    flips: tuple[Flip, ...]
    fixed: tuple[str, ...]

    @property
    def flip(self) -> Flip | None:
        """The nearest change that would change the decision; None where none was found."""
        return self.flips[0] if self.flips else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; labels as text."""
        plain = {name: getattr(self, name) for name in ("draw_share", "level", "gain", "reference_gain", "mode")}
        return plain | {
            **{name: str(getattr(self, name)) for name in ("decided", "default", "about")},
            "gains": [asdict(one) | {"action": str(one.action)} for one in self.gains],
            "contributions": [asdict(one) for one in self.contributions],
            "flips": [flip.to_dict() for flip in self.flips],
            "fixed": list(self.fixed),
        }

    def __str__(self) -> str:
        return "\n".join([*self._decision(), *self._moved(), *self._flipping()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _amount(self, value: float, *, signed: bool = False) -> str:
        widths = [one.high - one.low for one in self.gains if one.high is not None and one.low is not None]
        error = max(widths, default=max(abs(self.gain), abs(self.reference_gain)) / 5.0) / 4.0
        text = ascii_number(value, decimal_places(error))
        return f"+{text}" if signed and not text.startswith("-") else text

    def _decision(self) -> list[str]:
        sure = "" if self.draw_share is None else f", in {100.0 * self.draw_share:.3g} % of the draws"
        known = any(one.low is not None for one in self.gains)
        how = f", with {100 * self.level:g} % intervals" if known else ""
        lines = [f"Decided: {_word(self.decided)}{sure}.", f"Expected gain over {_word(self.default)}{how}:"]
        for one in (one for one in self.gains if one.action != self.default):
            ends = "" if one.low is None or one.high is None else (
                f" ({self._amount(one.low)} to {self._amount(one.high)})"
            )  # fmt: skip
            price = f", and its price is {self._amount(one.price)}" if one.price else ""
            lines.append(f"  {_word(one.action)}: {self._amount(one.gain)}{ends}{price}")
        return lines

    def _moved(self) -> list[str]:
        what = f"the gain of {_word(self.about)} over {_word(self.default)}"
        lines = [
            f"What moved {what} from {self._amount(self.reference_gain)}, for the average row, to "
            f"{self._amount(self.gain)}:"
        ]
        moving = [one for one in self.contributions if one.contribution != 0.0]
        large = [one for one in moving[:SHOWN] if self._amount(one.contribution).strip("-0.")]
        for one in large:
            average = "" if one.reference is None else f" (average {one.reference})"
            error = f" +- {self._amount(one.se)}" if one.se > 0.0 else ""
            moved = f"  {self._amount(one.contribution, signed=True)}{error}"
            lines.append(f"{moved}  {_word(one.column)} = {_word(one.value)}{average}")
        rest = [one.contribution for one in moving[len(large) :]]
        if rest:
            others = "1 other column" if len(rest) == 1 else f"{len(rest)} other columns together"
            lines.append(f"  {self._amount(sum(rest), signed=True)}  {others}")
        return lines if moving else [f"No column moves {what} from {self._amount(self.gain)}, as for the average row."]

    def _flipping(self) -> list[str]:
        if not self.flips:
            which = f" other than {', '.join(map(_word, self.fixed))}" if self.fixed else ""
            return [f"No change of one or two columns{which} within what was seen would change the decision."]
        first, *others = self.flips
        return [f"Nearest change: {_word(first)}.", *(f"Or: {_word(flip)}." for flip in others)]


def _word(text: object) -> str:
    """A user's text on one line."""
    return " ".join(str(text).split())


def explain(
    policy: NumpyPolicy, x: Float[np.ndarray, " feature"], *, fixed: Sequence[str], level: float, seed: int
) -> Explanation:
    """The explanation of one row, given as features."""
    players = players_of(policy)
    fixed = (fixed,) if isinstance(fixed, str) else tuple(fixed)
    unknown = sorted(set(fixed) - {player.name for player in players})
    if unknown:
        listed = ", ".join(player.name for player in players[:20])
        raise ValueError(f"fixed names {unknown[0]!r}, which is no column of the policy; it has {listed}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}; try 0.9")
    drawn = policy.effects is not None and policy.effects.draw_count > 0
    interval = policy.expected_gain(x[None], level=level) if drawn else None
    gain, decided = policy.expected_gain(x[None])[0], policy.decide(x[None])
    prices = policy.rule.prices or (0.0,) * len(gain)
    number, default = int(policy.choices(x[None]).action[0]), policy.rule.default
    net = np.where(np.arange(len(gain)) == default, -np.inf, gain - np.array(prices))
    about = int(np.argmax(net)) if number == default else number
    moved, error, mode, ends = _shapley(policy, x, players, about, seed)
    order = np.argsort(-np.abs(moved), kind="stable").tolist()
    may_change = [players[at] for at in order if players[at].name not in fixed]
    labels, share = policy.actions_.tolist(), None if decided.draw_share is None else decided.draw_share[0]
    return Explanation(
        decided=labels[number], default=labels[default], draw_share=None if share is None else float(share[number]),
        level=level, about=labels[about], gain=ends[1], reference_gain=ends[0], mode=mode, fixed=fixed,
        gains=tuple(
            ActionGain(
                label, float(gain[a]), None if interval is None else float(interval.low[0, a]),
                None if interval is None else float(interval.high[0, a]), None if share is None else float(share[a]),
                float(prices[a]),
            )
            for a, label in enumerate(labels)
        ),
        contributions=tuple(
            Contribution(one.name, one.text(x), one.reference, float(moved[at]), float(error[at]))
            for at, one in ((at, players[at]) for at in order)
        ),
        flips=tuple(nearest_flips(lambda rows: policy.choices(rows).action, x, may_change, policy.actions_)),
    )  # fmt: skip


def _shapley(
    policy: NumpyPolicy, x: Float[np.ndarray, " feature"], players: Sequence[Player], about: int, seed: int
) -> tuple[Float[np.ndarray, " player"], Float[np.ndarray, " player"], str, tuple[float, float]]:
    """Contribution of each column to the gain of an action, its standard error, how it was found, and both ends.

    The ends are computed together with the coalitions between them, so that not even rounding is left over.
    """
    kept = np.arange(len(x)) if policy.columns is None else np.asarray(policy.columns)
    differ = np.zeros(len(x), bool)
    differ[kept] = x[kept] != policy.mean[kept]
    active = [number for number, player in enumerate(players) if differ[player.at].any()]
    moved, error = np.zeros(len(players)), np.zeros(len(players))
    owner = np.full(len(x), -1)
    for number, at in enumerate(active):
        owner[players[at].at] = number
    if len(active) <= MOST_PLAYERS:
        rows = np.where(coalitions(len(active))[:, owner] & (owner >= 0), x, policy.mean) if active else x[None]
        values = policy.expected_gain(rows)[:, about]
        moved[active] = from_table(values)
        return moved, error, EXACT, (float(values[0]), float(values[-1]))
    some, error[active], mode = _many(policy, x, owner, len(active), about, seed)
    start, end = policy.expected_gain(np.stack([policy.mean, x]))[:, about].tolist()
    moved[active] = _efficient(some, end - start)
    return moved, error, mode, (start, end)


def _many(
    policy: NumpyPolicy, x: Float[np.ndarray, " feature"], owner: Int[np.ndarray, " feature"], count: int, about: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, str]:  # fmt: skip
    """In closed form for the members that have one, and by random orders for the others."""
    assert policy.gain is not None
    default, slope = policy.rule.default, policy.gain.slope * (1.0 if policy.effects is None else policy.effects.slope)
    given = policy.squashing, policy.mean, policy.scale, len(policy.actions_), None, policy.columns
    ends = Committee(policy.parts, *given).standardized(np.stack([x, policy.mean]))
    player = np.where(owner < 0, count, owner)[slice(None) if policy.columns is None else policy.columns]
    linear = additive_or_tree(policy.parts, policy.squashing, ends[0], ends[1], player, count + 1)
    raw = sum(one.values for one in linear)[:count]  # type: ignore[index]
    between = raw[:, 0] * (about - default) if raw.shape[1] == 1 else raw[:, about] - raw[:, default]
    weights = [np.where(one.members, 0.0, part.weights) for part, one in zip(policy.parts, linear, strict=True)]
    if not any(own.any() for own in weights):
        return slope * between, np.zeros(count), EXACT
    rest = Committee([Part(part.form, own) for part, own in zip(policy.parts, weights, strict=True)], *given)

    def value(inside: np.ndarray) -> np.ndarray:
        deviation, _ = rest.apply(np.where(inside[:, owner] & (owner >= 0), x, policy.mean), draws=False)
        return slope * (deviation[:, about] - deviation[:, default])

    sampled, error = from_orders(value, count, pairs=max(LEAST_PAIRS, ROWS // (2 * count)), seed=seed)
    return slope * between + sampled, error, SAMPLED


def _efficient(values: Float[np.ndarray, " player"], total: float) -> Float[np.ndarray, " player"]:
    """The values with the rounding of float32 spread over them in proportion, so that they add up to the total."""
    size = np.abs(values).sum()
    return values + (total - values.sum()) * np.abs(values) / size if size > 0.0 else values
