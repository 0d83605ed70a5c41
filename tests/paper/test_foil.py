"""The study of the foil: what it measures and selects, restated, and its section."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from gbpl.paper.experiments.foil import METHODS, SELECTION, STEPS, VARIATIONS, ZETAS, _measured, _picked
from gbpl.paper.experiments.records import Record, Records
from gbpl.paper.printing.foil import foil_section

RNG = np.random.default_rng(0)


def test_what_is_measured_of_draws() -> None:
    raw = 2.0 * RNG.normal(size=(30, 50))
    means = RNG.normal(size=(50, 2))
    found = _measured(raw, means, np.full(50, 0.5))
    treated = (np.tanh(raw) + 1) / 2
    optimum = means.max(axis=1).mean()
    of_rules = [np.where(draw >= 0, means[:, 1], means[:, 0]).mean() for draw in raw]
    majority = np.where(treated.mean(axis=0) >= 0.5, means[:, 1], means[:, 0]).mean()
    welfare = [np.mean(p * means[:, 1] + (1 - p) * means[:, 0]) for p in treated]
    low, high = np.quantile(welfare, [0.025, 0.975])
    share = (raw >= 0).mean(axis=0)
    assert_allclose(found["regret"], optimum - majority, atol=1e-12)
    assert_allclose(found["draw_regret"], optimum - np.mean(of_rules), atol=1e-12)
    assert_allclose(found["width"], high - low, atol=1e-12)
    assert found["covered"] == float(low <= means.mean() <= high)  # a coin for everybody
    assert_allclose(found["spread"], treated.std(axis=0).mean())
    assert_allclose(found["disagreement"], np.mean(2 * np.minimum(share, 1 - share)))
    assert_allclose(found["score"], np.sqrt(np.mean(raw**2)))


def test_no_interval_of_welfare_covers_the_best_policy() -> None:
    """A draw's policy has less welfare in known means than the best action, so the upper end is below it."""
    means = RNG.normal(size=(50, 2))
    best = (means[:, 1] > means[:, 0]).astype(float)
    sure = np.where(best > 0, 3.0, -3.0) + 0.1 * RNG.normal(size=(30, 50))
    assert _measured(sure, means, best)["covered"] == 0.0


def test_each_criterion_picks_its_own_optimum() -> None:
    treated = RNG.uniform(size=(len(ZETAS), 40))
    policies, outcomes = np.stack([1 - treated, treated], axis=-1), RNG.normal(size=(40, 2))
    gap, scores = outcomes[:, 1] - outcomes[:, 0], 2 * treated - 1
    welfare = [np.mean(np.where(s >= 0, outcomes[:, 1], outcomes[:, 0])) for s in scores]
    reduced = [np.mean(-gap * s + z / 2 * s**2) for s, z in zip(scores, ZETAS, strict=True)]
    full = [np.mean((gap - z * s) ** 2) / (2 * z) for s, z in zip(scores, ZETAS, strict=True)]
    expected = {"welfare": np.argmax(welfare), "reduced loss": np.argmin(reduced), "full loss": np.argmin(full)}
    assert _picked(policies, outcomes) == expected


def test_the_section_has_a_line_for_everything_that_was_run() -> None:
    measured = _measured(RNG.normal(size=(5, 6)), RNG.normal(size=(6, 2)), np.ones(6)) | {"rhat": 1.0}
    along = {f"{what} {step}": 1.0 for what in ("score", "norm") for step in STEPS}
    lines = [
        Record(case, method, zeta, trial, measured)
        for trial in range(2)
        for case in VARIATIONS
        for method, zeta, *_ in METHODS
    ]
    lines += [Record("chain, prior sd 1", *method[:2], trial, along) for trial in range(2) for method in METHODS[:2]]
    picks = {"reduced loss": min(ZETAS), "full loss": max(ZETAS), "welfare": 1.0}
    lines += [
        Record(case, method, "", trial, {"picked": zeta, "regret": 0.1})
        for trial in range(2)
        for case in SELECTION
        for method, zeta in picks.items()
    ]
    text = foil_section({"foil": Records(lines)})
    assert text.count("\n| ") - 2 * 3 == len(VARIATIONS) * len(METHODS) + 2 + len(SELECTION) * len(picks)
    assert (
        "the smallest zeta in 6 of 6 trials and one of the two smallest in 6; the full loss the largest in 6." in text
    )
    assert foil_section({}) == ""
