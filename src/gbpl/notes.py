"""What is said on the way, kept for the report."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["heard"]


@contextmanager
def heard(notes: list[str]) -> Iterator[None]:
    """What is said to the user by warnings becomes a note, once; warnings to programmers go where they would have."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        yield
    for one in said:
        if not issubclass(one.category, UserWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        elif (text := str(one.message)) not in notes:
            notes.append(text)
