"""Monthly returns of Fama and French's portfolios: which one to hold next month, full feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.datasets.dataset import Dataset, Source, import_package

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["SOURCES"]

FACTORS = ["MktRF", "SMB", "HML", "Mom", "RF"]
PORTFOLIOS = {
    "industry": [
        "NoDur", "Durbl", "Manuf", "Enrgy", "Chems", "BusEq", "Telcm", "Utils", "Shops", "Hlth", "Money", "Other",
    ],
    "size_value": [f"S{size}V{value}" for size in (1, 3, 5) for value in (1, 3, 5)],
    "size_momentum": [f"S{size}M{past}" for size in (1, 3, 5) for past in (1, 3, 5)],
}  # fmt: skip
MONTHS = 12  # that the features look back


def past_features(
    returns: Float[np.ndarray, "month series"], names: list[str]
) -> dict[str, Float[np.ndarray, " later_month"]]:
    """What the returns of months t - 12 to t - 1 say before month t, for each t but the first twelve.

    `_last` is the return of month t - 1, `_momentum` the compound return of months t - 12 to t - 2, `_volatility` the
    standard deviation over all twelve.
    """
    # (month, series, 12): month t has the twelve months before it; the last window has no month after it
    window = np.lib.stride_tricks.sliding_window_view(returns, MONTHS, axis=0)[:-1]
    parts = {
        "last": window[..., -1],
        "momentum": np.prod(1.0 + window[..., :-1], axis=-1) - 1.0,
        "volatility": window.std(axis=-1, ddof=1),
    }
    return {f"{name}_{part}": table[:, j] for j, name in enumerate(names) for part, table in parts.items()}


def french(source: Source, as_frame: str, *, outcome: str) -> Dataset:
    """Returns of each portfolio in a month, and what was known at its beginning."""
    module = import_package("linearmodels.datasets.french", source.name, f"'gbpl[{source.extra}]'")
    table, chosen = module.load(), PORTFOLIOS[outcome]
    table = table.sort_values("dates", ignore_index=True)
    factors, returns = (table[names].to_numpy(np.float64) for names in (FACTORS, chosen))
    known = {f"{name}_last": factors[MONTHS - 1 : -1, j] for j, name in enumerate(FACTORS)}
    known |= {name: part for name, part in past_features(factors[:, :1], ["MktRF"]).items() if name not in known}
    known |= past_features(returns, chosen)
    columns = {"month": table["dates"].to_numpy()[MONTHS:], **known}
    columns |= {name: returns[MONTHS:, j] for j, name in enumerate(chosen)}
    return source.dataset(
        columns, as_frame, outcomes=list(chosen), features=list(known), time="month",
        notes=(
            "returns of a month as fractions, before costs; the features of a month are made of earlier months only",
            f"the first {MONTHS} of {len(table)} months have no features and are left out",
            "rows are in time: split by month, and expect the best portfolio of the past not to be that of the future",
        ),
    )  # fmt: skip


SOURCES = (
    Source(
        name="french", kind="portfolio", rows=807, actions=12, read=french, package="linearmodels",
        choices=tuple(PORTFOLIOS),
        description="which of 12 industries (or 9 size_value, 9 size_momentum portfolios) to hold, 1950 to 2017",
        reference=(
            "E. F. Fama and K. R. French (1993), Common risk factors in the returns on stocks and bonds, Journal of "
            "Financial Economics 33(1), 3-56; K. R. French, data library"
        ),
    ),
)  # fmt: skip
