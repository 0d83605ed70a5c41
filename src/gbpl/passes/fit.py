"""Learning in passes over chunks: tables larger than memory, and large ones in memory (sections 4.2, 6, 7 and 9).

What `gbpl.path.path.fit_paths` does with all rows at hand is done here with one chunk at a time and a sample kept:

1. a pass for the statistics: moments of features and outcome, how often each action was taken, and two samples, one
   that trees are grown on and one that nothing learns from, by which the result is judged;
2. with logged feedback, passes for the outcome models, one network per fold, which never learns from its fold;
3. passes for the scores, one member for each fold and entry of the path; the pseudo-outcomes of a chunk are made on the
   way, each row's by the outcome model of its own fold;
4. a pass for the welfare of every member on the rows of its fold, by which the entries are weighed;
5. a pass for the curvature of the members that count, which is all that their last-layer posterior needs of the rows.

What comes out is a `PathFit` whose rows are the sample that nothing learned from, zetas and weights included: members
learned from the others, were stopped by others and weighed by others. What is left to the sample are the outcome scale
and the slope and levels of the committee, for each fold of it by the other folds. Sums over the rows learned from are
about `thinning` times those over the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.full import FullFeedback
from gbpl.models.base import GrownModel, ScoreModel
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.learners import PerAction, WithAction
from gbpl.nuisance.nuisances import Nuisances, check_construction
from gbpl.passes.chunks import Passes
from gbpl.passes.curvature import curvatures
from gbpl.passes.outcome_models import OutcomeTables
from gbpl.passes.rows import RowSource
from gbpl.passes.scores import fit_scores, rehearse_scores, welfare_out_of_fold
from gbpl.path.grid import PASSES_MODEL_PATH, auto_path
from gbpl.path.out_of_fold import ZetaPath, average_weights, dropped_small
from gbpl.path.path import PathFit, weighed_fit
from gbpl.path.plan import PathProblem, PathSettings, Plan, Table, plan_path
from gbpl.runtime.progress import Progress
from gbpl.trees.forest import ForestFeatures

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["LargeFit", "fit_large"]

CHUNK = 32_768  # rows at a time: about six chunks are in memory at once, read, scored or learned from
SAMPLE, LEAST_LEARNED = 65_536, 5  # rows kept to be judged by, and at most one in so many
SCORE_VISITS = 3_000_000  # rows that pass a member, in several passes where there are fewer
FEW_ROWS = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class LargeFit:
    """A fit to all rows, seen on a sample of them.

    `feedback` has the outcomes of the sample by which entries are weighed, `nuisances` its propensities and predicted
    mean outcomes (None with full feedback); `numbers` are its row numbers.
    """

    fit: PathFit
    feedback: FullFeedback
    nuisances: Nuisances | None
    numbers: Int[np.ndarray, " row"]


def fit_large(
    source: RowSource,
    settings: PathSettings,
    *,
    folds: int = 5,
    construction: str = "dr",
    corrections: Sequence[float] = (1.0, 0.0),
    nuisance: CrossFit | None = None,
    sample: int = SAMPLE,
    chunk_rows: int = CHUNK,
) -> LargeFit:
    """Fit the path to all rows of a source in passes over it; memory does not grow with their number.

    `settings` are those of `fit_paths`. With logged feedback, `construction` and `corrections` name the tables that are
    learned from (the first weighs the entries), and of `nuisance` the clip level and the network for the outcome count.

    >>> from gbpl.feedback.full import FullFeedback
    >>> from gbpl.models.networks import MLP
    >>> from gbpl.passes.rows import ArrayRows
    >>> from gbpl.surrogates import Binary
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 1))
    >>> rows = ArrayRows(FullFeedback.of(x, np.hstack([np.zeros((2000, 1)), x])))
    >>> settings = PathSettings(surrogate=Binary(), model=MLP(hidden=(8,)), zetas=[1.0], eta=None, prior_sd=1.0,
    ...                         committee=True, seed=0, config=None, device="auto", progress=False)
    >>> bool(fit_large(rows, settings).fit.path.welfare[0] > 0.35)  # the best rule is worth 0.4
    True
    """
    nuisance = nuisance or CrossFit()
    _check(source, settings, folds, construction, nuisance)
    sample = min(sample, source.n_rows // LEAST_LEARNED)
    passes = Passes(source, settings, folds=folds, sample=sample, chunk_rows=chunk_rows)
    outcomes = OutcomeTables(passes, construction=construction, corrections=tuple(corrections), nuisance=nuisance)
    count = passes.planned(SCORE_VISITS)
    passes.bar = Progress("fitting", (outcomes.passes + count) * passes.per_pass, show=settings.progress)
    try:
        with ThreadPoolExecutor(1) as pool:
            beside = outcomes.passes > 0 and not passes.on_cpu
            rehearsal = pool.submit(rehearse_scores, passes, outcomes.corrections, count) if beside else None
            outcomes.learn()
        if rehearsal is not None:
            rehearsal.result()
        plan, nuisances = _plan(passes, outcomes)
        plan, stack, forests = fit_scores(plan, passes, outcomes, count)
    finally:
        passes.bar.close()
    sums = welfare_out_of_fold(plan, passes, outcomes, stack, forests)
    weigh = _averaged if settings.zetas is None else settings.select
    fit = weighed_fit(plan, stack, sums, weigh, thinning=passes.thinning)
    fit = replace(fit, apart=True)
    fit = replace(fit, curvatures=curvatures(fit, outcomes, forests))
    return LargeFit(fit, plan.problem.feedback, nuisances, passes.sample.chunk.number)


def _check(source: RowSource, settings: PathSettings, folds: int, construction: str, nuisance: CrossFit) -> None:
    """Refuse what cannot be learned in passes, before any work."""
    check_construction(construction)
    if not settings.committee or folds < 2:
        raise ValueError(
            f"learning in passes needs a committee of at least 2 folds, got {folds if settings.committee else None}"
            "; try 5"
        )
    if source.n_rows < FEW_ROWS:
        raise ValueError(f"learning in passes needs at least {FEW_ROWS} rows, got {source.n_rows}; fit them in memory")
    unfit = [type(model).__name__ for model in settings.models if not _learns(model)]
    if unfit:
        raise ValueError(f"learning in passes fits networks and ForestFeatures, got {unfit[0]}; try model=MLP()")
    if hasattr(nuisance.outcome_model, "predict") or isinstance(nuisance.outcome_model, PerAction | WithAction):
        raise ValueError(
            f"outcome_model must be a network to learn in passes, got {type(nuisance.outcome_model).__name__}; "
            "leave it out, or give one such as MLP()"
        )


def _learns(model: ScoreModel) -> bool:
    return isinstance(model, ForestFeatures) or not isinstance(model, GrownModel)


def _plan(passes: Passes, outcomes: OutcomeTables) -> tuple[Plan, Nuisances | None]:
    """The plan of the sample, whose tables set the outcome scale, and its nuisances."""
    sample, nuisances = passes.sample.chunk, None
    if passes.source.logged:
        nuisances = outcomes.nuisances(passes.sample, outcomes.start(passes.sample))
        tables = outcomes.pseudo_outcomes(nuisances)
    else:
        assert sample.outcomes is not None
        tables = [sample.outcomes]
    several = bool(passes.settings.beside)
    feedback = FullFeedback(sample.x, tables[0], sample.weight, passes.source.actions, sample.group)
    modelled = tables[1] if several and len(tables) > 1 and outcomes.corrections[1] == 0.0 else None
    # Of other tables networks have all their zetas, forests beside them or not.
    paths = [PASSES_MODEL_PATH if several and share == 0.0 else auto_path(share) for share in outcomes.corrections]
    learned = [
        Table([table], replace(feedback, outcomes=table).scale, correction, path)
        for table, correction, path in zip(tables, outcomes.corrections, paths, strict=True)
    ]
    problem = PathProblem(feedback, learned, passes.fold_rows, passes.settings, modelled)
    return plan_path(problem, passes.statistics.standardizer), nuisances


def _averaged(path: ZetaPath) -> Float[np.ndarray, " zeta"]:
    return dropped_small(average_weights(path))
