"""The scaling law: a law that is planted is found, and so is a planted compute multiplier, or none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from simulations.lm.contrast import estimated
from simulations.lm.experiment import Outcome
from simulations.lm.experiments import EXPERIMENTS
from simulations.lm.model import count_parameters
from simulations.lm.scaling import Scaling, compute_multiplier, fitted, interval, multiplier

COMPUTE = np.array([1e12, 4e12, 1.2e13, 5e13])
SCALING = EXPERIMENTS["scaling"]


def law(compute: np.ndarray) -> np.ndarray:
    return 1.2 + 0.9 * (compute / 1e13) ** -0.35


def planted(factor: float, noise: float, seed: int = 0, seeds: int = 8) -> Outcome:
    """Losses by the law, the improved arms as with ``factor`` times the compute; noise of the base and of the pair."""
    assert SCALING.scaling is not None
    runs = [SCALING.run(arm, 0, "full") for arm in SCALING.scaling.base]
    compute = np.array([float(r.tokens * r.architecture.width**2) for r in runs])
    unit = math.exp(np.log(compute).mean()) / 1e13
    rng = np.random.default_rng(seed)
    curves = {}
    for arms, c in ((SCALING.scaling.base, compute), (SCALING.scaling.improved, factor * compute)):
        for arm, loss in zip(arms, law(c / unit), strict=True):
            curves[arm] = {s: [5.0, loss + noise * rng.standard_normal()] for s in range(seeds)}
    return Outcome("scaling", "", "full", {arm: [0, 1] for arm in curves}, curves, 0, 0.0, {})


def test_a_law_that_is_there_is_found():
    limit, _, exponent = fitted(COMPUTE, law(COMPUTE))
    assert (limit, exponent) == pytest.approx((1.2, 0.35), rel=1e-4)


@pytest.mark.parametrize("factor", [1.0, 1.25, 0.5])
def test_the_multiplier_is_the_one_that_was_planted(factor):
    assert multiplier(COMPUTE, law(COMPUTE), law(factor * COMPUTE)) == pytest.approx(factor, rel=1e-3)


def test_a_loss_that_the_law_never_reaches_is_worth_any_compute():
    assert multiplier(COMPUTE, law(COMPUTE), np.full(4, 1.1)) == math.inf


def test_intervals_find_an_effect_and_none():
    found, none = (compute_multiplier(SCALING, planted(factor, 0.004), 40) for factor in (1.5, 1.0))
    assert 1.2 < found.low < found.value < found.high < 1.9
    assert none.low < 1 < none.high
    assert found.residual < 0.02 and np.ptp(found.law(found.compute)) > 0.2  # the law is the one that was planted
    noisy = compute_multiplier(SCALING, planted(1.5, 0.1), 30)
    assert noisy.high - noisy.low > 5 * (found.high - found.low)


def test_the_bootstrap_interval_of_a_mean_is_student_s():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=8)
    drawn = x[rng.integers(0, 8, (20_000, 8))].mean(1)
    low, high = interval(drawn.tolist(), 8)
    assert high - low == pytest.approx(estimated(x).high - estimated(x).low, rel=0.05)


def test_the_experiment_grows_compute_with_size():
    assert SCALING.scaling is not None
    for effort in ("standard", "full"):
        runs = [SCALING.run(arm, 0, effort) for arm in SCALING.scaling.base]
        others = [SCALING.run(arm, 0, effort) for arm in SCALING.scaling.improved]
        assert [r.tokens for r in runs] == [r.tokens for r in others] == sorted(r.tokens for r in runs)
        shares = [r.tokens / count_parameters(r.architecture) for r in runs]
        assert max(shares) < 1.1 * min(shares)
        assert {r.design for r in others} == {"HG+DNP+OR"}


def test_three_sizes_and_experiments_without_any_are_refused():
    with pytest.raises(ValueError, match="scaling: 3 and 3 sizes; expected four or more of each"):
        Scaling(("a", "b", "c"), ("d", "e", "f"))
    with pytest.raises(ValueError, match="scaling: expected an experiment that says which of its arms are sizes"):
        compute_multiplier(replace(SCALING, scaling=None), planted(1.0, 0.0))
