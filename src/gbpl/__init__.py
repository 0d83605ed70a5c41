"""General Bayesian Policy Learning: decision rules from data, and how sure they are.

The public names are listed in `__init__.pyi` and imported where they are first used (scientific Python's SPEC 1): a
saved policy decides without JAX.
"""

from importlib import import_module

import lazy_loader

from gbpl.version import __version__ as __version__

_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# Names that were public here, and still are where they live: the folder's module, and the names.
MOVED = {
    "certificates": "bounds",
    "coverage": "CoverageStudy",
    "decisions.assess": "Assessment",
    "decisions.rules": "apply_costs",
    "estimators.baselines": "DiffReg DirectDRWelfare DirectIPWWelfare DirectWelfare PluginReg PluginRegK "
    "WeightedLogistic",
    "feedback.pseudo_outcomes": "clip_propensity doubly_robust ipw",
    "fitting.members": "across_folds fold_rows over_zeta",
    "fitting.stack": "StackFit",
    "models.adapters": "EquinoxModel FlaxModel FunctionModel",
    "models.prior": "GaussianPrior",
    "nuisance.nuisances": "Nuisances",
    "path.out_of_fold": "ZetaPath",
    "posterior.chains": "to_arviz",
    "posterior.eta": "EtaChoice",
    "posterior.problem": "Problem",
    "surrogates": "project_simplex",
    "value.estimate": "off_policy_value",
    "value.overlap": "ClipWelfare overlap_report",
    "value.welfare": "deterministic penalized_welfare",
}
RENAMED = {"Decision": ("decisions.decisions", "Decisions"), "posterior_mean_rule": ("decisions.rules", "map_rule")}


def __getattr__(name: str) -> object:
    moved = {old: (module, old) for module, names in MOVED.items() for old in names.split()} | RENAMED
    if name not in moved:
        return _listed(name)
    module, new = moved[name]
    whole = f"gbpl.{module}"
    from gbpl.runtime.warn import warn

    warn(f"gbpl.{name} is now {whole}.{new}: import it from there", DeprecationWarning)
    return import_module(f"{whole}.{new}") if name == "bounds" else getattr(import_module(whole), new)
