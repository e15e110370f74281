"""The phase diagram: cells against theory.md's simulated figures, and the claim's own helpers."""

from __future__ import annotations

import numpy as np
import pytest

from scalevec_theory import phase
from scalevec_theory.claim import Setting
from scalevec_theory.growth import growth
from scalevec_theory.theorems.curvature import claim
from scalevec_theory.theorems.optimizer_curvature import rest, trace_growth


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
    again = phase.simulate(noise, 2, "none", paths=64, seed=3)
    np.testing.assert_array_equal(cell.means, again.means)


def test_a_cell_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="decays='w': expected one of none, v, W, both"):
        phase.expected("isotropic", 2, "w")
    with pytest.raises(ValueError, match="noise='minibach': did you mean minibatch"):
        phase.simulate("minibach", 2, "W", paths=4, seed=0)


def test_a_cell_beyond_the_stable_range_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps too long for the paths that grow do not blow up, they hold the curvature: no verdict."""
    monkeypatch.setitem(phase.DT, "isotropic", 0.01)
    cell = phase.simulate("isotropic", 8, "none", paths=8, seed=0)
    assert np.isnan(cell.means).any()
    assert cell.growth.answer == "undecided"
    scope = next(s for s in claim.scopes if s.name == "minibatch-diverges")
    monkeypatch.setattr(phase, "simulate", lambda *a, **k: cell)
    assert scope.measure is not None
    (evidence,) = scope.measure(Setting("quick", 0, np.random.default_rng(0)))
    assert evidence.supports is None and evidence.counterexample is None


def test_growth_of_an_optimizer_depends_on_where_it_starts() -> None:
    """AdamW without decay moves away from v = 1 and stays at the law's point of rest."""
    steps, near = trace_growth("adamw", 16, {"none": 1.0}, paths=2, seed=1, steps=1000)
    _, far = trace_growth("adamw", 16, {"none": rest("adamw", 16, "none")}, paths=2, seed=1, steps=1000)
    assert growth(steps, near["none"]).answer == "growing"
    assert growth(steps, far["none"]).answer == "bounded"
