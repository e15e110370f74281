"""Discrete descent: step by step the optimisers of torch, the exact increment of Q, the flow as the step vanishes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from scalevec_theory.descent import descend
from scalevec_theory.flow import NON_FINITE, OK, gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN

B, C, D = 4, 3, 5


def problem(seed: int = 0) -> tuple[LeastSquares, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(B, 9, D, generator=generator, dtype=torch.float64)
    T = torch.randn(B, C, D, generator=generator, dtype=torch.float64)
    start = DUAL_SCALE.init(0.3 * torch.randn(B, C, D, generator=generator, dtype=torch.float64))
    return LeastSquares(X.mT @ X / 9, T), start


@pytest.mark.parametrize(
    "optimizer, options, reference",
    [
        ("gd", {}, lambda groups, step: torch.optim.SGD(groups, lr=step)),
        ("heavy-ball", {"momentum": 0.8}, lambda groups, step: torch.optim.SGD(groups, lr=step, momentum=0.8)),
        (
            "adam",
            {"betas": (0.8, 0.95), "eps": 1e-6},
            lambda g, s: torch.optim.AdamW(g, lr=s, betas=(0.8, 0.95), eps=1e-6),
        ),
    ],
)
@pytest.mark.parametrize("decay", [{}, {"v": 0.3, "W": 0.1}])
def test_every_step_is_that_of_torch(optimizer, options, reference, decay) -> None:  # type: ignore[no-untyped-def]
    loss, start = problem()
    step = torch.tensor([0.01, 0.02, 0.05, 0.1], dtype=torch.float64)
    run = descend(DUAL_SCALE, loss, start, optimizer=optimizer, step=step, n_steps=12, weight_decay=decay, **options)
    assert torch.equal(run.times, step[:, None] * torch.arange(13)) and run.converged.all()
    for b in range(B):
        leaves = {name: block[b].clone().requires_grad_() for name, block in start.items()}
        groups = [{"params": [leaf], "weight_decay": decay.get(name, 0.0)} for name, leaf in leaves.items()]
        torch_optimizer = reference(groups, step[b].item())
        for index in range(13):
            for name, leaf in leaves.items():
                assert (run.blocks[name][b, index] - leaf).abs().max() < 1e-13, (name, index)
            torch_optimizer.zero_grad()
            error = leaves["W"] * leaves["u"][:, None] * leaves["v"] - loss.T[b]
            (0.5 * (error @ loss.H[b] * error).sum()).backward()
            torch_optimizer.step()


def test_the_increment_of_the_invariant_under_gradient_descent_is_exact() -> None:
    """Q_j(t+1) − Q_j(t) = η²(⟨w_j, g_j⟩² − v_j²‖g_j‖²)."""
    loss, start = problem(1)
    del start["u"]
    eta = 0.07
    run = descend(INPUT_SCALE, loss, start, step=eta, n_steps=30)
    g, v, W = loss.gradient(run.theta), run.blocks["v"], run.blocks["W"]
    increment = eta**2 * ((W * g).sum(-2) ** 2 - v**2 * (g * g).sum(-2))
    (Q,) = run.invariants.values()
    assert (Q.diff(dim=1) - increment[:, :-1]).abs().max() < 1e-13 * (1 + Q.abs().max())
    assert increment.abs().max() > 1e-3


def test_gradient_descent_tends_to_the_flow_in_proportion_to_the_step() -> None:
    loss, start = problem(2)
    flow = gradient_flow(DUAL_SCALE, loss, start, torch.tensor([0.0, 1.0], dtype=torch.float64))
    gaps = []
    for n_steps in (200, 400):
        run = descend(DUAL_SCALE, loss, start, step=1 / n_steps, n_steps=n_steps, save_every=n_steps)
        assert torch.allclose(run.times, flow.times)
        gaps.append((run.theta[:, 1] - flow.theta[:, 1]).abs().max().item())
    assert 1.9 < gaps[0] / gaps[1] < 2.1


def test_save_every_keeps_every_so_many_steps() -> None:
    loss, start = problem()
    every = descend(DUAL_SCALE, loss, start, optimizer="adam", step=0.01, n_steps=10)
    third = descend(DUAL_SCALE, loss, start, optimizer="adam", step=0.01, n_steps=10, save_every=3)
    assert third.times.tolist() == pytest.approx([0, 0.03, 0.06, 0.09])
    assert torch.equal(third.theta, every.theta[:, ::3]) and torch.equal(third.loss, every.loss[:, ::3])
    assert (third.steps == 10).all()


def test_divergence_is_reported_per_problem_and_start_is_left_alone() -> None:
    loss, start = problem()
    before = {name: block.clone() for name, block in start.items()}
    step = torch.tensor([0.01, 5.0, 0.01, 50.0], dtype=torch.float64)
    run = descend(DUAL_SCALE, loss, start, step=step, n_steps=40)
    assert run.status.tolist() == [OK, NON_FINITE, OK, NON_FINITE]
    assert run.theta[[0, 2]].isfinite().all()
    for b in (1, 3):
        last = run.steps[b].item()
        assert 1 < last < 40
        assert all(block[b, :last].isfinite().all() and block[b, last:].isnan().all() for block in run.blocks.values())
    assert all(torch.equal(start[name], before[name]) for name in start)


def test_not_finite_at_the_start() -> None:
    loss, start = problem()
    start["W"][2, 0, 0] = math.nan
    run = descend(DUAL_SCALE, loss, start, step=0.01, n_steps=3)
    assert run.status.tolist() == [OK, OK, NON_FINITE, OK] and run.steps.tolist() == [3, 3, 0, 3]
    assert run.theta[2, 1:].isnan().all() and run.theta[[0, 1, 3]].isfinite().all()


def test_bad_input_is_named() -> None:
    loss, start = problem()
    cases: list[tuple[dict, str]] = [
        ({"optimizer": "adams"}, r"optimizer='adams': did you mean adam\?"),
        ({"step": 0.0}, r"step=0.0: expected finite numbers > 0"),
        ({"step": torch.ones(3)}, r"step=.*one or of shape \(4,\)"),
        ({"n_steps": -1}, r"n_steps=-1: expected an integer >= 0"),
        ({"save_every": 0}, r"save_every=0: expected an integer >= 1"),
        ({"momentum": 1.0}, r"momentum=1.0: expected a number in \[0, 1\)"),
        ({"betas": (0.9, -0.1)}, r"betas=\(0.9, -0.1\)"),
        ({"eps": -1.0}, r"eps=-1.0"),
        ({"weight_decay": {"V": 1.0}}, r"weight_decay names 'V'"),
        ({"start": PLAIN.init(start["W"])}, r"lacks block 'u'"),
        ({"device": "nowhere"}, r"device='nowhere'"),
    ]
    for change, message in cases:
        arguments = {"loss": loss, "start": start, "step": 0.1, "n_steps": 2} | change
        with pytest.raises(ValueError, match=message):
            descend(DUAL_SCALE, **arguments)
