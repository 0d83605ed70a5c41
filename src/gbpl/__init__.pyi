"""The public names, by what they are for. `gbpl/__init__.py` imports each where it is first used."""

# Learn
from .estimators.gbpl import GBPL as GBPL
from .estimators.gbplnet import GBPLNet as GBPLNet
from .estimators.many import fit_many as fit_many
from .estimators.choice import Several as Several
from .estimators.several import fit_several as fit_several
from .fitting.config import FitConfig as FitConfig
from .study.study import Study as Study
from .study.study import learn as learn

# Data
from . import datasets as datasets
from .feedback.full import FullFeedback as FullFeedback
from .feedback.logged import LoggedFeedback as LoggedFeedback
from .tables.encoder import Encoder as Encoder
from .tables.frames import TableError as TableError

# How sure
from . import plots as plots
from .certificates.certificate import Certificate as Certificate
from .checks.finding import CheckReport as CheckReport
from .checks.finding import Finding as Finding
from .coverage import coverage_study as coverage_study
from .posterior.posterior import Draws as Draws
from .posterior.posterior import Posterior as Posterior

# Value
from .nuisance.confounding import policy_sensitivity as policy_sensitivity
from .nuisance.off_policy import policy_value as policy_value
from .study.compare import compare_policies as compare_policies
from .study.compare import evaluate_policy as evaluate_policy
from .value.by_group import GroupTable as GroupTable
from .value.curve import BudgetCurve as BudgetCurve
from .value.estimate import Value as Value
from .value.overlap import OverlapReport as OverlapReport
from .value.sensitivity import Sensitivity as Sensitivity
from .value.welfare import regret as regret
from .value.welfare import welfare as welfare

# Decide
from .decisions.assess import assess as assess
from .decisions.budget import budget_rule as budget_rule
from .decisions.capacity import capacity_rule as capacity_rule
from .decisions.decisions import Decisions as Decisions
from .decisions.rules import defer_rule as defer_rule
from .decisions.rules import disagreement as disagreement
from .decisions.rules import map_rule as map_rule
from .decisions.rules import threshold_rule as threshold_rule
from .estimators.small_rule import SmallRuleFit as SmallRuleFit
from .frozen.small_rule import SmallRule as SmallRule
from .frozen.explain import Explanation as Explanation

# Keep
from .frozen.export.conditions import to_conditions as to_conditions
from .frozen.export.python import to_python as to_python
from .frozen.export.sql import to_sql as to_sql
from .frozen.file import SavedPolicy as SavedPolicy
from .frozen.file import SavedPolicyError as SavedPolicyError
from .frozen.file import load as load
from .frozen.onnx import to_onnx as to_onnx

# Build
from .fitting.members import Member as Member
from .fitting.stack import fit_stack as fit_stack
from .models.base import ScoreModel as ScoreModel
from .models.networks import Linear as Linear
from .models.networks import MLP as MLP
from .models.networks import RandomFeatures as RandomFeatures
from .models.splines import Splines as Splines
from .nuisance.cross_fit import CrossFit as CrossFit
from .nuisance.learners import PerAction as PerAction
from .nuisance.learners import WithAction as WithAction
from .surrogates import BaselineGap as BaselineGap
from .surrogates import Binary as Binary
from .surrogates import FullVector as FullVector
from .surrogates import NegativeWelfare as NegativeWelfare
from .surrogates import Surrogate as Surrogate
from .trees.boosting import BoostedScore as BoostedScore
from .trees.forest import ForestFeatures as ForestFeatures

# Errors and warnings
from .checks.suspicion import SuspectDataWarning as SuspectDataWarning
from .fitting.stack import NonFiniteLossError as NonFiniteLossError
from .nuisance.cross_fit import EstimatedPropensityWarning as EstimatedPropensityWarning
from .posterior.problem import PosteriorError as PosteriorError
from .posterior.problem import PosteriorWarning as PosteriorWarning
from .value.overlap import OverlapWarning as OverlapWarning

__version__: str
