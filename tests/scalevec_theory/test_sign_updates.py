"""The covariance laws of sign-like updates against closed forms and against random matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalevec_theory.equilibrium import predict
from scalevec_theory.optimizers import Lion, Muon, SignSGD
from scalevec_theory.sign_updates import covariance_law, free_coefficients, gradient_filter, newton_schulz
from scalevec_theory.update_rules import orthogonal_factor


def test_free_coefficients_of_square_matrices_are_known() -> None:
    """c_j = ±(4/π) m/(m² − 1), m = 2j + 2, the first being E[s] = 8/(3π) of the quarter-circle law; Σ c_j² = 1."""
    coefficients, variance = free_coefficients(Muon(1.0, ns_steps=0), (100, 100))
    m = 2.0 * np.arange(1, 9)
    np.testing.assert_allclose(coefficients[:8], (-1.0) ** np.arange(8) * 4 / np.pi * m / (m**2 - 1), atol=1e-6)
    assert variance == pytest.approx(1, abs=1e-12)
    assert (coefficients**2).sum() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize(("shape", "ns_steps"), [((96, 96), 0), ((48, 160), 0), ((160, 48), 5)])
@pytest.mark.parametrize("rho", [0.4, 0.9])
def test_covariance_of_orthogonal_factors_of_correlated_matrices(
    shape: tuple[int, int], ns_steps: int, rho: float
) -> None:
    """The law is that of large matrices; at these sizes a mean over 12 pairs agrees to 3%."""
    generator = torch.Generator().manual_seed(3)
    X, Z = torch.randn(2, 12, *shape, dtype=torch.float64, generator=generator)
    U, V = (orthogonal_factor(x, ns_steps) for x in (X, rho * X + (1 - rho**2) ** 0.5 * Z))
    h, variance = covariance_law(Muon(1.0, ns_steps=ns_steps, adjust_lr="none"), shape)
    assert float((U * V).mean()) == pytest.approx(float(h(np.array(rho))), rel=0.03)
    assert float((U * U).mean()) == pytest.approx(variance, rel=0.03)


def test_newton_schulz_acts_on_singular_values() -> None:
    s = torch.tensor([0.05, 0.3, 0.9], dtype=torch.float64) / torch.tensor([0.05, 0.3, 0.9]).norm().double()
    matrix = torch.diag(s)
    got = orthogonal_factor(matrix, 5).diagonal()
    torch.testing.assert_close(got, torch.from_numpy(newton_schulz(s.numpy(), 5)), rtol=0.03, atol=0.0)


@pytest.mark.parametrize(
    "optimizer", [Lion(1.0, betas=(0.8, 0.9)), SignSGD(1.0, momentum=0.7), Muon(1.0), SignSGD(1.0)]
)
def test_filters_by_their_impulse_response(optimizer: Lion | SignSGD | Muon) -> None:
    """Variance and covariance at steps 1, 2, 5 from the response to each single gradient."""
    beta = optimizer.betas[0] if isinstance(optimizer, Lion) else optimizer.momentum
    memory = optimizer.betas[1] if isinstance(optimizer, Lion) else optimizer.momentum
    responses = np.zeros((7, 7))
    for s in range(7):
        m = 0.0
        for t in range(7):
            g = float(s == t)
            new = memory * m + (1 - memory) * g
            mixed = beta * (m if isinstance(optimizer, Lion) else new) + (1 - beta) * g
            responses[t, s] = new if isinstance(optimizer, SignSGD) else mixed
            m = new
    R = responses @ responses.T
    q, t = gradient_filter(optimizer), np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(q.variance(t), R[[0, 1, 4], [0, 1, 4]], atol=1e-15)
    np.testing.assert_allclose(q.covariance(t), R[[0, 1, 4], [1, 2, 5]], atol=1e-15)
    np.testing.assert_allclose(q.covariance(t) * q.memory, R[[0, 1, 4], [2, 3, 6]], atol=1e-15)


@pytest.mark.parametrize("betas", [(0.9, 0.0), (0.99, 0.9), (0.0, 0.99)])
def test_lion_of_any_betas_by_pairs_of_steps(betas: tuple[float, float]) -> None:
    """E[w²] = Σ η² a^(2T−s−t) (2/π) arcsin ρ_st, ρ from the responses of filtered gradients to gradients."""
    T, lr, decay = 40, 0.1, 0.1
    responses, m = np.zeros((T, T)), np.zeros(T)
    for t in range(T):
        g = np.eye(T)[t]
        responses[t], m = betas[0] * m + (1 - betas[0]) * g, betas[1] * m + (1 - betas[1]) * g
    R = responses @ responses.T
    signs = 2 / np.pi * np.arcsin(np.clip(R / np.sqrt(np.outer(R.diagonal(), R.diagonal())), -1, 1))
    got = predict(Lion(lr, decay, betas=betas), T).mean_square
    for t in (1, 2, 3, 10, T):
        kept = (1 - lr * decay) ** np.arange(t - 1, -1, -1)
        assert got[t] == pytest.approx(lr**2 * kept @ signs[:t, :t] @ kept, rel=1e-5)


def test_signs_of_correlated_normals() -> None:
    h, variance = covariance_law(Lion(1.0), None)
    x, z = np.random.default_rng(0).standard_normal((2, 400_000))
    assert np.mean(np.sign(x) * np.sign(0.6 * x + 0.8 * z)) == pytest.approx(float(h(np.array(0.6))), abs=0.005)
    assert variance == 1
