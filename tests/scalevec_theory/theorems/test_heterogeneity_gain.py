"""Sign descent against a loop, and the pieces of the paired comparison."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalevec_theory.losses import LeastSquares
from scalevec_theory.theorems import heterogeneity_gain as gain


def sign_descent(T: np.ndarray, groups: list[list[int]], step: float, n_steps: int) -> np.ndarray:
    """θ after ``n_steps`` of sign descent on ½‖θ − T‖², one input; rows of a group share a scale."""
    w, v = np.zeros_like(T), np.ones(len(groups))
    owner = np.array([next(k for k, g in enumerate(groups) if i in g) for i in range(len(T))])
    for _ in range(n_steps):
        g = v[owner] * w - T
        pull = np.array([sum(w[i] * g[i] for i in rows) for rows in groups])
        w, v = w - step * np.sign(v[owner] * g), v - step * np.sign(pull)
    return v[owner] * w


@pytest.mark.parametrize("groups", [[[0, 1, 2, 3]], [[0, 1], [2, 3]]])
def test_sign_descent_follows_its_limit_shared_or_not(groups: list[list[int]]) -> None:
    T, step = np.array([0.3, -4.0, 1.0, 2.0]), 1e-4
    for t in (0.2, 0.7, 1.3):
        limit = np.sign(T) * np.minimum(t * (1 + t), np.abs(T))
        assert np.abs(sign_descent(T, groups, step, round(t / step)) - limit).max() < 2 * step * (1 + 2 * t)


def test_the_margin_is_the_deviation_in_steps() -> None:
    """T = (2, 0.5), H = 1: last arrival at t = 1, so the step is the accuracy and its length at most 3 accuracies."""
    T, accuracy = np.array([2.0, 0.5]), 0.05
    worst = 0.0
    for n in range(1, 26):
        t = n * accuracy
        limit = np.minimum(t * (1 + t), T)
        for groups in ([[0, 1]], [[0], [1]]):
            worst = max(worst, np.abs(sign_descent(T, groups, accuracy, n) - limit).max() / (3 * accuracy))
    problem = gain.UNCORRELATED.problem({"H": [[1]], "T": [[[2]], [[0.5]]]})
    assert gain.sign_margin(problem, accuracy).value.item() == pytest.approx(2 - worst, abs=1e-9)


def test_starts_are_on_the_manifold_of_standard_initialisation() -> None:
    theta = torch.from_numpy(np.random.default_rng(0).standard_normal((3, *gain.SHAPE)))
    for p in gain.MODELS:
        blocks = gain.start_at(p, theta)
        (Q,) = p.invariants(**blocks).values()
        torch.testing.assert_close(Q, torch.ones_like(Q))
        torch.testing.assert_close(p.forward(**blocks), theta.flatten(1, 2))


def test_gains_scale_a_branch_and_its_gradient_by_the_square() -> None:
    """With the target scaled alike, ∂L/∂W of branch 2 is g² times what it was."""
    theta, T = gain.moved(np.random.default_rng(0), 2)
    p = gain.MODELS[1]
    blocks = {k: x.requires_grad_() for k, x in gain.start_at(p, theta).items()}
    gradients = []
    for g in ((1.0, 1.0), (1.0, 0.1)):
        target = (T * T.new_tensor(g)[:, None, None]).flatten(1, 2)
        loss = LeastSquares(torch.eye(4, dtype=T.dtype).expand(2, 4, 4), target)
        (dW,) = torch.autograd.grad(loss.value(gain.with_gains(p, g).forward(**blocks)).sum(), [blocks["W"]])
        gradients.append(dW)
    torch.testing.assert_close(gradients[1], gradients[0] * torch.tensor([1.0, 0.01])[:, None, None].double())


def test_the_lead_is_that_of_the_separate_vectors() -> None:
    """One step of GD from zero leaves v = 1 in both models; the second step is the longer one for the shared vector."""
    T, zero = gain.from_zero(np.random.default_rng(0), 5)
    same = gain.separate_lead(T, zero, optimizer="gd", step=0.01, n_steps=1)
    later = gain.separate_lead(T, zero, optimizer="gd", step=0.01, n_steps=5)
    torch.testing.assert_close(same, torch.zeros_like(same), rtol=0, atol=1e-14)
    assert (later < 0).all()
