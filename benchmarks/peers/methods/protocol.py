"""How a family's script is run: a job a line on standard input, an answer a line on standard output, both JSON.

A job has `method`, `problem` (an .npz with x, action, outcome, propensity, x_test, propensity_test), `chosen` (the
.npz to write, with `action`: one for each row of x_test) and `seed`. An answer has `seconds` and `cpu_seconds` of fit
and prediction and, where the method has one, a `note`; or `error`, the last line of what went wrong. Imports are
outside the seconds; what a library does at its first use, such as compilation, is inside those of the first job. CPU
seconds are of all threads and of all processes started. A process answers until its input ends.

Only numpy and the standard library are used here: every family has its own environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Method", "Problem", "serve"]


@dataclass(frozen=True)
class Problem:
    """A log, the propensities e_a(x) of the policy that made it, and the rows to choose actions for."""

    x: np.ndarray
    action: np.ndarray
    outcome: np.ndarray
    propensity: np.ndarray
    x_test: np.ndarray
    propensity_test: np.ndarray

    @property
    def n_actions(self) -> int:
        """K: the actions are 0, ..., K - 1."""
        return self.propensity.shape[1]

    @property
    def logged_propensity(self) -> np.ndarray:
        """e_A(x), of the action taken."""
        return np.take_along_axis(self.propensity, self.action[:, None], axis=1)[:, 0]


Method = Callable[[Problem, int], "np.ndarray | tuple[np.ndarray, str]"]  # the actions, and a note where there is one


def cpu_seconds() -> float:
    """User and system seconds of this process and of its children, those that live among them (Linux only)."""
    spent = os.times()
    return sum(spent[:4]) + _living(os.getpid())


def _living(parent: int) -> float:
    """Of the children of a process that have not ended, and of theirs."""
    total = 0.0
    for listed in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in listed.read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks = sum(int(value) for value in fields[11:15])  # utime, stime, cutime, cstime
            total += ticks / os.sysconf("SC_CLK_TCK") + _living(int(child))
    return total


def serve(methods: Mapping[str, Method]) -> None:
    """Do the jobs. What libraries print goes to standard error, so that answers stay readable."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        with np.load(job["problem"]) as arrays:
            problem = Problem(**arrays)
        started, spent = time.perf_counter(), cpu_seconds()
        try:
            made = methods[job["method"]](problem, job["seed"])
            seconds = {"seconds": time.perf_counter() - started, "cpu_seconds": cpu_seconds() - spent}
            action, note = made if isinstance(made, tuple) else (made, None)
            np.savez(job["chosen"], action=np.asarray(action))
            answer = seconds if note is None else {**seconds, "note": note}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": traceback.format_exception_only(error)[-1].strip().splitlines()[-1]}
        print(json.dumps(answer), file=answers)
