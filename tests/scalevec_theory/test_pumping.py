"""The valley's slow law under AdamW: closed forms in its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scalevec_theory.pumping import Column, MuonColumn, on_valley

SLOW = Column(R=1.0, c=16, lr=1e-2, decay_v=0.0, decay_W=0.1, sigma=1e-9, beta2=0.0)
"""Hardly any noise: the pull is strong, so the column stays on the valley; β2 = 0 with it leaves κ near 1."""


def without_lag(column: Column) -> Column:
    """β2 = 0 and steps small beside σ: κ is near 0."""
    return replace(column, beta2=0.0, sigma=1.0, lr=1e-4)


@pytest.mark.parametrize("z", [-1e6, -2.0, 0.0, 3.0, 1e6])
def test_valley(z: float) -> None:
    v, rho = on_valley(z, 2.0)
    assert v * rho == pytest.approx(2.0, rel=1e-14)
    assert v - rho == pytest.approx(z, rel=1e-12)


def test_one_output_grows_linearly_while_the_lag_is_small() -> None:
    column = without_lag(replace(SLOW, R=2.0, c=1, decay_W=1e-2))
    v, _ = column.after(np.array([1e7, 2e7]), v0=50.0)
    assert np.diff(v**2)[0] == pytest.approx(2 * 1e-4 * 1e-2 * 2.0 * 1e7, rel=0.02)


@pytest.mark.parametrize("c", [2, 16])
def test_many_outputs_bring_w_to_its_noise_decay_equilibrium(c: int) -> None:
    column = without_lag(replace(SLOW, c=c))
    v, rho = column.rest()
    assert rho**2 == pytest.approx((c - 1) * column.lr / (2 * column.decay_W), rel=0.01)
    late = column.after(np.array([3e9]), v0=1.0)
    assert (late[0][0], late[1][0]) == pytest.approx((v, rho), rel=1e-3)


def test_full_lag_balances_without_decay_at_rho_equal_c_v() -> None:
    column = replace(SLOW, decay_W=0.0)
    assert column.lag(1.0, 1.0) == pytest.approx(1.0, abs=0.2)
    v, rho = replace(column, sigma=1e-4, beta2=0.9999).rest()
    assert rho / v == pytest.approx(16, rel=0.01)


def test_lag_is_the_share_an_average_has_not_followed() -> None:
    """An exponential average of an Ornstein–Uhlenbeck process: 1 − E[δ δ̄]/E[δ²] = a/(a + b)."""
    column = Column(1.0, 4, 0.02, 0.0, 0.0, sigma=1.0, beta2=0.95)
    a, b = column.lr * (1.5 + 0.5), 0.05
    rng, x, average, products, squares = np.random.default_rng(0), np.zeros(2000), np.zeros(2000), 0.0, 0.0
    for t in range(3000):
        x = (1 - a) * x + rng.standard_normal(2000)
        average = (1 - b) * average + b * x
        if t > 300:
            products, squares = products + (x * average).mean(), squares + (x * x).mean()
    assert column.lag(1.5, 0.5) == pytest.approx(1 - products / squares, abs=0.03)


def test_the_pull_that_holds_against_decay_costs_some_of_the_target() -> None:
    v, rho = Column(1.0, 1, 1e-3, 0.1, 0.1, sigma=2.0).held(0.0)
    assert 1 - v * rho == pytest.approx(2 * 0.2 * v * rho / (v + rho))


def test_muon_moves_w_by_a_fixed_size_and_the_rest_follows_by_hand() -> None:
    """V of Nesterov at 0.9 is 0.19² + 0.81² · 0.1/1.9; √(c/1) of the step cancels √c; five steps from 1."""
    factor = 1.0
    for _ in range(5):
        factor = 3.4445 * factor - 4.775 * factor**3 + 2.0315 * factor**5
    column = MuonColumn(R=1.0, c=16, lr=1e-5, decay_v=0.0, decay_W=0.1, sigma=1.0)
    a = factor / (0.19**2 + 0.81**2 * 0.1 / 1.9) ** 0.5
    assert column.gain == pytest.approx(a, rel=1e-12)
    assert column.rest()[1] ** 2 == pytest.approx(15 * a**2 * 1e-5 / 0.2, rel=0.01)
    v, rho = replace(column, decay_v=0.1, c=1).rest()
    assert rho / v == pytest.approx(a, rel=1e-6)
    assert replace(column, decay_W=0.0).after(np.array([10.0]), v0=1.0)[0][0] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"R": 0.0}, "R=0.0"), ({"decay_v": -1.0}, "decay_v=-1.0"), ({"c": 0}, "c=0"), ({"beta2": 1.0}, "beta2=1.0")],
)
def test_bad_input_is_named(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SLOW, **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="v0=0"):
        SLOW.after(np.array([1.0]), v0=0)
