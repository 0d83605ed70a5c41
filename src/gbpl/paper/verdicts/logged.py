"""Statements about policies learned from logged feedback: the counterfactual appendix, the learning curve and the
weak-overlap table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import DGPS, TABLES, UCI
from gbpl.paper.printing.cells import printed_row
from gbpl.paper.printing.columns import Row
from gbpl.paper.verdicts.full import best_row, fixed_zetas, regret_falls, rows_of, sized, small_regret
from gbpl.paper.verdicts.statement import Statement
from gbpl.paper.verdicts.verdict import (
    Verdict,
    all_of,
    beyond,
    competitive,
    dependent,
    each,
    graded,
    higher,
    level,
    paired,
    together,
    trend,
)

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.paper.experiments.records import Records

__all__ = ["STATEMENTS"]

METHODS = ("GBPLNet-DR", "GBPLNet-IPW")


def _deviation(records: Records, row: Row) -> Float[np.ndarray, " trial"]:
    """How far a trial's conditional-mean regret is from the row's mean: free of the noise of the test outcomes."""
    values = records.of(*row, "mean_regret")
    finite = values[np.isfinite(values)]
    return np.abs(values - finite.mean()) if len(finite) else values


def _steadier(records: Records) -> Verdict:
    zetas = ("0.01", "0.1", "1.0", "CV")
    dr, ipw = METHODS
    pairs = [((case, dr, zeta), (case, ipw, zeta)) for case in DGPS for zeta in zetas]
    lower = sum(paired(records, *pair, _deviation).mean < 0 for pair in pairs)
    pooled = together(records, pairs, _deviation)
    welfare = [paired(records, *pair, "welfare").clear for pair in pairs]
    why = (
        f"from trial to trial the regret of DR deviates less in {lower} of {len(pairs)} pairs, on average by {pooled}; "
        f"its welfare is clearly higher in {welfare.count(1)} and clearly lower in {welfare.count(-1)}"
    )
    z = beyond(-pooled.mean, pooled.se)
    return graded(z if lower > len(pairs) / 2 else min(z, 0.0), why, "mean deviation of regret, DR below IPW")


def _zeta_depends(records: Records) -> Verdict:
    return all_of(
        {
            method.removeprefix("GBPLNet-"): dependent(records, {case: fixed_zetas(case, method) for case in DGPS})
            for method in METHODS
        }
    )


def _chosen_competes(records: Records, case: str) -> Verdict:
    return all_of(
        {
            method.removeprefix("GBPLNet-"): competitive(records, (case, method, "CV"), fixed_zetas(case, method))
            for method in METHODS
        }
    )


def _plug_in_against_best(*, ahead: bool) -> Callable[[Records, str], Verdict]:
    """PluginRegK and the GBPLNet row with the highest mean welfare: who is ahead."""

    def rule(records: Records, case: str) -> Verdict:
        plug_in = (case, "PluginRegK", "")
        best = best_row(records, rows_of("cf-synthetic-K", case, without="PluginRegK"))
        return higher(records, plug_in, [best]) if ahead else higher(records, best, [plug_in])

    return rule


def _clips(method: str, zeta: str = "CV") -> list[Row]:
    return [(clip, method, zeta) for clip in TABLES["weak-overlap"].cases]


def _tails(records: Records) -> Verdict:
    measures = {"q99": "q99_abs_pseudo_difference", "max": "max_abs_pseudo_difference"}
    return all_of(
        {
            f"{short} of {method}": trend(records, _clips(method), metric, sign=-1)
            for method in METHODS
            for short, metric in measures.items()
        }
    )


def _slight_rise(records: Records) -> Verdict:
    rows = _clips("GBPLNet-DR")
    rise = trend(records, rows, "welfare", sign=1)
    first, last = (level(records, row, "welfare").mean for row in (rows[0], rows[-1]))
    of_print = [float((printed_row(TABLES["weak-overlap"], row) or {})["welfare"]) for row in (rows[0], rows[-1])]
    size = f"{(last - first) / abs(first):+.1%}; in print {of_print[1] / of_print[0] - 1:+.1%}"
    return replace(rise, why=f"welfare {rise.why}, {size}")


BINARY, FIVE = "Appendix, counterfactual binary table", "Appendix, counterfactual K = 5 table"
REAL, CURVE = "Appendix, counterfactual UCI table", "Appendix, logged-feedback learning curve"
OVERLAP = "Appendix, weak-overlap table"

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "DR-based GBPLNet is typically more stable than IPW-based GBPLNet", BINARY, "cf-synthetic-binary", _steadier
    ),
    Statement(
        "The sensitivity to zeta remains scenario dependent", BINARY, "cf-synthetic-binary", _zeta_depends
    ),
    Statement(
        "the validation-selected choice performs competitively in all three DGPs", BINARY, "cf-synthetic-binary",
        each(DGPS, _chosen_competes),
    ),
    Statement(
        "PluginRegK has higher mean welfare in DGP1 and DGP2", FIVE, "cf-synthetic-K",
        each(("DGP1", "DGP2"), _plug_in_against_best(ahead=True)),
    ),
    Statement(
        "the best GBPLNet specification has higher mean welfare in DGP3", FIVE, "cf-synthetic-K",
        each(("DGP3",), _plug_in_against_best(ahead=False)),
    ),
    Statement(
        "GBPLNet-DR and PluginReg have a regret near zero", REAL, "cf-uci-binary",
        each(UCI, small_regret("cf-uci-binary", ("GBPLNet-DR", "PluginReg"))), of_text=False,
    ),
    Statement(
        "GBPLNet-IPW is noticeably below GBPLNet-DR", REAL, "cf-uci-binary",
        each(UCI, lambda records, case: sized(
            records, "cf-uci-binary", (case, "GBPLNet-IPW", "CV"), [(case, "GBPLNet-DR", "CV")], sign=-1
        )), of_text=False,
    ),
    Statement(
        "regret of every method falls with n", CURVE, "logged-feedback-learning",
        regret_falls("logged-feedback-learning"), of_text=False,
    ),
    Statement(
        "GBPLNet-DR has lower regret than GBPLNet-IPW from n = 500 on", CURVE, "logged-feedback-learning",
        each(("500", "1000", "2000", "3000"), lambda records, n: higher(
            records, (n, "GBPLNet-DR", "CV"), [(n, "GBPLNet-IPW", "CV")], "regret", sign=-1
        )), of_text=False,
    ),
    Statement(
        "Increasing the clipping level raises the effective sample size", OVERLAP, "weak-overlap",
        lambda records: trend(records, _clips("GBPLNet-DR"), "ess", sign=1),
    ),
    Statement("and reduces the tail of the pseudo-difference", OVERLAP, "weak-overlap", _tails),
    Statement(
        "for GBPLNet-DR (CV), welfare increases slightly as clipping becomes more aggressive", OVERLAP, "weak-overlap",
        _slight_rise,
    ),
    Statement(
        "welfare of GBPLNet-IPW falls as clipping becomes more aggressive", OVERLAP, "weak-overlap",
        lambda records: trend(records, _clips("GBPLNet-IPW"), "welfare", sign=-1), of_text=False,
    ),
    Statement(
        "PluginReg is not behind GBPLNet-DR at any clipping level", OVERLAP, "weak-overlap",
        each(TABLES["weak-overlap"].cases, lambda records, clip: competitive(
            records, (clip, "PluginReg", ""), [(clip, "GBPLNet-DR", "CV")]
        )), of_text=False,
    ),
)  # fmt: skip
