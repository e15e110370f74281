"""The four arms: their problems, their scores against single descents, and the arithmetic of the gains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalevec_theory.descent import descend
from scalevec_theory.losses import LeastSquares
from scalevec_theory.paired import loss_area
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN
from scalevec_theory.theorems import complementarity as four


def test_problems_have_the_stated_spectrum() -> None:
    loss = four.problems(np.random.default_rng(0), 50)
    eigenvalues = torch.linalg.eigvalsh(loss.H)
    torch.testing.assert_close(eigenvalues[:, -1], torch.ones(50, dtype=torch.float64))
    assert eigenvalues.min() >= 0.1 - 1e-12
    assert (loss.H[:, 0, 1].abs() > 1e-3).any()


def test_every_arm_is_the_best_of_its_own_descents() -> None:
    loss = four.problems(np.random.default_rng(1), 2)
    arms = four.scores(loss, 0.9)
    for name, model, optimizer in (("scaled-adam", INPUT_SCALE, "adam"), ("plain-gd", PLAIN, "gd")):
        start, areas = model.init(torch.zeros_like(loss.T)), []
        for step in four.STEPS:
            run = descend(
                model, loss, start, optimizer=optimizer, step=float(step), n_steps=four.N_STEPS, betas=(0.9, 0.95)
            )
            areas.append(loss_area(run).nan_to_num(torch.inf))
        torch.testing.assert_close(arms[name], torch.stack(areas).amin(0).log())


def test_gradient_descent_at_its_best_step_by_hand() -> None:
    """H = I: the step 1 arrives at once in every model, so the mean L/L(0) is 1/101 and the scale gains nothing."""
    T = torch.ones(1, 2, 4, dtype=torch.float64)
    arms = four.scores(LeastSquares(torch.eye(4, dtype=torch.float64)[None], T), 0.9)
    assert arms["plain-gd"].exp().item() == pytest.approx(1 / 101)
    assert four.gd_gain(arms).item() == pytest.approx(0, abs=1e-12)


def test_gains_and_synergy_by_hand() -> None:
    """Scores are to be small: gains 1 (scale), 2 (Adam), 6 (both) leave a synergy of 3."""
    scores = {"plain-gd": 0.0, "scaled-gd": -1.0, "plain-adam": -2.0, "scaled-adam": -6.0}
    arms = {name: torch.tensor([score]) for name, score in scores.items()}
    gains = [f(arms).item() for f in (four.gd_gain, four.adam_gain, four.joint_gain, four.synergy)]
    assert gains == [1, 4, 6, 3]
