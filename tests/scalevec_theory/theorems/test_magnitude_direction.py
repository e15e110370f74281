"""What gradient flow and descent do to ‖α‖ with another loss and over many steps, and wrong formulas told apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.descent import descend
from scalevec_theory.flow import gradient_flow, parameter_gradient
from scalevec_theory.losses import CrossEntropy
from scalevec_theory.parametrizations import MAGNITUDE_DIRECTION
from scalevec_theory.registry import scope
from scalevec_theory.search import search

D = torch.float64
CORRECT = operators.magnitude_direction


def cross_entropy(rng: np.random.Generator, n: int = 6, c: int = 3, d: int = 4) -> CrossEntropy:
    X, labels = torch.from_numpy(rng.standard_normal((1, n, d))), torch.from_numpy(rng.integers(c, size=(1, n)))
    return CrossEntropy(X, torch.nn.functional.one_hot(labels, c).to(D))


def start(rng: np.random.Generator) -> dict[str, Tensor]:
    return MAGNITUDE_DIRECTION.init(torch.from_numpy(rng.standard_normal((1, 3, 4))))


def test_cross_entropy_conserves_the_norm_and_moves_the_direction() -> None:
    rng = np.random.default_rng(0)
    run = gradient_flow(
        MAGNITUDE_DIRECTION, cross_entropy(rng), start(rng), torch.tensor([0.0, 5.0], dtype=D), rtol=1e-10, atol=1e-10
    )
    alpha = run.blocks["alpha"][0]
    assert float((alpha[1] - alpha[0]).norm()) > 0.1
    assert float(alpha[1].norm()) == pytest.approx(2.0, rel=1e-9)


def test_the_growth_under_descent_adds_up_over_many_steps() -> None:
    rng = np.random.default_rng(1)
    loss, eta, n = cross_entropy(rng), 0.1, 50
    run = descend(MAGNITUDE_DIRECTION, loss, start(rng), step=eta, n_steps=n)
    steps = [{name: x[:, k] for name, x in run.blocks.items()} for k in range(n)]
    added = sum(
        eta**2 * float(parameter_gradient(MAGNITUDE_DIRECTION, loss, blocks)["alpha"].square().sum())
        for blocks in steps
    )
    assert added > 1e-3
    square = run.invariants["|alpha|^2"][0]
    assert float(square[-1] - square[0]) == pytest.approx(added, rel=1e-10)


def test_at_standard_initialisation_the_spectrum_is_d_once_and_1() -> None:
    for d in (2, 5):
        S = operators.magnitude_direction(torch.ones(1, dtype=D), torch.ones(1, d, dtype=D))
        expected = torch.tensor([[1.0] * (d - 1) + [float(d)]], dtype=D)
        torch.testing.assert_close(torch.linalg.eigvalsh(S), expected, rtol=1e-13, atol=0)


def without_d(beta: Tensor, alpha: Tensor) -> Tensor:
    return CORRECT(beta, alpha) / alpha.shape[-1]


def true_only_at_unit_norm(beta: Tensor, alpha: Tensor) -> Tensor:
    return CORRECT(beta, torch.nn.functional.normalize(alpha, dim=-1) * alpha.shape[-1] ** 0.5)


def beta_to_the_first(beta: Tensor, alpha: Tensor) -> Tensor:
    return CORRECT(beta.abs().sqrt(), alpha)


@pytest.mark.parametrize("name", ["operator", "on-theta"])
@pytest.mark.parametrize("wrong", [without_d, true_only_at_unit_norm, beta_to_the_first])
def test_wrong_operators_are_refuted(
    name: str, wrong: Callable[[Tensor, Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "magnitude_direction", wrong)
    assert search(scope(f"magnitude-direction:{name}"), 200, np.random.default_rng(0)).counterexample is not None


def test_descent_leaves_the_norm_of_a_single_entry_alone() -> None:
    """For d = 1 the direction cannot move: the claim fails only from d = 2 on."""
    loss = cross_entropy(np.random.default_rng(2), d=1)
    blocks = MAGNITUDE_DIRECTION.init(torch.ones(1, 3, 1, dtype=D))
    run = descend(MAGNITUDE_DIRECTION, loss, blocks, step=0.1, n_steps=20)
    assert float(run.drift()["|alpha|^2"]) < 1e-14
