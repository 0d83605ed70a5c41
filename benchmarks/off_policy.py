"""Coverage of 95 % off-policy intervals of fixed policies, by estimator.

    python benchmarks/off_policy.py [--replications 500] [--start 0]

A deterministic rule and a randomized policy, the same in every replication, are evaluated on logs of 1,000 rows of a
design with two actions and of one with three; the truth comes from two million rows. Replication r has seed r.
"""

from __future__ import annotations

import argparse

import numpy as np

from gbpl import CrossFit, LoggedFeedback, policy_value
from gbpl.datasets import BinaryDesign, LoggedDesign, MultiActionDesign

DESIGNS = {"two actions": BinaryDesign("DGP2"), "three actions": MultiActionDesign("DGP1", n_actions=3)}
ESTIMATORS, RULES = ("dr", "ipw", "snipw", "dm"), ("deterministic", "randomized")
ROWS, TRUTH_ROWS = 1000, 2_000_000


def fixed(x: np.ndarray, count: int) -> np.ndarray:
    """A softmax policy of the first features."""
    weight = np.exp(2.0 * x[:, :count])
    return weight / weight.sum(axis=1, keepdims=True)


def truths(design: BinaryDesign | MultiActionDesign) -> dict[str, float]:
    big = design.sample(TRUTH_ROWS, seed=10**7)
    chance = fixed(big.x, big.outcome_mean.shape[1])
    tables = {"deterministic": np.eye(chance.shape[1])[chance.argmax(axis=1)], "randomized": chance}
    return {rule: float(np.mean(np.sum(table * big.outcome_mean, axis=1))) for rule, table in tables.items()}


def values(design: BinaryDesign | MultiActionDesign, seed: int) -> np.ndarray:
    """Low and high end, estimate and standard error, by estimator and rule."""
    log = LoggedDesign(design, index_seed=0).sample(ROWS, seed=seed)
    feedback = LoggedFeedback.of(log.x, log.outcome, log.action, propensity=log.propensity)
    nuisances, chance = CrossFit(seed=seed).run(feedback), fixed(log.x, log.propensity.shape[1])
    made = np.empty((len(ESTIMATORS), len(RULES), 4))
    for i, estimator in enumerate(ESTIMATORS):
        for j, rule in enumerate(RULES):
            value = policy_value(chance, feedback, estimator=estimator, rule=rule, nuisances=nuisances)
            made[i, j] = *value.interval(0.95), value.estimate, value.se
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=500)
    parser.add_argument("--start", type=int, default=0)
    asked = parser.parse_args()
    print("| case | rule | estimator | covers, of 95 % (s.e.) | mean s.e. over sd of estimates | bias, in its s.e. |")
    print("|---|---|---|---|---|---|")
    for case, design in DESIGNS.items():
        truth = truths(design)
        made = np.stack([values(design, seed) for seed in range(asked.start, asked.start + asked.replications)])
        for i, estimator in enumerate(ESTIMATORS):
            for j, rule in enumerate(RULES):
                low, high, estimate, se = made[:, i, j].T
                covers, spread = np.mean((low <= truth[rule]) & (truth[rule] <= high)), estimate.std(ddof=1)
                error = np.sqrt(covers * (1 - covers) / len(made))
                bias = (estimate.mean() - truth[rule]) / (spread / np.sqrt(len(made)))
                print(
                    f"| {case} | {rule} | {estimator} | {covers:.3f} ({error:.3f}) | {se.mean() / spread:.3f} "
                    f"| {bias:+.1f} |"
                )


if __name__ == "__main__":
    main()
