"""Other readings of the text: their designs restated, a distance in every printed column, and no use elsewhere."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

import gbpl
from gbpl.datasets import BinaryDesign, MultiActionDesign
from gbpl.paper.experiments import posterior_setting_records, reading_records
from gbpl.paper.experiments.catalog import OTHER_READINGS, TABLES, printed
from gbpl.paper.experiments.posterior_setting_records import example_lines, interval_lines
from gbpl.paper.experiments.posterior_settings import DECISIONS, INTERVALS, SGLD_SETTINGS
from gbpl.paper.experiments.protocol import Settings
from gbpl.paper.experiments.reading_records import (
    DESIGN_ROW,
    apart,
    distances,
    nearest,
    printed_numbers,
    reading_case,
    rerun_table,
)
from gbpl.paper.experiments.readings import BINARY, MULTI, READINGS, STATED, ReadDesign, Reading, readings_of
from gbpl.paper.experiments.records import Record, Records
from gbpl.paper.printing.columns import layout
from gbpl.paper.verdicts.posterior_settings import example_distances, setting_cells
from gbpl.paper.verdicts.readings import method_gaps, readings_section, unexplained

QUICK = Settings(quick=True, device="cpu")


def named(name: str, readings: tuple[Reading, ...] = BINARY) -> Reading:
    return next(reading for reading in readings if reading.name == name)


def oracle_of(reading: Reading, case: str, n_actions: int = 2) -> tuple[float, float]:
    """E max_a Y(a) and its standard error, over draws of w where the reading has them."""
    means = [
        np.max(reading.design(case, n_actions, index_seed=w).sample(4000, seed=w).outcomes, axis=1).mean()
        for w in range(60)
    ]
    return float(np.mean(means)), float(np.std(means, ddof=1) / math.sqrt(len(means)))


def positive_part(mean: float, sd: float) -> float:
    return mean * stats.norm.cdf(mean / sd) + sd * stats.norm.pdf(mean / sd)


# -- designs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["DGP1", "DGP2", "DGP3"])
def test_the_first_reading_is_the_stated_design(case: str) -> None:
    x = np.random.default_rng(0).standard_normal((50, 10))
    of_many = MultiActionDesign(case, index_seed=3).outcome_mean(x)
    np.testing.assert_allclose(ReadDesign(case, 5, index_seed=3).outcome_mean(x), of_many)
    if case == "DGP1":  # its w has another stream: compared by what it is worth
        mean, error = oracle_of(STATED, case)
        assert abs(mean - BinaryDesign(case).oracle_welfare()) < 4 * error
    else:
        np.testing.assert_allclose(ReadDesign(case).outcome_mean(x), BinaryDesign(case).outcome_mean(x))


def test_a_normal_w_is_a_random_size_of_the_index() -> None:
    """x'w / sqrt(d) is N(0, s^2) given w, with d s^2 chi-square of d degrees."""

    def inside(z: float, square: float) -> float:
        tau = 2 * math.tanh(math.sqrt(square / 10) * z)
        return positive_part(tau, math.sqrt(2)) * stats.norm.pdf(z) * stats.chi2.pdf(square, 10)

    exact = 0.5 + integrate.dblquad(inside, 0.01, 45, -6, 6, epsabs=1e-5)[0]
    mean, error = oracle_of(named("w normal"), "DGP1")
    assert abs(mean - exact) < 4 * error


def test_the_square_before_lifts_dgp2_by_one_half() -> None:
    """E[0.3 x^2] - E[-0.2 x^2] = 0.5, and the gap is as it was."""
    mean, error = oracle_of(named("square before"), "DGP2")
    assert abs(mean - BinaryDesign("DGP2").oracle_welfare() - 0.5) < 4 * error


def test_actions_of_minus_one_and_one_double_the_gap() -> None:
    """E max = E[gamma_0 - tau] + E(2 tau + sqrt(2) e)^+, and 2 tau is N(-2.5, 1) or N(2.5, 1) in DGP3."""
    exact = np.mean([positive_part(mean, math.sqrt(1 + 2)) for mean in (-2.5, 2.5)])
    mean, error = oracle_of(named("actions -1 and 1"), "DGP3")
    assert abs(mean - exact) < 4 * error


def test_the_shift_in_the_bracket_of_five_actions() -> None:
    """E[gamma_a] = P(z > -0.1 a), z of sd 1 / sqrt(10)."""
    design = named("bracket moved", MULTI).design("DGP3", 5, index_seed=0)
    mean = design.sample(40_000, seed=0).outcome_mean.mean(axis=0)
    np.testing.assert_allclose(mean, stats.norm.cdf(0.1 * np.arange(1, 6) * math.sqrt(10)), atol=0.012)


def test_every_reading_changes_the_designs_it_names() -> None:
    """By the design, the rows, the draw of w or the evaluation, and no two readings of a case are one."""
    for readings, n_actions in ((BINARY, 2), (MULTI, 5)):
        for case in ("DGP1", "DGP2", "DGP3"):
            seen = []
            for reading in (reading for reading in readings if case in reading.cases):
                design = reading.design(case, n_actions, index_seed=0)
                sample = design.sample(50, seed=0)
                seen.append((sample.outcomes.tobytes(), reading.n, reading.anew, reading.exact))
            assert len(set(seen)) == len(seen), case


# -- distances ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "case"), [("noise sd 2", "DGP2"), ("not divided", "DGP1"), ("w normal", "DGP1")])
def test_a_rerun_is_the_table_of_the_best_rule(name: str, case: str) -> None:
    """Its columns restated from the rows, for one rerun of a small table; w is of the rerun, or anew in every trial."""
    reading, rerun = named(name), 1
    welfare, regret = [], []
    for trial in range(3):
        seed = reading_records.FIRST_SEED + 1000 * rerun + trial
        design = {
            "noise sd 2": ReadDesign("DGP2", noise_sd=2.0),
            "not divided": ReadDesign("DGP1", divided=False, index_seed=rerun),
            "w normal": ReadDesign("DGP1", unit_norm=False, index_seed=seed),
        }[name]
        sample = design.sample(40, seed=seed)
        tau = sample.outcome_mean[:, 1] - sample.outcome_mean[:, 0]
        mine = np.where(tau > 0, sample.outcomes[:, 1], sample.outcomes[:, 0])
        welfare.append(mine.mean())
        regret.append((sample.outcomes.max(axis=1) - mine).mean())
    values = rerun_table("synthetic-binary", case, reading, rerun, QUICK)
    assert values["welfare_mean"] == pytest.approx(np.mean(welfare))
    assert values["welfare_var"] == pytest.approx(np.var(welfare, ddof=1))
    assert values["welfare_se"] == pytest.approx(np.sqrt(np.var(welfare, ddof=1) / 3))
    assert values["regret_mean"] == pytest.approx(np.mean(regret))
    assert values["regret_se"] == pytest.approx(np.std(regret, ddof=1) / math.sqrt(3))
    assert values["oracle"] == pytest.approx(np.mean(welfare) + np.mean(regret))


@pytest.fixture(scope="module")
def reruns() -> Records:
    """Two small reruns of every reading."""
    return Records(
        Record(reading_case(table, case, reading.name), *DESIGN_ROW, r, rerun_table(table, case, reading, r, QUICK))
        for table in READINGS
        for case in TABLES[table].cases
        for reading in readings_of(table, case)
        for r in range(2)
    )


def test_every_printed_column_has_a_distance_for_every_reading(reruns: Records) -> None:
    assert set(READINGS) == {name for name, spec in TABLES.items() if spec.group == "inconsistent"}
    for table in READINGS:
        columns = {column.name for column in layout(TABLES[table]).columns}
        for case in TABLES[table].cases:
            for reading in readings_of(table, case):
                far = distances(reruns, table, case, reading.name)
                assert set(far) >= columns | {"oracle"}
                assert all(math.isfinite(value) for value in far.values()), (table, case, reading.name)


def test_the_section_has_every_reading_and_says_what_is_left(reruns: Records) -> None:
    text = readings_section({OTHER_READINGS: reruns})
    for table in READINGS:
        part = text.partition(f"### {table}: other readings")[2].partition("\n### ")[0]
        for case in TABLES[table].cases:
            for reading in readings_of(table, case):
                assert f"| {case} | {reading.name} |" in part
            assert f"- {case}: nearest is *" in part
    assert readings_section({}) == ""


def test_printed_numbers_of_a_design() -> None:
    numbers = printed_numbers("synthetic-K", "DGP3")
    assert numbers["welfare_mean"] == 0.8413
    assert numbers["regret_mean"] == 0.5107
    assert numbers["randomized"] == 0.7466
    assert numbers["oracle"] == pytest.approx(1.3520, abs=1e-4)


def test_apart_is_in_deviations_of_one_rerun() -> None:
    assert apart(np.array([1.0, 2.0, 3.0]), 1.0) == pytest.approx(1 / math.sqrt(4 / 3))


def _near_print(**shifts: dict[str, float]) -> Records:
    """Reruns of a design at print, but for what is shifted, by reading."""
    rng, lines = np.random.default_rng(0), []
    for reading in readings_of("synthetic-binary", "DGP1"):
        moved = shifts.get(reading.name.replace(" ", "_"), {"oracle": 1.0, "regret_se": 1.0})
        for rerun in range(12):
            values = {
                column: value + moved.get(column, 0.0) + 0.01 * value * rng.standard_normal()
                for column, value in printed_numbers("synthetic-binary", "DGP1").items()
            }
            name = reading_case("synthetic-binary", "DGP1", reading.name)
            lines.append(Record(name, *DESIGN_ROW, rerun, values))
    return Records(lines)


def test_the_nearest_are_not_far_and_not_exceeded_by_print() -> None:
    exceeded = {"welfare_mean": -1.0}
    records = _near_print(stated={}, w_normal={}, not_divided={"oracle": 0.05}, no_baseline=exceeded)
    assert [reading.name for reading in nearest(records, "synthetic-binary", "DGP1")] == ["w normal", "not divided"]
    assert "*w normal*. No column speaks against it" in unexplained(
        _near_print(w_normal={}), "synthetic-binary", "DGP1"
    )
    moved = _near_print(w_normal={"welfare_var": 0.02, "welfare_mean": 1.0})
    words = unexplained(moved, "synthetic-binary", "DGP1")
    assert "Unexplained by it: welfare_var (+" in words
    assert re.search(r"has (0\.9|1\.0)\d+ more welfare than the best in print", words)


# -- methods and settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["synthetic-binary", "cf-synthetic-K"])
def test_methods_run_on_the_nearest(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = named("w normal", READINGS[table])
    monkeypatch.setattr(reading_records, "nearest", lambda *asked: [chosen])
    records = Records(reading_records.reading_records(table, "DGP1", QUICK))
    key = reading_case(table, "DGP1", chosen.name)
    assert {row[1:] for row in records.rows() if row[0] == key} == {DESIGN_ROW, *TABLES[table].rows}
    gaps = method_gaps(records, table, "DGP1", chosen.name, "welfare_mean")
    assert set(gaps) == set(TABLES[table].rows)
    row, line = TABLES[table].rows[0], printed(table)[0]
    best, lost = records.of(key, *DESIGN_ROW, "welfare_mean"), records.of(key, *row, "mean_regret")
    spread = math.hypot(best.std(ddof=1) * math.sqrt(1 + 1 / 2), lost.std(ddof=1) / math.sqrt(2))
    assert gaps[row] == pytest.approx((best.mean() - lost.mean() - float(line["welfare_mean"])) / spread)
    assert "on the nearest readings" in readings_section({OTHER_READINGS: records})


def test_settings_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [s for s in SGLD_SETTINGS if s.name in ("stated", "mean loss", "randomized policy", "conditional means")]
    monkeypatch.setattr(posterior_setting_records, "SGLD_SETTINGS", tuple(some))
    records = Records(example_lines(QUICK))
    for setting in some:
        assert all(math.isfinite(far) for far in example_distances(records, setting.name).values()), setting.name
    means = {
        s.name: records.of(f"posterior-example: {s.name}", "GBPLNet", "1.0", "welfare_mean").tolist() for s in some
    }
    assert len({tuple(values) for values in means.values()}) == len(some), "every setting is its own"


def test_settings_of_intervals_and_decisions() -> None:
    records = Records(interval_lines(QUICK))
    for setting in INTERVALS:
        found = setting_cells(records, "uq-evaluation", setting.name)
        assert len(found) == 16, setting.name
    for setting in DECISIONS:
        assert setting_cells(records, "posterior-threshold-rules", setting.name), setting.name
    width = {
        name: np.mean(records.of(f"uq-evaluation 4: {name}", "GBPLNet", "1.0", "high90"))
        - np.mean(records.of(f"uq-evaluation 4: {name}", "GBPLNet", "1.0", "low90"))
        for name in ("eta / 2", "stated", "2 eta")
    }
    assert width["eta / 2"] > width["stated"] > width["2 eta"], "a larger eta is a narrower posterior"
    text = readings_section({OTHER_READINGS: records})
    assert "### Welfare intervals: other settings" in text
    assert "### Disagreement and threshold rules: other settings" in text


# -- nowhere else -------------------------------------------------------------------------------------------


def test_no_reading_is_used_elsewhere() -> None:
    """Only their own study and section know them."""
    root = Path(gbpl.__file__).parent
    allowed = {
        "paper/experiments/posterior_setting_records.py",
        "paper/experiments/reading_records.py",
        "paper/experiments/studies.py",
        "paper/verdicts/posterior_settings.py",
        "paper/verdicts/readings.py",
    }
    modules = re.compile(r"experiments\.(readings|reading_records|posterior_settings|posterior_setting_records)\b")
    users = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if modules.search(path.read_text())}
    assert users == allowed
