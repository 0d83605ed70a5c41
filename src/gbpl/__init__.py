"""General Bayesian Policy Learning: decision rules from data, and how sure they are."""

from gbpl.fit import FitConfig, NonFiniteLossError, StackFit, fit_stack
from gbpl.models import MLP, Linear
from gbpl.stack import Member, across_folds, fold_rows, over_zeta
from gbpl.surrogates import Binary, FullVector

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Binary",
    "FitConfig",
    "FullVector",
    "Linear",
    "Member",
    "NonFiniteLossError",
    "StackFit",
    "across_folds",
    "fit_stack",
    "fold_rows",
    "over_zeta",
]
