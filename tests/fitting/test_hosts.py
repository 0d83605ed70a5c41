"""Hosts share the members of a stack and end with the same fit: two processes here, with unlike devices.

Run as a script, this file is one of the two.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from gbpl import MLP, Binary, FitConfig, Member, fit_stack
from gbpl.fitting.hosts import HostsError, share

MEMBERS = 7  # an odd one, so that shares differ


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(100, 3)).astype(np.float32), rng.normal(size=(100, 1)).astype(np.float32)


def members(seed: int = 0) -> list[Member]:
    return [Member(np.arange(60 + 10 * (s % 2)), np.arange(80, 100), seed=seed + s) for s in range(MEMBERS)]


def fitted_members(numbers: Sequence[int]) -> list[tuple[Any, float, int]]:
    """Parameters, loss and epochs of some members."""
    chosen = [members()[number] for number in numbers]
    fit = fit_stack(*data(), chosen, Binary(), MLP((4,)), config=FitConfig(max_epochs=5), device="cpu", progress=False)
    return [(fit.select([k]), float(fit.best_loss[k]), len(fit.train_loss[k])) for k in range(len(chosen))]


def host(port: str, number: str, out: str) -> None:
    """One of two processes; what it found is pickled to `out`."""
    me = int(number)
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, me)
    assert len(jax.local_devices()) == me + 1
    said: dict[str, Any] = {"own": []}

    def own(numbers: Sequence[int]) -> list[int]:
        said["own"] += numbers
        return list(numbers)

    def nothing(numbers: Sequence[int]) -> list[int]:
        return [me for _ in numbers]

    def fails(numbers: Sequence[int]) -> list[int]:
        if me == 1:
            raise FloatingPointError("the loss is not finite")
        return nothing(numbers)

    share(members(), data(), own)
    said["fit"] = fitted_members(range(MEMBERS))  # fit_stack shares its members itself
    said["fewer than hosts"] = share(members()[:1], data(), nothing)
    for name, arguments in {
        "failed": (members(), data(), fails),
        "other seeds": (members(seed=me), data(), nothing),
        "other rows": (members(), data(seed=me), nothing),
    }.items():
        try:
            share(*arguments)
        except (HostsError, FloatingPointError) as error:
            said[name] = f"{type(error).__name__}: {error}"
    said["after"] = share(members(), data(), nothing)
    Path(out).write_bytes(pickle.dumps(said))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes has to say; the second has two devices."""
    folder = tmp_path_factory.mktemp("hosts")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = [
        subprocess.Popen(
            [sys.executable, __file__, str(port), str(me), folder / str(me)],
            env=os.environ | {"GBPL_CPU_DEVICES": str(me + 1), "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for me in range(2)
    ]  # fmt: skip
    try:
        for process in running:
            told, _ = process.communicate(timeout=120)
            assert process.returncode == 0, told
    finally:
        for process in running:
            process.kill()
    return [pickle.loads((folder / str(me)).read_bytes()) for me in range(2)]


def test_each_host_fits_its_share(hosts: list[dict[str, Any]]) -> None:
    assert [said["own"] for said in hosts] == [[0, 2, 4, 6], [1, 3, 5]]


def test_the_fit_is_that_of_one_process(hosts: list[dict[str, Any]]) -> None:
    for (params, loss, epochs), (expected, expected_loss, expected_epochs) in zip(
        hosts[0]["fit"], fitted_members(range(MEMBERS)), strict=True
    ):
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-6), params, expected)
        assert loss == pytest.approx(expected_loss, rel=1e-4, abs=1e-6)
        assert epochs == expected_epochs


def test_all_hosts_end_with_the_same_bits(hosts: list[dict[str, Any]]) -> None:
    assert pickle.dumps(hosts[0]["fit"]) == pickle.dumps(hosts[1]["fit"])


def test_hosts_without_a_member_get_the_results_too(hosts: list[dict[str, Any]]) -> None:
    assert [said["fewer than hosts"] for said in hosts] == [[0], [0]]


def test_a_failure_is_everybodys(hosts: list[dict[str, Any]]) -> None:
    """The host that failed says why in its own words; nobody waits for it, and all can go on."""
    assert hosts[1]["failed"] == "FloatingPointError: the loss is not finite"
    assert hosts[0]["failed"].startswith("HostsError: process 1 of 2 failed, so nothing was fitted: FloatingPointError")
    assert [said["after"] for said in hosts] == [[0, 1] * 3 + [0]] * 2


@pytest.mark.parametrize("what", ["other seeds", "other rows"])
def test_hosts_that_differ_are_told(hosts: list[dict[str, Any]], what: str) -> None:
    for said in hosts:
        assert "process 1 fits other rows or members than process 0" in said[what]
        assert "random_state" in said[what]


def test_a_single_process_fits_all() -> None:
    assert share(members(), data(), lambda numbers: [-number for number in numbers]) == [-n for n in range(MEMBERS)]


if __name__ == "__main__":
    host(*sys.argv[1:])
