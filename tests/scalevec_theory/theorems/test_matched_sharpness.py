"""The sharpness is that of the Hessian, the matched losses are those of the flow, and wrong variants are told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN
from scalevec_theory.problems import Between, Problems
from scalevec_theory.radial import sharpness
from scalevec_theory.registry import scope
from scalevec_theory.search import search
from scalevec_theory.theorems import matched_sharpness


@pytest.fixture
def problems() -> Problems:
    rng = np.random.default_rng(0)
    return scope("matched-sharpness:late").space.draw(5, {"c": 3, "d": 2}, rng)  # type: ignore[union-attr]


def test_sharpness_is_the_top_of_the_hessian(problems: Problems) -> None:
    """Of the loss as a function of (v, W), by automatic differentiation at the optimum on the standard manifold."""
    for i in range(len(problems)):
        H, T = problems["H"][i], problems["T"][i]
        blocks = INPUT_SCALE.balanced_init(T[None], iterations=400)
        flat = torch.cat([blocks["v"][0], blocks["W"][0].flatten()])

        def loss(x: Tensor, H: Tensor = H, T: Tensor = T) -> Tensor:
            error = x[:2] * x[2:].reshape(3, 2) - T
            return 0.5 * ((error @ H) * error).sum()

        top = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))[-1]
        torch.testing.assert_close(sharpness(torch.diagonal(H), T.norm(dim=0)).amax(), top, rtol=1e-10, atol=0)


def test_matched_losses_are_those_of_the_flow(problems: Problems) -> None:
    tau = torch.tensor([0.3, 1.0, 4.0], dtype=torch.float64)
    h, R = torch.diagonal(problems["H"], dim1=1, dim2=2), problems["T"].norm(dim=1)
    loss, zero = LeastSquares(problems["H"], problems["T"]), torch.zeros_like(problems["T"])
    closed = matched_sharpness._matched_losses(problems, tau)
    for p, top, expected in zip((INPUT_SCALE, PLAIN), (sharpness(h, R), h), closed, strict=True):
        run = gradient_flow(p, loss, p.init(zero), tau / top.amax(1, keepdim=True), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(run.loss, expected, rtol=1e-7, atol=1e-9)


def test_one_column_alone_falls_behind_and_a_stiff_direction_without_signal_costs_nothing() -> None:
    """R = 1 alone pays √5 for its curvature; beside a direction 5 times as stiff and without target it pays nothing."""
    alone = scope("loss-dominance:matched-sharpness").evaluate(H=[[1]], T=[[1]])
    beside = scope("loss-dominance:matched-sharpness").evaluate(H=[[1, 0], [0, 5]], T=[[1, 0]])
    assert alone < -2 and beside > 0


@pytest.mark.parametrize("name", ["whitened", "gd-whitened", "late"])
def test_a_smaller_sharpness_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched_sharpness, "sharpness", lambda h, R: h * torch.sqrt(1 + 2 * R * R))
    assert search(scope(f"matched-sharpness:{name}"), 200, np.random.default_rng(0)).counterexample is not None


def test_steps_beyond_one_over_the_sharpness_are_another_matter() -> None:
    """With 1 < α < 2 the unscaled model overshoots while the scaled one does not yet: α ≤ 1 is needed."""
    space = matched_sharpness.STEPS
    false = replace(
        scope("matched-sharpness:gd-whitened"),
        space=replace(space, fields={**space.fields, "alpha": Between("", 1.2, 1.9)}),
    )
    assert search(false, 200, np.random.default_rng(0)).counterexample is not None
