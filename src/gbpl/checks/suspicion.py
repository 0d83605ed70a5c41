"""What looks wrong with the data, as a sentence with columns and rows, for a warning, a summary and a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gbpl.runtime.warn import warn

__all__ = ["SuspectDataWarning", "Suspicion", "warn_of"]


class SuspectDataWarning(UserWarning):
    """The data are probably not what they should be, and the result is then worthless."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What is suspicious: its `kind` in a few words, a `sentence` that says what to do, and the columns and rows.

    `kept` is the sentence for files, where that for the user has values of single rows.
    """

    kind: str
    sentence: str
    columns: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    kept: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for the summary of a study, without values of single rows."""
        sentence = self.sentence if self.kept is None else self.kept
        return {"kind": self.kind, "sentence": sentence, "columns": list(self.columns), "rows": list(self.rows)}


def warn_of(suspicions: Iterable[Suspicion]) -> None:
    """Warn of each, at the user's line."""
    for one in suspicions:
        warn(one.sentence, SuspectDataWarning)
