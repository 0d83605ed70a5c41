"""A table read by its roles, as arrays; whatever can be refused is refused here, before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError, column, column_names, is_missing, rows_of
from gbpl.tables.labels import by_label, check_labels, columns_by_label, labels_taken, read_labels
from gbpl.tables.roles import Roles

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["FEW_ROWS", "TableData", "check_rows", "read_roles"]

FEW_ROWS = 20
SUM_TOLERANCE = 1e-3  # propensities printed with four digits still sum to one within it


@dataclass(frozen=True, slots=True, eq=False)
class TableData:
    """A table read by its roles: rows without an outcome or action left out, everything in arrays.

    `taken` holds numbers into `actions`; `kept` says which rows of the table are here, and `table` has the features of
    all of them, `x` of those that are.
    """

    table: Float[np.ndarray, "table_row feature"]
    kept: Bool[np.ndarray, " table_row"]
    x: Float[np.ndarray, "row feature"]
    y: Float[np.ndarray, "..."]
    actions: list[Any]
    taken: Int[np.ndarray, " row"] | None = None
    propensity: Any = None
    controls: Float[np.ndarray, "row control"] | None = None
    weight: Float[np.ndarray, " row"] | None = None
    group: Int[np.ndarray, " row"] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def action(self) -> np.ndarray | None:
        """The label of each row."""
        return None if self.taken is None else np.array(self.actions, object)[self.taken]

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `GBPLNet.fit`, costs aside."""
        found = {
            "X": self.x, "y": self.y, "action": self.action, "propensity": self.propensity, "controls": self.controls,
            "sample_weight": self.weight, "groups": self.group,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}


@dataclass(slots=True, eq=False)
class _Rows:
    """The rows that are still in, and why others are not."""

    frame: Any
    kept: Bool[np.ndarray, " row"]
    notes: list[str]

    def keep(self, fine: Bool[np.ndarray, " row"], what: str) -> None:
        count = int(np.sum(~fine))
        if count:
            self.notes.append(f"{count:,} row{'s' if count > 1 else ''} {what} left out")
            self.kept &= fine

    def numbers(self, name: str, role: str) -> Float[np.ndarray, " row"]:
        """A column as finite numbers, NaN where missing; rows where it is missing do not stay."""
        values = column(self.frame, name)
        missing = is_missing(values)
        if values.dtype.kind not in "biuf":
            self._refuse_text(list(values), missing, f"{role} {name!r}")
        found = np.where(missing, np.nan, values).astype(np.float64)
        infinite = np.isinf(found)
        if infinite.any():
            raise TableError(f"{role} {name!r} is infinite in row {int(np.argmax(infinite))}; correct or drop it")
        if missing.all():
            raise TableError(f"{role} {name!r} is missing in every row; name the column that has it")
        self.keep(~missing, f"without {'an' if role == 'outcome' else 'a'} {role} ({name})")
        return found

    def enough(self) -> Bool[np.ndarray, " row"]:
        """The rows that stay, unless they are too few."""
        check_rows(int(self.kept.sum()), len(self.kept))
        return self.kept

    def _refuse_text(self, listed: list[Any], missing: Bool[np.ndarray, " row"], whose: str) -> None:
        """True and false count as numbers, also where some are missing."""
        plain = (bool, int, float, np.bool_, np.integer, np.floating)
        rows = [row for row in np.flatnonzero(~missing).tolist() if not isinstance(listed[row], plain)]
        if rows:
            row = next((row for row in rows if not _reads_as_number(listed[row])), rows[0])  # the word among numbers
            raise TableError(
                f"{whose} must be numbers, and row {row} has {str(listed[row])!r:.60}; turn it into numbers (yes and "
                "no into 1 and 0), or name another column"
            )


def _reads_as_number(value: Any) -> bool:
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def check_rows(count: int, of: int) -> None:
    """Refuse a table that is too short to learn from or to judge by."""
    if count < FEW_ROWS:
        raise TableError(
            f"{count} complete row(s) of {of} are left, and at least {FEW_ROWS} are needed to learn or judge anything; "
            "look at what is missing"
        )


def read_roles(
    frame: Any, roles: Roles, encoder: Encoder, *, what: str = "the table", actions: Sequence[Any] | None = None
) -> TableData:
    """Arrays for a fit or an evaluation from a table, by roles; raises `TableError` before any work.

    `actions` are those of a policy that is to be judged, in its order; those found in the table if None.
    """
    roles.check(column_names(frame), what)
    rows = _Rows(frame, np.ones(rows_of(frame), bool), [])
    named = [roles.outcome] if roles.outcomes is None else list(roles.outcomes)
    y = np.column_stack([rows.numbers(name, "outcome") for name in named if name is not None])
    codes = labels = None
    if roles.action is not None:
        codes, labels = read_labels(column(frame, roles.action), roles.action)
        check_labels(labels, roles.action, int(np.sum(codes >= 0)))
        rows.keep(codes >= 0, f"without an action ({roles.action}; NA, None, null and . in a text file mean missing)")
    weight = None if roles.weight is None else _weights(rows, roles.weight)
    chance = rows.numbers(roles.propensity, "propensity") if isinstance(roles.propensity, str) else None
    group = None if roles.group is None else _groups(rows, roles.group)
    kept = rows.enough()
    if codes is None or labels is None:
        taken, order, listed = None, *columns_by_label(list(roles.outcomes or ()), actions)
    else:
        order, (taken, listed) = [0], labels_taken(codes[kept], labels, str(roles.action), actions)
    features = encoder.apply(frame)[0]
    return TableData(
        table=features,
        kept=kept,
        x=features if kept.all() else features[kept],
        y=y[kept][:, order] if taken is None else y[kept, 0],
        actions=listed,
        taken=taken,
        propensity=_propensity(roles, chance, kept, listed),
        controls=_controls(rows, roles),
        weight=None if weight is None else weight[kept],
        group=None if group is None else _some_groups(group[kept], str(roles.group)),
        notes=rows.notes,
    )


def _weights(rows: _Rows, name: str) -> Float[np.ndarray, " row"]:
    weight = rows.numbers(name, "weight")
    if np.any(weight < 0.0):
        row = int(np.argmax(weight < 0.0))
        raise TableError(f"weight {name!r} is {weight[row]:g} in row {row}; a weight is >= 0: correct it")
    if not np.any(weight > 0.0):
        raise TableError(f"weight {name!r} is 0 in every row; leave it out, or name another column")
    rows.keep(weight != 0.0, f"of weight 0 ({name})")
    return weight


def _groups(rows: _Rows, name: str) -> Int[np.ndarray, " row"]:
    values = column(rows.frame, name)
    missing = is_missing(values)
    rows.keep(~missing, f"without a group ({name})")
    if values.dtype.kind != "O":
        return np.unique(values, return_inverse=True)[1]
    text = list(map(str, values.tolist()))
    place = {label: number for number, label in enumerate(dict.fromkeys(text))}
    return np.fromiter(map(place.__getitem__, text), np.int64, len(text))


def _some_groups(group: Int[np.ndarray, " row"], name: str) -> Int[np.ndarray, " row"]:
    found, numbers = np.unique(group, return_inverse=True)
    if len(found) == 1:
        raise TableError(f"all rows are in one group of {name!r}; folds keep groups together: leave it out")
    return numbers


def _controls(rows: _Rows, roles: Roles) -> Float[np.ndarray, "row control"] | None:
    if not roles.controls:
        return None
    helper, told = Encoder.fit(rows.frame, list(roles.controls))
    rows.notes += [f"control: {note}" for note in told]
    return helper.apply(rows.frame)[0][rows.kept]


def _propensity(
    roles: Roles, chance: Float[np.ndarray, " row"] | None, kept: Bool[np.ndarray, " row"], labels: Sequence[Any]
) -> Any:
    """What `fit` takes: a number, a mapping of all labels, one number a row, or None."""
    given = roles.propensity
    if chance is not None:
        _check_chances(chance, kept, str(given), len(labels))
        return chance[kept]
    if isinstance(given, Mapping):
        return _chance_of_each(given, labels)
    if given is None or isinstance(given, str):
        return None
    fine = isinstance(given, int | float | np.number) and 0.0 < given < 1.0
    if not fine or (len(labels) > 2 and abs(given * len(labels) - 1.0) > SUM_TOLERANCE):
        of = "the second action" if len(labels) == 2 else f"each of {len(labels)} actions, so 1/{len(labels)}"
        raise TableError(
            f"propensity as one number is the probability of {of}, in (0, 1); got {given!r:.40}: give a mapping from "
            "action to probability, or the name of a column"
        )
    return float(given)


def _check_chances(chance: Float[np.ndarray, " row"], kept: Bool[np.ndarray, " row"], name: str, count: int) -> None:
    wrong = kept & ~((chance > 0.0) & ((chance < 1.0) if count == 2 else (chance <= 1.0)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TableError(
            f"propensity {name!r} is {chance[row]:g} in row {row} ({int(wrong.sum()):,} such row(s)); it is the "
            "probability of the action taken, in (0, 1): drop rows in which there was no choice, or leave it out and "
            "it is estimated"
        )


def _chance_of_each(given: Mapping[Any, float], labels: Sequence[Any]) -> dict[Any, float]:
    chances = by_label(given, labels, "propensity")
    absent = [label for label in labels if label not in chances]
    if absent:
        raise TableError(f"propensity does not name the action {absent[0]!r}; give that of every action")
    if min(chances.values()) <= 0.0 or abs(sum(chances.values()) - 1.0) > SUM_TOLERANCE:
        raise TableError(f"propensity must be > 0 for every action and sum to 1, got {dict(given)!r:.200}")
    return chances
