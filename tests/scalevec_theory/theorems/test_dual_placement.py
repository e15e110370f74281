"""Dual placement: hand-made cases, independent integration of the counterexamples, and statements made too strong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from scalevec_theory.search import search
from scalevec_theory.theorems import dual_placement

SCOPES = {scope.name: scope for scope in dual_placement.claim.scopes}


def losses_of_one_column(T: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L of the single and of the dual model at times ``t``: d = 1, H = 1, W(0) = 0, by another integrator."""

    def single(_: float, y: np.ndarray) -> np.ndarray:
        v, w = y[0], y[1:]
        g = v * w - T
        return -np.concatenate([[w @ g], v * g])

    def dual(_: float, y: np.ndarray) -> np.ndarray:
        v, u, w = y[0], y[1 : 1 + len(T)], y[1 + len(T) :]
        g = u * v * w - T
        return -np.concatenate([[(u * w) @ g], v * w * g, u * v * g])

    options = {"t_eval": t, "rtol": 1e-12, "atol": 1e-12, "method": "DOP853"}
    zero = np.zeros_like(T)
    a = solve_ivp(single, (0, t[-1]), np.concatenate([[1], zero]), **options).y
    b = solve_ivp(dual, (0, t[-1]), np.concatenate([[1], zero + 1, zero]), **options).y
    theta = a[0] * a[1:], b[0] * b[1 : 1 + len(T)] * b[1 + len(T) :]
    return tuple(0.5 * ((x - T[:, None]) ** 2).sum(0) for x in theta)


@pytest.mark.parametrize("a", [0.5, 1.0, 7.0])
def test_own_manifold_smallest_case(a: float) -> None:
    """θ = (a, 0), gradient along row 2, u_2 = 1: rate v², where v²(v² − 1) = a², or v² = 1 + w² and w(1 + w²) = a."""
    single = (1 + np.sqrt(1 + 4 * a * a)) / 2
    (w,) = (r.real for r in np.roots([1, 0, 1, -a]) if abs(r.imag) < 1e-9)
    margin = SCOPES["own-manifold"].evaluate(theta=[[a], [0]], G=[[0], [-3]])
    assert margin == pytest.approx((1 + w * w) / single - 1, rel=1e-9)
    assert margin < 0


def test_same_v_rate_by_hand() -> None:
    """u = (√2, 1), v = 3, W = (1, 2)ᵀ, G = (1, −1)ᵀ: dual 27 + (9 + 36) + (√2 − 2)², single 18 + (√2 − 2)²."""
    q = (np.sqrt(2) - 2) ** 2
    size = 27 + 45 + (np.sqrt(2) + 2) ** 2
    margin = SCOPES["same-v"].evaluate(W=[[1], [2]], v=[3], s=[1, 0], G=[[1], [-1]])
    assert margin == pytest.approx((27 + 45 + q - 18 - q) / size, rel=1e-12)


def test_lag_of_the_counterexample_by_another_integrator() -> None:
    T = np.array([20.0, -2.0])
    times = dual_placement.LATE.numpy() / (1 + 2 * np.linalg.norm(T))
    single, dual = losses_of_one_column(T, times)
    expected = ((single - dual) / (0.5 * T @ T)).min()
    assert expected == pytest.approx(-1.1126e-4, rel=1e-3)
    margin = SCOPES["lag-below-1e-4"].evaluate(H=[[1]], T=T[:, None].tolist())
    assert margin == pytest.approx(expected + 1e-4, rel=1e-4)


def test_lead_is_its_leading_term_at_first() -> None:
    problem = dual_placement.WHITENED.problem({"H": np.eye(2), "T": [[1, 2], [-1, 0.5], [0.3, 1]]})
    ratio = dual_placement._early(problem, torch.tensor([0.01]), 1e-11).value
    assert ratio.item() == pytest.approx(1, abs=0.02)


def test_ten_times_the_horizon_is_too_long() -> None:
    def margin(problems, accuracy):
        return dual_placement._early(problems, torch.linspace(2, 40, 16), accuracy)

    false = replace(SCOPES["early-horizon"], margin=margin)
    assert search(false, 600, np.random.default_rng(0)).counterexample is not None
