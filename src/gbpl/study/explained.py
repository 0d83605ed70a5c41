"""A handful of decisions explained: rows that are nobody's, each made of a group of similar ones.

Microaggregation (Domingo-Ferrer and Mateo-Sanz 2002): a group of at least the smallest size that a study may show
becomes one row, the median of its numbers and the most common level of its categories. No row is in two groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.frozen.players import Player, players_of
from gbpl.tables.features import CategoryColumn

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.frozen.policy import NumpyPolicy

__all__ = ["explained"]

MOST = 8
GROUP = 20  # rows of a group, where there are enough
SPARSE = 3  # groups an action must have rows for before it has more than one
AT = {"close call": 0.05, "clear case": 0.95}  # quantile of the margin that a group is around
LEVEL = 0.9
MOST_COLUMNS = 30


def explained(policy: NumpyPolicy, x: Float[np.ndarray, "row feature"], smallest: int) -> dict[str, Any] | None:
    """For the summary: typical rows, close calls and clear cases of each action, at most `MOST`, with explanations.

    `policy` has the rule and the encoder of the study, and `x` are the features of its rows.
    """
    if policy.gain is None:
        return None
    players, rows = players_of(policy), []
    for kind, group in _groups(policy, x, smallest):
        row = _typical(x, group, players, smallest)
        found = policy.explain(row[None], level=LEVEL)
        shown = found.to_dict()
        rest = shown["contributions"][MOST_COLUMNS:]
        others = {"columns": len(rest), "contribution": sum(one["contribution"] for one in rest)} if rest else None
        shown |= {"contributions": shown["contributions"][:MOST_COLUMNS], "others": others, "text": str(found)}
        rows.append({"kind": kind, "rows": len(group), **shown})
    return {"level": LEVEL, "reference": "the average row", "rows": rows} if rows else None


def _groups(
    policy: NumpyPolicy, x: Float[np.ndarray, "row feature"], smallest: int
) -> Iterator[tuple[str, Int[np.ndarray, " own"]]]:
    """Kind and rows of each group: first a typical one of each action, then close calls, then clear cases."""
    chosen = policy.choices(x)
    assert chosen.gain is not None
    net = np.sort(chosen.gain - np.array(policy.rule.prices or (0.0,) * chosen.gain.shape[1]), axis=1)
    margin = net[:, -1] - net[:, -2]
    free = np.ones(len(x), bool)
    counts = np.bincount(chosen.action, minlength=chosen.gain.shape[1])
    often = [action for action in np.argsort(-counts, kind="stable").tolist() if counts[action] >= smallest]
    given = 0
    for kind in ("typical", *AT):
        for action in often:
            own = np.flatnonzero(chosen.action == action)
            size = max(smallest, min(GROUP, len(own) // SPARSE))
            if given == MOST or (kind in AT and len(own) < SPARSE * size):
                continue
            own = own[free[own]]
            z = chosen.standardized[own]
            if kind in AT:
                centre = z[np.argmin(np.abs(margin[own] - np.quantile(margin[own], AT[kind])))]
            else:
                centre = np.median(z, axis=0)
            near = np.argsort(np.sum((z - centre) ** 2, axis=1), kind="stable")[: min(size, len(own))]
            free[own[near]] = False
            given += 1
            yield kind, own[near]


def _typical(
    x: Float[np.ndarray, "row feature"], group: Int[np.ndarray, " own"], players: list[Player], smallest: int
) -> Float[np.ndarray, " feature"]:
    """The median of numbers, in few digits, and the most common level of categories that enough rows have."""
    row = np.zeros(x.shape[1])
    for player in players:
        own = x[np.ix_(group, player.at)]
        if isinstance(player.column, CategoryColumn):
            row[player.at] = _most_common(own, x[:, player.at], smallest)
            continue
        gone = own[:, 1] > 0.5 if len(player.at) > 1 else np.zeros(len(own), bool)
        if 2 * gone.sum() > len(own):
            row[player.at] = own[np.argmax(gone)]  # missing, and filled in alike
        else:
            boolean = player.column is not None and player.column.boolean
            places = 0 if boolean else min(player.places, 0) if player.whole else player.places
            row[player.at[0]] = round(float(np.median(own[~gone, 0])), places)
    return row


def _most_common(
    own: Float[np.ndarray, "row level"], every: Float[np.ndarray, "row level"], smallest: int
) -> Float[np.ndarray, " level"]:
    levels, counts = np.unique(own, axis=0, return_counts=True)
    best = levels[np.argmax(counts)]
    if np.count_nonzero((every == best).all(axis=1)) >= smallest:
        return best
    levels, counts = np.unique(every, axis=0, return_counts=True)
    return np.asarray(levels[np.argmax(counts)])
