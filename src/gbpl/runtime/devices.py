"""Which devices a fit runs on, and the compilation cache.

On a CPU, XLA does not spread many small products over cores; one JAX device per core does, so the member axis of a
stack is sharded over them. JAX fixes its CPU devices at its first computation, so importing this module asks for one
per core, unless JAX has computed before or a number is set elsewhere; `GBPL_CPU_DEVICES=1` leaves it at one. Compiled
functions are kept in `GBPL_CACHE_DIR` (a folder in the user's cache directory unless set; `off` for none) for the next
process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gbpl.runtime.threads import cores

try:
    from jax import enable_x64
except ImportError:  # where it was before jax 0.8
    from jax.experimental import enable_x64  # type: ignore[attr-defined,no-redef]

__all__ = [
    "DeviceName", "aligned_empty", "as_aligned", "check_not_forked", "enable_x64", "member_sharding", "placed",
    "quick_jit", "resolve_devices", "shared_sharding", "small_jit", "with_room",
]  # fmt: skip

APPLIED_BY_HOST = 1e11  # rows x parameters: some seconds of one core
ROOMS, MOST_ROOM = (1 << 16, 1 << 18), 1 << 24  # rows of tables, and values that one is filled up to
DeviceName = Literal["auto", "cpu", "gpu"]

# jax.jit for what runs a few times: on a GPU the search for the fastest products takes a second or more per program and
# shape, and its result may differ from run to run. Such a function cannot be called inside another compiled one.
quick_jit: Any = partial(jax.jit, compiler_options={"xla_gpu_autotune_level": 0})
# For what costs much more to compile than to run: on a CPU hardly any optimisation, a fourth of the time.
small_jit: Any = partial(jax.jit, compiler_options={"xla_gpu_autotune_level": 0, "xla_backend_optimization_level": 0})


def _prepare() -> None:
    wanted = cores()
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if wanted > 1 and not chosen and jax.config.jax_num_cpu_devices < 1:  # type: ignore[attr-defined]
        with suppress(RuntimeError):  # JAX is already running: use the devices it has
            jax.config.update("jax_num_cpu_devices", wanted)
    where = os.environ.get("GBPL_CACHE_DIR", str(Path.home() / ".cache" / "gbpl" / "jax"))
    if where != "off" and jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", where)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


_owner: list[int] = []  # the process in which JAX has its threads


def check_not_forked() -> None:
    """Refuse a child that was forked after JAX had started: its threads are not there, and it would wait for ever."""
    if not _owner:
        _owner.append(os.getpid())
    if _owner[0] != os.getpid():
        raise RuntimeError(
            "this process was forked from one in which JAX was running, where JAX hangs; decide with policy.frozen(), "
            "made before the fork, which needs numpy alone, or start processes by multiprocessing.get_context('spawn')"
        )


def resolve_devices(device: DeviceName | Sequence[jax.Device] = "auto") -> list[jax.Device]:
    """The devices behind `"auto"` (the GPUs if there are any), `"cpu"`, `"gpu"`, or a list of JAX devices."""
    if isinstance(device, Sequence) and not isinstance(device, str) and all(isinstance(d, jax.Device) for d in device):
        return list(device)
    if not isinstance(device, str) or device not in ("auto", "cpu", "gpu"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'gpu', got {device!r}")
    check_not_forked()
    try:
        return list(jax.local_devices(backend=None if device == "auto" else device))
    except RuntimeError as error:
        raise ValueError(
            f"device={device!r} is not available here: JAX sees {jax.devices()}; install gbpl[cuda] for an NVIDIA "
            f"GPU, or use device='auto'"
        ) from error


def placed(work: float) -> jax.Device:
    """The device for members applied to rows, a `work` of rows times parameters: the host's first unless it is much.

    Beside a GPU small work is done by the host before it would be compiled for the GPU.
    """
    check_not_forked()
    first = jax.local_devices()[0]
    return first if first.platform == "cpu" or work > APPLIED_BY_HOST else jax.local_devices(backend="cpu")[0]


def _mesh(devices: Sequence[jax.Device]) -> Mesh:
    return Mesh(np.array(devices), ("member",))


def member_sharding(devices: Sequence[jax.Device], axis: int = 0) -> NamedSharding:
    """Spread array axis `axis` (the members) over the devices."""
    return NamedSharding(_mesh(devices), PartitionSpec(*([None] * axis), "member"))


def shared_sharding(devices: Sequence[jax.Device]) -> NamedSharding:
    """A copy on every device: the table of rows."""
    return NamedSharding(_mesh(devices), PartitionSpec())


def aligned_empty(shape: tuple[int, ...]) -> np.ndarray:
    """An empty float32 array that all CPU devices can read in place: XLA shares host memory aligned to 64 bytes."""
    size = 4 * int(np.prod(shape))
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(np.float32).reshape(shape)


def with_room(table: np.ndarray) -> np.ndarray:
    """A table below which there is room for more rows, so that tables of few sizes occur; as it is if it is large.

    One of many columns is as it is too: room for 65,536 rows of 2,000 features would be half a gigabyte.
    """
    rows = next((size for size in ROOMS if len(table) <= size), len(table))
    if rows == len(table) or rows * math.prod(table.shape[1:]) > MOST_ROOM:
        return table
    out = aligned_empty((rows, *table.shape[1:]))
    out[: len(table)], out[len(table) :] = table, 0.0
    return out


def as_aligned(values: np.ndarray) -> np.ndarray:
    """The values as float32 in memory that devices can share, copied only if they are not."""
    given = np.asarray(values)
    if given.dtype == np.float32 and given.flags.c_contiguous and given.ctypes.data % 64 == 0:
        return given
    out = aligned_empty(given.shape)
    out[...] = given
    return out


_prepare()
