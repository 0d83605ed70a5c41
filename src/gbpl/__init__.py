"""General Bayesian Policy Learning: decision rules from data, and how sure they are."""

from gbpl.decisions import (
    Assessment,
    Decision,
    apply_costs,
    assess,
    capacity_rule,
    defer_rule,
    disagreement,
    map_rule,
    posterior_mean_rule,
    threshold_rule,
)
from gbpl.estimator import GBPLNet
from gbpl.feedback import FullFeedback
from gbpl.fit import FitConfig, NonFiniteLossError, StackFit, fit_stack
from gbpl.models import MLP, EquinoxModel, FlaxModel, FunctionModel, Linear, RandomFeatures, ScoreModel
from gbpl.posterior import Draws, Posterior
from gbpl.posteriors import PosteriorError, PosteriorWarning, Problem
from gbpl.posteriors.diagnostics import to_arviz
from gbpl.priors import GaussianPrior
from gbpl.stack import Member, across_folds, fold_rows, over_zeta
from gbpl.surrogates import BaselineGap, Binary, FullVector, Surrogate, project_simplex
from gbpl.welfare import deterministic, penalized_welfare, regret, welfare
from gbpl.zeta import ZetaPath

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Assessment",
    "BaselineGap",
    "Binary",
    "Decision",
    "Draws",
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
    "Posterior",
    "PosteriorError",
    "PosteriorWarning",
    "Problem",
    "RandomFeatures",
    "ScoreModel",
    "StackFit",
    "Surrogate",
    "ZetaPath",
    "across_folds",
    "apply_costs",
    "assess",
    "capacity_rule",
    "defer_rule",
    "deterministic",
    "disagreement",
    "fit_stack",
    "fold_rows",
    "map_rule",
    "over_zeta",
    "penalized_welfare",
    "posterior_mean_rule",
    "project_simplex",
    "regret",
    "threshold_rule",
    "to_arviz",
    "welfare",
]
