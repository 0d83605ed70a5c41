"""Several hosts: members of a stack divided among the processes of `jax.distributed`, and their results sent to all.

Every host runs the same script with the same data and seeds, one process per host:

    jax.distributed.initialize(...)
    policy = GBPLNet(random_state=0).fit(X, Y)

Each process fits its share of the members on its own devices and gets the results of the others, so that all end with
the same fit. Members exchange nothing while they train; only their results travel.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gbpl.fitting.members import Member

if TYPE_CHECKING:
    from jaxtyping import UInt8

__all__ = ["HostsError", "share"]

Result = TypeVar("Result")


class HostsError(RuntimeError):
    """Processes that do not run the same fit, or one that failed: the message says which and why."""


def share(members: Sequence[Member], data: Any, fit: Callable[[Sequence[int]], Sequence[Result]]) -> list[Result]:
    """One result per member, each made by one process: that of member i by process i modulo their number.

    `fit` takes numbers of members and gives one result for each; in a single process it is called for all of them.
    `data` is the tree of arrays that members name rows of: processes that differ in either are refused. When one
    process fails, all fail, and none waits.
    """
    count = jax.process_count()
    if count == 1:
        return list(fit(range(len(members))))
    mine = range(jax.process_index(), len(members), count)
    results: Sequence[Result] = ()
    problem: Exception | None = None
    try:
        results = fit(mine) if mine else ()
    except Exception as error:  # sent to the others
        problem = error
    message = None if problem is None else f"{type(problem).__name__}: {problem}"
    own = pickle.dumps((_digest(members, data), message, list(results)))
    gathered = [pickle.loads(part) for part in _exchanged(own)]
    if problem is not None:
        raise problem
    for number, (digest, trouble, _) in enumerate(gathered):
        if digest != gathered[0][0]:
            raise HostsError(
                f"process {number} fits other rows or members than process 0; every host needs all rows, in the same "
                "order, and the same random_state"
            )
        if trouble is not None:
            raise HostsError(f"process {number} of {count} failed, so nothing was fitted: {trouble}")
    return [gathered[number % count][2][number // count] for number in range(len(members))]


def _digest(members: Sequence[Member], data: Any) -> str:
    """A digest of a stack: of its tables, seeds, constants and rows."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(data):
        digest.update(repr(np.shape(leaf)).encode())
        digest.update(_bytes_of(leaf).data)
    for member in members:
        digest.update(repr((member.seed, member.zeta, member.eta, member.prior_sd, member.table)).encode())
        for rows in (member.train, member.validation):
            digest.update(_bytes_of(rows).data)
    return digest.hexdigest()


def _bytes_of(array: np.ndarray) -> UInt8[np.ndarray, " byte"]:
    """The memory of an array, without a copy if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _exchanged(content: bytes) -> list[bytes]:
    """The content of every process, in their order; all must call this at the same point."""
    lengths = _gathered(_bytes_of(np.array([len(content)]))).view(np.int64)[:, 0]
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    return [row[:length].tobytes() for row, length in zip(_gathered(padded), lengths, strict=True)]


def _gathered(own: UInt8[np.ndarray, " byte"]) -> UInt8[np.ndarray, "process byte"]:
    """One row per process, over the first device of each: hosts may have different numbers of devices."""
    firsts: dict[int, jax.Device] = {}
    for device in jax.devices():
        firsts.setdefault(device.process_index, device)
    mesh = Mesh(np.array([firsts[process] for process in sorted(firsts)]), ("process",))
    row = jax.device_put(own[None], firsts[jax.process_index()])
    shape, over_processes = (len(firsts), len(own)), NamedSharding(mesh, PartitionSpec("process"))
    whole = jax.make_array_from_single_device_arrays(shape, over_processes, [row])
    everywhere = jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, PartitionSpec()))(whole)
    return np.asarray(everywhere.addressable_data(0))
