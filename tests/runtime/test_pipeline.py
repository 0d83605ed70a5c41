"""Items made ahead of their use: in order, with their errors, and no further than asked."""

from __future__ import annotations

import threading

import pytest

from gbpl.runtime.pipeline import ahead, one_behind


def test_reading_ahead_keeps_order_hands_errors_on_and_stops() -> None:
    assert list(ahead(iter(range(20)))) == list(range(20))

    def broken():
        yield 1
        raise ValueError("row 7")

    with pytest.raises(ValueError, match="row 7"):
        list(ahead(broken()))
    before = threading.active_count()
    items = ahead(iter(range(10**9)))
    next(items)
    items.close()
    assert threading.active_count() == before


def test_an_item_comes_when_the_next_is_made() -> None:
    made: list[int] = []

    def items():
        for number in range(4):
            made.append(number)
            yield number

    assert [(item, len(made)) for item in one_behind(items())] == [(0, 2), (1, 3), (2, 4), (3, 4)]
    assert list(one_behind(iter([]))) == []
