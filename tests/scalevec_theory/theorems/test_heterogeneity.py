"""Shared and separate scale vectors: the identities behind the fast path, closed forms, and cases by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalevec_theory import operators
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import SEPARATE_INPUT_SCALE, SHARED_INPUT_SCALE
from scalevec_theory.radial import remaining_distance
from scalevec_theory.theorems import heterogeneity

SCOPES = {scope.name: scope for scope in heterogeneity.claim.scopes}


def normal(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape))


def test_flows_are_those_of_the_shared_and_separate_parametrisations() -> None:
    T, H = normal(5, 3, 2, 2), normal(5, 2, 2)
    H = H @ H.mT + torch.eye(2)
    times = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64).expand(5, -1)
    for p, ours in zip(
        (SHARED_INPUT_SCALE, SEPARATE_INPUT_SCALE), heterogeneity.flows(H, T, times, 1e-11), strict=True
    ):
        run = gradient_flow(
            p, LeastSquares(H, T.flatten(1, 2)), p.init(torch.zeros_like(T)), times, rtol=1e-11, atol=1e-11
        )
        torch.testing.assert_close(ours.sum(1), run.loss, rtol=1e-8, atol=1e-10)


def test_rates_are_those_of_the_shared_and_separate_parametrisations() -> None:
    theta, G = normal(4, 3, 2, 2), normal(5, 3, 2, 2)[1:]
    V = ((1 + (1 + 4 * theta.square().sum((1, 2))).sqrt()) / 2).sqrt()
    v = ((1 + (1 + 4 * theta.square().sum(2)).sqrt()) / 2).sqrt()
    shared = {"v": V, "W": theta / V[:, None, None]}
    separate = {"v": v, "W": theta / v[:, :, None]}
    for p, blocks, ours in zip(
        (SHARED_INPUT_SCALE, SEPARATE_INPUT_SCALE), (shared, separate), heterogeneity.rates(theta, G), strict=True
    ):
        (Q,) = p.invariants(**blocks).values()
        torch.testing.assert_close(Q, torch.ones_like(Q))
        stacked = G.flatten(1, 2)
        torch.testing.assert_close(ours, (stacked * operators.apply(p, blocks, stacked)).sum((1, 2)))


def test_separate_vectors_lag_by_the_closed_form() -> None:
    """T = (1, 1), H = 1: the shared column has R = √2, each branch alone R = 1."""
    t, one = heterogeneity.TIMES, torch.ones(1, dtype=torch.float64)
    shared = 0.5 * remaining_distance(t, one, 2**0.5 * one) ** 2
    separate = remaining_distance(t, one, one) ** 2
    lag = torch.where(separate > 1e-3, separate - shared, 0).max().item()
    margin = SCOPES["separate-faster"].evaluate(H=[[1]], T=[[[1]], [[1]]])
    assert margin == pytest.approx(-lag, rel=1e-7)
    assert lag == pytest.approx(0.046, abs=5e-4)


def test_opposite_pulls_by_hand() -> None:
    """θ = (1, 1): V² = 2 and rate 2·2; each branch alone √5."""
    margin = SCOPES["any-pulls"].evaluate(theta=[[[1]], [[1]]], G=[[[1]], [[-1]]])
    assert margin == pytest.approx(2 / 5**0.5 - 1, rel=1e-12)
    reverse = SCOPES["cancelling-pulls"].evaluate(r=[1], G=[-1])
    assert reverse == pytest.approx(5**0.5 / 2 - 1, rel=1e-12)


def test_early_lead_is_its_leading_term() -> None:
    """G(0) = −T for H = I: (Σ_b g_b²)² − Σ_b g_b⁴ = (1 + 4)² − 1 − 16 in one column, 0 in the other."""
    T = [[[1.0, 1.0]], [[2.0, 0.0]]]
    margin = SCOPES["early"].evaluate(H=np.eye(2).tolist(), T=T)
    assert margin == pytest.approx(8 / 26, rel=0.1)


def test_losses_of_each_branch_are_the_closed_form() -> None:
    """T = (3, 1), H = 1: with the shared vector both branches have the share 1 − r/√10 of their way to go."""
    T, one = torch.tensor([[[[3.0]], [[1.0]]]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    t = torch.tensor([[0.2, 0.6]], dtype=torch.float64)
    shared, separate = heterogeneity.flows(one[:, None, None], T, t, 1e-11)
    R = T[:, :, 0]
    left = remaining_distance(t, one, 10**0.5 * one) / 10**0.5
    torch.testing.assert_close(shared, 0.5 * R**2 * left**2, rtol=1e-8, atol=0)
    torch.testing.assert_close(separate, 0.5 * remaining_distance(t[:, None], one, R) ** 2, rtol=1e-8, atol=0)
