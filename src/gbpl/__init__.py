"""General Bayesian Policy Learning: decision rules from data, and how sure they are."""

from gbpl import bounds
from gbpl.baselines import (
    DiffReg,
    DirectDRWelfare,
    DirectIPWWelfare,
    DirectWelfare,
    PluginReg,
    PluginRegK,
    WeightedLogistic,
)
from gbpl.certificate import Certificate
from gbpl.coverage import CoverageStudy, coverage_study
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
from gbpl.estimator import GBPLNet, fit_many
from gbpl.eta import EtaChoice
from gbpl.feedback import FullFeedback
from gbpl.fit import FitConfig, NonFiniteLossError, StackFit, fit_stack
from gbpl.logged import LoggedFeedback
from gbpl.models import MLP, EquinoxModel, FlaxModel, FunctionModel, Linear, RandomFeatures, ScoreModel
from gbpl.nuisance import CrossFit, EstimatedPropensityWarning, Nuisances, PerAction, WithAction
from gbpl.offpolicy import policy_value
from gbpl.overlap import ClipWelfare, OverlapReport, OverlapWarning, overlap_report
from gbpl.posterior import Draws, Posterior
from gbpl.posteriors import PosteriorError, PosteriorWarning, Problem
from gbpl.posteriors.diagnostics import to_arviz
from gbpl.priors import GaussianPrior
from gbpl.pseudo_outcomes import clip_propensity, doubly_robust, ipw
from gbpl.stack import Member, across_folds, fold_rows, over_zeta
from gbpl.surrogates import BaselineGap, Binary, FullVector, Surrogate, project_simplex
from gbpl.value import Value, off_policy_value
from gbpl.welfare import deterministic, penalized_welfare, regret, welfare
from gbpl.zeta import ZetaPath

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Assessment",
    "BaselineGap",
    "Binary",
    "Certificate",
    "ClipWelfare",
    "CoverageStudy",
    "CrossFit",
    "Decision",
    "DiffReg",
    "DirectDRWelfare",
    "DirectIPWWelfare",
    "DirectWelfare",
    "Draws",
    "EquinoxModel",
    "EstimatedPropensityWarning",
    "EtaChoice",
    "FitConfig",
    "FlaxModel",
    "FullFeedback",
    "FullVector",
    "FunctionModel",
    "GBPLNet",
    "GaussianPrior",
    "Linear",
    "LoggedFeedback",
    "Member",
    "NonFiniteLossError",
    "Nuisances",
    "OverlapReport",
    "OverlapWarning",
    "PerAction",
    "PluginReg",
    "PluginRegK",
    "Posterior",
    "PosteriorError",
    "PosteriorWarning",
    "Problem",
    "RandomFeatures",
    "ScoreModel",
    "StackFit",
    "Surrogate",
    "Value",
    "WeightedLogistic",
    "WithAction",
    "ZetaPath",
    "across_folds",
    "apply_costs",
    "assess",
    "bounds",
    "capacity_rule",
    "clip_propensity",
    "coverage_study",
    "defer_rule",
    "deterministic",
    "disagreement",
    "doubly_robust",
    "fit_many",
    "fit_stack",
    "fold_rows",
    "ipw",
    "map_rule",
    "off_policy_value",
    "over_zeta",
    "overlap_report",
    "penalized_welfare",
    "policy_value",
    "posterior_mean_rule",
    "project_simplex",
    "regret",
    "threshold_rule",
    "to_arviz",
    "welfare",
]
