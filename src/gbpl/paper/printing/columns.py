"""The printed columns of every table: which number of the records each holds, and where it stands on the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import LEVELS, TableSpec

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.paper.experiments.records import Records

__all__ = ["SPREADS", "Column", "Layout", "Row", "layout"]

Row = tuple[str, str, str]  # case, method, zeta

SPREADS = ("variance", "error")  # kinds that say how trials vary: compared by their ratio


@dataclass(frozen=True, slots=True)
class Column:
    """One printed number per row. `name` is the column of the printed file, `metric` what is read from the records.

    `kind` says what is made of the trials: "mean", "coverage" and mean "width" of an interval, "variance", "error"
    (the standard error), "quantile" (the 5 % one) or "total". `error` names the printed column with the standard error
    of this one, `beside` the one printed in parentheses behind it. A `shared` number is printed once per case.
    """

    name: str
    metric: str
    kind: str = "mean"
    heading: str = ""
    latex: str = ""
    digits: int = 4
    error: str = ""
    beside: str = ""
    shared: bool = False

    def values(self, records: Records, row: Row) -> Float[np.ndarray, " trial"]:
        """One number per trial, NaN where it has none."""
        if self.kind not in ("coverage", "width"):
            return records.of(*row, self.metric)
        low, high = records.of(*row, f"low{self.metric}"), records.of(*row, f"high{self.metric}")
        if self.kind == "width":
            return high - low
        target = records.of(*row, "target")
        inside = ((low <= target) & (target <= high)).astype(float)
        return np.where(np.isfinite(low + high + target), inside, np.nan)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is set: the heading of its cases, LaTeX alignments, the rule between methods, and its columns."""

    heading: str
    latex: str
    align: str
    rule: str
    columns: tuple[Column, ...]

    @property
    def methods(self) -> bool:
        """Whether method and zeta have columns of their own."""
        return self.rule != ""

    @property
    def shown(self) -> tuple[Column, ...]:
        """Columns with a place of their own: not those in parentheses."""
        inside = {column.beside for column in self.columns}
        return tuple(column for column in self.columns if column.name not in inside)

    def column(self, name: str) -> Column:
        """The column printed under that name."""
        return next(column for column in self.columns if column.name == name)


def layout(spec: TableSpec) -> Layout:
    """How the table is printed."""
    if spec.key in ("dgp", "dataset"):
        heading = {"synthetic-binary": "DGP", "cf-synthetic-K": "DGP"}.get(spec.name, spec.key)
        align = "llcrrrrr" if spec.name == "synthetic-binary" else "lllrrrrr"
        return Layout(heading, heading, align, "cmidrule", _realized())
    match spec.key:
        case "n":
            return Layout("n", "$n$", "rlcccc", "addlinespace", _with_errors("welfare", "regret", "agreement"))
        case "clip":
            return Layout("Clip", "Clip", "rllcccccc", "addlinespace", _overlap())
        case "eta":
            digits = 2 if spec.trials <= 100 else 3
            return Layout("eta", r"$\eta$", "rcccc", "", _intervals(digits))
        case "group":
            points = Column("points", "points", "total", "Points", "Points", 0)
            columns = (points, *_with_errors("disagreement", "agreement", "margin", "regret"))
            return Layout("Group", "Group", "rrrrrr", "", columns)
        case _:
            return Layout("alpha", r"$\alpha$", "rcccccc", "", _thresholds())


def _realized() -> tuple[Column, ...]:
    columns = []
    for metric in ("welfare", "regret"):
        kinds = ("mean", "var", "se") if metric == "welfare" else ("mean", "se")
        for kind in kinds:
            name = f"{metric}_{kind}"
            of = {"mean": "mean", "var": "variance", "se": "error"}[kind]
            error = f"{metric}_se" if kind == "mean" else ""
            columns.append(Column(name, metric, of, name, name.replace("_", r"\_"), error=error))
    return tuple(columns)


def _with_errors(*metrics: str) -> tuple[Column, ...]:
    """Mean and, in parentheses, standard error."""
    return tuple(
        column
        for metric in metrics
        for column in (
            Column(metric, metric, "mean", metric.capitalize(), metric.capitalize(), 4, f"{metric}_se", f"{metric}_se"),
            Column(f"{metric}_se", metric, "error"),
        )
    )


def _overlap() -> tuple[Column, ...]:
    tail, largest = "q99_abs_pseudo_difference", "max_abs_pseudo_difference"
    return (
        *_with_errors("welfare", "regret"),
        Column("clipped_fraction", "clipped_fraction", "mean", "Clipped fraction", "Clipped fraction", shared=True),
        Column("ess", "ess", "mean", "ESS", "ESS", 1, shared=True),
        Column(tail, tail, "mean", "q99 of abs. pseudo-difference", r"$q_{0.99}(|\widetilde U|)$"),
        Column(largest, largest, "mean", "max of abs. pseudo-difference", r"$\max_i|\widetilde U_i|$"),
    )


def _intervals(digits: int) -> tuple[Column, ...]:
    """Coverage and, in parentheses, mean width."""
    return tuple(
        column
        for percent in (round(100 * level) for level in LEVELS)
        for column in (
            Column(
                f"{percent}%", str(percent), "coverage", f"{percent}%", rf"${percent}\%$", digits,
                beside=f"{percent}%_width",
            ),
            Column(f"{percent}%_width", str(percent), "width"),
        )
    )  # fmt: skip


def _thresholds() -> tuple[Column, ...]:
    welfare, welfare_se, difference, difference_se = _with_errors("welfare", "difference")
    return (
        welfare,
        welfare_se,
        Column("welfare_p05", "welfare", "quantile", "5th pct.", "5th pct."),
        Column("map", "map", "mean", "MAP", "MAP"),
        difference,
        difference_se,
        Column("uncertain", "uncertain", "mean", "Uncertain", "Uncertain"),
        Column("change", "change", "mean", "Change", "Change"),
    )
