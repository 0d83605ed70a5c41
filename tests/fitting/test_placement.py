"""Where stacks are trained, and that fits of other sizes share what is compiled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import gbpl.fitting.placement
import gbpl.runtime.devices
from gbpl.fitting.block import rounded_up
from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member
from gbpl.fitting.placement import Work, devices_for, parameter_count
from gbpl.fitting.stack import fit_stack
from gbpl.models.networks import MLP
from gbpl.runtime.devices import leave_gpu, with_room
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


@pytest.mark.parametrize(("rows", "platforms", "left"), [(2_000, "", True), (10**6, "", False), (2_000, "cuda", False)])
def test_a_small_table_never_starts_a_gpu(
    rows: int, platforms: str, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    config = SimpleNamespace(update=lambda *given: asked.append(given))
    monkeypatch.setattr(gbpl.runtime.devices, "jax", SimpleNamespace(config=config))
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    leave_gpu(rows)
    assert asked == ([("jax_platforms", "cpu")] if left else [])


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
