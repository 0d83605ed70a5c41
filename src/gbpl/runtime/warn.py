"""Warnings that name the user's own line, and warnings kept as notes for a report."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["collected", "warn"]

PACKAGE = str(Path(__file__).resolve().parents[1])  # src/gbpl


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn` at the first line outside gbpl, however deep in the package it is called.

    `skip_file_prefixes` of Python 3.12 does the same.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def collected(notes: list[str]) -> Iterator[None]:
    """Warnings to the user become notes, each once; those to programmers are raised as they would have been."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for one in caught:
        if not issubclass(one.category, UserWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        elif (text := str(one.message)) not in notes:
            notes.append(text)
