"""The one reader: whatever data a user gives become one frozen value, `FullFeedback` or `LoggedFeedback`.

`read_feedback` takes arrays and frames of numbers, as `fit` does; `read_table` takes a table of any library by the
roles of its columns. Wrong data are refused here, before any work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.actions import check_propensity
from gbpl.feedback.checks import align_outcomes, check_groups, check_weights, label_array
from gbpl.feedback.content import distinct_rows
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.given import LARGEST, check_magnitude
from gbpl.feedback.logged import LoggedFeedback
from gbpl.runtime.warn import warn
from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError, column, column_names, is_missing, rows_of
from gbpl.tables.labels import check_labels, columns_by_label, labels_taken, read_labels
from gbpl.tables.roles import Roles

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = [
    "ARGUMENTS", "FEW_ROWS", "Feedback", "TableFeedback", "check_rows", "read_beside", "read_feedback", "read_table",
]  # fmt: skip

Feedback = FullFeedback | LoggedFeedback
ARGUMENTS = ("X", "y", "action", "propensity", "controls", "cost", "sample_weight", "groups", "outcome_gap")  # of `fit`
FEW_ROWS = 20


# -- arrays and frames ------------------------------------------------------------------------------------------------


def read_feedback(
    X: Any,
    y: Any = None,
    action: Any = None,
    propensity: Any = None,
    controls: Any = None,
    cost: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    outcome_gap: Any = None,
    *,
    actions: Sequence[Any] | None = None,
    align: bool = False,
    min_rows: int = 2,
) -> Feedback:
    """The data of `fit`, checked.

    `X` may be a `FullFeedback` or `LoggedFeedback`, which holds all of these. `actions` are the labels in the order
    wanted; with `align` a frame of outcomes is brought into that order by the names of its columns.
    """
    if isinstance(X, FullFeedback | LoggedFeedback):
        given = (y, action, propensity, controls, cost, sample_weight, groups, outcome_gap)
        if any(part is not None for part in given):
            raise ValueError(
                f"a {type(X).__name__} has its outcome, action, propensity and so on; give it alone, without y"
            )
        if actions is not None and list(actions) != X.actions.tolist():
            raise ValueError(
                f"actions is {list(actions)}, but those of the {type(X).__name__} are {X.actions.tolist()}"
            )
        return X
    if action is not None:
        if outcome_gap is not None:
            raise TableError("outcome_gap is given with action; a log has y, the outcome of the action taken")
        logged = LoggedFeedback.of(
            X, y, action, propensity=propensity, controls=controls, cost=cost, sample_weight=sample_weight,
            groups=groups, actions=actions,
        )  # fmt: skip
        return _without_copies(logged)
    for name, part in (("propensity", propensity), ("controls", controls)):
        if part is not None:
            raise ValueError(f"{name} is given without action; give the action taken on each row too")
    table = align_outcomes(y, label_array(actions)) if align and actions is not None else y
    full = FullFeedback.of(
        X, table, outcome_gap=outcome_gap, actions=actions, cost=cost, sample_weight=sample_weight, groups=groups,
        min_rows=min_rows,
    )  # fmt: skip
    return _without_copies(full)


def _without_copies(feedback: Feedback) -> Feedback:
    """The rows once, with a warning, where every one is there several times and no groups say why."""
    rows, message = _copies(feedback)
    if message:
        warn(f"{message}; give groups= if they are not copies")
    return feedback.take(rows) if message else feedback


def _copies(feedback: Feedback) -> tuple[Int[np.ndarray, " kept"], str]:
    """Rows to keep, and what to say where these are not all: copies are no further evidence."""
    if feedback.groups is not None:
        return np.arange(len(feedback)), ""
    own: tuple[np.ndarray | None, ...]
    if isinstance(feedback, LoggedFeedback):
        own, what = (feedback.outcome, feedback.action, feedback.propensity, feedback.controls), "action and outcome"
    else:
        own, what = (feedback.outcomes,), "outcomes"
    times, rows = distinct_rows(feedback.x, feedback.weights, *own)
    often = "twice" if times == 2 else f"{times} times"
    return (
        rows,
        "" if times == 1 else f"every row is there {often}, with the same features, {what}: the copies are left out",
    )


# -- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TableFeedback:
    """A table read by its roles: the rows that can be used, and why the others cannot.

    `kept` says which rows of the table are in `feedback`; `features` has the features of all of them, and `notes` say
    why rows were left out.
    """

    feedback: Feedback
    features: Float[np.ndarray, "table_row feature"]
    kept: Bool[np.ndarray, " table_row"]
    notes: list[str] = field(default_factory=list)

    @property
    def logged(self) -> bool:
        """Whether rows have only the outcome of the action taken."""
        return isinstance(self.feedback, LoggedFeedback)

    @property
    def labels(self) -> list[Any]:
        """The actions, in order."""
        return self.feedback.actions.tolist()


@dataclass(slots=True, eq=False)
class _Rows:
    """The rows that are still kept, and why others are not."""

    frame: Any
    kept: Bool[np.ndarray, " row"]
    notes: list[str]

    def keep(self, fine: Bool[np.ndarray, " row"], what: str) -> None:
        count = int(np.sum(~fine))
        if count:
            self.notes.append(f"{count:,} row{'s' if count > 1 else ''} {what} left out")
            self.kept &= fine

    def numbers(self, name: str, role: str) -> Float[np.ndarray, " row"]:
        """A column as finite numbers, NaN where missing; rows where it is missing are dropped."""
        values = column(self.frame, name)
        missing = is_missing(values)
        if values.dtype.kind not in "biuf":
            _refuse_text(list(values), missing, f"{role} {name!r}")
        numbers = np.where(missing, np.nan, values).astype(np.float64)
        infinite = np.isinf(numbers)
        if infinite.any():
            raise TableError(f"{role} {name!r} is infinite in row {int(np.argmax(infinite))}; correct or drop it")
        if missing.all():
            raise TableError(f"{role} {name!r} is missing in every row; name the column that has it")
        if role == "outcome":
            check_magnitude(np.where(missing, 0.0, numbers), f"{role} {name!r}")
        self.keep(~missing, f"without {'an' if role == 'outcome' else 'a'} {role} ({name})")
        return numbers

    def weights(self, name: str) -> Float[np.ndarray, " row"]:
        """Weights; rows of weight zero are dropped."""
        weight = self.numbers(name, "weight")
        present = np.flatnonzero(~np.isnan(weight))
        check_weights(weight[present], len(present), name=f"weight {name!r}", rows=present)
        self.keep(weight != 0.0, f"of weight 0 ({name})")
        return weight

    def groups(self, name: str) -> np.ndarray:
        """Labels of groups; rows without one are dropped."""
        values = column(self.frame, name)
        self.keep(~is_missing(values), f"without a group ({name})")
        return values if values.dtype.kind != "O" else np.array(list(map(str, values.tolist())), object)


def _refuse_text(listed: list[Any], missing: Bool[np.ndarray, " row"], whose: str) -> None:
    """Refuse a column of text; true and false count as numbers, also where some are missing."""
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
    """Refuse a table that is too short for learning or evaluation."""
    if count < FEW_ROWS:
        raise TableError(
            f"{count} complete row(s) of {of} are left, and at least {FEW_ROWS} are needed to learn or evaluate "
            "anything; look at what is missing"
        )


def read_table(
    frame: Any, roles: Roles, encoder: Encoder, *, what: str = "the table", actions: Sequence[Any] | None = None
) -> TableFeedback:
    """Feedback for a fit or an evaluation from a table, by roles; costs are not in it yet (`less`).

    `actions` are those of a policy that is to be evaluated, in its order; those found in the table if None.
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
    weight = None if roles.weight is None else rows.weights(roles.weight)
    chance = rows.numbers(roles.propensity, "propensity") if isinstance(roles.propensity, str) else None
    group = None if roles.group is None else rows.groups(roles.group)
    kept = rows.kept
    check_rows(int(kept.sum()), len(kept))
    features = encoder.apply(frame)[0]
    x = features if kept.all() else features[kept]
    large = np.abs(x).max(axis=0, initial=0.0) > LARGEST
    if large.any():
        at = int(np.argmax(large))
        check_magnitude(x[:, at], f"feature {encoder.names[at]!r}", np.flatnonzero(kept))
    shared: dict[str, Any] = {
        "x": x,
        "weights": None if weight is None else weight[kept],
        "groups": None if group is None else check_groups(group[kept], len(x), name=repr(roles.group)),
        "source": x,
    }
    names = encoder.raw_names
    feedback: Feedback
    if codes is None or labels is None:
        order, listed = columns_by_label(list(roles.outcomes or ()), actions)
        feedback = FullFeedback(outcomes=y[kept][:, order], actions=label_array(listed), names=names, **shared)
        return _table_feedback(feedback, features, rows)
    taken, listed = labels_taken(codes[kept], labels, str(roles.action), actions)
    named_actions = label_array(listed)
    name = "propensity" if chance is None else f"propensity {roles.propensity!r}"
    given = roles.propensity if chance is None else chance[kept]
    controls, of_controls = _controls(rows, roles)
    feedback = LoggedFeedback(
        outcome=y[kept, 0],
        action=taken,
        actions=named_actions,
        propensity=None if given is None
        else check_propensity(given, taken, named_actions, name=name, rows=np.flatnonzero(kept)),
        controls=controls,
        names=[*names, *of_controls],
        **shared,
    )  # fmt: skip
    return _table_feedback(feedback, features, rows)


def read_beside(
    frame: Any, data: TableFeedback, names: Sequence[str]
) -> tuple[TableFeedback, dict[str, LoggedFeedback]]:
    """Further outcomes of the rows of a log, by their columns; rows without one are left out of all of them."""
    rows = _Rows(frame, data.kept.copy(), list(data.notes))
    columns = {name: rows.numbers(name, "outcome") for name in names}
    check_rows(int(rows.kept.sum()), len(rows.kept))
    feedback = data.feedback if rows.kept.sum() == len(data.feedback) else data.feedback.take(rows.kept[data.kept])
    if not isinstance(feedback, LoggedFeedback):
        raise TableError(
            "further outcomes are for a log of actions; with one column per action give fit_several tables"
        )
    others = {name: replace(feedback, outcome=column[rows.kept]) for name, column in columns.items()}
    return replace(data, feedback=feedback, kept=rows.kept, notes=rows.notes), others


def _table_feedback(feedback: Feedback, features: Float[np.ndarray, "table_row feature"], rows: _Rows) -> TableFeedback:
    kept, message = _copies(feedback)
    if message:
        feedback, numbers = feedback.take(kept), np.flatnonzero(rows.kept)[kept]
        rows.kept[:] = False
        rows.kept[numbers] = True
        rows.notes.append(f"{message}; name a group column if they are not copies")
    return TableFeedback(feedback, features, rows.kept, rows.notes)


def _controls(rows: _Rows, roles: Roles) -> tuple[Float[np.ndarray, "row control"] | None, list[str]]:
    """Controls as numbers, and the column that each comes from."""
    if not roles.controls:
        return None, []
    helper, notes = Encoder.fit(rows.frame, list(roles.controls))
    rows.notes += [f"control: {note}" for note in notes]
    return helper.apply(rows.frame)[0][rows.kept], helper.raw_names
