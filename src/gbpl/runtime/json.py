"""Values as JSON holds them: plain Python types, and None for numbers that are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["plain"]


def plain(value: Any, *, text: Callable[[str], str] = str, other: Callable[[Any], str] = repr) -> Any:
    """The same value in types that `json.dumps` takes; arrays become lists, keys text, NaN and infinity None.

    `text` is applied to every text, `other` to every object that JSON has no type for.

    >>> plain({1: (0.5, float("nan"))})
    {'1': [0.5, None]}
    """
    if hasattr(value, "tolist"):  # of numpy, which the command line does not import before it has work to do
        value = value.tolist()
    if isinstance(value, Mapping):
        return {text(str(key)): plain(item, text=text, other=other) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, text=text, other=other) for item in value]
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else other(value)
