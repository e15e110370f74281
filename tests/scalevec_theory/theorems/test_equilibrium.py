"""The identity behind matched betas, and mutated laws that the measurements must reject."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from scalevec_theory import linear_updates
from scalevec_theory.check import check_scope
from scalevec_theory.claim import Setting, Verdict
from scalevec_theory.optimizers import AdamW
from scalevec_theory.theorems import equilibrium as theorem
from scalevec_theory.theorems import rotational_equilibrium as rotation
from scalevec_theory.walks_at_rest import rms_at_rest, walk_at_rest


def _scope(claim, name):  # type: ignore[no-untyped-def]
    return next(s for s in claim.scopes if s.name == name)


def test_matched_betas_by_hand_for_two_steps() -> None:
    """β₁ = ½, β₂ = ¼: u_2 = ((g_1/2 + g_2)/1.5) / √((g_1²/4 + g_2²)/1.25), whose mean square over signs is 5/9."""
    for g in ([3.0, 1.0], [0.1, 7.0]):
        u = [(s * g[0] / 2 + g[1]) / 1.5 / ((g[0] ** 2 / 4 + g[1] ** 2) / 1.25) ** 0.5 for s in (-1, 1)]
        assert np.mean(np.square(u)) == pytest.approx(5 / 9)
        got = theorem._last_update(torch.tensor([[-g[0], g[0]], [g[1], g[1]]], dtype=torch.float64), 0.5)
        np.testing.assert_allclose(got, u, rtol=1e-12)


def test_a_wrong_first_order_term_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the term of a gradient's own square AdamW's E[w²] is 10% too large at (0, 0.95)."""
    right = linear_updates.linear_updates

    def mutated(*arguments):  # type: ignore[no-untyped-def]
        updates = right(*arguments)
        readout = updates.readout.copy()
        readout[:, 1] = 0
        return dataclasses.replace(updates, readout=readout)

    monkeypatch.setattr(linear_updates, "linear_updates", mutated)
    result = check_scope(theorem.claim, _scope(theorem.claim, "adamw"))
    assert result.verdict == Verdict.REFUTED


def test_independent_updates_are_refuted_for_lion_and_its_law_is_not() -> None:
    claim = theorem.claim
    assert check_scope(claim, _scope(claim, "lion-as-adamw")).verdict == Verdict.REFUTED


def test_a_measured_margin_comes_with_code_that_measures_it_again() -> None:
    found = check_scope(theorem.claim, _scope(theorem.claim, "adamw-epsilon"), seed=4).counterexample
    assert found is not None
    exec(found.code, {})  # asserts that the margin is negative


def test_the_quartic_law_is_the_one_measured() -> None:
    setting = Setting("quick", 0, np.random.default_rng(0))
    (evidence,) = rotation.measure_root_law(setting)
    assert evidence.supports is False
    assert "is 2.0" in evidence.detail or "is 1.9" in evidence.detail


def test_an_rms_is_decided_at_three_standard_errors() -> None:
    setting = Setting("quick", 0, np.random.default_rng(1))
    optimizer = AdamW(0.5, 0.2)
    walk = walk_at_rest(optimizer, setting, 64 * 500)
    truth = float(walk.squares.mean())
    assert rms_at_rest("a:b", optimizer, truth, 0.02, setting, walk).supports is True
    assert rms_at_rest("a:b", optimizer, 1.2 * truth, 0.02, setting, walk).supports is False
    assert rms_at_rest("a:b", optimizer, 1.04 * truth, 0.02, setting, walk).supports is None
