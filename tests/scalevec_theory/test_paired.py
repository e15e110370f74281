"""Paired measurements against loops and statistics by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scalevec_theory.claim import Setting
from scalevec_theory.descent import descend
from scalevec_theory.losses import LeastSquares
from scalevec_theory.paired import agreement, best_area, loss_area, paired
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN

SETTING = Setting("quick", 0, np.random.default_rng(0))


def problems(n: int) -> LeastSquares:
    T = torch.from_numpy(np.random.default_rng(1).standard_normal((n, 2, 2)))
    return LeastSquares(torch.diag(torch.tensor([1.0, 0.3], dtype=T.dtype)).expand(n, 2, 2), T)


def test_area_of_a_geometric_descent() -> None:
    """One entry, H = 1, step ½: L/L(0) = 4^{-k} at k = 0, 1, 2."""
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    run = descend(PLAIN, LeastSquares(one, one), {"W": 0 * one}, step=0.5, n_steps=2)
    assert loss_area(run).item() == pytest.approx((1 + 1 / 4 + 1 / 16) / 3)


def test_each_problem_gets_its_own_best_step() -> None:
    loss, steps = problems(6), torch.tensor([0.05, 0.2, 0.5, 1.0, 8.0], dtype=torch.float64)
    start = INPUT_SCALE.init(torch.zeros_like(loss.T))
    area = best_area(INPUT_SCALE, loss, start, steps, n_steps=10)
    for i in range(6):
        index = torch.tensor([i])
        one = {name: block[index] for name, block in start.items()}
        runs = [descend(INPUT_SCALE, loss.select(index), one, step=float(s), n_steps=10) for s in steps]
        areas = [loss_area(r).item() for r in runs]
        assert area[i].item() == pytest.approx(min(a for a in areas if math.isfinite(a)))
    assert (
        area < best_area(INPUT_SCALE, loss, start, torch.tensor([0.04, 0.05, 0.06]), n_steps=10).nan_to_num(2)
    ).all()


def test_a_best_step_at_the_end_of_the_grid_is_not_a_number() -> None:
    loss = problems(3)
    start = PLAIN.init(torch.zeros_like(loss.T))
    assert best_area(PLAIN, loss, start, torch.tensor([0.01, 0.02, 0.03]), n_steps=5).isnan().all()
    with pytest.raises(ValueError, match="K >= 3"):
        best_area(PLAIN, loss, start, torch.tensor([0.01, 0.02]), n_steps=5)


def test_mean_and_standard_error() -> None:
    evidence = paired(torch.tensor([1.0, 2.0, 3.0, 6.0]), SETTING, "a:b", "detail")
    assert (evidence.margin, evidence.instances) == (3.0, 4)
    assert evidence.stderr == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4))
    assert evidence.supports is None and evidence.counterexample is None


def test_a_negative_mean_comes_with_the_code_that_shows_it() -> None:
    evidence = paired(-torch.tensor([1.0, 1.1, 0.9]), SETTING, "heterogeneity-gain:adam-moved", "detail")
    assert evidence.supports is False and evidence.counterexample is not None
    assert "effort='quick', seed=0)" in evidence.counterexample.code
    exec(evidence.counterexample.code, {})
    with pytest.raises(AssertionError):
        exec(evidence.counterexample.code.replace("adam-moved", "adam-conflict"), {})


def test_the_code_serves_a_scope_with_several_measurements_and_a_proof() -> None:
    code = paired(torch.tensor([-1.0, -1.1]), SETTING, "growth-test:slow-relaxation", "detail").counterexample.code  # type: ignore[union-attr]
    exec(code, {})
    for holding in ("growth-test:ornstein-uhlenbeck", "law-of-balance:one-output"):  # two measurements; one and a proof
        with pytest.raises(AssertionError):
            exec(code.replace("growth-test:slow-relaxation", holding), {})


def test_a_failed_run_leaves_the_mean_undecided() -> None:
    evidence = paired(torch.tensor([1.0, 1.1, math.nan]), SETTING, "a:b", "detail")
    assert evidence.supports is None and evidence.margin is not None and math.isnan(evidence.margin)


def test_agreement_counts_the_worst_of_several_numbers() -> None:
    ratio = torch.tensor([[1.0, 1.10], [1.0, 1.12], [1.0, 1.11]])
    evidence = agreement(ratio, 0.2, SETTING, "a:b", "detail")
    assert evidence.margin == pytest.approx(0.09) and evidence.stderr == pytest.approx(0.01 / math.sqrt(3))
    assert evidence.supports is True and evidence.instances == 6
    below = agreement(2 - ratio, 0.05, SETTING, "a:b", "detail")
    assert below.supports is False and below.margin == pytest.approx(-0.06) and below.counterexample is not None


def test_agreement_with_a_failed_run_is_undecided() -> None:
    evidence = agreement(torch.tensor([[1.0, 1.0], [1.0, math.nan]]), 0.2, SETTING, "a:b", "detail")
    assert evidence.supports is None
