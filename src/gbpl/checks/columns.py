"""The columns of a table by the names a user knows, each as the features that were made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["by_column", "codes_of", "listed", "seen_by_models"]

NAMED = 5  # columns in a sentence


def seen_by_models(feedback: LoggedFeedback | FullFeedback) -> Float[np.ndarray, "row feature"]:
    """Features, with the controls of a log."""
    return feedback.context if isinstance(feedback, LoggedFeedback) else feedback.x


def by_column(feedback: LoggedFeedback | FullFeedback) -> dict[str, list[int]]:
    """Places of the features of each column, by its name; by its number where it has none."""
    places: dict[str, list[int]] = {}
    count = seen_by_models(feedback).shape[1]
    names = feedback.names if feedback.names is not None else [f"column {j}" for j in range(count)]
    for place, name in enumerate(names):
        places.setdefault(str(name), []).append(place)
    return places


def codes_of(x: Float[np.ndarray, "row feature"], places: list[int]) -> Int[np.ndarray, " row"]:
    """A column as whole numbers, in the order of its values; one that was made into several features by their rows."""
    codes = np.unique(x[:, places[0]], return_inverse=True)[1]
    for place in places[1:]:
        more = np.unique(x[:, place], return_inverse=True)[1]
        codes = np.unique(codes * (int(more.max(initial=0)) + 1) + more, return_inverse=True)[1]
    return codes


def listed(names: list[str]) -> str:
    """Names in a sentence, at most `NAMED`."""
    shown = ", ".join(map(repr, names[:NAMED]))
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown
