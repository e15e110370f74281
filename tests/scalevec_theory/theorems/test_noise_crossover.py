"""What the simulations of the crossover rest on: mirrored noise, and AdamW written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalevec_theory.claim import Setting
from scalevec_theory.crossover import simulate, threshold
from scalevec_theory.theorems.noise_crossover import DECAY, STEP, adamw, mirrored, pairs, sign_descent


def test_mirrored_noise_cancels_in_pairs() -> None:
    noise = mirrored(np.random.default_rng(0), 3, 5)
    assert noise.shape == (3, 10) and pairs(noise).abs().max() == 0
    assert pairs(noise**2).shape == (5, 3) and pairs(noise**2).min() > 0


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_the_optimizer_is_adamw_with_decoupled_decay(beta1: float) -> None:
    gradients = np.random.default_rng(1).standard_normal(6)
    w, m, v = 1.5, 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        m, v = beta1 * m + (1 - beta1) * g, 0.999 * v + 0.001 * g * g
        w = (1 - STEP * DECAY) * w - STEP * (m / (1 - beta1**t)) / np.sqrt(v / (1 - 0.999**t))
    steps = iter(gradients)
    start = torch.tensor([1.5], dtype=torch.float64)
    final, _ = simulate(adamw(STEP, DECAY, beta1), lambda x: torch.full_like(x, next(steps)), start, 5, 1)
    assert final.item() == pytest.approx(w, rel=1e-12)


def test_sign_descent_decays_apart_from_the_sign() -> None:
    start = torch.tensor([2.0], dtype=torch.float64)
    final, _ = simulate(sign_descent(0.1, 0.5), lambda x: torch.ones_like(x), start, 0, 1)
    assert final.item() == pytest.approx(2 - 0.1 * (1 + 0.5 * 2))


def test_the_threshold_of_the_usual_recipe_is_far_below_one() -> None:
    """η = 10⁻³, λ = 0.1: a signal of 0.7% of the noise is enough."""
    assert threshold(1e-3, 0.1) == pytest.approx(0.00707, abs=1e-5)


def test_the_same_seed_gives_the_same_numbers() -> None:
    from scalevec_theory.theorems.noise_crossover import measure_step

    first, second = (measure_step(Setting("quick", 0, np.random.default_rng(5)))[0].margin for _ in range(2))
    assert first == second
