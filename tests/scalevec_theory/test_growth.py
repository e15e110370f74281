"""The test of bounded against growing expectations, on means whose slope is known."""

from __future__ import annotations

import numpy as np
import pytest

from scalevec_theory.growth import LEAST_SLOPE, Growth, growth

TIMES = np.geomspace(16, 128, 20)


def means(slope: float, noise: float, seed: int = 0) -> np.ndarray:
    return TIMES**slope * (1 + noise * np.random.default_rng(seed).standard_normal((16, len(TIMES))))


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0, -0.3])
def test_slope_of_an_exact_power(slope: float) -> None:
    found = growth(TIMES, means(slope, 0.0))
    assert found.slope == pytest.approx(slope, abs=1e-12)
    assert found.stderr == pytest.approx(0, abs=1e-12)


def test_only_the_last_octaves_count() -> None:
    times = np.concatenate([np.geomspace(0.1, 1, 5), TIMES])
    early = np.concatenate([1e6 * np.ones((16, 5)), means(0.5, 0.0)], 1)
    assert growth(times, early).slope == pytest.approx(0.5, abs=1e-12)


def test_standard_error_is_that_of_repeated_experiments() -> None:
    found = [growth(TIMES, means(0.2, 0.1, seed)) for seed in range(300)]
    spread = np.std([g.slope for g in found])
    assert np.mean([g.stderr for g in found]) == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize(
    ("slope", "answer"),
    [(LEAST_SLOPE + 0.031, "growing"), (LEAST_SLOPE + 0.029, "undecided"), (LEAST_SLOPE - 0.031, "bounded")],
)
def test_three_standard_errors_decide(slope: float, answer: str) -> None:
    assert Growth(slope, 0.01).answer == answer


@pytest.mark.parametrize(("share", "answer"), [(17, "bounded"), (16, "growing"), (-2, "bounded")])
def test_the_slowest_relaxation_it_sees_through(share: float, answer: str) -> None:
    """From below with a time of T/17 and T/16, and from above with T/2; the noise decides nothing."""
    relaxing = 1 - np.sign(share) * np.exp(-np.geomspace(16, 128, 64) * abs(share) / 128)
    noise = 1 + 1e-4 * np.random.default_rng(0).standard_normal((16, 64))
    assert growth(np.geomspace(16, 128, 64), relaxing * noise).answer == answer


def test_means_that_are_not_finite_decide_nothing() -> None:
    broken = means(0.0, 0.1)
    broken[3, -1] = np.nan
    assert growth(TIMES, broken).answer == "undecided"


@pytest.mark.parametrize(
    ("times", "shape", "message"),
    [
        (TIMES, (7, 20), "expected \\(G, K\\) with G >= 8"),
        (TIMES[::-1], (16, 20), "expected increasing"),
        (np.array([1.0, 2.0, 100.0]), (16, 3), "expected at least 3 from 12.5 on"),
    ],
)
def test_bad_input_is_named(times: np.ndarray, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        growth(times, np.ones(shape))
