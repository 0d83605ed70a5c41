"""Pictures of a policy: its gain over each alternative, by group, and a map of its decisions over two features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.plots.axes import axes_for, label_text, legend_above
from gbpl.plots.colours import BLUE, GREEN, GREY, ORANGE, RED, SKY
from gbpl.tables.features import CategoryColumn, NumberColumn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gbpl.value.by_group import GroupTable
    from gbpl.value.gains import Gains

__all__ = ["plot_by_group", "plot_gain", "plot_rule"]

COLOURS = (BLUE, ORANGE, GREEN, RED, SKY, GREY)
NAME = 32  # letters of a name
REACH = 2.0  # standard deviations of a feature to each side of its mean


def plot_gain(policy: Any, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """The policy's gain over giving everybody each action, by rows that nothing of it has seen.

    Thick lines are intervals one by one, thin ones bands that contain all gains together (`value.gains`). `policy` is
    a fitted policy, a study, or the `Gains` themselves.
    """
    policy = getattr(policy, "fitted", policy)
    gains: Gains = policy.gains() if callable(getattr(policy, "gains", None)) else policy
    ax = _spans(gains, gains.labels, level, axes_for(ax))
    ax.set(xlabel="gain of the policy, per row", ylabel="over")
    return ax


def plot_by_group(table: GroupTable, *, of: str = "gains", level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Gains of the groups of a `GroupTable` (`policy.by_group`), or `of` its values, gain or share differences.

    Thick lines are intervals one by one, thin ones bands that contain those of all groups together.
    """
    names = {
        "gains": f"gain over {label_text(table.actions[table.default], NAME)}, per row", "values": "value, per row",
        "gain_differences": "gain less that of all other rows",
        "share_differences": f"share with another action than {label_text(table.actions[table.default], NAME)}, less "
        "that of all other rows",
    }  # fmt: skip
    if of not in names or getattr(table, of) is None:
        raise ValueError(f"of must be one of {', '.join(names)}, and differences need two groups; got {of!r}")
    ax = _spans(getattr(table, of), table.labels, level, axes_for(ax))
    ax.set(xlabel=names[of], ylabel=label_text(table.column, NAME))
    return ax


def _spans(gains: Gains, labels: Sequence[str], level: float, ax: Axes) -> Axes:
    one, every = gains.intervals(level), gains.bands(level)
    places = np.arange(len(gains.labels))[::-1]
    ax.axvline(0.0, color=GREY, linewidth=0.8, zorder=0)
    ax.hlines(places, every[:, 0], every[:, 1], color=SKY, linewidth=1.5, label=f"{level:.0%} band, all together")
    ax.hlines(places, one[:, 0], one[:, 1], color=BLUE, linewidth=4, label=f"{level:.0%} interval, one by one")
    ax.plot(gains.estimates, places, "o", color=BLUE, markeredgecolor="white", markersize=8)
    ax.set_yticks(places, [label_text(label, NAME) for label in labels])
    ax.set_ylim(-0.6, len(places) - 0.4)
    legend_above(ax, columns=2)
    return ax


def plot_rule(policy: Any, first: str | int, second: str | int, *, points: int = 60, ax: Axes | None = None) -> Axes:
    """What the policy decides over two features, the others at their usual value; fainter where it is less sure.

    `first` is across, `second` upwards: names of columns, or numbers of features where there are no names. Numbers run
    from the first to the 99th percentile of the rows of the fit (of a saved policy, which has none, two standard
    deviations to each side of their mean), categories over their levels. Other numbers stay at their mean
    (of a table: its median), other categories at their first level. The colour is the action of `predict`, the more
    faded the less the randomized policy, `predict_proba`, prefers it. `policy` is fitted, saved, or a study.
    """
    frozen, fitted = getattr(policy, "policy", policy), getattr(policy, "fitted", policy)
    training = getattr(fitted, "_training", None)
    seen = None if training is None else training.feedback.x
    across, up = (_axis(frozen, name, points, seen) for name in (first, second))
    if first == second:
        raise ValueError(f"first and second are both {first!r}; name two features")
    rows = _rows(frozen, first, second, across, up)
    chance = frozen.predict_proba(rows)
    labels = list(frozen.actions_.tolist())
    place = {label: number for number, label in enumerate(labels)}
    taken = np.array([place[label] for label in frozen.predict(rows).tolist()])
    sure = chance[np.arange(len(taken)), taken]
    faded = 0.35 + 0.65 * np.clip((sure - 1.0 / len(labels)) / (1.0 - 1.0 / len(labels)), 0.0, 1.0)
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(COLOURS[number % len(COLOURS)]) for number in range(len(labels))])
    image = np.concatenate([colours[taken], faded[:, None]], axis=1).reshape(len(up), len(across), 4)
    ax = axes_for(ax)
    ends = _ends(across) + _ends(up)
    ax.imshow(image, origin="lower", extent=ends, aspect="auto", interpolation="nearest")
    for number in np.unique(taken).tolist():
        ax.plot([], [], "s", color=COLOURS[number % len(COLOURS)], markersize=9, label=label_text(labels[number], NAME))
    for values, axis in ((across, ax.xaxis), (up, ax.yaxis)):
        if not isinstance(values, np.ndarray):
            axis.set_ticks(range(len(values)), [label_text(value, 14) for value in values])
    ax.set(xlabel=label_text(first, NAME), ylabel=label_text(second, NAME), xlim=ends[:2], ylim=ends[2:])
    legend_above(ax)
    return ax


def _ends(values: Any) -> tuple[float, float]:
    return (values[0], values[-1]) if isinstance(values, np.ndarray) else (-0.5, len(values) - 0.5)


def _spread(policy: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature in the fit."""
    parts = getattr(policy, "standardizer_", policy)
    return np.asarray(parts.mean, float), np.asarray(parts.scale, float)


def _number(policy: Any, name: str | int) -> int:
    """Which feature a name or number means, where there is no encoder."""
    names = [str(one) for one in getattr(policy, "feature_names_in_", [])]
    known: Sequence[Any] = names or range(policy.n_features_in_)
    if name not in known:
        shown = ", ".join(map(repr, list(known)[:10]))
        raise ValueError(f"{name!r} is no feature of this policy; its features are {shown}")
    return list(known).index(name)


def _parts(policy: Any) -> dict[str, tuple[NumberColumn | CategoryColumn, int]] | None:
    """Columns of the encoder with the place of their first feature; None without one."""
    if getattr(policy, "encoder", None) is None:
        return None
    found, place = {}, 0
    for part in policy.encoder.parts:
        found[part.name] = (part, place)
        place += len(part.names)
    return found


def _axis(policy: Any, name: str | int, points: int, seen: np.ndarray | None) -> Any:
    """An array of numbers, or a list of levels."""
    if points < 2:
        raise ValueError(f"points must be 2 or more, got {points}; try 60")
    parts = _parts(policy)
    if parts is None:
        number = _number(policy, name)
    else:
        if name not in parts:
            raise ValueError(f"{name!r} is no column of this policy; its columns are {', '.join(map(repr, parts))}")
        part, number = parts[str(name)]
        if isinstance(part, CategoryColumn):
            return list(part.levels)
        if part.boolean:
            return [False, True]
    if seen is not None:
        low, high = np.quantile(seen[:, number], [0.01, 0.99])
        if high > low:
            return np.linspace(low, high, points)
    mean, sd = (values[number] for values in _spread(policy))
    return np.linspace(mean - REACH * sd, mean + REACH * sd, points)


def _rows(policy: Any, first: str | int, second: str | int, across: Any, up: Any) -> Any:
    """A row for each point of the map, the first feature running fastest."""
    count = len(across) * len(up)
    one = [across[i % len(across)] for i in range(count)]
    two = [up[i // len(across)] for i in range(count)]
    parts = _parts(policy)
    if parts is None:
        x = np.tile(_spread(policy)[0], (count, 1))
        x[:, _number(policy, first)], x[:, _number(policy, second)] = one, two
        names = getattr(policy, "feature_names_in_", None)
        if names is None:
            return x
        import pandas as pd

        return pd.DataFrame(x, columns=names)
    usual: dict[str, Any] = {}
    for name, (part, _) in parts.items():
        value = part.levels[0] if isinstance(part, CategoryColumn) else bool(part.fill) if part.boolean else part.fill
        usual[name] = [value] * count
    return usual | {str(first): one, str(second): two}
