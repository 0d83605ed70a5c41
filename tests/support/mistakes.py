"""Tables of mistakes. One row per mistake: its name, what is given in place of good input, the error, its message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def each_mistake(table: list[tuple[str, dict[str, Any], Any, str]]) -> pytest.MarkDecorator:
    """One test per row of the table."""
    return pytest.mark.parametrize(("given", "error", "message"), [row[1:] for row in table], ids=[r[0] for r in table])


def replaced(array: np.ndarray, *places: tuple[Any, Any]) -> np.ndarray:
    """A copy with some values replaced."""
    out = array.copy()
    for where, value in places:
        out[where] = value
    return out
