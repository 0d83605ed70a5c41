"""General Bayesian Policy Learning: decision rules from data, and how sure they are."""

from gbpl.estimator import GBPLNet
from gbpl.feedback import FullFeedback
from gbpl.fit import FitConfig, NonFiniteLossError, StackFit, fit_stack
from gbpl.models import MLP, EquinoxModel, FlaxModel, FunctionModel, Linear, RandomFeatures, ScoreModel
from gbpl.priors import GaussianPrior
from gbpl.stack import Member, across_folds, fold_rows, over_zeta
from gbpl.surrogates import BaselineGap, Binary, FullVector, Surrogate, project_simplex
from gbpl.welfare import deterministic, penalized_welfare, regret, welfare
from gbpl.zeta import ZetaPath

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "BaselineGap",
    "Binary",
    "EquinoxModel",
    "FitConfig",
    "FlaxModel",
    "FullFeedback",
    "FullVector",
    "FunctionModel",
    "GBPLNet",
    "GaussianPrior",
    "Linear",
    "Member",
    "NonFiniteLossError",
    "RandomFeatures",
    "ScoreModel",
    "StackFit",
    "Surrogate",
    "ZetaPath",
    "across_folds",
    "deterministic",
    "fit_stack",
    "fold_rows",
    "over_zeta",
    "penalized_welfare",
    "project_simplex",
    "regret",
    "welfare",
]
