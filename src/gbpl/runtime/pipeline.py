"""Items made ahead of the loop that uses them, by a thread or on a device."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["ahead", "one_behind"]

Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, each made in a thread while the one before is used: one waits, the next is being made."""
    waiting: queue.Queue[Any] = queue.Queue(1)
    done = threading.Event()

    def hand(item: Any) -> bool:
        while not done.is_set():
            try:
                waiting.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for item in items:
                if not hand(item):
                    return
            hand(None)
        except BaseException as error:  # raised again where the items are used
            hand(error)

    thread = threading.Thread(target=read, name="gbpl ahead", daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        done.set()
        thread.join()


def one_behind(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, each when the next has been made.

    Where making one only starts the work on a device, the device has it ready while the one before is used.
    """
    waiting: list[Item] = []
    for item in items:
        waiting.append(item)
        if len(waiting) > 1:
            yield waiting.pop(0)
    yield from waiting
