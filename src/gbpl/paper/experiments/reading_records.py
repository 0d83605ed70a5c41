"""What each reading of a synthetic design implies: without a learner, and with the paper's methods on the nearest ones.

The printed table is simulated whole, many times over: its number of trials, each with test rows of its own. The means
and the spread over these reruns say what would be printed under a reading, and how surely. Index vectors that a
reading holds fixed are fixed within a rerun and differ between reruns, because those of the print are not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gbpl.datasets import LoggedDesign, LoggedSample, Sample
from gbpl.paper.experiments.catalog import TABLES, TableSpec, printed
from gbpl.paper.experiments.full import full_records
from gbpl.paper.experiments.logged import logged_records
from gbpl.paper.experiments.protocol import PARTS, Settings, Trial, split
from gbpl.paper.experiments.readings import STATED, ReadDesign, Reading, readings_of
from gbpl.paper.experiments.records import Record, Records
from gbpl.squashing import simplex_projection

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "DESIGN_ROW", "apart", "distances", "nearest", "printed_numbers", "reading_case", "reading_records", "rerun_table",
]  # fmt: skip

RERUNS = 12  # of a printed table
METHOD_TRIALS, NEAREST = 6, 2  # trials of the methods, on so many readings of each printed design
FIRST_SEED = 10**7  # the tables' own trials have seeds from 0 on
CLIP = {2: 0.05, 5: 0.0}  # of the logging policy: as in the tables
EXCEEDED = -3.0  # print is this far above what any policy can have: such a reading is not run
FAR = 10.0  # nor is one this far off without a learner: no learner could bring it to print
DESIGN_ROW = ("design", "")
ROUNDING = 1e-4 / math.sqrt(12)


def reading_case(table: str, case: str, name: str) -> str:
    """The case of a reading's lines."""
    return f"{table} {case}: {name}"


def _actions(table: str) -> int:
    return 5 if table.endswith("-K") else 2


# -- without a learner --------------------------------------------------------------------------------------


def rerun_table(table: str, case: str, reading: Reading, rerun: int, settings: Settings) -> dict[str, float]:
    """What the best rule of a reading would print: its columns, and what other policies have.

    `oracle` is welfare plus regret, `single` the best single action's welfare, `uniform` that of choosing at random;
    with five actions `randomized` is that of the population target at zeta = 1, played at random as in the table.
    """
    spec = TABLES[table]
    trials = 3 if settings.quick else spec.trials
    rows = round((1 - sum(PARTS)) * settings.rows(reading.n or spec.n))
    made = []
    for trial in range(trials):
        seed = FIRST_SEED + 1000 * rerun + trial
        design = reading.design(case, _actions(table), index_seed=seed if reading.anew else rerun)
        made.append(_trial(design, rows, seed, exact=reading.exact))
    oracle, welfare, randomized, *actions = np.array(made).T
    regret = oracle - welfare
    values = {
        "oracle": float(oracle.mean()),
        "welfare_mean": float(welfare.mean()),
        "welfare_var": float(welfare.var(ddof=1)),
        "welfare_se": float(welfare.std(ddof=1) / math.sqrt(trials)),
        "regret_mean": float(regret.mean()),
        "regret_se": float(regret.std(ddof=1) / math.sqrt(trials)),
        "single": float(np.mean(actions, axis=1).max()),
        "uniform": float(np.mean(actions)),
    }
    return values | ({"randomized": float(randomized.mean())} if len(actions) > 2 else {})


def _trial(design: ReadDesign, rows: int, seed: int, *, exact: bool) -> list[float]:
    """Welfare on test rows: of the oracle, the best rule, the target at zeta = 1, and every action alone."""
    sample = design.sample(rows, seed=seed)
    counted = sample.outcome_mean if exact else sample.outcomes
    best = counted[np.arange(rows), sample.outcome_mean.argmax(axis=1)]
    target = simplex_projection(sample.outcome_mean, np)  # of gamma / zeta, zeta = 1
    return [counted.max(axis=1).mean(), best.mean(), np.sum(target * counted, axis=1).mean(), *counted.mean(axis=0)]


# -- beside print -------------------------------------------------------------------------------------------


@cache
def printed_numbers(table: str, case: str) -> Mapping[str, float]:
    """What is printed of a design, to set a reading's best rule against.

    The largest welfare and the smallest regret of its rows, the means of the other columns over the rows, and of
    welfare plus regret, which should be one number; `randomized` is the welfare of GBPLNet, of the DR kind with a
    log, at zeta = 1.
    """
    spec = TABLES[table]
    lines = [line for line in printed(table) if line[spec.key] == case]

    def column(name: str) -> Float[np.ndarray, " row"]:
        return np.array([float(line[name]) for line in lines if line[name]])

    numbers = {name: float(column(name).mean()) for name in ("welfare_var", "welfare_se", "regret_se")}
    numbers |= {"welfare_mean": float(column("welfare_mean").max()), "regret_mean": float(column("regret_mean").min())}
    numbers["oracle"] = float(np.mean(column("welfare_mean") + column("regret_mean")))
    if _actions(table) > 2:
        numbers["randomized"] = next(
            float(line["welfare_mean"])
            for line in lines
            if line["method"] in ("GBPLNet", "GBPLNet-DR") and line["zeta"] == "1.0"
        )
    return numbers


def apart(reruns: Float[np.ndarray, " rerun"], number: float) -> float:
    """Mean of the reruns minus the printed number, in standard deviations of that difference, rounding included."""
    spread = np.std(reruns, ddof=1) * math.sqrt(1 + 1 / len(reruns))
    return float((np.mean(reruns) - number) / math.hypot(spread, ROUNDING))


def distances(records: Records, table: str, case: str, name: str) -> dict[str, float]:
    """`apart` in every printed column. Welfare below zero: print is above what any policy can have."""
    row = (reading_case(table, case, name), *DESIGN_ROW)
    return {column: apart(records.of(*row, column), number) for column, number in printed_numbers(table, case).items()}


def nearest(records: Records, table: str, case: str) -> list[Reading]:
    """The readings to run the methods on.

    Those with the least of the larger distance of two, the oracle and the variance of welfare, which a learner cannot
    change or hardly does, among those that are not far off and that print does not exceed.
    """
    far = {}
    for reading in readings_of(table, case):
        found = distances(records, table, case, reading.name)
        if reading is not STATED and found["welfare_mean"] > EXCEEDED:
            far[reading.name] = max(abs(found["oracle"]), abs(found["welfare_var"]))
    names = sorted((name for name in far if far[name] < FAR), key=far.__getitem__)[:NEAREST]
    return [reading for name in names for reading in readings_of(table, case) if reading.name == name]


# -- with the paper's methods -------------------------------------------------------------------------------


def reading_records(table: str, case: str, settings: Settings) -> list[Record]:
    """Lines of every reading of a printed design, and of the methods on the nearest ones."""
    reruns = range(2 if settings.quick else RERUNS)
    lines = [
        Record(
            reading_case(table, case, reading.name), *DESIGN_ROW, rerun,
            rerun_table(table, case, reading, rerun, settings),
        )
        for reading in readings_of(table, case)
        for rerun in reruns
    ]  # fmt: skip
    for reading in nearest(Records(lines), table, case)[: 1 if settings.quick else NEAREST]:
        lines += _methods(TABLES[table], case, reading, settings)
    return lines


def _methods(spec: TableSpec, case: str, reading: Reading, settings: Settings) -> list[Record]:
    name = reading_case(spec.name, case, reading.name)
    numbers = range(2 if settings.quick else METHOD_TRIALS)
    trials = [_method_trial(spec, case, reading, number, settings) for number in numbers]
    if not spec.name.startswith("cf-"):
        return full_records(name, trials, list(dict.fromkeys(method for method, _ in spec.rows)), settings)
    clip, plugin = CLIP[_actions(spec.name)], spec.rows[-1][0]
    return logged_records([(name, clip)], trials, settings, plugin=plugin, cross_fitted=False)


def _method_trial(spec: TableSpec, case: str, reading: Reading, number: int, settings: Settings) -> Trial:
    design = reading.design(case, _actions(spec.name), index_seed=number if reading.anew else 0)
    n = settings.rows(reading.n or spec.n)
    if not spec.name.startswith("cf-"):
        return _split(design.sample(n, seed=number), number, reading, None)
    log = LoggedDesign(design, clip=CLIP[design.n_actions], index_seed=number).sample(n, seed=number)
    return _split(log, number, reading, log.propensity)


def _split(sample: Sample | LoggedSample, number: int, reading: Reading, propensity: np.ndarray | None) -> Trial:
    observed, train, test = split(sample)
    known = None if propensity is None else propensity[: len(observed.x)]
    return Trial(number, observed, train, test, not reading.exact, known)
