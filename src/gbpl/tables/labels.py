"""Labels of actions in a table: read, checked, and matched however they are written."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.columns import EXACT
from gbpl.tables.frames import TableError, is_missing, nearest, type_family

if TYPE_CHECKING:
    from jaxtyping import Int

__all__ = [
    "MOST_ACTIONS", "by_label", "check_label_kinds", "check_labels", "columns_by_label", "labels_taken", "read_labels",
    "same_label",
]  # fmt: skip

MOST_ACTIONS = 100


def read_labels(values: np.ndarray, name: str) -> tuple[Int[np.ndarray, " row"], list[Any]]:
    """Number of each row's label, -1 where it is missing, and the labels in order: text, whole numbers or booleans."""
    missing = is_missing(values)
    codes = np.full(len(values), -1)
    match values.dtype.kind:
        case "b" | "i" | "u":
            numbers, codes = np.unique(values, return_inverse=True)
            return codes.astype(np.int64), numbers.tolist()
        case "f":
            numbers, codes[~missing] = np.unique(values[~missing], return_inverse=True)
            return codes, [_whole(number, name) for number in numbers.tolist()]
        case "O" | "U" | "T":
            listed = values[~missing].tolist()
        case _:
            raise _no_label(name, str(values.dtype))
    distinct = {label: _plain(label, name) for label in dict.fromkeys(listed)} if _hashable(listed, name) else {}
    if len({type(label) for label in distinct.values()}) > 1:
        distinct = {label: str(plain) for label, plain in distinct.items()}
    labels = sorted(set(distinct.values()))
    place = {label: number for number, label in enumerate(labels)}
    number = {label: place[plain] for label, plain in distinct.items()}
    codes[~missing] = np.fromiter(map(number.__getitem__, listed), np.int64, len(listed))
    return codes, labels


def _no_label(name: str, what: str) -> TableError:
    return TableError(f"action {name!r} must be text or whole numbers, and has values of type {what}; convert them")


def _hashable(listed: list[Any], name: str) -> bool:
    """Whether there are any labels; refuses other values, and true and false beside numbers, which they would equal."""
    kinds = set(map(type, listed))
    booleans = {kind for kind in kinds if issubclass(kind, bool | np.bool_)}
    if booleans and kinds - booleans:
        raise TableError(
            f"action {name!r} mixes true and false with values of type {(kinds - booleans).pop().__name__}; use one"
        )
    odd = [kind for kind in kinds - booleans if not issubclass(kind, str | int | float | np.integer | np.floating)]
    if odd:
        raise _no_label(name, odd[0].__name__)
    return bool(kinds)


def _plain(label: Any, name: str) -> Any:
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, str) and not label.strip():
        raise TableError(f"action {name!r} has a blank label; write what was done, or leave the cell empty (missing)")
    return _whole(label, name) if isinstance(label, float) else label


def _whole(number: float, name: str) -> int:
    if not number.is_integer() or abs(number) > EXACT:
        raise TableError(
            f"action {name!r} must be a label, and has the number {number:g}; an action is one of few choices: name "
            "another column, or turn amounts into levels first"
        )
    return int(number)


def check_label_kinds(labels: Sequence[Any], name: str) -> None:
    """Refuse labels that are dates."""
    for label in labels:
        if type_family(type(label)) in ("date", "span"):
            raise _no_label(name, type(label).__name__)


def check_labels(labels: Sequence[Any], name: str, n: int) -> None:
    """Refuse labels that are not a choice among few, or one label spelled in two ways."""
    if not labels:
        raise TableError(f"action {name!r} is missing in every row; name the column that says what was done")
    if len(labels) == 1:
        raise TableError(
            f"every row took the action {labels[0]!r}: with one action in {name!r} there is nothing to choose; bring "
            "rows with another (NA, None, null and . in a text file mean missing)"
        )
    if len(labels) > min(MOST_ACTIONS, max(2, n // 2)):
        raise TableError(
            f"action {name!r} has {len(labels):,} different values in {n:,} rows, such as {labels[0]!r:.40} and "
            f"{labels[1]!r:.40}: it must be a choice among few (at most {MOST_ACTIONS}); name another column, or merge "
            "rare actions"
        )
    spelled: dict[str, Any] = {}
    for label in labels:
        if _key(label) in spelled:
            raise TableError(
                f"action {name!r} has {spelled[_key(label)]!a} and {label!a}, which look like one label spelled twice; "
                "spell it one way"
            )
        spelled[_key(label)] = label


def _key(label: Any) -> str:
    """What two spellings of a label have in common, whatever their case, blanks and Unicode form."""
    if isinstance(label, np.generic):
        label = label.item()
    whole = isinstance(label, float) and label.is_integer()
    text = unicodedata.normalize("NFKC", str(int(label) if whole else label))
    return " ".join(text.split()).casefold()


def same_label(given: Any, labels: Sequence[Any], what: str) -> Any:
    """The label that is meant: itself, or as text, whatever its case and the spaces around it."""
    for label in labels:
        if type(label) is type(given) and label == given:
            return label
    matches = [label for label in labels if _key(label) == _key(given)]
    if not matches:
        text = [str(label) for label in labels]
        raise TableError(
            f"{what} names the action {str(given)!r}, and the actions are {', '.join(text)}{nearest(given, text)}"
        )
    return matches[0]


def labels_taken(
    codes: Int[np.ndarray, " row"], labels: list[Any], name: str, actions: Sequence[Any] | None
) -> tuple[Int[np.ndarray, " row"], list[Any]]:
    """Actions of the rows that stay: a label may have gone with its rows."""
    present, taken = np.unique(codes, return_inverse=True)
    present_labels = [labels[number] for number in present.tolist()]
    check_labels(present_labels, name, len(codes))
    if actions is None:
        return taken, present_labels
    place = [list(actions).index(same_label(label, actions, f"column {name!r}")) for label in present_labels]
    never = [label for number, label in enumerate(actions) if number not in place]
    if never:
        more = f" (nor {len(never) - 1} more)" if len(never) > 1 else ""
        raise TableError(
            f"no row took the action {never[0]!r}{more}, so {name!r} says nothing about it; leave it out of the "
            "actions, or bring rows with it"
        )
    return np.array(place)[taken], list(actions)


def columns_by_label(outcomes: list[str], actions: Sequence[Any] | None) -> tuple[list[int], list[Any]]:
    """Order of the outcome columns, and the actions: columns go by name where they are named as the actions are."""
    if actions is None:
        return list(range(len(outcomes))), list(outcomes)
    if len(outcomes) != len(actions):
        raise TableError(
            f"outcomes names {len(outcomes)} columns, and the policy has the actions {list(actions)}; name one for each"
        )
    named = [str(label) for label in actions]
    same = set(named) == set(outcomes)
    return [outcomes.index(name) for name in named] if same else list(range(len(outcomes))), list(actions)


def by_label(given: Mapping[Any, float] | None, labels: Sequence[Any], what: str) -> dict[Any, float]:
    """A mapping from label to number, labels given as they are or as text."""
    if given is not None and not isinstance(given, Mapping):
        raise TableError(
            f"{what} must be a mapping from action to number, such as {{{labels[-1]!r}: 0.5}}; got {given!r:.60}"
        )
    numbers: dict[Any, float] = {}
    for label, number in (given or {}).items():
        key = same_label(label, labels, what)
        if key in numbers:
            raise TableError(f"{what} names the action {str(label)!r} twice; name it once")
        if isinstance(number, bool) or not isinstance(number, int | float | np.number) or not np.isfinite(number):
            raise TableError(f"{what} of {str(label)!r} must be a finite number, got {number!r:.60}")
        numbers[key] = float(number)
    return numbers
