"""Where a stack is trained: on how many cores, or on a GPU, by the size of its members.

Few members on many devices are no faster than on a few: some have stopped while others go on, and a step of little work
is mostly overhead. A GPU trains many members at once, but compiling for it takes seconds more, which is what a fresh
process meets: `device="auto"` moves a stack there if it is expected to save more than that. The rules count rows and
parameters, not seconds: a fit must not depend on how busy the machine is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax

from gbpl.fitting.block import Objective
from gbpl.models.base import ScoreModel
from gbpl.runtime.devices import DeviceName, resolve_devices

__all__ = ["Work", "devices_for", "parameter_count"]

DEVICE_WORK = 1.5e8  # rows x parameters of an epoch of all members for which one more CPU device pays
FEW_DEVICES = 4  # for members of whom not every device has a queue
QUEUE = 6  # members per device
EPOCHS = 30  # until a member stops, about
CORE_RATE = 5e9  # rows x parameters that a core trains in a second, about
GPU_STEP = 1.5e-4  # seconds of a step on a GPU, however many members take it, about
GPU_START = 5.0  # seconds that compiling for a GPU takes more than for a CPU, about


class Work(NamedTuple):
    """The size of a stack: its members, steps of an epoch and rows of a step, and the parameters of a member."""

    members: int
    steps: int
    rows: int
    parameters: int

    @property
    def of_epoch(self) -> int:
        """Rows times parameters of an epoch of all members."""
        return self.members * self.steps * self.rows * self.parameters

    def cpu_devices(self, cores: int) -> int:
        """CPU devices worth having: all, or a power of two, so that stacks of about one size share what is compiled.

        >>> [Work(20, steps, 128, 4_900).cpu_devices(16) for steps in (4, 19, 125)]
        [1, 2, 4]
        """
        wanted = min(1 + int(self.of_epoch // DEVICE_WORK), max(FEW_DEVICES, self.members // QUEUE))
        return cores if wanted >= cores else 1 << (wanted.bit_length() - 1)

    def moves_to_gpu(self, cores: int) -> bool:
        """Whether a GPU is expected to save more than compiling for it costs, beside a host with that many cores.

        >>> [Work(40, steps, 128, 4_900).moves_to_gpu(16) for steps in (4, 19, 125, 256)]
        [False, False, False, True]
        """
        on_host = EPOCHS * self.of_epoch / (CORE_RATE * self.cpu_devices(cores))
        return on_host > GPU_START + EPOCHS * self.steps * GPU_STEP


def parameter_count(model: ScoreModel, n_features: int, objective: Objective) -> int:
    """Numbers that a member learns."""
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), n_features, objective.n_raw))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def devices_for(device: DeviceName | Sequence[jax.Device], work: Work) -> list[jax.Device]:
    """The devices that train a stack of this size; those that are named are taken, of the CPU as many as pay."""
    devices = resolve_devices(device)
    if isinstance(device, str) and device == "auto" and devices[0].platform != "cpu":
        host = resolve_devices("cpu")
        devices = devices if work.moves_to_gpu(len(host)) else host
    if isinstance(device, str) and devices[0].platform == "cpu":
        devices = devices[: work.cpu_devices(len(devices))]
    return devices[: work.members]
