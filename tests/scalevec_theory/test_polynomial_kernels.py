"""Compiled flow of polynomial parametrisations: the same as the batched one, and only where θ is a polynomial."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from scalevec_theory import flow
from scalevec_theory.flow import NON_FINITE, STEP_LIMIT, gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import BUILT_IN, DUAL_SCALE, Parametrization
from scalevec_theory.polynomial_kernels import polynomials_of

SQUARED = Parametrization("squared", {"v": "d", "W": "cd"}, lambda v, W: W * (v * v)[..., None, :], lambda v, W: {})
SUM = Parametrization(
    "sum",
    {"s": "", "v": "d", "W": "cd"},
    lambda s, v, W: 0.5 * s[..., None, None] * W + v[..., None, :] - 2,
    lambda **_: {},
)
TIMES = torch.tensor([0.0, 0.3, 1.0, 3.0], dtype=torch.float64)


def problem(parametrization: Parametrization, B: int = 6) -> tuple[LeastSquares, dict[str, Tensor]]:
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(B, 5, 2, dtype=torch.float64, generator=rng)
    T = torch.randn(B, 3, 2, dtype=torch.float64, generator=rng)
    shapes = parametrization.shapes(c=3, d=2)
    start = {n: torch.randn(B, *shape, dtype=torch.float64, generator=rng) for n, shape in shapes.items()}
    return LeastSquares(X.mT @ X / 5, T), start


@pytest.mark.parametrize("parametrization", [SQUARED, SUM, replace(DUAL_SCALE, name="dual")], ids=lambda p: p.name)
@pytest.mark.parametrize("decay", [{}, {"W": 0.3}])
def test_the_same_as_the_batched_integrator(
    parametrization: Parametrization, decay: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, start = problem(parametrization)
    assert polynomials_of(parametrization, {"c": 3, "d": 2}) is not None
    monkeypatch.setattr(flow, "COMPILED", ())
    compiled = gradient_flow(parametrization, loss, start, TIMES, weight_decay=decay)
    monkeypatch.setattr(flow, "polynomials_of", lambda *_: None)
    batched = gradient_flow(parametrization, loss, start, TIMES, weight_decay=decay)
    assert torch.equal(compiled.steps, batched.steps) and bool(compiled.converged.all())
    for name, block in batched.blocks.items():
        torch.testing.assert_close(compiled.blocks[name], block, rtol=1e-11, atol=1e-12)


def test_a_problem_that_is_given_up_or_blows_up_has_no_numbers_after() -> None:
    loss, start = problem(SQUARED)
    short = gradient_flow(SQUARED, loss, start, TIMES, max_steps=2)
    assert bool((short.status == STEP_LIMIT).all()) and bool(short.blocks["v"][:, -1].isnan().all())
    start["v"][2] = torch.inf
    run = gradient_flow(SQUARED, loss, start, TIMES)
    assert run.status.tolist() == [0, 0, NON_FINITE, 0, 0, 0]
    assert bool(run.blocks["W"][2, 1:].isnan().all()) and not bool(run.blocks["W"][[0, 1, 3, 4, 5]].isnan().any())


@pytest.mark.parametrize("forward", [lambda v: abs(v), lambda v: 1 / v, lambda v: v.exp(), lambda v: (v * v) ** 0.5])
def test_what_is_no_polynomial_is_left_to_the_batched_integrator(forward) -> None:  # type: ignore[no-untyped-def]
    other = Parametrization("other", {"v": "d", "W": "cd"}, lambda v, W: W * forward(v)[..., None, :], lambda **_: {})
    assert polynomials_of(other, {"c": 1, "d": 2}) is None
    loss, start = problem(other)
    near = {name: 1 + 0.1 * block for name, block in start.items()}
    assert bool(gradient_flow(other, loss, near, [0.0, 0.02]).converged.all())


def test_which_built_in_ones_are_polynomials_and_that_size_has_a_limit() -> None:
    dims = {"b": 2, "c": 2, "d": 2}
    found = {name for name, p in BUILT_IN.items() if polynomials_of(p, dims) is not None}
    assert found >= {"plain", "input-scale", "output-scale", "dual-scale"}
    assert not found & {"magnitude-direction", "exponential"}
    assert polynomials_of(SQUARED, {"c": 40, "d": 40}) is None
