"""The radial solution against the naive equations of (v, W), and wrong formulas told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from scalevec_theory.radial import radius
from scalevec_theory.registry import scope
from scalevec_theory.search import search
from scalevec_theory.theorems import radial_solution


def test_columns_follow_the_closed_form() -> None:
    """v̇_j = −⟨w_j, g_j⟩, ẇ_j = −v_j g_j, g_j = h_j (v_j w_j − T_j), by a solver that shares nothing with ours."""
    h, T = np.array([0.4, 3.0]), np.array([[1.0, -0.3], [2.0, 0.4], [-0.5, 1.2]])
    times = np.array([0.1, 0.5, 1.5])

    def velocity(t: float, y: np.ndarray) -> np.ndarray:
        v, W = y[:2], y[2:].reshape(3, 2)
        g = h * (v * W - T)
        return np.concatenate([-(W * g).sum(0), (-v * g).ravel()])

    start = np.concatenate([np.ones(2), np.zeros(6)])
    y = solve_ivp(velocity, (0, 1.5), start, method="DOP853", t_eval=times, rtol=1e-11, atol=1e-12).y.T
    R = np.linalg.norm(T, axis=0)
    r = radius(torch.from_numpy(times)[:, None], torch.from_numpy(h), torch.from_numpy(R)).numpy()
    np.testing.assert_allclose(y[:, None, :2] * y[:, 2:].reshape(3, 3, 2), r[:, None] * T / R, rtol=0, atol=1e-9)


def without_scale(t: Tensor, h: Tensor, R: Tensor) -> Tensor:
    return -R * torch.expm1(-h * t)


def halved_square(t: Tensor, h: Tensor, R: Tensor) -> Tensor:
    """The solution of ṙ = h √(1 + 2r²)(R − r) instead."""
    return radius(t, h, R / 2**0.5) * 2**0.5


@pytest.mark.parametrize("wrong", [without_scale, halved_square])
def test_wrong_closed_forms_are_refuted(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radial_solution, "radius", wrong)
    false = replace(scope("radial-solution:closed-form"), proof=None)
    assert search(false, 200, np.random.default_rng(0)).counterexample is not None


@pytest.mark.parametrize("factor", [2.0, 4.2])
def test_wrong_rates_are_refuted(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radial_solution, "sharpness", lambda h, R: h * torch.sqrt(1 + factor * R * R))
    assert search(scope("radial-solution:rate"), 200, np.random.default_rng(0)).counterexample is not None
