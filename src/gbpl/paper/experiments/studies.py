"""The paper's studies: which trials make which tables. A study is run in blocks of trials, each a few stacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from gbpl.datasets import (
    BinaryDesign,
    Design,
    LoggedDesign,
    MultiActionDesign,
    OneDimensionalDesign,
    SemiSyntheticDesign,
)
from gbpl.datasets.openml import load_regression
from gbpl.feedback.standardize import Standardizer
from gbpl.paper.experiments import foil, posterior
from gbpl.paper.experiments.catalog import EXAMPLE, FOIL, OTHER_READINGS, TABLES
from gbpl.paper.experiments.full import full_records
from gbpl.paper.experiments.logged import logged_records
from gbpl.paper.experiments.posterior_setting_records import example_lines, interval_lines
from gbpl.paper.experiments.protocol import Settings, Trial, default_records, split
from gbpl.paper.experiments.reading_records import reading_records
from gbpl.paper.experiments.readings import READINGS
from gbpl.paper.experiments.records import Record

__all__ = ["DEFAULT_PART", "PAPER_PART", "STUDIES", "Study", "load_table", "truths"]

PAPER_PART, DEFAULT_PART = "paper", "default"
((VARIANT, _),) = TABLES["synthetic-binary"].variants
EVALUATION = 10_000  # new rows of the learning curves
CLIP = 0.05
WEAK_INDEX = 2.52  # the printed clipped fractions are those of a normal logit with this standard deviation
PATIENCE = 10  # of the main tables, which no patience brings to print; the others have that of `Settings`
SETS = 10  # of the interval studies: 100 or 200 trials are few to say whether a coverage is near its level
EXAMPLE_RUNS = 50  # of the one-dimensional example, of which the paper shows one
Lines = Mapping[str, list[Record]]


@dataclass(frozen=True, slots=True)
class Study:
    """Trials that make one table, or several. `run(case, part, numbers, settings)` gives the lines of some trials.

    `part` is the paper's methods, or the default beside them, of which only a `share` of the trials is run. `work` is
    roughly what a trial of each part takes on a core, in hundredths of a second, for the time left. `draws` says that
    the trials draw from posteriors. The paper's trials are run `sets` times over, with other seeds, where they are
    cheap and one set of them would decide little; without a printed table, a set is one trial. A study of `once` has no
    trials to ask for and no default: each case is one block.
    """

    name: str
    tables: tuple[str, ...]
    cases: tuple[str, ...]
    run: Callable[[str, str, Sequence[int], Settings], Lines]
    work: tuple[float, float]
    share: float
    draws: bool = False
    sets: int = 1
    once: bool = False

    @property
    def trials(self) -> int:
        """Of the paper's methods."""
        printed = TABLES.get(self.tables[0])
        return self.sets * (printed.trials if printed else 1)

    def count(self, part: str, trials: int | None) -> int:
        """Trials of a part, where `trials` of the paper's methods are asked for (None: as many as there are)."""
        if self.once:
            return int(part == PAPER_PART)
        asked = self.trials if trials is None else trials
        return asked if part == PAPER_PART else math.ceil(self.share * asked)


# -- trials -------------------------------------------------------------------------------------------------


def _realized(sample: object, number: int, propensity: np.ndarray | None = None) -> Trial:
    observed, train, test = split(sample)  # type: ignore[arg-type]
    known = None if propensity is None else propensity[: len(observed.x)]
    return Trial(number, observed, train, test, True, known)


def _synthetic(design: Design, n: int, number: int) -> Trial:
    return _realized(design.sample(n, seed=number), number)


def _synthetic_log(design: Design, n: int, number: int) -> Trial:
    log = LoggedDesign(design, clip=CLIP, index_seed=number).sample(n, seed=number)
    return _realized(log, number, log.propensity)


@cache
def _table(name: str, data_dir: str | None) -> tuple[np.ndarray, np.ndarray]:
    x, y, _ = load_regression(name, data_dir=data_dir)
    return x, y


def _uci(name: str, number: int, settings: Settings) -> SemiSyntheticDesign:
    return SemiSyntheticDesign(*_table(name, settings.data_dir), index_seed=number)


def _uci_log(name: str, number: int, settings: Settings) -> Trial:
    """Propensities by logistic regression on the rows to train on, as in the text."""
    design = _uci(name, number, settings)
    log = LoggedDesign(design, clip=CLIP, index_seed=number).sample(design.n_rows, seed=number)
    train = round(0.6 * len(log.x))
    standardizer = Standardizer.fit(log.x, np.arange(train, dtype=np.int32))
    known = LogisticRegression(max_iter=1000).fit(standardizer.apply(log.x[:train]), log.action[:train])
    return _realized(log, number, known.predict_proba(standardizer.apply(log.x)))


def _curve(number: int, n: int, *, logged: bool, strength: float = 1.0, clip: float = CLIP) -> Trial:
    """One fifth of the observed rows to stop on; the test is an independent sample with known means."""
    design = BinaryDesign("DGP2")
    test = design.sample(EVALUATION, seed=10**6 + number)
    if not logged:
        return Trial(number, design.sample(n, seed=number), round(0.8 * n), test, False)
    log = LoggedDesign(design, strength=strength, clip=clip, index_seed=number).sample(n, seed=number)
    return Trial(number, log, round(0.8 * n), test, False, log.propensity)


# -- studies ------------------------------------------------------------------------------------------------


def _binary_design(case: str) -> BinaryDesign:
    return BinaryDesign("DGP1", variant="unscaled") if case == VARIANT else BinaryDesign(case)


def _patient(table: str, settings: Settings) -> Settings:
    return replace(settings, patience=PATIENCE) if TABLES[table].group == "inconsistent" else settings


def _full(table: str, make: Callable[[str, int, Settings], Trial]) -> Callable[..., Lines]:
    methods = list(dict.fromkeys(method for method, _ in TABLES[table].rows))

    def run(case: str, part: str, numbers: Sequence[int], settings: Settings) -> Lines:
        trials = [make(case, number, settings) for number in numbers]
        if part == DEFAULT_PART:
            return {table: default_records(case, trials, settings)}
        return {table: full_records(case, trials, methods, _patient(table, settings))}

    return run


def _logged(
    table: str,
    make: Callable[[str, int, Settings], Trial],
    *,
    clip: float = CLIP,
    direct: bool = False,
    plugin: str = "PluginReg",
    cross_fitted: bool = False,
) -> Callable[..., Lines]:
    """Only the text of the learning curves speaks of cross-fitting; the main tables have one outcome network."""

    def run(case: str, part: str, numbers: Sequence[int], settings: Settings) -> Lines:
        trials = [make(case, number, settings) for number in numbers]
        if part == DEFAULT_PART:
            return {table: default_records(case, trials, settings)}
        chosen = _patient(table, settings)
        options: Any = {"direct": direct, "plugin": plugin, "cross_fitted": cross_fitted}
        return {table: logged_records([(case, clip)], trials, chosen, **options)}

    return run


def _weak(case: str, part: str, numbers: Sequence[int], settings: Settings) -> Lines:
    """The clip levels share their logs and outcome models; the default has a clip level of its own."""
    name = "weak-overlap"
    n, cases = settings.observed(TABLES[name].n), TABLES[name].cases
    trials = [_curve(number, n, logged=True, strength=WEAK_INDEX, clip=0.0) for number in numbers]
    if part == DEFAULT_PART:
        lines = default_records("", trials, settings)
        return {name: [Record(c, line.method, line.zeta, line.trial, line.values) for c in cases for line in lines]}
    return {name: logged_records([(c, float(c)) for c in cases], trials, settings, overlap=True)}


def _intervals(table: str, start: int, *, decisions: bool) -> Callable[..., Lines]:
    def run(case: str, part: str, numbers: Sequence[int], settings: Settings) -> Lines:
        make = posterior.posterior_records if part == PAPER_PART else posterior.default_records
        return make(table, numbers, start, settings, decisions=decisions)

    return run


def _example(case: str, part: str, numbers: Sequence[int], settings: Settings) -> Lines:
    return {EXAMPLE: posterior.example_records(numbers, settings)}


def _readings(case: str, part: str, numbers: Sequence[int], settings: Settings) -> Lines:
    """Every reading of one printed design, or every other setting of the posterior studies."""
    table, _, design = case.partition(" ")
    if table in READINGS:
        return {OTHER_READINGS: reading_records(table, design, _patient(table, settings))}
    return {OTHER_READINGS: example_lines(settings) if table == EXAMPLE else interval_lines(settings)}


def _study(name: str, run: Callable[..., Lines], work: tuple[float, float], share: float) -> Study:
    cases = (*TABLES[name].cases, *(variant for variant, _ in TABLES[name].variants))
    return Study(name, (name,), cases, run, work, share)


def _binary(case: str, number: int, settings: Settings) -> Trial:
    return _synthetic(_binary_design(case), settings.rows(5000), number)


def _multi(case: str, number: int, settings: Settings) -> Trial:
    return _synthetic(MultiActionDesign(case), settings.rows(6000), number)


def _binary_log(case: str, number: int, settings: Settings) -> Trial:
    return _synthetic_log(BinaryDesign(case), settings.rows(6000), number)


def _multi_log(case: str, number: int, settings: Settings) -> Trial:
    return _synthetic_log(MultiActionDesign(case), settings.rows(8000), number)


def _real(case: str, number: int, settings: Settings) -> Trial:
    return _realized(_uci(case, number, settings).sample(seed=number), number)


def _full_curve(case: str, number: int, settings: Settings) -> Trial:
    return _curve(number, settings.observed(int(case)), logged=False)


def _logged_curve(case: str, number: int, settings: Settings) -> Trial:
    return _curve(number, settings.observed(int(case)), logged=True)


_LOGGED_CURVE = _logged("logged-feedback-learning", _logged_curve, direct=True, cross_fitted=True)
_MULTI_LOGGED = _logged("cf-synthetic-K", _multi_log, clip=0.0, plugin="PluginRegK")
_CALIBRATION = _intervals("uq-calibration", 0, decisions=False)
_READ_CASES = (*(f"{table} {case}" for table in READINGS for case in TABLES[table].cases), EXAMPLE, "uq-evaluation")

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        _study("synthetic-binary", _full("synthetic-binary", _binary), (90, 120), 0.25),
        _study("synthetic-K", _full("synthetic-K", _multi), (80, 155), 0.25),
        _study("uci", _full("uci", _real), (40, 20), 0.5),
        _study("cf-synthetic-binary", _logged("cf-synthetic-binary", _binary_log), (110, 350), 0.3),
        _study("cf-synthetic-K", _MULTI_LOGGED, (150, 475), 0.3),
        _study("cf-uci-binary", _logged("cf-uci-binary", _uci_log), (55, 60), 1.0),
        _study("full-feedback-learning", _full("full-feedback-learning", _full_curve), (60, 80), 0.25),
        _study("logged-feedback-learning", _LOGGED_CURVE, (100, 200), 0.3),
        Study("weak-overlap", ("weak-overlap",), ("all",), _weak, (550, 365), 0.4),
        Study("uq-calibration", ("uq-calibration",), ("1-D",), _CALIBRATION, (6, 130), 0.05, True, SETS),
        Study(
            "uq-evaluation",
            ("uq-evaluation", "action-disagreement", "posterior-threshold-rules"),
            ("1-D",),
            _intervals("uq-evaluation", 1000, decisions=True),
            (4, 140),
            0.05,
            True,
            SETS,
        ),
        Study(EXAMPLE, (EXAMPLE,), ("1-D",), _example, (80, 0), 0.0, True, EXAMPLE_RUNS),
        Study(OTHER_READINGS, (OTHER_READINGS,), _READ_CASES, _readings, (1500, 0), 0.0, once=True),
        Study(FOIL, (FOIL,), foil.CASES, foil.run, (400, 0), 0.0, sets=foil.TRIALS),
    )
}  # fmt: skip


def _designs(name: str, case: str, settings: Settings, trials: int) -> list[Any]:
    """The design behind a case of a table, once for each of `trials` draws of what it draws at random."""
    if name in ("uci", "cf-uci-binary"):
        return [_uci(case, number, settings) for number in range(trials)]
    if name.endswith("-K"):
        return [MultiActionDesign(case, index_seed=number) for number in range(trials)]
    if name in ("synthetic-binary", "cf-synthetic-binary"):
        return [replace(_binary_design(case), index_seed=number) for number in range(trials)]
    if name in ("full-feedback-learning", "logged-feedback-learning", "weak-overlap"):
        return [BinaryDesign("DGP2")]
    return [OneDimensionalDesign()]


def truths(settings: Settings, cases: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, float]]:
    """Exact optimal and oracle welfare of the design behind cases of tables; of UCI designs the mean over trials.

    Beside them how welfare varies from trial to trial under the best rule: `row_variance` is that of a test row (of
    its conditional mean where the table evaluates by means) on average over draws of the design's random vectors and
    `most` the largest of them, `between` the variance of the optimal welfare over such draws, `test_rows` how many
    rows a trial is tested on.
    """
    return {(name, case): _welfares(name, case, settings) | _variances(name, case, settings) for name, case in cases}


def _welfares(name: str, case: str, settings: Settings) -> dict[str, float]:
    designs = _designs(name, case, settings, TABLES[name].trials if name in ("uci", "cf-uci-binary") else 1)
    return {
        "optimal": float(np.mean([design.optimal_welfare() for design in designs])),
        "oracle": float(np.mean([design.oracle_welfare() for design in designs])),
    }


def _variances(name: str, case: str, settings: Settings) -> dict[str, float]:
    """By 20,000 rows of each of 20 designs, the same rows in all of them; of a UCI design, by all its rows."""
    realized, real = TABLES[name].key in ("dgp", "dataset"), name in ("uci", "cf-uci-binary")
    within, means = [], []
    for design in _designs(name, case, settings, TABLES[name].trials if real else 20):
        sample = design.sample(*(() if real else (20_000,)), seed=0)
        best = np.argmax(sample.outcome_mean, axis=1)[:, None]
        within.append(np.var(np.take_along_axis(sample.outcomes if realized else sample.outcome_mean, best, axis=1)))
        means.append(np.take_along_axis(sample.outcome_mean, best, axis=1).mean())
    rows = {"dgp": TABLES[name].n / 5, "dataset": TABLES[name].n / 5, "n": EVALUATION, "clip": EVALUATION}
    test = len(sample.x) / 5 if real else rows.get(TABLES[name].key, posterior.POINTS)
    left = 1 - 1 / 5 if real else 1.0  # a fifth of all rows, without replacement
    return {
        "row_variance": left * float(np.mean(within)),
        "most": left * float(np.max(within)),
        "between": float(np.var(means, ddof=1)) if len(means) > 1 else 0.0,
        "test_rows": float(test),
    }


def load_table(name: str, data_dir: str | None) -> None:
    """Make sure that a UCI table can be read, or raise `DataUnavailableError`."""
    _table(name, data_dir)
