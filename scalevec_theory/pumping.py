"""How weight decay and noise move scale between v and W along the valley ‖v w‖ = R of one column.

AdamW moves a parameter by its gradient over the rms of its gradient.  Where noise ξ of strength σ on the gradient of
θ = v w dominates, v moves by ⟨w/ρ, ξ⟩/σ and w by ξ/σ per unit of learning rate, ρ = ‖w‖: by equal amounts along w, so
that z = v − ρ feels neither the noise along w nor the pull back to the valley.  What is left, per step, is

    dz/dt = η (λ_W ρ − λ_v v) − (c − 1) η²/(2ρ),

decay, and the outward drift of ρ that noise in the c − 1 directions across w causes.  The pull η g/σ that holds the
column against both keeps it at vρ = R − g, where

    g (v + ρ)/σ = (λ_v + λ_W) vρ − (c − 1) η v/(2ρ).

Source: ours (claim ``decay-pumping``), about weight decay of scale vectors in arXiv 2605.26895.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq


def on_valley(z: float, r: float) -> tuple[float, float]:
    """v and ρ with v − ρ = z and vρ = r."""
    root = math.sqrt(z * z + 4 * r)
    return (root + z) / 2, (root - z) / 2


def held(z: float, R: float, c: int, lr: float, decays: float, sigma: float) -> tuple[float, float]:
    """v and ρ at z where the pull balances decay and noise: the root of vρ = R − g."""

    def excess(r: float) -> float:
        v, rho = on_valley(z, r)
        return r - R + sigma * (decays * r - (c - 1) * lr * v / (2 * rho)) / (v + rho)

    return on_valley(z, float(brentq(excess, 1e-9 * R, 4 * R)))


def adamw(
    steps: np.ndarray, R: float, c: int, lr: float, decay_v: float, decay_W: float, v0: float, sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    """v and ρ after the given numbers of steps, from v = ``v0`` on the valley, by integration of dz/dt.

    Parameters
    ----------
    steps : increasing, ``(S,)``.
    R : ‖T‖ of the column.
    c : outputs, the length of w.
    lr, decay_v, decay_W : η, λ_v and λ_W of AdamW.
    sigma : standard deviation of the noise of each entry of the gradient of θ.

    Raises
    ------
    ValueError : a number out of range.
    """
    if not (R > 0 and c >= 1 and lr > 0 and v0 > 0 and sigma >= 0 and min(decay_v, decay_W) >= 0):
        raise ValueError(
            f"R={R}, c={c}, lr={lr}, v0={v0}, sigma={sigma}, decay_v={decay_v}, decay_W={decay_W}: expected R, lr and "
            "v0 > 0, c >= 1, sigma and decays >= 0"
        )

    def field(t: float, z: np.ndarray) -> float:
        v, rho = held(z[0], R, c, lr, decay_v + decay_W, sigma)
        return lr * (decay_W * rho - decay_v * v) - (c - 1) * lr**2 / (2 * rho)

    run = solve_ivp(field, (0, steps[-1]), [v0 - R / v0], t_eval=steps, method="LSODA", rtol=1e-6, atol=1e-8)
    v, rho = np.array([held(z, R, c, lr, decay_v + decay_W, sigma) for z in run.y[0]]).T
    return v, rho


def adamw_limit(R: float, c: int, lr: float, decay_W: float) -> float:
    """lim v² with decay on W only: 2λR²/((c−1)η), where ρ² has reached the noise–decay equilibrium (c−1)η/(2λ)."""
    return math.inf if c == 1 else 2 * decay_W * R**2 / ((c - 1) * lr)
