"""Whether a process of ours starts a GPU at all: that takes a second or two, before anything is computed."""

from __future__ import annotations

import os
import sys

__all__ = ["leave_gpu"]

HOST_ROWS = 20_000  # of a table that the host learns from anyway


def leave_gpu(rows: int) -> None:
    """In a process that is ours alone, before JAX computes: a table of few rows does not need a GPU."""
    if rows > HOST_ROWS or os.environ.get("JAX_PLATFORMS"):
        return
    os.environ["JAX_PLATFORMS"] = "cpu"
    if "jax" in sys.modules:  # which reads that when it is imported
        sys.modules["jax"].config.update("jax_platforms", "cpu")
