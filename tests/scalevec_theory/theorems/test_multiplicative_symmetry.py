"""Published numbers of the light decay, and what a wrong drift would look like."""

from __future__ import annotations

import pytest

from scalevec_theory.registry import scope
from scalevec_theory.theorems.multiplicative_symmetry import KAPPA, _formula


def test_the_light_decay_in_numbers() -> None:
    assert pytest.approx(4.0) == KAPPA
    assert _formula(KAPPA) == pytest.approx(0.2371, abs=1e-4)


def test_a_balanced_scalar_pair_has_no_drift_under_minibatch_noise() -> None:
    """a² = b² is at rest; so is any pair without a martingale part, which the false scope denies."""
    assert scope("multiplicative-symmetry:minibatch-noise").evaluate(a=[1.0], b=[1.0], sigma=1.0) > 0
    assert scope("multiplicative-symmetry:minibatch-diffuses").evaluate(a=[1.0], b=[1.0], sigma=1.0) < 0


def test_one_gradient_step_by_hand() -> None:
    """L = ½(ab − 1)² at a = 2, b = 1: g = 1, so a step of 0.1 gives 1.9² − 0.8² = 2.97 = 3 (1 − 0.01)."""
    fields = {"H": [[1.0]], "T": [[1.0]], "a": [2.0], "b": [1.0], "eta": 0.1}
    assert scope("multiplicative-symmetry:gd-increment").evaluate(**fields) > 0
    margin = scope("multiplicative-symmetry:gd-conserves").evaluate(**fields)
    assert margin == pytest.approx(1e-8 - 0.03 / (4 + 1 + 1.9**2 + 0.8**2))
