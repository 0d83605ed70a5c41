"""Designs with known truth, and real data sets with their roles (appendices on experiments).

The designs of the paper are the formulas of its text as written; some of its tables come from others: the binary and
the multi-action ones, the one-dimensional example of its posterior visualization, real features with made outcomes, and
any of them seen through a logging policy. Each knows its conditional means, so regret can be had exactly, and what
rules are worth under it:

    optimal_welfare()  E[max_a gamma_a(X)], the best any rule of the features can do
    oracle_welfare()   E[max_a Y(a)], the paper's oracle, who sees the realized outcomes
    action_welfare()   E[Y(a)] of each action, given to everybody

Real data come by name: `catalog()` lists them, `load("nsw")` brings one, from a package that carries it or from a
folder that you name.
"""

from gbpl.datasets.binary import BinaryDesign
from gbpl.datasets.dataset import Dataset
from gbpl.datasets.email_campaign import EmailDesign
from gbpl.datasets.files import DATA_DIR_VARIABLE, DataUnavailableError
from gbpl.datasets.loading import Entry, catalog, load
from gbpl.datasets.logged_design import LoggedDesign
from gbpl.datasets.multi_action import MultiActionDesign, _multi_action_gain  # noqa: F401
from gbpl.datasets.one_dimensional import OneDimensionalDesign
from gbpl.datasets.samples import Design, KnownWelfare, LoggedSample, Sample
from gbpl.datasets.semi_synthetic import SemiSyntheticDesign

__all__ = [
    "DATA_DIR_VARIABLE",
    "BinaryDesign",
    "DataUnavailableError",
    "Dataset",
    "Design",
    "EmailDesign",
    "Entry",
    "KnownWelfare",
    "LoggedDesign",
    "LoggedSample",
    "MultiActionDesign",
    "OneDimensionalDesign",
    "Sample",
    "SemiSyntheticDesign",
    "catalog",
    "load",
]
