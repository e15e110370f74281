"""The exact counterexample to mirror flow, mirror flow along a trajectory, and wrong formulas told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import sympy
import torch
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.registry import scope
from scalevec_theory.search import search
from scalevec_theory.theorems import preconditioner
from scalevec_theory.theorems.preconditioner import third_derivatives

INPUT_SCALE, STANDARD = operators.input_scale, operators.standard_input_scale
THETA = (sympy.Rational(15, 16), sympy.Integer(0))
GAP = -sympy.Rational(384, 2125)


def test_mirror_flow_fails_exactly_at_a_rational_point() -> None:
    """θ = (15/16, 0), w = (3/4, 0), v = 5/4: ∂_1 M_22 − ∂_2 M_12 = −4 (15/16)/(17/8 (25/8)²) = −384/2125."""
    t = sympy.symbols("t1 t2", real=True)
    v2 = (1 + sympy.sqrt(1 + 4 * (t[0] ** 2 + t[1] ** 2))) / 2
    M = (v2 * sympy.eye(2) + sympy.Matrix(t) * sympy.Matrix(t).T / v2).inv()
    gap = (sympy.diff(M[1, 1], t[0]) - sympy.diff(M[0, 1], t[1])).subs(dict(zip(t, THETA, strict=True)))
    assert sympy.nsimplify(gap) == GAP
    D = third_derivatives(torch.tensor([[15 / 16, 0.0]], dtype=torch.float64))[0]
    assert float(D[1, 1, 0] - D[0, 1, 1]) == pytest.approx(float(GAP), rel=1e-12)


def test_third_derivatives_are_those_of_finite_differences() -> None:
    theta, step = torch.tensor([[0.7, -1.2, 0.4]], dtype=torch.float64), 1e-5

    def inverse(t: Tensor) -> Tensor:
        return torch.linalg.inv(operators.standard_input_scale(t[..., None])[..., 0, :, :])

    for k, shift in enumerate(step * torch.eye(3, dtype=torch.float64)):
        slope = (inverse(theta + shift) - inverse(theta - shift)) / (2 * step)
        torch.testing.assert_close(third_derivatives(theta)[..., k], slope, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "formula", "wrong"),
    [
        ("closed-form", "input_scale", lambda v, W: v[..., None, None] ** 2 * torch.eye(W.shape[-2], dtype=v.dtype)),
        ("closed-form", "input_scale", lambda v, W: 2 * INPUT_SCALE(v, W)),
        (
            "closed-form-in-theta",
            "standard_input_scale",
            lambda theta: INPUT_SCALE(operators.standard_scale(theta), theta),
        ),
        ("not-a-hessian", "standard_input_scale", lambda theta: STANDARD(theta / 2)),
    ],
)
def test_wrong_closed_forms_are_refuted(
    name: str, formula: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, formula, wrong)
    assert search(scope(f"preconditioner:{name}"), 200, np.random.default_rng(0)).counterexample is not None


def test_lower_bound_fails_off_the_manifold(monkeypatch: pytest.MonkeyPatch) -> None:
    """With v² = 1 + ‖w‖² replaced by v² = ‖w‖² the bound v² ≥ 1 is false."""
    monkeypatch.setattr(preconditioner, "_on_standard", lambda p: (p["W"].norm(dim=1), p["W"]))
    false = replace(scope("preconditioner:lower-bound"), proof=None)
    assert search(false, 200, np.random.default_rng(0)).counterexample is not None


def test_one_output_is_mirror_flow_along_a_trajectory() -> None:
    """d/dt arcsinh(2θ)/2 = −g: for L = gθ it is linear in time, in closed form from θ = v w, v² = 1 + w²."""
    g, t = 0.8, torch.linspace(0, 2, 5, dtype=torch.float64)
    theta = torch.sinh(-2 * g * t) / 2
    v = operators.standard_scale(theta[:, None, None])[:, 0]
    w = theta / v
    # hyperbolic rotation: v' = −w g, w' = −v g from (1, 0)
    torch.testing.assert_close(v, torch.cosh(g * t), rtol=1e-13, atol=0)
    torch.testing.assert_close(w, -torch.sinh(g * t), rtol=1e-13, atol=1e-15)
