"""The valley's slow law under AdamW: closed forms in its limits."""

from __future__ import annotations

import numpy as np
import pytest

from scalevec_theory import pumping


def test_one_output_grows_linearly() -> None:
    R, lr, decay = 2.0, 1e-3, 0.1
    steps = np.array([1e6, 2e6])
    v, rho = pumping.adamw(steps, R, 1, lr, 0.0, decay, v0=5.0, sigma=0.0)
    assert v * rho == pytest.approx(np.array([R, R]), rel=1e-9)
    assert np.diff(v**2)[0] == pytest.approx(2 * lr * decay * R * 1e6, rel=0.02)


@pytest.mark.parametrize("c", [2, 16])
def test_many_outputs_reach_the_equilibrium_of_w(c: int) -> None:
    R, lr, decay = 1.0, 1e-2, 0.1
    v, rho = pumping.adamw(np.array([2e5]), R, c, lr, 0.0, decay, v0=1.0, sigma=0.0)
    assert v[0] ** 2 == pytest.approx(pumping.adamw_limit(R, c, lr, decay), rel=1e-3)
    assert rho[0] ** 2 == pytest.approx((c - 1) * lr / (2 * decay), rel=1e-3)
    assert pumping.adamw_limit(R, 1, lr, decay) == np.inf


def test_without_decay_w_grows_by_its_noise() -> None:
    c, lr = 5, 1e-2
    _, rho = pumping.adamw(np.array([1e5, 2e5]), 0.01, c, lr, 0.0, 0.0, v0=0.5, sigma=0.0)
    assert np.diff(rho**2)[0] == pytest.approx((c - 1) * lr**2 * 1e5, rel=0.01)


def test_the_pull_that_holds_against_decay_costs_some_of_the_target() -> None:
    v, rho = pumping.held(0.0, 1.0, 1, 1e-3, 0.2, sigma=1.0)
    assert 1 - v * rho == pytest.approx(0.2 * v * rho / (v + rho))


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="R=0"):
        pumping.adamw(np.array([1.0]), 0, 1, 1e-3, 0, 0, v0=1, sigma=1)
