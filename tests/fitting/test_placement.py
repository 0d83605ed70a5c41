"""Where stacks are trained, and that fits of other sizes share what is compiled."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import gbpl.fitting.placement
import gbpl.runtime.platforms
from gbpl.fitting.block import rounded_up
from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member
from gbpl.fitting.placement import Work, devices_for, parameter_count
from gbpl.fitting.stack import fit_stack
from gbpl.models.networks import MLP
from gbpl.runtime.devices import with_room
from gbpl.runtime.platforms import leave_gpu
from gbpl.surrogates import Binary

SMALL, LARGE, MANY = Work(20, 19, 128, 4_900), Work(25, 256, 128, 18_000), Work(400, 19, 128, 18_000)


class _Device:
    def __init__(self, platform: str) -> None:
        self.platform = platform


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with sixteen cores and a GPU, which JAX takes first."""
    seen = {"cpu": [_Device("cpu")] * 16, "gpu": [_Device("gpu")]}

    def resolve(device: Any) -> Any:
        return seen["gpu" if device == "auto" else device] if isinstance(device, str) else list(device)

    monkeypatch.setattr(gbpl.fitting.placement, "resolve_devices", resolve)


@pytest.mark.usefixtures("a_gpu")
@pytest.mark.parametrize(
    ("device", "work", "platform", "count"),
    [
        ("auto", SMALL, "cpu", 2), ("auto", LARGE, "gpu", 1), ("gpu", SMALL, "gpu", 1), ("cpu", LARGE, "cpu", 4),
        ("cpu", MANY, "cpu", 16),
    ],
)  # fmt: skip
def test_small_stacks_stay_on_the_host(device: Any, work: Work, platform: str, count: int) -> None:
    chosen: Any = devices_for(device, work)
    assert (chosen[0].platform, len(chosen)) == (platform, count)


@pytest.mark.usefixtures("a_gpu")
def test_devices_that_are_named_are_taken() -> None:
    named: Any = [_Device("cpu")] * 3
    assert devices_for(named, SMALL) == named


def test_more_work_never_takes_fewer_devices_nor_leaves_the_gpu() -> None:
    works = [Work(25, steps, 128, parameters) for parameters in (65, 4_900, 18_000) for steps in (5, 20, 80, 256)]
    for one in works:
        for other in works:
            if other.steps >= one.steps and other.parameters >= one.parameters:
                assert other.cpu_devices(16) >= one.cpu_devices(16)
    assert [Work(25, 256, 128, size).moves_to_gpu(16) for size in (65, 4_900, 18_000)] == [False, False, True]
    assert SMALL.cpu_devices(1) == 1
    assert MANY.cpu_devices(6) == 6


@pytest.mark.parametrize(
    ("rows", "given", "then"), [(2_000, None, "cpu"), (10**6, None, None), (2_000, "cuda", "cuda")]
)
def test_a_small_table_never_starts_a_gpu(
    rows: int, given: str | None, then: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {} if given is None else {"JAX_PLATFORMS": given}
    asked: list[tuple[str, str]] = []
    config = SimpleNamespace(update=lambda *setting: asked.append(setting))
    monkeypatch.setattr(gbpl.runtime.platforms.os, "environ", environment)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))
    leave_gpu(rows)
    assert environment.get("JAX_PLATFORMS") == then
    assert asked == ([("jax_platforms", "cpu")] if then == "cpu" else [])


def test_parameters_are_counted() -> None:
    assert parameter_count(MLP(hidden=(64, 64)), 10, Binary()) == 11 * 64 + 65 * 64 + 65


def test_sizes_are_rounded_up_by_less_than_a_quarter() -> None:
    assert all(count <= rounded_up(count) < 1.25 * count for count in range(1, 3000))
    assert len({rounded_up(count) for count in range(1, 1025)}) < 40


def test_fits_of_other_sizes_share_what_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)

    def fit(n: int) -> None:
        x = rng.normal(size=(n, 3)).astype(np.float32)
        rows = np.arange(n, dtype=np.int32)
        folds = np.array_split(rows, 5)
        members = [Member(np.setdiff1d(rows, fold), fold, seed=seed) for seed, fold in enumerate(folds)]
        model, config = MLP(hidden=(9,)), FitConfig(max_epochs=3)
        fit_stack(x, x[:, :1].copy(), members, Binary(), model, config=config, device="cpu", progress=False)

    fit(1000)
    jax.config.update("jax_log_compiles", True)
    try:
        fit(990)
    finally:
        jax.config.update("jax_log_compiles", False)
    assert not [record for record in caplog.records if "train_block" in record.getMessage()]


@pytest.mark.parametrize(("shape", "rows"), [((500, 10), 65_536), ((70_000, 3), 262_144), ((500, 2_000), 500)])
def test_tables_have_room_for_other_sizes_unless_it_would_fill_the_memory(shape: tuple[int, int], rows: int) -> None:
    table = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    roomy = with_room(table)
    assert roomy.shape == (rows, shape[1])
    assert_array_equal(roomy[: len(table)], table)
    assert not roomy[len(table) :].any()
