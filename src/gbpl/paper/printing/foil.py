"""The section on the foil: negative welfare beside the surrogate, and zeta selected by three criteria."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import FOIL
from gbpl.paper.experiments.foil import DESIGN, METHODS, SELECTION, STEPS, VARIATIONS, ZETAS
from gbpl.paper.printing.cells import standard_error
from gbpl.paper.printing.tables import pipe_table, with_error

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

__all__ = ["foil_section"]

INTRODUCTION = """\
The introduction says that General Bayes "allows any loss, so one could update directly using the negative welfare
contribution as a loss", and gives reasons not to: no quadratic regularization, no Gaussian pseudo-likelihood, no path
over zeta. `NegativeWelfare` is that update, exp(eta sum_i V_i) times the prior. The paper prints nothing of this."""

POSTERIORS = """\
**Both posteriors of one model.** The one-dimensional design with 900 rows; tanh of a spline with eight weights, drawn
by NUTS (two chains, 400 draws). Where a row says nothing else, eta is 1, the prior's standard deviation 1, and outcomes
are as they are; zeta and eta do not follow their unit. Regret and widths are in the unit of the design.

- *regret*: of the rule by the mean of the draws, in known means; *a draw's*: of the rule of one draw;
- *spread*: standard deviation over draws of the probability of treatment; *u*: disagreement of draws,
  2 min(p, 1 - p); both averaged over 2,000 points;
- *width*: of the 95 % interval of the randomized policy's welfare in known means; *covered*: how often it holds the
  welfare of the policy that is best for the loss itself, the best action or clip(tau / zeta, -1, 1);
- *score*: root mean square of the raw output, before tanh.

Negative welfare at eta is the surrogate at zeta = 0 and eta / 2. One seed was looked at before the number of trials
and the wider prior were set, and two trials at a prior of 10 before that became 3, by the time they take; with priors
of 10 and 100 NUTS mixes badly for the surrogate."""

CHAINS = """\
**Scores that drift.** SGLD with the paper's settings from the MAP of the example's network (64, 64), one chain: the
root mean square of the raw output on the training rows, and the norm of all weights. Without a prior negative welfare
has no best weights: where a network's signs are right, twice its last layer is better. So it is for the surrogate where
the gap is beyond zeta, at {beyond:.0%} of the points here; elsewhere its best score is finite."""

SELECTIONS = """\
**Zeta by the reduced loss.** Appendix G.3 warns that the full loss, with its term U^2 / (2 zeta), is biased towards
large zeta, and names validation welfare "or the reduced objective that drops the constant term" as alternatives. The
reduced loss -U f + zeta / 2 f^2 is not comparable between zetas either: of any one policy it is smaller at a smaller
zeta, and so is its minimum. Networks of the paper at six zetas, 800 rows to train on and 200 to select on; regret of
the rule in known means."""

ETAS = tuple(case for case in VARIATIONS if case.startswith("eta"))
SAME, TIMES_TEN = "eta 1", "outcomes times 10"
NUMBERS = ("regret", "draw_regret", "spread", "disagreement", "width")


def foil_section(records: Mapping[str, Records]) -> str:
    """The section, if there are records for it."""
    lines = records.get(FOIL)
    if lines is None or not len(lines):
        return ""
    parts = ["## Negative welfare as the loss, and zeta by the reduced loss", INTRODUCTION]
    parts += _posteriors(lines) + _chains(lines) + _selections(lines)
    return "\n\n".join(parts)


def _cell(records: Records, row: tuple[str, str, str], metric: str, digits: int = 4) -> str:
    values = records.of(*row, metric)
    return with_error(float(np.mean(values)), standard_error(values), digits) if len(values) else "--"


def _name(method: str, zeta: str) -> str:
    return f"{method}, zeta {zeta}" if zeta else method


def _trials(records: Records, case: str) -> str:
    numbers = sorted({line.trial for line in records.lines if line.case == case})
    return f"{len(numbers)} trials, with seeds {numbers[0]} to {numbers[-1]}; standard errors in parentheses."


def _posteriors(records: Records) -> list[str]:
    rows = []
    for case in VARIATIONS:
        for method, zeta, *_ in METHODS:
            row = case, method, zeta
            if not records.trials(*row):
                continue
            covered, rhat = records.of(*row, "covered"), f"{np.median(records.of(*row, 'rhat')):.3g}"
            shown = [_cell(records, row, metric) for metric in NUMBERS]
            shown += [f"{int(covered.sum())} of {len(covered)}", _cell(records, row, "score", 1), rhat]
            rows.append([case, _name(method, zeta), *shown])
    if not rows:
        return []
    heading = ["", "loss", "regret", "a draw's", "spread", "u", "width", "covered", "score", "R-hat (median)"]
    table = pipe_table(heading, rows, "llrrrrrrrr")
    return [POSTERIORS, _trials(records, next(iter(VARIATIONS))), table, _reading(records)]


def _reading(records: Records) -> str:
    """What the table says of cover, of the unit and of regret, in its own numbers."""
    foil, squared = METHODS[0][:2], METHODS[1][:2]

    def of(case: str, method: tuple[str, str], metric: str) -> np.ndarray:
        return records.of(case, *method, metric)

    covered = [
        f"{int(sum(of(case, method, 'covered').sum() for case in ETAS))} of "
        f"{sum(len(of(case, method, 'covered')) for case in ETAS)}"
        for method in (foil, squared)
    ]
    narrower = [of(SAME, m, "width").mean() / of(TIMES_TEN, m, "width").mean() for m in (foil, squared)]
    return (
        f"Over all eta the interval of negative welfare covers in {covered[0]} cases and that of the surrogate at zeta "
        f"1 in {covered[1]}. No policy has more welfare in known means than the best action, so draws of the first lie "
        "below what they are to cover, whatever eta is. Outcomes times ten, with eta and zeta as they were, make the "
        f"first interval {narrower[0]:.0f} times narrower and the second {narrower[1]:.0f} times: of negative welfare "
        "the unit is in eta alone, of the surrogate in zeta too. A constant added to all outcomes changes nothing. The "
        "rule's regret at eta 1, negative welfare minus the surrogate at zeta 1, paired by trial: "
        f"{_paired(of(SAME, foil, 'regret') - of(SAME, squared, 'regret'))}."
    )


def _paired(differences: np.ndarray) -> str:
    """A mean difference with its sign and its standard error."""
    return f"{differences.mean():+.4f} ({standard_error(differences):.4f})"


def _chains(records: Records) -> list[str]:
    found = [row for row in records.rows() if row[0].startswith("chain")]
    rows = [
        [row[0].removeprefix("chain, "), _name(*row[1:])]
        + [_cell(records, row, f"score {step}", 2) for step in STEPS]
        + [_cell(records, row, f"norm {step}", 1) for step in (STEPS[0], STEPS[-1])]
        for row in found
    ]
    if not rows:
        return []
    heading = ["prior", "loss", *(f"score at step {step:,}" for step in STEPS), "norm at 0", f"norm at {STEPS[-1]:,}"]
    beyond = np.mean(np.abs(DESIGN.effect(np.linspace(-2.5, 2.5, 10_001)[:, None])) > 1.0)
    return [CHAINS.format(beyond=beyond), _trials(records, found[0][0]), pipe_table(heading, rows, "llrrrrr")]


def _counts(picked: Sequence[float]) -> list[str]:
    times = Counter(picked)
    return [str(times[zeta]) for zeta in ZETAS]


def _selections(records: Records) -> list[str]:
    found = [row for row in records.rows() if row[0] in SELECTION]
    if not found:
        return []
    rows = [
        [row[0], row[1], *_counts(records.of(*row, "picked").tolist()), _cell(records, row, "regret")] for row in found
    ]
    lost = {
        criterion: np.concatenate([records.of(*row, "regret") for row in found if row[1] == criterion])
        for criterion in ("reduced loss", "welfare")
    }
    reduced, full = (
        np.concatenate([records.of(*row, "picked") for row in found if row[1] == criterion])
        for criterion in ("reduced loss", "full loss")
    )
    said = (
        f"The reduced loss picked the smallest zeta in {int(np.sum(reduced == min(ZETAS)))} of {len(reduced)} trials "
        f"and one of the two smallest in {int(np.sum(reduced <= sorted(ZETAS)[1]))}; the full loss the largest in "
        f"{int(np.sum(full == max(ZETAS)))}. What it costs depends on the design: its regret minus that of selection "
        f"by welfare, paired by trial over all designs, is {_paired(lost['reduced loss'] - lost['welfare'])}. *Least "
        "regret* is the zeta that was best on the test, which nobody can select."
    )
    heading = ["design", "selected by", *(f"{zeta:g}" for zeta in ZETAS), "regret"]
    return [SELECTIONS, _trials(records, found[0][0]), pipe_table(heading, rows, "ll" + "r" * (len(ZETAS) + 1)), said]
