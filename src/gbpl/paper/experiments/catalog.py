"""The paper's thirteen tables: what is in each, how often it is repeated, and what is printed there.

`group` says whether the printed numbers can follow from the designs as the text states them: "consistent" tables can be
reproduced within Monte Carlo error; in "inconsistent" ones only the statements about methods can be compared.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = [
    "AUTO", "DEFAULT", "EXAMPLE", "EXTRAS", "FOIL", "LEVELS", "OTHER_READINGS", "TABLES", "UCI", "TableSpec", "printed",
]  # fmt: skip

DEFAULT = ("gbpl default", "auto")  # method and zeta of the row beside the paper's
AUTO = "auto"  # the default's own case in the interval tables: it has no eta to be given
EXAMPLE = "posterior-example"  # the one-dimensional run, which has figures and no table
OTHER_READINGS = "readings"  # other readings of the text
FOIL = "foil"  # negative welfare as the loss
EXTRAS: tuple[str, ...] = (EXAMPLE, OTHER_READINGS, FOIL)  # studies whose records are of no printed table
DGPS = ("DGP1", "DGP2", "DGP3")
UCI = ("energy_efficiency", "yacht")
GRID = ("0.01", "0.1", "1.0", "CV")
LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of the paper. `rows` are its (method, zeta) in printed order, under every one of `cases`.

    `key` is the printed column that holds the case, `csv` the file with the printed numbers. `metrics` name what a
    record of the table has; `columns.py` says which of them are printed, and how. `variants` are cases run beside the
    printed ones, each with the printed case it stands beside.
    """

    name: str
    title: str
    csv: str
    key: str
    cases: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]
    trials: int
    n: int
    group: str
    variants: tuple[tuple[str, str], ...] = ()


def _with_grid(*methods: str) -> tuple[tuple[str, str], ...]:
    """Methods whose name begins with GBPLNet have four zetas, the others none."""
    return tuple((m, z) for m in methods for z in (GRID if m.startswith("GBPLNet") else ("",)))


REALIZED = ("welfare", "regret", "mean_regret", "agreement")
EXACT = ("welfare", "regret", "agreement")
ENDS = tuple(f"{end}{round(100 * level)}" for level in LEVELS for end in ("low", "high"))

TABLES: Mapping[str, TableSpec] = {
    spec.name: spec
    for spec in (
        TableSpec(
            "synthetic-binary", "Synthetic binary results", "synthetic-binary", "dgp", DGPS,
            _with_grid("DiffReg", "GBPLNet", "PluginReg", "WeightedLogistic"), REALIZED, 100, 5000, "inconsistent",
            (("DGP1 unscaled", "DGP1"),),
        ),
        TableSpec(
            "synthetic-K", "Synthetic K = 5 results", "synthetic-K", "dataset", DGPS,
            _with_grid("DirectWelfare", "GBPLNet"), REALIZED, 100, 6000, "inconsistent",
        ),
        TableSpec(
            "uci", "UCI and OpenML results, binary actions", "uci", "dataset", UCI,
            _with_grid("DiffReg", "GBPLNet", "PluginReg", "WeightedLogistic"), REALIZED, 100, 0, "consistent",
        ),
        TableSpec(
            "cf-synthetic-binary", "Counterfactual synthetic binary results", "cf-synthetic-binary", "dgp", DGPS,
            _with_grid("GBPLNet-DR", "GBPLNet-IPW", "PluginReg"), REALIZED, 50, 6000, "inconsistent",
        ),
        TableSpec(
            "cf-synthetic-K", "Counterfactual synthetic K = 5 results", "cf-synthetic-K", "dgp", DGPS,
            _with_grid("GBPLNet-DR", "GBPLNet-IPW", "PluginRegK"), REALIZED, 50, 8000, "inconsistent",
        ),
        TableSpec(
            "cf-uci-binary", "Counterfactual UCI and OpenML results, binary actions", "cf-uci-binary", "dataset", UCI,
            _with_grid("GBPLNet-DR", "GBPLNet-IPW", "PluginReg"), REALIZED, 30, 0, "consistent",
        ),
        TableSpec(
            "full-feedback-learning", "Full-feedback DGP2 learning curve", "appendix-full-feedback-learning", "n",
            ("100", "500", "1000", "2000", "3000"),
            (("GBPLNet", "CV"), ("DirectWelfare", ""), ("DiffReg", ""), ("PluginReg", ""), ("WeightedLogistic", "")),
            EXACT, 100, 0, "consistent",
        ),
        TableSpec(
            "logged-feedback-learning", "Logged-feedback DGP2 learning curve", "appendix-logged-feedback-learning",
            "n", ("100", "500", "1000", "2000", "3000"),
            (
                ("GBPLNet-DR", "CV"), ("GBPLNet-IPW", "CV"), ("DirectDRWelfare", ""), ("DirectIPWWelfare", ""),
                ("PluginReg", ""),
            ),
            EXACT, 50, 0, "consistent",
        ),
        TableSpec(
            "weak-overlap", "Weak-overlap diagnostics", "appendix-weak-overlap", "clip", ("0.01", "0.05", "0.10"),
            (("GBPLNet-DR", "CV"), ("GBPLNet-IPW", "CV"), ("PluginReg", "")),
            (
                "welfare", "regret", "clipped_fraction", "ess", "q99_abs_pseudo_difference",
                "max_abs_pseudo_difference",
            ),
            50, 6000, "consistent",
        ),
        TableSpec(
            "uq-calibration", "Welfare-interval calibration", "appendix-uq-calibration", "eta",
            ("0.25", "0.5", "1", "2", "4", "8"), (("GBPLNet", "1.0"),), ("target", "welfare", *ENDS), 100, 1200,
            "consistent",
        ),
        TableSpec(
            "uq-evaluation", "Independent welfare-interval evaluation", "appendix-uq-evaluation", "eta", ("1", "4"),
            (("GBPLNet", "1.0"),), ("target", "welfare", *ENDS), 200, 1200, "consistent",
        ),
        TableSpec(
            "action-disagreement", "Posterior action disagreement", "appendix-action-disagreement", "group",
            ("1", "2", "3", "4", "5"), (("GBPLNet", "1.0"),),
            ("points", "disagreement", "agreement", "margin", "regret"), 200, 1200, "consistent",
        ),
        TableSpec(
            "posterior-threshold-rules", "Posterior-threshold rules", "appendix-posterior-threshold-rules", "alpha",
            ("0.05", "0.10", "0.20", "0.30"), (("GBPLNet", "1.0"),),
            ("welfare", "map", "difference", "uncertain", "change", "regret"), 200, 1200, "consistent",
        ),
    )
}  # fmt: skip


@cache
def printed(name: str) -> tuple[Mapping[str, str], ...]:
    """Lines of a table as printed: one mapping per line from the file's column names to text (empty for a dash)."""
    source = files("gbpl.paper") / "printed" / f"{TABLES[name].csv}.csv"
    with source.open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file))
