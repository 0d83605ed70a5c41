"""Methods of drawing from a member's generalized posterior, one a file, one face (section 6 and its appendix)."""

from gbpl.posteriors.base import MemberPosterior, PosteriorError, PosteriorWarning, Problem
from gbpl.posteriors.bootstrap import Bootstrap, bootstrap_members, fit_bootstrap
from gbpl.posteriors.laplace import Laplace
from gbpl.posteriors.last_layer import Exact, LastLayer
from gbpl.posteriors.nuts import NUTS
from gbpl.posteriors.sgld import SGLD
from gbpl.posteriors.variational import Variational

METHODS = {kind.method: kind for kind in (Exact, LastLayer, Laplace, SGLD, NUTS, Variational, Bootstrap)}

__all__ = [
    "METHODS",
    "NUTS",
    "SGLD",
    "Bootstrap",
    "Exact",
    "Laplace",
    "LastLayer",
    "MemberPosterior",
    "PosteriorError",
    "PosteriorWarning",
    "Problem",
    "Variational",
    "bootstrap_members",
    "fit_bootstrap",
]
