"""How a family's script is run: a job a line on standard input, an answer a line on standard output, both JSON.

A job has `method`, `problem` (an .npz with x, action, outcome, propensity, x_test, propensity_test), `chosen` (the
.npz to write, with `action`: one for each row of x_test) and `seed`. An answer has `seconds` of fit and prediction, or
`error`, the last line of what went wrong. Imports are outside the seconds; what a library does at its first use, such
as compilation, is inside those of the first job. A process answers until its input ends.

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


Method = Callable[[Problem, int], np.ndarray]


def serve(methods: Mapping[str, Method]) -> None:
    """Do the jobs. What libraries print goes to standard error, so that answers stay readable."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        job = json.loads(line)
        with np.load(job["problem"]) as arrays:
            problem = Problem(**arrays)
        started = time.perf_counter()
        try:
            action = methods[job["method"]](problem, job["seed"])
            seconds = time.perf_counter() - started
            np.savez(job["chosen"], action=np.asarray(action))
            answer = {"seconds": seconds}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": traceback.format_exception_only(error)[-1].strip().splitlines()[-1]}
        print(json.dumps(answer), file=answers)
