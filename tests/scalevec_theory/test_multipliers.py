"""Multipliers: gradients by finite differences, signal-to-noise by drawing noise, laws complete, width by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from scalevec_theory import scopes
from scalevec_theory.laws import find_laws
from scalevec_theory.multipliers import (
    MULTIPLIERS,
    equilibrium_rms,
    gradients,
    projector_multiplier,
    projector_slope,
    snr,
    snr_gain,
)


def test_gradients_agree_with_finite_differences_entry_by_entry() -> None:
    rng = np.random.default_rng(0)
    blocks = {n: rng.standard_normal(s) for n, s in {"s": (), "r": (2,), "k": (3,), "W": (2, 3)}.items()}
    A = rng.standard_normal((2, 3))

    def loss(b: dict[str, np.ndarray]) -> float:
        theta = [[b["s"] * b["r"][i] * b["W"][i, j] * b["k"][j] for j in range(3)] for i in range(2)]
        return float(np.sum(A * np.sin(theta)))

    theta = blocks["s"] * blocks["r"][:, None] * blocks["W"] * blocks["k"]
    claimed = gradients(A * np.cos(theta), **blocks)
    for name, x in blocks.items():
        for index in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[index] = 1e-5
            slope = (loss({**blocks, name: x + step}) - loss({**blocks, name: x - step})) / 2e-5
            assert claimed[name][index] == pytest.approx(slope, rel=1e-7, abs=1e-8)


def test_its_laws_are_all_there_are() -> None:
    laws = find_laws(MULTIPLIERS, dims={"c": 2, "d": 2})
    assert laws.complete and laws.independent == 5
    ones = {name: np.ones((1, *shape)) for name, shape in MULTIPLIERS.shapes(c=2, d=2).items()}
    assert sum(np.size(law) for law in MULTIPLIERS.invariants(**ones).values()) == 5


def test_conserved_scopes_take_scalar_blocks() -> None:
    scope = scopes.conserved(MULTIPLIERS, lambda b: MULTIPLIERS.invariants(**b)["s^2-|W|^2"])
    fields = {"H": [[1.0]], "T": [[2.0]], "s": 0.5, "r": [1.5], "k": [1.0], "W": [[0.3]]}
    assert scope.evaluate(**fields) > 0
    wrong = scopes.conserved(MULTIPLIERS, lambda b: b["s"] ** 2)
    assert wrong.evaluate(**fields) < 0


def test_snr_is_that_of_drawn_noise() -> None:
    rng = np.random.default_rng(1)
    root = rng.standard_normal((4, 4))
    w, mu = rng.standard_normal(4), rng.standard_normal(4)
    noise = rng.standard_normal((400_000, 4)) @ root.T
    drawn = abs(w @ mu) / (noise @ w).std()
    ours = snr(*(torch.from_numpy(x) for x in (w, mu, root @ root.T)))
    assert float(ours) == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize(
    ("n", "alignment", "rho", "gain"), [(16, 1, 0, 4), (16, 0.25, 0, 1), (10, 1, 1, 1), (3, 1, 0.5, 1.5**0.5)]
)
def test_gain_by_hand(n: int, alignment: float, rho: float, gain: float) -> None:
    assert float(snr_gain(n, alignment, rho)) == pytest.approx(gain)


def test_gain_saturates_at_one_over_the_root_of_the_correlation() -> None:
    assert float(snr_gain(1e12, 1.0, 0.01)) == pytest.approx(10, rel=1e-6)


@pytest.mark.parametrize(("arguments", "name"), [((0.5, 1.0), "n="), ((4, 1.0, 1.5), "correlation=")])
def test_gain_refuses_what_it_cannot_mean(arguments: tuple[float, ...], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        snr_gain(*arguments)


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        (((3,), (4,), (3, 3)), r"signal has shape \(4,\): expected \(..., 3\)"),
        (((3,), (3,), (3,)), r"covariance has shape \(3,\): expected \(..., 3, 3\)"),
        (((), (), ()), r"signal has shape \(\): expected \(..., 0\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes: tuple[tuple[int, ...], ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        snr(*(torch.ones(shape) for shape in shapes))


@pytest.mark.parametrize(("step", "decay"), [(0.1, 0.0), (0.1, -1.0), (float("nan"), 0.1)])
def test_rest_needs_a_step_and_a_decay(step: float, decay: float) -> None:
    with pytest.raises(ValueError, match=f"step={step}, decay={decay}: expected both > 0"):
        equilibrium_rms(step, decay)


def test_projector_multiplier_by_hand() -> None:
    """4 entries of 1 add up to 4; 4 of noise 1 to rms 2."""
    four = torch.tensor([4.0], dtype=torch.float64)
    assert projector_multiplier(8.0, four, 1.0, 0.0).item() == 2
    assert projector_multiplier(8.0, four, 0.0, 1.0).item() == 4
    assert projector_slope(four, 1.0, 0.0).item() == -1
    assert projector_slope(four, 0.0, 1.0).item() == -0.5
    assert projector_slope(four, 0.5, 1.0).item() == -0.75


def test_equilibrium_rms_of_the_usual_recipe() -> None:
    assert equilibrium_rms(3e-3, 0.1) == pytest.approx(math.sqrt(0.015))
