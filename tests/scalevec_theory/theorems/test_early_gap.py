"""The t³ constants in exact rational Taylor series, and wrong constants told apart."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from scalevec_theory.claim import Scope
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN, Parametrization
from scalevec_theory.registry import scope
from scalevec_theory.search import search
from scalevec_theory.theorems.early_gap import Constant, alignment, columns, gap_margin, rows

H = np.array([[Fraction(2), Fraction(1, 3)], [Fraction(1, 3), Fraction(1)]], dtype=object)
T = np.array([[Fraction(1), Fraction(-2)], [Fraction(1, 2), Fraction(3)], [Fraction(0), Fraction(1, 5)]], dtype=object)


def loss_series(row_scale: bool, column_scale: bool, order: int = 3) -> list[Fraction]:
    """Taylor coefficients of L(t) from W(0) = 0 and scales at 1, by the recursion φ_{k+1} = −(∂L/∂φ)_k/(k + 1)."""
    c, d = T.shape
    one, zero = Fraction(1), Fraction(0)
    u = [np.full((c, 1), one, dtype=object)]
    v = [np.full((1, d), one, dtype=object)]
    W = [np.full((c, d), zero, dtype=object)]
    error: list[np.ndarray] = []

    def product(k: int, *factors: list[np.ndarray]) -> np.ndarray:
        """Coefficient k of a product of series."""
        if len(factors) == 1:
            return factors[0][k]
        return sum(product(i, *factors[:-1]) * factors[-1][k - i] for i in range(k + 1))

    G: list[np.ndarray] = []
    for k in range(order + 1):
        error.append(product(k, u, W, v) - (T if k == 0 else 0))
        G.append(error[k] @ H)
        share = Fraction(-1, k + 1)
        u.append(share * row_scale * product(k, W, v, G).sum(1, keepdims=True))
        v.append(share * column_scale * product(k, u[: k + 1], W, G).sum(0, keepdims=True))
        W.append(share * product(k, u[: k + 1], v[: k + 1], G))
    return [sum((G[i] * error[k - i]).sum() for i in range(k + 1)) / 2 for k in range(order + 1)]


def test_constants_are_exact() -> None:
    plain, single, dual = loss_series(False, False), loss_series(False, True), loss_series(True, True)
    assert plain[:3] == single[:3] == dual[:3]
    G0 = -T @ H
    column_norms, row_norms = (G0 * G0).sum(0), (G0 * G0).sum(1)
    by_columns, by_rows = plain[3] - single[3], single[3] - dual[3]
    assert by_columns == Fraction(2, 3) * (column_norms**2).sum()
    assert by_rows == Fraction(2, 3) * (row_norms**2).sum()
    G = torch.from_numpy(G0.astype(float))[None]
    assert columns(torch.zeros_like(G), G).item() == pytest.approx(float(by_columns), rel=1e-13)
    assert rows(torch.zeros_like(G), G).item() == pytest.approx(float(by_rows), rel=1e-13)


def half_columns(W0: Tensor, G0: Tensor) -> Tensor:
    return columns(W0, G0) / 2


def all_entries(W0: Tensor, G0: Tensor) -> Tensor:
    return 2 / 3 * G0.square().sum((-2, -1)).square()


def wrong(name: str, slower: Parametrization, faster: Parametrization, exponent: int, constant: Constant) -> Scope:
    return replace(scope(f"early-gap:{name}"), proof=None, margin=gap_margin(slower, faster, exponent, constant))


def alignment_series() -> Fraction:
    """d/dt (L_unscaled − L_scaled) at t = 0 from W(0) = T/2, v = 1: −⟨G, θ̇_unscaled − θ̇_scaled⟩ by the product rule."""
    W0 = T / 2
    G = (W0 - T) @ H
    scaled = -G - W0 * (W0 * G).sum(0)
    return (G * (-G - scaled)).sum()


def test_first_order_constant_is_exact() -> None:
    W0, G0 = (torch.from_numpy(x.astype(float))[None] for x in (T / 2, (T / 2 - T) @ H))
    assert alignment(W0, G0).item() == pytest.approx(float(alignment_series()), rel=1e-13)


@pytest.mark.parametrize(
    "false",
    [
        wrong("scaled-least-squares", PLAIN, INPUT_SCALE, 3, half_columns),
        wrong("scaled-least-squares", PLAIN, INPUT_SCALE, 3, rows),
        wrong("scaled-least-squares", PLAIN, INPUT_SCALE, 3, all_entries),
        wrong("scaled-least-squares", PLAIN, INPUT_SCALE, 2, columns),
        wrong("dual-least-squares", INPUT_SCALE, DUAL_SCALE, 3, columns),
        wrong("dual-least-squares", PLAIN, DUAL_SCALE, 3, rows),
    ],
    ids=["half", "rows", "frobenius", "t^2", "dual-columns", "dual-against-plain"],
)
def test_wrong_constants_are_refuted(false: Scope) -> None:
    assert search(false, 100, np.random.default_rng(0)).counterexample is not None
