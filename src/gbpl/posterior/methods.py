"""Methods of drawing from a member's generalized posterior, one per file (section 6 and its appendix)."""

from typing import Any

from gbpl.models.base import FixedFeatures, GrownModel, LastLayerModel
from gbpl.posterior.bootstrap import Bootstrap
from gbpl.posterior.exact import Exact
from gbpl.posterior.gaussian import LastLayerGaussian
from gbpl.posterior.laplace import Laplace
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.nuts import NUTS
from gbpl.posterior.on_features import OnFeatures
from gbpl.posterior.problem import MemberPosterior, PosteriorError, Problem
from gbpl.posterior.sgld import SGLD
from gbpl.posterior.variational import Variational

__all__ = ["METHODS", "member_posterior"]

METHODS = {kind.method: kind for kind in (Exact, LastLayer, Laplace, SGLD, NUTS, Variational, Bootstrap)}


def member_posterior(method: str, problem: Problem, **options: Any) -> MemberPosterior:
    """A member's posterior by the method of that name, over all weights that its model learns."""
    kind: Any = METHODS[method]
    if isinstance(problem.model, GrownModel) and not isinstance(problem.model, LastLayerModel):
        raise PosteriorError(
            f"{type(problem.model).__name__} has no weights that a gradient moves, hence no {method!r} posterior; use "
            "method='bootstrap'"
        )
    if isinstance(problem.model, FixedFeatures) and not issubclass(kind, LastLayerGaussian):
        return OnFeatures(problem, kind, **options)
    return kind(problem, **options)
