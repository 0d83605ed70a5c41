"""Open Bandit Pipeline: IPWLearner on two classifiers, and NNPolicyLearner on doubly robust scores.

Features are standardised first, as its learners do not. IPWLearner refuses negative rewards: their minimum is
subtracted where it is below zero. Everything else is the learners' default.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from obp.policy import IPWLearner, NNPolicyLearner
from protocol import Problem, serve
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler


def chosen(learner: IPWLearner | NNPolicyLearner, problem: Problem, reward: np.ndarray) -> np.ndarray:
    scaler = StandardScaler().fit(problem.x)
    context = scaler.transform(problem.x)
    learner.fit(context=context, action=problem.action, reward=reward, pscore=problem.logged_propensity)
    distribution = learner.predict(context=scaler.transform(problem.x_test))  # row action position
    return distribution[:, :, 0].argmax(axis=1)


def ipw(classifier: ClassifierMixin, problem: Problem, seed: int) -> np.ndarray:
    learner = IPWLearner(n_actions=problem.n_actions, base_classifier=classifier.set_params(random_state=seed))
    return chosen(learner, problem, problem.outcome - min(problem.outcome.min(), 0.0))


def neural(problem: Problem, seed: int) -> np.ndarray | tuple[np.ndarray, str]:
    """Its policy may have no number in it without a word: argmax then is the first action, and a note says so."""
    learner = NNPolicyLearner(
        n_actions=problem.n_actions, dim_context=problem.x.shape[1], off_policy_objective="dr", random_state=seed
    )
    action = chosen(learner, problem, problem.outcome)
    lost = any(bool(torch.isnan(weight).any()) for weight in learner.nn_model.parameters())
    return (action, "NaN in the fitted policy, which then takes the first action") if lost else action


if __name__ == "__main__":
    forest = RandomForestClassifier(min_samples_leaf=5, n_jobs=-1)
    serve(
        {
            "obp-ipw-logistic": partial(ipw, LogisticRegression()),
            "obp-ipw-forest": partial(ipw, forest),
            "obp-neural-dr": neural,
        }
    )
