"""The closed form of the radius against a plain ODE solver, its inverse, its limits, and its door."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from scalevec_theory.radial import radius, remaining_distance, sharpness, time_to_radius


def tensor(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


@pytest.mark.parametrize("R", [1e-3, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("h", [0.2, 3.0])
def test_radius_solves_the_equation(R: float, h: float) -> None:
    times = np.array([0.0, 0.01, 0.3, 1.0, 3.0, 8.0]) / (h * np.sqrt(1 + 4 * R * R))
    solved = solve_ivp(
        lambda t, r: h * np.sqrt(1 + 4 * r * r) * (R - r),
        (0, times[-1]),
        [0.0],
        method="DOP853",
        t_eval=times,
        rtol=1e-12,
        atol=1e-13 * R,
    )
    np.testing.assert_allclose(radius(tensor(times), tensor(h), tensor(R)), solved.y[0], rtol=0, atol=1e-11 * R)


def test_time_to_radius_is_the_inverse() -> None:
    h, R = tensor([0.3, 1.0, 2.0]), tensor([1e-3, 0.8, 6.0])
    t = tensor([0.0, 1e-3, 0.1, 1.0, 12.0])[:, None] / sharpness(h, R)
    back = time_to_radius(radius(t, h, R), h, R)
    assert back.shape == (5, 3)
    # dt = dr / (h S (R − r)): rounding of r, relative to R, is stretched by R/(R − r).
    stretch = R / (remaining_distance(t, h, R) * sharpness(h, R))
    assert bool(((back - t).abs() <= 1e-14 * (1 + stretch)).all())


def test_late_and_small_limits() -> None:
    """(R − r) e^{hSt} → S² tanh(arcsinh(2R)/2); and for small R the column moves as without a scale."""
    h, R = tensor(0.7), tensor([0.2, 1.0, 4.0])
    t = 300 / sharpness(h, R)
    limit = (1 + 4 * R * R) * torch.tanh(torch.asinh(2 * R) / 2)
    torch.testing.assert_close(remaining_distance(t, h, R) * np.exp(300.0), limit, rtol=1e-11, atol=0)
    t, small = tensor([0.1, 1.0, 10.0]), tensor(1e-7)
    torch.testing.assert_close(radius(t, h, small), small * -torch.expm1(-h * t), rtol=1e-12, atol=0)


def test_no_target_no_motion() -> None:
    t, h, R = tensor([0.0, 1.0, 1e3]), tensor(1.0), tensor(0.0)
    assert radius(t, h, R).tolist() == remaining_distance(t, h, R).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: radius(tensor(-1.0), tensor(1.0), tensor(1.0)), r"t=-1\.0: expected"),
        (lambda: radius(tensor([0.0, 1.0]), tensor([1.0, 0.0]), tensor(1.0)), r"h=0\.0: expected"),
        (lambda: radius(tensor(1.0), tensor(1.0), tensor(np.inf)), r"R=inf: expected"),
        (lambda: radius(tensor(np.nan), tensor(1.0), tensor(1.0)), r"t=nan: expected"),
        (lambda: time_to_radius(tensor(1.0), tensor(1.0), tensor(1.0)), r"r=1\.0: expected"),
        (lambda: time_to_radius(tensor(0.0), tensor(-2.0), tensor(1.0)), r"h=-2\.0: expected"),
        (lambda: time_to_radius(tensor(0.0), tensor(2.0), tensor(0.0)), r"R=0\.0: expected"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
