"""laplace-torch as an oracle for the last-layer posterior, where it is installed.

Told to use all weights with frozen hidden layers it keeps the tanh in the curvature, as we do; its own last-layer mode
leaves the squashing out and is not what the generalized posterior asks for.
"""

import numpy as np
import pytest

from gbpl import MLP, Binary
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.problem import Problem

torch = pytest.importorskip("torch")
oracle = pytest.importorskip("laplace")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_last_layer_agrees_with_frozen_hidden_layers():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    n, zeta, eta, prior_sd = 40, 0.7, 1.3, 0.8
    x = rng.normal(size=(n, 2)).astype(np.float32)
    gap = rng.normal(size=(n, 1)).astype(np.float32)
    first, last = torch.nn.Linear(2, 5), torch.nn.Linear(5, 1)
    for parameter in first.parameters():
        parameter.requires_grad = False
    network = torch.nn.Sequential(first, torch.nn.Tanh(), last, torch.nn.Tanh())
    rows = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(gap / zeta))
    # eta loss = eta zeta / 2 (u / zeta - f)^2: a Gaussian likelihood for u / zeta of variance 1 / (eta zeta)
    fitted = oracle.Laplace(
        network, "regression", subset_of_weights="all", hessian_structure="full",
        sigma_noise=(eta * zeta) ** -0.5, prior_precision=prior_sd**-2,
    )  # fmt: skip
    fitted.fit(torch.utils.data.DataLoader(rows, batch_size=n))
    layers = [
        {"weight": layer.weight.detach().numpy().T, "bias": layer.bias.detach().numpy()} for layer in (first, last)
    ]
    problem = Problem(MLP((5,)), Binary(), x, gap, None, zeta, eta, prior_sd, layers)
    posterior = LastLayer(problem)
    np.testing.assert_allclose(
        posterior.root @ posterior.root.T, fitted.posterior_precision.detach().numpy(), rtol=2e-5, atol=1e-5
    )
