"""How many threads linear algebra takes: its own choice, or one where threads would only wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

__all__ = ["few_threads", "one_thread"]

SMALL = 2_000  # order of a matrix up to which one thread is as fast


class _OneThread:
    """BLAS on one thread while every core has work of its own; calls that overlap share the limit.

    Threads of BLAS under threads of ours wait for each other: on two busy cores that is five times slower.
    """

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.controller: Any = None
        self.limit: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if self.inside == 0:
                if self.controller is None:
                    from threadpoolctl import ThreadpoolController

                    self.controller = ThreadpoolController()
                self.limit = self.controller.limit(limits=1, user_api="blas")
            self.inside += 1
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0:
                    self.limit.restore_original_limits()


one_thread = _OneThread()


def few_threads(order: int) -> AbstractContextManager[None]:
    """One thread for a small matrix: on busy cores more of them cost more by waiting than they save."""
    return one_thread() if order <= SMALL else nullcontext()
