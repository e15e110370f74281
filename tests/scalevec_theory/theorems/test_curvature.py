"""The phase diagram: cells against theory.md's simulated figures, and the claim's own helpers."""

from __future__ import annotations

import numpy as np
import pytest

from scalevec_theory import phase
from scalevec_theory.theorems import optimizer_curvature


def test_theory_of_the_cells() -> None:
    assert [phase.expected("isotropic", c, "W") for c in phase.OUTPUTS] == [
        "t/ln t",
        "√t",
        "ln t",
        "bounded",
        "bounded",
    ]
    assert {phase.expected("isotropic", c, d) for c in (2, 8) for d in ("none", "v")} == {"t"}
    assert {phase.expected("isotropic", c, "both") for c in phase.OUTPUTS} == {"bounded"}
    assert {phase.expected(n, c, d) for n in ("minibatch", "label") for c in (1, 8) for d in phase.DECAYS} == {
        "bounded"
    }


@pytest.mark.parametrize(("noise", "answer"), [("isotropic", "growing"), ("minibatch", "bounded")])
def test_a_cell_is_what_its_noise_makes_it(noise: str, answer: str) -> None:
    cell = phase.simulate(noise, 2, "none", paths=64, seed=3)
    assert cell.growth.answer == answer
    assert cell.lost == 0
    again = phase.simulate(noise, 2, "none", paths=64, seed=3)
    np.testing.assert_array_equal(cell.means, again.means)


def test_optimizers_that_normalise_need_decay() -> None:
    assert optimizer_curvature.expected("adamw", 16, "none") == "growing"
    assert optimizer_curvature.expected("adamw", 1, "none") == "bounded"
    assert optimizer_curvature.expected("adamw", 16, "W") == "bounded"
    assert optimizer_curvature.expected("adamw", 1, "W") == "growing"
    assert optimizer_curvature.expected("sgd", 16, "none") == "bounded"
