"""Drift along symmetry orbits: the stationary density against a finite-volume solution, growth laws step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scalevec_theory.symmetries import (
    LIGHT_DECAY,
    holding_decay,
    norm_square,
    product_spread,
    simulate_direction,
    simulate_pair,
    sufficient_decay,
)


def stationary_in_u(product: float, noise: float, decay: float) -> tuple[float, float]:
    """E[x²] and E[a² + b²] from the Fokker–Planck equation of u = a² − b² with zero flux, by summation.

    du = −2λu dt + 2σ√s dB, s = √(u² + 4p²): p(u) ∝ (1/s) exp(−∫ λu/(σ² s) du).
    """
    top = 2 * product * math.sinh(math.acosh(1 + 40 * noise**2 / (2 * product * decay)))
    u = np.linspace(-top, top, 2_000_001)
    s = np.sqrt(u**2 + 4 * product**2)
    drift = np.concatenate([[0], np.cumsum(0.5 * (u[1:] / s[1:] + u[:-1] / s[:-1]) * np.diff(u))]) * decay / noise**2
    density = np.exp(-(drift - drift.min())) / s
    density /= density.sum()
    x = 0.5 * np.arcsinh(u / (2 * product))
    return float((density * x**2).sum()), float((density * s).sum())


@pytest.mark.parametrize(("product", "noise", "decay"), [(1.0, 0.5, 0.125), (0.5, 1.0, 0.3), (2.0, 0.3, 0.5)])
def test_spread_is_that_of_the_fokker_planck_equation(product: float, noise: float, decay: float) -> None:
    assert product_spread(product, noise, decay) == pytest.approx(stationary_in_u(product, noise, decay), rel=2e-4)


def test_spread_of_strong_and_of_light_decay() -> None:
    assert product_spread(1.0, 1.0, 500.0)[0] == pytest.approx(1 / 4000, rel=1e-3)
    light = product_spread(1.0, 1.0, 1e-30)[0]
    assert light == pytest.approx(math.log(1e30) ** 2 / 12, rel=0.1)


def test_light_decay_is_enough_for_small_updates_only() -> None:
    """Updates of size η are σ² = η; published in units of the multiplier: rms of ½ ln(a/b)."""
    rms = [product_spread(1.0, math.sqrt(eta), LIGHT_DECAY)[0] ** 0.5 for eta in (1e-4, 1e-3, 1e-2)]
    assert rms == pytest.approx([0.0786, 0.2371, 0.5972], abs=1e-4)
    assert sufficient_decay(1.0, math.sqrt(1e-2), rms[1]) == pytest.approx(10 * LIGHT_DECAY, rel=1e-6)
    assert sufficient_decay(2.0, 0.1, 0.01) == pytest.approx(0.1**2 / (8 * 2 * 0.01**2), rel=1e-3)


def test_norm_square_is_the_step_by_step_recursion() -> None:
    strength, step, decay = 2.0, 1e-3, 0.5
    for lam in (0.0, decay):
        square = 0.8**2
        for _ in range(3000):
            square = (1 - step * lam) ** 2 * square + step**2 * strength**2 / square
        ours = norm_square(torch.tensor(3000.0, dtype=torch.float64), 0.8, strength, step, lam)
        assert float(ours) == pytest.approx(square, rel=2e-3)


def test_holding_decay_holds() -> None:
    lam = holding_decay(1.0, 3.0, 0.01, 1.2)
    end = norm_square(torch.tensor(1e9, dtype=torch.float64), 1.0, 3.0, 0.01, lam)
    assert float(end) == pytest.approx(1.2**2)


def test_direction_starts_where_it_is_put_and_grows_by_the_squared_step() -> None:
    c = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    squares = simulate_direction(c, 1.0, 0.1, 0.0, 1, torch.Generator().manual_seed(0))[:, 0]
    xi = torch.randn(1, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tangential = (xi @ torch.tensor([[-4.0], [3.0]], dtype=torch.float64) / 5).item() / 5
    assert squares.tolist() == pytest.approx([25, 25 + 0.01 * tangential**2])


def test_a_shared_kick_leaves_q_to_shrink_and_an_own_kick_moves_it() -> None:
    """One Euler step by hand: shared noise ξ on g gives Q' = Q (1 − (g dt + ξ)²)."""
    start = torch.tensor([[2.0, 0.5]], dtype=torch.float64)
    arguments = {
        "product": 0.9,
        "noise": 0.3,
        "decay": 0.0,
        "stiffness": 2.0,
        "dt": 0.01,
        "n_steps": 1,
        "save_every": 1,
    }
    kick = 0.3 * 0.1 * torch.randn(2, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)[:, 0]
    shared = simulate_pair(start, shared=True, generator=torch.Generator().manual_seed(3), **arguments)[0, 0]
    move = 0.01 * 2.0 * (1.0 - 0.9) + kick[0].item()
    assert float(shared[0] ** 2 - shared[1] ** 2) == pytest.approx(3.75 * (1 - move**2))
    own = simulate_pair(start, shared=False, generator=torch.Generator().manual_seed(3), **arguments)[0, 0]
    assert own.tolist() == pytest.approx([2 - 0.5 * 0.002 + kick[0].item(), 0.5 - 2 * 0.002 + kick[1].item()])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: product_spread(1.0, 1.0, 0.0), "decay=0"),
        (lambda: product_spread(-1.0, 1.0, -1.0), "product=-1"),
        (lambda: sufficient_decay(1.0, 1.0, 0.0), "spread=0"),
        (lambda: sufficient_decay(1.0, 0.0, 0.1), "noise=0"),
        (lambda: norm_square(torch.ones(1), 1.0, 1.0, 0.1, -0.1), "decay=-0.1"),
        (lambda: holding_decay(1.0, 1.0, 0.1, 0.5), "growth=0.5"),
        (lambda: holding_decay(0.0, 1.0, 0.1, 2.0), "start=0"),
    ],
)
def test_refuses_what_has_no_answer(call, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        call()
