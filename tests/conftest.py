"""Two CPU devices for every test, asked for before any test computes, whichever file comes first."""

import os

os.environ["GBPL_CPU_DEVICES"] = "2"

from collections.abc import Iterator

import jax
import pytest

import gbpl.runtime.devices  # noqa: F401


@pytest.fixture(autouse=True, scope="module")
def _release_compiled_functions() -> Iterator[None]:
    """A file's compiled functions go with it: each maps memory, and a process may have 65,530 maps."""
    yield
    jax.clear_caches()
