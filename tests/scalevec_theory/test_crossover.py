"""The crossover: closed forms against the linear recursion iterated, the fixed point of a well, simulation by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scalevec_theory.crossover import departure, sign_departure, simulate, threshold, threshold_after, well

STEP, DECAY = 0.01, 0.05


def iterated(mean: float, variance: float, persistence: float | None = None) -> float:
    """E[w²] / (η/2λ) of w ← (1 − ηλ)w + ηu after many steps, moment by moment; persistent u = mean · z."""
    keep = 1 - STEP * DECAY
    first, second, cross = 0.0, 0.0, 0.0
    a = 1.0 if persistence is None else math.exp(-1 / persistence)
    for _ in range(60_000):
        if persistence is None:
            second = keep**2 * second + 2 * keep * STEP * mean * first + STEP**2 * (mean**2 + variance)
            first = keep * first + STEP * mean
        else:
            second = keep**2 * second + 2 * keep * STEP * mean * cross + STEP**2 * (mean**2 + variance)
            cross = a * (keep * cross + STEP * mean)
    return second / (STEP / (2 * DECAY))


@pytest.mark.parametrize("multiple", [0.0, 0.3, 1.0, 5.0, 100.0])
def test_departure_is_that_of_the_iterated_recursion(multiple: float) -> None:
    rho = multiple * threshold(STEP, DECAY)
    expected = iterated(rho / math.sqrt(1 + rho**2), 1 / (1 + rho**2))
    ours = departure(torch.tensor(rho, dtype=torch.float64), threshold(STEP, DECAY))
    assert float(ours) == pytest.approx(expected, rel=2 * STEP * DECAY)


@pytest.mark.parametrize("persistence", [50.0, 2000.0, 50_000.0])
def test_a_fluctuating_signal_doubles_at_its_own_threshold(persistence: float) -> None:
    rho = threshold(STEP, DECAY, persistence)
    expected = iterated(rho / math.sqrt(1 + rho**2), 1 / (1 + rho**2), persistence)
    assert expected == pytest.approx(2 / (1 + rho**2), rel=0.02)
    ours = departure(torch.tensor(rho, dtype=torch.float64), rho)
    assert float(ours) == pytest.approx(expected, rel=0.02)


def test_along_a_schedule_signal_and_noise_are_equal_at_the_crossover_of_every_step() -> None:
    """Warm-up, then a falling step; means and variances are drawn, not calculated."""
    steps = 0.02 * torch.cat([torch.linspace(0.2, 1, 5), torch.linspace(1, 0.1, 35)]).double()
    retain = 1 - 2 * steps
    found = threshold_after(steps, retain)
    noise = torch.randn(40, 200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w, mean = torch.zeros(200_000, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for k in range(40):
        w, mean = retain[k] * w + steps[k] * noise[k], retain[k] * mean + steps[k]
        assert float(w.std() / mean) == pytest.approx(float(found[k]), rel=0.01)
    constant = torch.full((20_000,), STEP, dtype=torch.float64)
    rest = threshold_after(constant, 1 - DECAY * constant)[-1]
    assert found[0] == 1 and float(rest) == pytest.approx(threshold(STEP, DECAY), rel=2 * STEP * DECAY)
    for wrong in ((steps, retain[1:]), (0 * steps, retain), (steps[:0], retain[:0])):
        with pytest.raises(ValueError, match=r"steps \(\d+,\), retain \(\d+,\): expected one length"):
            threshold_after(*wrong)


def test_sign_updates_by_counting() -> None:
    """The mean sign of 1 + N(0, 1)/ρ is drawn; E[w²] follows from the linear recursion."""
    rho = 0.3
    drawn = np.sign(rho + np.random.default_rng(0).standard_normal(4_000_000)).mean()
    expected = iterated(drawn, 1 - drawn**2)
    ours = sign_departure(torch.tensor(rho, dtype=torch.float64), STEP, DECAY)
    assert float(ours) == pytest.approx(expected, rel=0.01)


def test_sign_updates_need_a_larger_signal_by_the_root_of_half_pi() -> None:
    rho = torch.tensor(1e-3, dtype=torch.float64)
    adam, sign = departure(rho, threshold(1e-5, 1e-3)) - 1, sign_departure(rho, 1e-5, 1e-3) - 1
    assert float(adam / sign) == pytest.approx(math.pi / 2, rel=1e-3)


def test_well_solves_its_own_equations_and_halves_at_the_pull_of_decay() -> None:
    h = torch.tensor([0.01, 0.1, 3.0], dtype=torch.float64)
    target, noise = torch.tensor(2.0, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    found = well(h, target, noise, STEP, DECAY)
    S = h / found.gradient
    torch.testing.assert_close(DECAY * found.mean, S * (target - found.mean))
    v = noise**2 + h**2 * ((found.mean - target) ** 2 + found.variance)
    torch.testing.assert_close(found.gradient**2, v)
    weak = well(noise * DECAY, 1e-3 * target, noise, 1e-6, DECAY)
    assert float(weak.mean / (1e-3 * target)) == pytest.approx(0.5, rel=1e-3)


def test_simulation_averages_after_the_burn_in() -> None:
    """Plain SGD with gradient −1 and step 1: w is 1, 2, 3, 4; after a burn-in of 2 the means are of 3 and 4."""
    start = torch.zeros(1, dtype=torch.float64)
    mean, square = simulate(lambda p: torch.optim.SGD(p, lr=1.0), lambda w: -torch.ones_like(w), start, 2, 2)
    assert (mean.item(), square.item(), start.item()) == (3.5, 12.5, 0.0)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0.0, 0.1), "step=0"), ((0.1, 0.0), "decay=0"), ((2.0, 1.0), "step"), ((0.1, 0.1, 0.0), "persistence=0")],
)
def test_refuses_what_has_no_equilibrium(arguments: tuple[float, ...], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        threshold(*arguments)
