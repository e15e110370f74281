"""The crossing of v_1 against an independent integration, and the weights that let a direct scale cross zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from scalevec_theory.registry import scope
from scalevec_theory.theorems.scale_sign import CROSSING, FROM_ANY, direct_margin, least_share


def test_the_crossing_is_that_of_a_plain_integration() -> None:
    H, T = np.array(CROSSING["H"]), np.array(CROSSING["T"])[0]

    def right_hand_side(_: float, y: np.ndarray) -> np.ndarray:
        beta, alpha, w = y[0], y[1:3], y[3:5]
        norm = np.linalg.norm(alpha)
        n = alpha / norm
        v = np.sqrt(2) * beta * n
        g = H @ (v * w - T)
        m = w * g
        across = m - n * (n @ m)
        return -np.concatenate([[np.sqrt(2) * (n @ m)], np.sqrt(2) * beta / norm * across, v * g])

    run = solve_ivp(right_hand_side, (0, 4), [1, 1, 1, 0, 0], method="DOP853", rtol=1e-11, atol=1e-11)
    alpha = run.y[1:3, -1]
    H_, T_ = (torch.tensor([x], dtype=torch.float64) for x in CROSSING.values())
    assert alpha.min() == pytest.approx(float(least_share(H_, T_, 1e-6)[0]), abs=1e-6)
    assert alpha.min() == pytest.approx(-0.240591, abs=1e-6)


@pytest.mark.parametrize(("w", "crosses"), [(2.0, True), (0.9, False)])
def test_a_direct_scale_crosses_zero_only_if_the_weights_start_above_1(w: float, crosses: bool) -> None:
    """c = d = 1: v² = 1 − w(0)² + w², so v cannot vanish while w(0)² < 1; else w cannot, and v must, to reach T < 0."""
    margin = scope("scale-sign:direct-any-weights").evaluate(H=[[1]], T=[[-1]], W=[[w]])
    assert (margin < 0) is crosses


def test_a_direct_scale_that_dips_below_1_is_seen() -> None:
    """Outside the scope, from W(0) ≠ 0, v² = 1 − w(0)² + w² falls below 1 and stays positive."""
    problem = FROM_ANY.problem({"H": [[1]], "T": [[-1]], "W": [[0.5]]})
    margin = direct_margin(problem, 1e-8)
    assert float(margin.value[0]) < -float(margin.error[0])
