"""The scale read off the weights, Σα under other optimisers and losses, and wrong formulas told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sympy import Rational
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.descent import descend
from scalevec_theory.flow import Trajectory, gradient_flow
from scalevec_theory.losses import CrossEntropy, LeastSquares
from scalevec_theory.parametrizations import EXPONENTIAL, exponential_scale
from scalevec_theory.problems import Problems
from scalevec_theory.proof import inner
from scalevec_theory.registry import scope
from scalevec_theory.search import search
from scalevec_theory.theorems import exponential
from scalevec_theory.theorems.exponential import dbeta, dlog, prove_positive, share
from scalevec_theory.theorems.magnitude_direction import early_flow

D = torch.float64


def squares(seed: int, c: int, d: int) -> LeastSquares:
    rng = np.random.default_rng(seed)
    A = torch.from_numpy(rng.standard_normal((1, d, d)))
    return LeastSquares(A @ A.mT, torch.from_numpy(rng.standard_normal((1, c, d))))


def test_from_standard_initialisation_the_scale_is_read_off_the_weights() -> None:
    """log v_j = ½‖w_j‖² + ½(1 − 1/d)‖W‖² with another loss, over a time in which v doubles."""
    rng = np.random.default_rng(0)
    X, d = torch.from_numpy(rng.standard_normal((1, 6, 4))), 4
    Y = torch.nn.functional.one_hot(torch.from_numpy(rng.integers(3, size=(1, 6))), 3).to(D)
    blocks = EXPONENTIAL.init(torch.zeros(1, 3, d, dtype=D))
    times = torch.tensor([0.0, 1.0, 8.0], dtype=D)
    run = gradient_flow(EXPONENTIAL, CrossEntropy(X, Y), blocks, times, rtol=1e-10, atol=1e-10)
    v, W = exponential_scale(run.blocks["beta"], run.blocks["alpha"]), run.blocks["W"]
    columns = W.square().sum(-2)
    stated = torch.exp(columns / 2 + (1 - 1 / d) * columns.sum(-1, keepdim=True) / 2)
    torch.testing.assert_close(v, stated, rtol=1e-8, atol=0)
    assert float(v.min()) >= 1
    assert float(v.max()) > 2


@pytest.mark.parametrize(
    ("optimizer", "d", "kept"), [("gd", 3, True), ("heavy-ball", 3, True), ("adam", 3, False), ("adam", 2, True)]
)
def test_which_optimisers_conserve_the_sum(optimizer: str, d: int, kept: bool) -> None:
    """Adam divides each gradient by its own size; for d = 2 the two are opposite, so it conserves the sum too."""
    blocks = EXPONENTIAL.init(0.5 * torch.ones(1, 2, d, dtype=D))
    run = descend(EXPONENTIAL, squares(1, 2, d), blocks, optimizer=optimizer, step=0.01, n_steps=50)  # type: ignore[arg-type]
    moved = float(run.blocks["alpha"].abs().max())
    drift = float(run.drift()["sum(alpha)"])
    assert moved > 1e-2
    assert drift < 1e-13 if kept else drift > 1e-3


def test_positivity_bound_is_not_slack_by_much() -> None:
    """With d = 1 and a large w, most of the speed is in log v, and the bound √(t L(0)) is half attained."""
    blocks = {
        "beta": torch.zeros(1, dtype=D),
        "alpha": torch.zeros(1, 1, dtype=D),
        "W": torch.full((1, 1, 1), 30.0, dtype=D),
    }
    loss = LeastSquares(torch.ones(1, 1, 1, dtype=D), torch.zeros(1, 1, 1, dtype=D))
    t = torch.tensor([1.0 / 30**4, 1.0 / 30**2], dtype=D)
    run = gradient_flow(EXPONENTIAL, loss, blocks, t, rtol=1e-10, atol=1e-10)
    moved = run.blocks["beta"][0].abs()
    bound = (t * 0.5 * 30.0**2).sqrt()
    assert bool((moved < bound).all())
    assert float((moved / bound).max()) > 0.5


def wrong_mean(d: int, like: Tensor) -> Tensor:
    return torch.eye(d, dtype=like.dtype) + 1.0


def no_speed_up(d: int, like: Tensor) -> Tensor:
    return torch.eye(d, dtype=like.dtype)


@pytest.mark.parametrize("name", ["operator", "on-theta"])
@pytest.mark.parametrize("wrong", [wrong_mean, no_speed_up])
def test_wrong_operators_are_refuted(name: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "exponential", wrong)
    assert search(scope(f"exponential:{name}"), 200, np.random.default_rng(0)).counterexample is not None


def test_the_bound_on_the_scale_is_the_one_stated_and_is_attained_in_its_proof() -> None:
    """At dα = dβ r Cauchy–Schwarz is an equality, and so is (d log v)² ≤ (2 − 1/d)(dβ² + ‖dα‖²)."""
    (lemma,) = prove_positive().lemmas
    half = Rational(1, 2)
    attained = {share: half, dbeta: 1, inner("dα", "dα"): half, dlog: 1 + half}
    assert lemma.goal.lhs.subs(attained) == lemma.goal.rhs.subs(attained)
    positivity = scope("exponential:positivity")
    fields = {"H": [[1, 0], [0, 1]], "T": [[0.1, 0.1]], "beta": 0, "alpha": [0, 0], "W": [[2, 1]]}
    assert positivity.space is not None
    run = early_flow(EXPONENTIAL, positivity.space.problem(fields), 1e-7)
    log_v = exponential_scale(run.blocks["beta"], run.blocks["alpha"])[0].log()
    fallen = -log_v[1:].amin(-1) / ((2 - 1 / 2) * run.times[0, 1:] * run.loss[0, 0]).sqrt()
    assert positivity.evaluate(**fields) == pytest.approx(1 - float(fallen.max()), abs=1e-6)


def test_where_v_is_1_the_operator_moves_v_itself() -> None:
    """The scope that fails is stated with the right operator: it holds where d log v = dv."""
    assert scope("exponential:operator-on-v").evaluate(beta=0, alpha=[0, 0], m=[1, -3]) > 0


def test_a_sum_that_drifts_by_one_part_in_ten_thousand_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def drifting(parametrization: object, problems: Problems, accuracy: float) -> Trajectory:
        run = early_flow(EXPONENTIAL, problems, accuracy)
        alpha = run.blocks["alpha"].clone()
        alpha[:, -1] += 1e-4
        return replace(run, blocks={**run.blocks, "alpha": alpha})

    monkeypatch.setattr(exponential, "early_flow", drifting)
    fields = {"H": [[1, 0], [0, 1]], "T": [[1, 1]], "beta": 0, "alpha": [0, 0], "W": [[2, 1]]}
    assert scope("exponential:sum-conserved").evaluate(**fields) < 0
