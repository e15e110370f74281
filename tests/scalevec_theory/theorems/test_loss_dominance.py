"""The published counterexample to its digits, what the search finds, and how far a lag can go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN
from scalevec_theory.problems import Between
from scalevec_theory.registry import scope
from scalevec_theory.search import search, significant
from scalevec_theory.theorems import loss_dominance


def losses(H: list[list[float]], T: list[list[float]], W0: list[list[float]], t: list[float]) -> tuple[np.ndarray, ...]:
    """L_scaled and L_unscaled at the times ``t``."""
    loss = LeastSquares(*(torch.tensor([x], dtype=torch.float64) for x in (H, T)))
    start, times = torch.tensor([W0], dtype=torch.float64), torch.tensor(t, dtype=torch.float64)
    return tuple(
        gradient_flow(p, loss, p.init(start), times, rtol=1e-11, atol=1e-11).loss[0].numpy()
        for p in (INPUT_SCALE, PLAIN)
    )


def test_published_counterexample() -> None:
    """The published digits, near t = 1.04, from our flow and from a plain solver of the naive equations."""
    H, T, t = [[4.0, 1.0], [1.0, 0.3]], [[0.2, 2.0]], 1.0405
    scaled, unscaled = losses(H, T, [[0.0, 0.0]], [0.0, t])
    assert f"{scaled[1]:.5f}" == "0.07769"
    assert f"{unscaled[1]:.5f}" == "0.07629"
    assert f"{scaled[0]:.4f}" == f"{unscaled[0]:.4f}" == "1.0800"

    h, target = np.array(H), np.array(T[0])

    def velocity(t: float, y: np.ndarray) -> np.ndarray:
        g = h @ (y[:2] * y[2:] - target)
        return -np.concatenate([y[2:] * g, y[:2] * g])

    v1, v2, w1, w2 = solve_ivp(velocity, (0, t), [1, 1, 0, 0], method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    error = np.array([v1 * w1, v2 * w2]) - target
    assert scaled[1] == pytest.approx(0.5 * error @ h @ error, rel=1e-8)
    error = -expm(-t * h) @ target
    assert unscaled[1] == pytest.approx(0.5 * error @ h @ error, rel=1e-8)
    assert scope("loss-dominance:correlated-inputs").evaluate(H=H, T=T, W0=[[0, 0]]) < -1e-3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_correlated_counterexample_is_small(seed: int) -> None:
    """One output, two inputs, no number of more than two significant digits."""
    found = search(scope("loss-dominance:correlated-inputs"), 800, np.random.default_rng(seed)).counterexample
    assert found is not None
    assert dict(found.dims) == {"c": 1, "d": 2}
    numbers = torch.cat([x.flatten() for x in found.fields.values()]).tolist()
    assert numbers == [significant(x, 2) for x in numbers]


def test_the_lag_grows_with_the_number_of_inputs() -> None:
    """One input is correlated with n others; the lag at n = 1 is the largest found for two inputs, 0.35% of L(0)."""
    for n, (curvature, angle, first, other), lag in (
        (1, (0.0061, 1.24, 11.4, -0.23), 0.0035),
        (16, (0.0175, 0.637, 6.53, -5.14), 0.022),
    ):
        u = np.array([np.cos(angle)] + [np.sin(angle) / np.sqrt(n)] * n)
        H = (1 - curvature) * np.outer(u, u) + curvature * np.eye(n + 1)
        T = [[first] + [other] * n]
        scaled, unscaled = losses(H.tolist(), T, [[0.0] * (n + 1)], np.linspace(0, 5, 51).tolist())
        assert ((scaled - unscaled) / scaled[0]).max() == pytest.approx(lag, rel=0.03)


def test_large_init_decays_algebraically() -> None:
    """v = w = 1, target 0: ẇ = −w³, so L = ½/(1 + 2t)², against ½ e^{−2t}."""
    t = np.array([0.5, 2.0, 8.0])
    scaled, unscaled = losses([[1.0]], [[0.0]], [[1.0]], t.tolist())
    np.testing.assert_allclose(scaled, 0.5 / (1 + 2 * t) ** 2, rtol=1e-9)
    np.testing.assert_allclose(unscaled, 0.5 * np.exp(-2 * t), rtol=1e-3)


def test_instantaneous_dominance_needs_a_scale_of_one() -> None:
    space = loss_dominance.SAME_STATE
    false = replace(
        scope("loss-dominance:instantaneous"),
        space=replace(space, fields={**space.fields, "v": Between("d", 0.2, 2.0)}),
    )
    assert search(false, 200, np.random.default_rng(0)).counterexample is not None


def test_unscaled_is_not_faster_in_turn() -> None:
    """The inequality turned round is refuted, so the comparison has a direction."""
    true = scope("loss-dominance:uncorrelated-zero-init")
    assert true.margin is not None

    def turned(problems, accuracy):  # type: ignore[no-untyped-def]
        margin = true.margin(problems, accuracy)
        return type(margin)(-margin.value, margin.error)

    assert search(replace(true, margin=turned), 200, np.random.default_rng(0)).counterexample is not None
