"""Constants and exponents of leading terms: exact where they must be, and wrong ones told apart."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scalevec_theory.leading_order import extrapolate, leading_term_margin, measuring_times

UNIT = torch.tensor([0.3, 2.0], dtype=torch.float64)
ACCURACY = 1e-4


def quantity(times: Tensor) -> Tensor:
    """5 t³/u³ e^{−2t/u}, whose leading constant is 5/u³."""
    x = times / UNIT[:, None]
    return 5 * x**3 * torch.exp(-2 * x)


def test_extrapolation_is_exact_on_polynomials() -> None:
    x = torch.arange(1, 7, dtype=torch.float64)
    assert extrapolate(2 - 3 * x + x**5).item() == pytest.approx(2, abs=1e-11)
    assert extrapolate(x**6).item() == pytest.approx(-720)


@pytest.mark.parametrize(
    ("factor", "exponent", "holds"),
    [(1.0, 3, True), (1.002, 3, False), (0.5, 3, False), (1.0, 2, False), (1.0, 4, False)],
)
def test_wrong_constants_and_exponents_are_told_apart(factor: float, exponent: int, holds: bool) -> None:
    times = measuring_times(UNIT, ACCURACY)
    margin = leading_term_margin(quantity(times), 0 * UNIT, times, 5 * factor / UNIT**exponent, exponent, ACCURACY)
    decided = margin.value > margin.error if holds else margin.value < -margin.error
    assert bool(decided.all())


def test_the_stated_error_bounds_the_error() -> None:
    times = measuring_times(UNIT, ACCURACY)
    noise = 1e-9 * torch.tensor([1.0, 1.0], dtype=torch.float64)
    signs = torch.tensor([1, -1, 1, -1, 1, -1], dtype=torch.float64)
    exact = leading_term_margin(quantity(times), 0 * noise, times, 5 / UNIT**3, 3, ACCURACY)
    noisy = leading_term_margin(quantity(times) + noise[:, None] * signs, noise, times, 5 / UNIT**3, 3, ACCURACY)
    moved = (noisy.value - exact.value).abs()
    assert bool((moved > 1e-6).all()), "the noise must be seen"
    assert bool((moved <= noisy.error + exact.error).all())
