"""Precisions of the last layer: a Kronecker product against the matrix it stands for, and what it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from support.calls import forbid_calls

import gbpl.posterior.precision
from gbpl import FullVector, Linear
from gbpl.posterior.exact import Exact
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.precision import Kronecker, Whole, last_layer_precision
from gbpl.posterior.problem import Problem


def problem_of(actions: int, *, squash: bool, features: int = 3, rows: int = 60) -> Problem:
    rng = np.random.default_rng(actions)
    surrogate = FullVector(actions, squash=squash)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    weight = 0.3 * rng.normal(size=(features, actions)).astype(np.float32)
    params = [{"weight": weight, "bias": np.zeros(actions, np.float32)}]
    target = np.asarray(surrogate.target(rng.normal(size=(rows, actions))))
    return Problem(Linear(), surrogate, x, target, rng.uniform(0.5, 1.5, rows), 0.7, 1.3, 0.8, params)


def test_a_kronecker_product_is_the_matrix_it_stands_for() -> None:
    rng = np.random.default_rng(0)
    left, right = (root @ root.T for root in (rng.normal(size=(4, 3)), rng.normal(size=(3, 3))))  # one is singular
    made, dense = Kronecker(left, right, 0.6), np.kron(left, right) + 0.6 * np.eye(12)
    assert_allclose(made.root @ made.root.T, dense, rtol=1e-12, atol=1e-12)
    assert_allclose(made.solve(np.eye(12)), np.linalg.inv(dense), atol=1e-10)
    spread = made.spread(np.eye(12))
    assert_allclose(spread @ spread.T, np.linalg.inv(dense), atol=1e-10)
    assert_allclose(made.sums(0.5), Whole(np.linalg.cholesky(dense)).sums(0.5), rtol=1e-10)
    assert_allclose(made.sums(0.5)[0], np.linalg.slogdet(0.25 * dense)[1], rtol=1e-10)


def test_it_is_exact_where_the_rows_have_one_curvature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsquashed scores: the curvature of the squared loss in the raw outputs is the same for all rows."""
    problem = problem_of(4, squash=False)
    whole = LastLayer(problem)
    monkeypatch.setattr(gbpl.posterior.precision, "WHOLE", 15)
    factored = LastLayer(problem)
    assert isinstance(whole.precision, Whole)
    assert isinstance(factored.precision, Kronecker)
    assert_allclose(factored.covariance, whole.covariance, rtol=1e-5, atol=1e-9)
    assert_allclose(factored.covariance, Exact(problem).covariance, rtol=1e-5, atol=1e-9)


def test_it_is_near_where_the_curvatures_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a softmax, the standard deviations of raw outputs differ by a few percent from those of the whole matrix."""
    problem = problem_of(6, squash=True, rows=200)
    phi = np.column_stack([problem.x, np.ones(200)])

    def deviations() -> Any:
        cov = LastLayer(problem).covariance.reshape(4, 6, 4, 6)
        return np.sqrt(np.einsum("nb,bkck,nc->nk", phi, cov, phi))

    whole = deviations()
    monkeypatch.setattr(gbpl.posterior.precision, "WHOLE", 0)
    assert_allclose(deviations() / whole, 1.0, atol=0.2)
    assert np.mean(np.abs(deviations() / whole - 1.0)) < 0.05


def test_many_actions_make_no_matrix_of_weights_times_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving a policy of 50 actions took 12 GB and five minutes, all of it in such matrices."""
    forbid_calls(monkeypatch, (gbpl.posterior.precision, "gauss_newton"), (gbpl.posterior.precision, "cholesky_root"))
    sizes = []
    for actions in (30, 60):
        problem = problem_of(actions, squash=True, features=100)
        sizes.append(last_layer_precision(problem, scale=1.0, prior=1.0).nbytes)
        LastLayer(problem).sample(2, seed=0)
    assert sizes == [16 * (101**2 + actions**2) for actions in (30, 60)]
