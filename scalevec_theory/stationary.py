"""Stationary law of one column (v, w) of θ = W diag(v) under independent noise on every parameter (Langevin).

dφ = −∇U dt + σ dB with U = ½‖v w − T‖² + ½λ_v v² + ½λ_W‖w‖², w and T in R^c, H = 1, R = ‖T‖; its only invariant measure
is exp(−2U/σ²) dv dw.  Integrating w out leaves, with s = v² + λ_W,

    density of v ∝ s^(−c/2) exp(−(λ_W R²/s + λ_v v²)/σ²),   E[‖w‖² | v] = cσ²/(2s) + v²R²/s².

Source: arXiv 2605.26895 (curvature under noise); the densities are derived here (claim ``curvature``).
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import quad


def exists(c: int, decay_v: float, decay_W: float) -> bool:
    """Whether the measure has finite mass: decay on W, and on v too or at least two outputs."""
    return decay_W > 0 and (decay_v > 0 or c >= 2)


def finite_second_moment(c: int, decay_v: float, decay_W: float) -> bool:
    """Whether E[v²] + E‖w‖² is finite under the stationary law: decay on both, or on W with at least four outputs."""
    return decay_W > 0 and (decay_v > 0 or c >= 4)


def second_moments(c: int, sigma: float, R: float, decay_v: float, decay_W: float) -> tuple[float, float]:
    """E[v²] and E‖w‖² by quadrature of the density; infinite where the law has no such moment.

    Raises
    ------
    ValueError : no stationary law exists, or a number is out of range.
    """
    if c < 1 or not sigma > 0 or not R >= 0:
        raise ValueError(f"c={c}, sigma={sigma}, R={R}: expected c >= 1, sigma > 0 and R >= 0")
    if not (decay_v >= 0 and decay_W >= 0):
        raise ValueError(f"decay_v={decay_v}, decay_W={decay_W}: expected both >= 0")
    if not exists(c, decay_v, decay_W):
        raise ValueError(f"c={c}, decay_v={decay_v}, decay_W={decay_W}: there is no stationary law")

    def density(v: float) -> float:
        s = v * v + decay_W
        return float(s ** (-c / 2) * np.exp(-(decay_W * R * R / s + decay_v * v * v) / sigma**2))

    def w_square(v: float) -> float:
        s = v * v + decay_W
        return float(c * sigma**2 / (2 * s) + (v * R / s) ** 2)

    def mean(f: object) -> float:
        near = quad(lambda v: f(v) * density(v), 0, 1, limit=400)[0]  # type: ignore[operator]
        return float(near + quad(lambda v: f(v) * density(v), 1, np.inf, limit=400)[0])  # type: ignore[operator]

    mass = mean(lambda v: 1.0)
    v_square = mean(lambda v: v * v) / mass if finite_second_moment(c, decay_v, decay_W) else float("inf")
    return v_square, mean(w_square) / mass
