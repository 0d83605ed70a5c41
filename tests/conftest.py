"""Two CPU devices for every test, asked for before any test computes, whichever file comes first."""

import os

os.environ["GBPL_CPU_DEVICES"] = "2"

from collections.abc import Iterator

import jax
import pytest

import gbpl.runtime.devices  # noqa: F401

# The tests compile thousands of small functions: each is kept in the compilation cache, for other files and runs.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(autouse=True, scope="module")
def _release_compiled_functions() -> Iterator[None]:
    """A file's compiled functions go with it: each maps memory, and a process may have 65,530 maps."""
    yield
    jax.clear_caches()
