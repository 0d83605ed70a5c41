"""The public names. `__init__.py` imports each where it is first used."""

from .overlap import plot_overlap
from .policy import plot_by_group, plot_gain, plot_rule
from .posterior import plot_disagreement, plot_groups, plot_score_at, plot_scores, plot_threshold, plot_welfare
from .sensitivity import plot_sensitivity
from .studies import plot_coverage, plot_eta, plot_reliability, plot_zeta_path

__all__ = [
    "plot_by_group", "plot_coverage", "plot_disagreement", "plot_eta", "plot_gain", "plot_groups", "plot_overlap",
    "plot_reliability", "plot_rule", "plot_score_at", "plot_scores", "plot_sensitivity", "plot_threshold",
    "plot_welfare", "plot_zeta_path",
]  # fmt: skip
