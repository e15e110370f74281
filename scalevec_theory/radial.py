"""Gradient flow of one column towards its target in closed form: uncorrelated inputs, squared loss, W(0) = 0, v = 1.

Column j stays on the ray of its target T_j, and with R = ‖T_j‖, h = H_jj its radius r obeys ṙ = h √(1 + 4r²) (R − r).
With r = sinh(s)/2 and R = sinh(S)/2 this is ṡ = 2h cosh((S + s)/2) sinh((S − s)/2), hence

    cosh(S) h t = ln[cosh((S + s)/2) / sinh((S − s)/2)] − ln coth(S/2).

Source: arXiv 2605.26895 (the theory of input-side scale vectors under gradient flow).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

CONTRACTIONS = 36
"""3^−36 is below float64 rounding."""


def sharpness(h: Tensor, R: Tensor) -> Tensor:
    """h √(1 + 4R²): the curvature along the ray at its end, which is also the final rate of approach; any shape."""
    return h * torch.sqrt(1 + 4 * R * R)


def _log_cosh(x: Tensor) -> Tensor:
    return x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - math.log(2)


def _log_sinh(x: Tensor) -> Tensor:
    """ln sinh x for x > 0."""
    return x + torch.log(-torch.expm1(-2 * x)) - math.log(2)


def _check(name: str, value: Tensor, good: Tensor, expected: str) -> None:
    if not bool(good.all()):
        bad = torch.broadcast_to(value, good.shape)[~good].flatten()[0].item()
        raise ValueError(f"{name}={bad}: expected {expected}")


def time_to_radius(r: Tensor, h: Tensor, R: Tensor) -> Tensor:
    """The time at which the radius is ``r``; arguments broadcast.

    Raises
    ------
    ValueError : h is not positive and finite, R is not positive and finite, or r is not in [0, R).
    """
    _check("h", h, (h > 0) & h.isfinite(), "a finite number > 0")
    _check("R", R, (R > 0) & R.isfinite(), "a finite number > 0")
    _check("r", r, (r >= 0) & (r < R), "0 <= r < R")
    s, S = torch.asinh(2 * r), torch.asinh(2 * R)
    travelled = _log_cosh((S + s) / 2) - _log_sinh((S - s) / 2) - _log_cosh(S / 2) + _log_sinh(S / 2)
    return travelled / sharpness(h, R)


def remaining_distance(t: Tensor, h: Tensor, R: Tensor) -> Tensor:
    """R − r at time ``t``, to relative rounding accuracy however late; arguments broadcast.

    Solves for y = ln sinh((S − s)/2).  The closed form falls in y with a slope between −2 and −1, so a step with slope
    −3/2 shrinks the error at least threefold from wherever it starts.

    Raises
    ------
    ValueError : t is negative, h is not positive, R is negative, or any of them is not finite.
    """
    _check("t", t, (t >= 0) & t.isfinite(), "a finite number >= 0")
    _check("h", h, (h > 0) & h.isfinite(), "a finite number > 0")
    _check("R", R, (R >= 0) & R.isfinite(), "a finite number >= 0")
    t, h, R = torch.broadcast_tensors(t, h, R)
    S = torch.asinh(2 * torch.where(R > 0, R, torch.ones_like(R)))
    level = sharpness(h, R) * t + _log_cosh(S / 2) - _log_sinh(S / 2)
    y = _log_sinh(S / 2)
    for _ in range(CONTRACTIONS):
        y = y + (_log_cosh(S - torch.asinh(torch.exp(y))) - y - level) / 1.5
    distance = torch.exp(_log_cosh(S - torch.asinh(torch.exp(y))) + y)
    return torch.where(R > 0, distance, torch.zeros_like(R))


def radius(t: Tensor, h: Tensor, R: Tensor) -> Tensor:
    """r at time ``t``, to rounding accuracy relative to R; arguments broadcast.  Raises as `remaining_distance`."""
    return (R - remaining_distance(t, h, R)).clamp_min(0)
