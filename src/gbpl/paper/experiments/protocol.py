"""Trials, what is measured on them, and the settings of the paper's networks (experiments, appendix on details).

A trial has observed rows, the first of them to train on and the others to stop on, and new rows for the test. What the
text leaves open, and how it was settled, is in docs/paper.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.datasets import LoggedSample, Sample
from gbpl.estimators.gbpl import GBPL
from gbpl.estimators.many import fit_many
from gbpl.feedback.full import FullFeedback
from gbpl.fitting.config import FitConfig
from gbpl.fitting.stack import Objective, StackFit, StackProblem, fit_stacks
from gbpl.models.networks import MLP
from gbpl.paper.experiments.catalog import DEFAULT
from gbpl.paper.experiments.records import Record
from gbpl.value.welfare import deterministic, regret, welfare

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "ZETAS", "Settings", "Trial", "cross_validated", "default_records", "measures", "outcome_scale", "rule", "split",
]  # fmt: skip

ZETAS = (1.0, 0.1, 0.01, 0.001)
REPORTED = {1.0: "1.0", 0.1: "0.1", 0.01: "0.01"}  # the last of the grid is only selected from
PARTS = (0.6, 0.2)  # of the rows: to train on, to stop on; the others are the test


@dataclass(frozen=True, slots=True)
class Settings:
    """How everything is fitted. `quick` is a small imitation of the run: few rows, small networks, few epochs."""

    quick: bool = False
    device: str = "auto"
    data_dir: str | None = None
    patience: int = 20

    @property
    def network(self) -> MLP:
        return MLP((8,) if self.quick else (128, 128), activation="relu")

    @property
    def posterior_network(self) -> MLP:
        """The network of the one-dimensional example."""
        return MLP((8,) if self.quick else (64, 64), activation="relu")

    @property
    def config(self) -> FitConfig:
        return FitConfig(max_epochs=3, patience=3) if self.quick else FitConfig(patience=self.patience)

    def rows(self, n: int) -> int:
        return min(n, 200) if self.quick else n

    def observed(self, n: int) -> int:
        """Rows of a trial whose test rows are beside them: when quick, as many as `split` leaves of `rows`."""
        return min(n, round(sum(PARTS) * self.rows(n))) if self.quick else n

    def fit(
        self, problems: Sequence[StackProblem], objective: Objective, *, network: MLP | None = None, **training: Any
    ) -> list[StackFit]:
        """All problems as one stack, with the paper's network and training except for what is given."""
        device: Any = self.device
        config = replace(self.config, **training)
        return fit_stacks(problems, objective, network or self.network, config=config, device=device, progress=False)

    def default(self, seed: int) -> GBPL:
        """`GBPL()`, the learner that users begin with."""
        few: dict[str, Any] = {"fit_config": self.config, "committee": 3, "nuisance_folds": 2} if self.quick else {}
        return GBPL(random_state=seed, device=self.device, progress=False, **few)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One data set: `train` of the observed rows come first, those to stop on follow; `test` is new.

    With a log, `sample.action` and so on are what was observed, and `propensity` is what the learner knows of it.
    `realized` says that the test counts realized outcomes, as in the paper's main tables.
    """

    number: int
    sample: Sample | LoggedSample
    train: int
    test: Sample | LoggedSample
    realized: bool
    propensity: Float[np.ndarray, "row action"] | None = None

    def __len__(self) -> int:
        return len(self.sample.x)

    @property
    def rows(self) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"]]:
        """To train on, and to stop on."""
        every = np.arange(len(self), dtype=np.int32)
        return every[: self.train], every[self.train :]

    @property
    def n_actions(self) -> int:
        return self.sample.outcomes.shape[1]

    def data(self) -> dict[str, Any]:
        """The observed rows as `GBPLNet.fit` takes them."""
        if not isinstance(self.sample, LoggedSample):
            return {"X": self.sample.x, "y": self.sample.outcomes}
        log = self.sample
        return {"X": log.x, "y": log.outcome, "action": log.action, "propensity": self.propensity}


def split(sample: Sample | LoggedSample) -> tuple[Any, int, Any]:
    """The observed rows, how many of them to train on, and the test rows, in the paper's proportions."""
    n = len(sample.x)
    train, observed = round(PARTS[0] * n), round(sum(PARTS) * n)
    first, rest = (
        type(sample)(**{name: getattr(sample, name)[rows] for name in type(sample).__slots__})
        for rows in (slice(observed), slice(observed, n))
    )
    return first, train, rest


def outcome_scale(outcomes: Float[np.ndarray, "row action"]) -> float:
    """Root mean square difference of two actions' outcomes: the unit that networks see."""
    whole = FullFeedback(np.empty((len(outcomes), 0)), outcomes, None, np.arange(outcomes.shape[1]))
    return whole.scale or 1.0


def measures(trial: Trial, policy: Float[np.ndarray, "row action"]) -> dict[str, float]:
    """Welfare, regret and agreement of a policy on the test rows of a trial, as its table reports them."""
    test = trial.test
    best, chosen = np.argmax(test.outcome_mean, axis=1), deterministic(policy)
    agreement = {"agreement": float(np.mean(best == chosen))}
    if not trial.realized:
        return {"welfare": welfare(policy, test.outcome_mean), "regret": regret(policy, test.outcome_mean), **agreement}
    return {
        "welfare": welfare(policy, test.outcomes),
        "regret": regret(policy, test.outcomes),
        "mean_regret": regret(policy, test.outcome_mean),
        **agreement,
    }


def rule(policy: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"]:
    """The deterministic rule of a policy, as a policy."""
    return np.eye(policy.shape[1])[deterministic(policy)]


def cross_validated(
    case: str, method: str, trial: Trial, validation_welfare: Sequence[float], measured: Sequence[dict[str, float]]
) -> list[Record]:
    """Lines of a method's zetas, and of the one with the highest validation welfare."""
    lines = [
        Record(case, method, REPORTED[zeta], trial.number, values)
        for zeta, values in zip(ZETAS, measured, strict=True)
        if zeta in REPORTED
    ]
    best = int(np.argmax(validation_welfare))
    return [*lines, Record(case, method, "CV", trial.number, {**measured[best], "picked": ZETAS[best]})]


def default_records(case: str, trials: Sequence[Trial], settings: Settings) -> list[Record]:
    """The row beside the paper's: `GBPL()` on all observed rows, its rule measured as the others are."""
    policies = fit_many([settings.default(t.number) for t in trials], [t.data() for t in trials])
    return [
        Record(case, *DEFAULT, trial.number, measures(trial, rule(policy.predict_proba(trial.test.x))))
        for trial, policy in zip(trials, policies, strict=True)
    ]
