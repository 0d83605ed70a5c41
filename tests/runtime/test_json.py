from __future__ import annotations

import json
from collections import Counter
from types import MappingProxyType

import numpy as np
import pytest

from gbpl.runtime.json import plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array([[1.5, np.nan], [np.inf, -np.inf]]), [[1.5, None], [None, None]]),
        (np.float64("nan"), None),
        (np.float32(0.25), 0.25),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array(["a", "b"]), ["a", "b"]),
        ((1, (2.0, None)), [1, [2.0, None]]),
        (MappingProxyType({1: "x", "y": {True: float("inf")}}), {"1": "x", "y": {"True": None}}),
        (Counter(a=2), {"a": 2}),
        ("text", "text"),
        (range(2), "range(0, 2)"),
    ],
)
def test_values_become_what_json_holds(value: object, expected: object) -> None:
    made = plain(value)
    assert made == expected
    assert json.loads(json.dumps(made, allow_nan=False)) == expected


def test_text_and_other_objects_are_written_as_asked() -> None:
    made = plain({"a": ["b", np.dtype("f4")]}, text=str.upper, other=str)
    assert made == {"A": ["B", "float32"]}
