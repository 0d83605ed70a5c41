"""Statements about policies learned from full feedback: the experiments section and the appendix of its additional
results, and the learning curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.datasets import MultiActionDesign
from gbpl.paper.experiments.catalog import DGPS, TABLES, UCI
from gbpl.paper.printing.cells import printed_row, two_shares_error
from gbpl.paper.printing.columns import Row
from gbpl.paper.verdicts.statement import Statement
from gbpl.paper.verdicts.verdict import (
    AGREES,
    POPULATION,
    SIMILAR,
    SMALL,
    UNSEEN,
    NotComparable,
    Verdict,
    all_of,
    beyond,
    competitive,
    dependent,
    each,
    graded,
    higher,
    level,
    name_of,
    paired,
    same,
    similar,
    trend,
)
from gbpl.surrogates import FullVector

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

__all__ = ["STATEMENTS", "best_row", "fixed_zetas", "regret_falls", "rows_of", "sized", "small_regret"]

PICKED = {0.001: 5, 0.01: 45, 0.1: 50, 1.0: 0}  # of 100 trials, DGP3 with five actions


def fixed_zetas(case: str, method: str = "GBPLNet") -> list[Row]:
    """Rows of a method at the zetas that are not chosen by validation."""
    return [(case, method, zeta) for zeta in ("0.01", "0.1", "1.0")]


def rows_of(table: str, case: str, *, without: str = "") -> list[Row]:
    """Printed rows of a case, but for those of one method."""
    return [(case, *row) for row in TABLES[table].rows if row[0] != without]


def best_row(records: Records, rows: Sequence[Row]) -> Row:
    """The row with the highest mean welfare."""
    return max(rows, key=lambda row: level(records, row, "welfare").mean)


def sized(
    records: Records, table: str, row: Row, others: Sequence[Row], measure: str = "welfare", *, sign: int = 1
) -> Verdict:
    """`higher`, for a word of degree: by how much in our runs, and in print."""
    verdict = higher(records, row, others, measure, sign=sign, size=True)
    mine, *theirs = (float((printed_row(TABLES[table], r) or {})[f"{measure}_mean"]) for r in (row, *others))
    shares = [mine / other - 1 for other in theirs]
    span = " to ".join(dict.fromkeys(f"{share:+.1%}" for share in (min(shares), max(shares))))
    return replace(verdict, why=f"{verdict.why}; in print {span}")


def small_regret(table: str, methods: Sequence[str] = ()) -> Callable[[Records, str], Verdict]:
    """The largest regret of a case, over some methods or all, is less than 5 % of its highest welfare."""

    def rule(records: Records, case: str) -> Verdict:
        rows = [row for row in rows_of(table, case) if not methods or row[1] in methods]
        worst = max((level(records, row, "regret") for row in rows), key=lambda gap: gap.mean)
        welfare = level(records, best_row(records, rows), "welfare").mean
        why = f"largest regret {worst.mean:.4f} ({worst.se:.4f}) beside a welfare of {welfare:.4f}"
        return graded(beyond(SMALL * abs(welfare) - worst.mean, worst.se), why, "largest regret below 5 % of welfare")

    return rule


def regret_falls(table: str) -> Callable[[Records], Verdict]:
    """Regret falls along the cases, for every method."""

    def rule(records: Records) -> Verdict:
        return all_of(
            {
                method: trend(records, [(n, method, zeta) for n in TABLES[table].cases], "regret", sign=-1)
                for method, zeta in TABLES[table].rows
            }
        )

    return rule


def _methods_depend(records: Records) -> Verdict:
    methods = (("DiffReg", ""), ("GBPLNet", "CV"), ("PluginReg", ""), ("WeightedLogistic", ""))
    return dependent(records, {case: [(case, *method) for method in methods] for case in DGPS})


def _zeta_matters(records: Records) -> Verdict:
    """The best fixed zeta above the worst by more than 2 %, in one scenario at least."""
    z, reasons = [], []
    for case in DGPS:
        order = sorted(fixed_zetas(case), key=lambda row: level(records, row, "welfare").mean)
        gap, scale = paired(records, order[-1], order[0], "welfare"), abs(level(records, order[0], "welfare").mean)
        z.append(beyond(gap.mean - SIMILAR * scale, gap.se))
        reasons.append(f"{case}: {name_of(order[-1])} against {name_of(order[0])} {gap}, {gap.mean / scale:+.1%}")
    return graded(max(z), "; ".join(reasons), "best zeta above the worst by 2 %, in one scenario")


def _avoided(records: Records) -> Verdict:
    chosen = ("DGP3", "GBPLNet", "CV")
    return all_of(
        {
            "above zeta = 1": higher(records, chosen, [("DGP3", "GBPLNet", "1.0")]),
            "beside the best": competitive(records, chosen, fixed_zetas("DGP3")),
        }
    )


def _picks(records: Records) -> dict[float, int]:
    picked = records.of("DGP3", "GBPLNet", "CV", "picked")
    picked = picked[np.isfinite(picked)]
    if not len(picked):
        raise NotComparable("the records do not say which zeta was chosen")
    return {zeta: int(np.isclose(picked, zeta).sum()) for zeta in PICKED}


def _same_picks(records: Records) -> Verdict:
    """Every zeta's share of trials within 2 standard errors of the printed one."""
    counts = _picks(records)
    ours, theirs = sum(counts.values()), sum(PICKED.values())
    apart = [
        beyond(share - of_print, two_shares_error(share, ours, of_print, theirs))
        for share, of_print in ((counts[zeta] / ours, PICKED[zeta] / theirs) for zeta in PICKED)
    ]
    chosen_zetas = ", ".join(f"{zeta} in {count}" for zeta, count in counts.items())
    return same(max(abs(z) for z in apart), f"of {ours} trials ours selects {chosen_zetas}")


def _never_one(records: Records) -> Verdict:
    counts = _picks(records)
    trials = sum(counts.values())
    why = f"zeta = 1 is selected in {counts[1.0]} of {trials} trials"
    if not counts[1.0]:
        why += f", so at most in {1 - 0.05 ** (1 / trials):.1%} of them, with 95 % confidence"
    return Verdict(UNSEEN if counts[1.0] else AGREES, why, "count of zero")


def _same_ranking(records: Records) -> Verdict:
    """The population minimiser at zeta = 1 in the design itself; finite samples are told of, and decide nothing."""
    means = MultiActionDesign("DGP3").sample(20_000, seed=0).outcome_mean
    policy = np.asarray(FullVector(means.shape[1]).population_policy(means, 1.0))
    kept = np.mean(policy[np.arange(len(means)), means.argmax(axis=1)] == policy.max(axis=1))
    seen = competitive(records, ("DGP3", "GBPLNet", "1.0"), fixed_zetas("DGP3")[:2], "agreement")
    why = (
        f"in the design the population minimiser at zeta = 1 ranks the best action first at {kept:.1%} of 20,000 "
        f"points; the sentence is not about finite samples, where agreement with it is {seen.why}"
    )
    return Verdict(POPULATION, why, "population minimiser of the design")


def _extreme(method: str, sign: int) -> Callable[[Records, str], Verdict]:
    """A method of the UCI table is above (below) all others."""
    return lambda records, case: sized(
        records, "uci", (case, method, ""), rows_of("uci", case, without=method), sign=sign
    )


def _crossing(records: Records) -> Verdict:
    def against(n: str, sign: int) -> Verdict:
        return higher(records, (n, "GBPLNet", "CV"), [(n, "DiffReg", ""), (n, "PluginReg", "")], "regret", sign=sign)

    return all_of({f"n = {n}": against(n, sign) for n, sign in (("100", -1), ("500", -1), ("1000", -1), ("3000", 1))})


MAIN, FIVE, REAL = "Experiments, synthetic binary table", "Appendix, K = 5 table", "Appendix, UCI table"
CURVE = "Appendix, full-feedback learning curve"

STATEMENTS: tuple[Statement, ...] = (
    Statement("relative performance is scenario dependent", MAIN, "synthetic-binary", _methods_depend),
    Statement(
        "In DGP1 and DGP3, the methods have similar welfare", MAIN, "synthetic-binary",
        each(("DGP1", "DGP3"), lambda records, case: similar(records, rows_of("synthetic-binary", case))),
    ),
    Statement(
        "in DGP2, GBPLNet improves on DiffReg and PluginReg", MAIN, "synthetic-binary",
        lambda records: higher(
            records, ("DGP2", "GBPLNet", "CV"), [("DGP2", "DiffReg", ""), ("DGP2", "PluginReg", "")]
        ),
    ),
    Statement(
        "WeightedLogistic attains the highest mean welfare in DGP1", MAIN, "synthetic-binary",
        lambda records: higher(
            records, ("DGP1", "WeightedLogistic", ""), rows_of("synthetic-binary", "DGP1", without="WeightedLogistic")
        ),
    ),
    Statement(
        "The sensitivity to zeta is also scenario dependent", MAIN, "synthetic-binary",
        lambda records: dependent(records, {case: fixed_zetas(case) for case in DGPS}),
    ),
    Statement(
        "GBPLNet is competitive with DirectWelfare across the three scenarios", FIVE, "synthetic-K",
        each(DGPS, lambda records, case: competitive(records, (case, "GBPLNet", "CV"), [(case, "DirectWelfare", "")])),
    ),
    Statement("the choice of zeta can matter for welfare", FIVE, "synthetic-K", _zeta_matters),
    Statement(
        "in DGP3, zeta = 1.0 yields noticeably lower welfare", FIVE, "synthetic-K",
        lambda records: sized(
            records, "synthetic-K", ("DGP3", "GBPLNet", "1.0"), fixed_zetas("DGP3")[:2], sign=-1
        ),
    ),
    Statement("selection by validation welfare avoids this deterioration", FIVE, "synthetic-K", _avoided),
    Statement("selects zeta = 0.001, 0.01, and 0.1 in 5, 45, and 50 trials", FIVE, "synthetic-K", _same_picks),
    Statement("and never selects zeta = 1.0", FIVE, "synthetic-K", _never_one),
    Statement(
        "It does not imply a change in the population action ranking of the deterministic argmax rule", FIVE,
        "synthetic-K", _same_ranking, of_population=True,
    ),
    Statement(
        "In these two datasets, all methods achieve similar welfare", REAL, "uci",
        each(UCI, lambda records, case: similar(records, rows_of("uci", case))),
    ),
    Statement(
        "The small regret values reflect the controlled construction", REAL, "uci", each(UCI, small_regret("uci"))
    ),
    Statement("DiffReg is slightly better on average", REAL, "uci", each(UCI, _extreme("DiffReg", 1))),
    Statement("WeightedLogistic is slightly worse", REAL, "uci", each(UCI, _extreme("WeightedLogistic", -1))),
    Statement(
        "regret of every method falls with n", CURVE, "full-feedback-learning", regret_falls("full-feedback-learning"),
        of_text=False,
    ),
    Statement(
        "GBPLNet (CV) has lower regret than DiffReg and PluginReg up to n = 1000, and higher at n = 3000", CURVE,
        "full-feedback-learning", _crossing, of_text=False,
    ),
)  # fmt: skip
