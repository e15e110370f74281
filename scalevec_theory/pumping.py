"""How weight decay and noise move scale between v and W along the valley ‖v w‖ = R of one column under AdamW.

AdamW moves a parameter by its gradient over the rms of its gradient.  Where noise ξ of strength σ on the gradient of
θ = v w dominates, v moves by −η⟨w/ρ, g + ξ⟩/σ and w by −η(g + ξ)/σ, ρ = ‖w‖: by equal amounts along w, so that
z = v − ρ feels neither the noise along w nor the pull back to the valley.  What is left, per step, is

    dz/dt = η (λ_W ρ − λ_v v) − (c − 1) η²/(2ρ) + κ η²/2 (1/v − 1/ρ):

decay; the outward drift of ρ from noise in the c − 1 directions across w; and what remains of the pull because the rms
lags behind.  With a = η(v + ρ)/σ, the rate at which deviations from the valley die out, κ = a/(a + 1 − β2): the second
moment forgets at the rate 1 − β2.  The pull η g/σ that holds the column against all this keeps it at vρ = R − g, where

    g (v + ρ)/σ = (λ_v + λ_W) vρ − (c − 1) η v/(2ρ).

Muon moves the whole column by a fixed size while AdamW moves v: noise and pull then move ρ by ``gain`` times as much as
v, and z = gain·v − ρ is what feels neither.  Lags are left out there: they are of higher order in η.

Source: ours (claim ``decay-pumping``), about weight decay of scale vectors in arXiv 2605.26895.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from scalevec_theory.optimizers import Muon
from scalevec_theory.sign_updates import gradient_filter, newton_schulz


def on_valley(z: float, r: float) -> tuple[float, float]:
    """v and ρ with v − ρ = z and vρ = r."""
    larger = (math.sqrt(z * z + 4 * r) + abs(z)) / 2
    return (larger, r / larger) if z >= 0 else (r / larger, larger)


@dataclass(frozen=True)
class Column:
    """One column under AdamW.

    ``R`` = ‖T‖, ``c`` outputs, ``lr`` η, decays λ_v and λ_W, ``sigma`` the standard deviation of the noise of each
    entry of the gradient of θ.

    Raises
    ------
    ValueError : a number out of range.
    """

    R: float
    c: int
    lr: float
    decay_v: float
    decay_W: float
    sigma: float
    beta2: float = 0.95

    def __post_init__(self) -> None:
        for name in ("R", "lr", "sigma"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: expected > 0")
        for name in ("decay_v", "decay_W"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)}: expected >= 0")
        if self.c < 1 or not 0 <= self.beta2 < 1:
            raise ValueError(f"c={self.c}, beta2={self.beta2}: expected c >= 1 and beta2 in [0, 1)")

    @property
    def gain(self) -> float:
        """By how much ρ moves where noise or pull moves v by 1."""
        return 1.0

    def lag(self, v: float, rho: float) -> float:
        """κ: 0 where the second moment follows the parameters at once, 1 where it does not follow their noise."""
        a = self.lr * (v + rho) / self.sigma
        return a / (a + 1 - self.beta2)

    def drift(self, v: float, rho: float) -> float:
        """dz/dt per step."""
        a = self.gain
        noise = self.lag(v, rho) * (1 / v - 1 / rho) - (self.c - 1) * a**2 / rho
        return self.lr * (self.decay_W * rho - a * self.decay_v * v) + self.lr**2 / 2 * noise

    def held(self, z: float) -> tuple[float, float]:
        """v and ρ at z where the pull balances decay and noise: the root of vρ = R − g."""
        decays, a = self.decay_v + self.decay_W, self.gain

        def at(r: float) -> tuple[float, float]:
            scaled, rho = on_valley(z, a * r)
            return scaled / a, rho

        def excess(r: float) -> float:
            v, rho = at(r)
            outward = (self.c - 1) * a**2 * self.lr * v / (2 * rho)
            return r - self.R + self.sigma * (decays * r - outward) / (a * v + rho)

        return at(float(brentq(excess, 1e-9 * self.R, 1e9 * self.R)))

    def after(self, steps: np.ndarray, v0: float) -> tuple[np.ndarray, np.ndarray]:
        """v and ρ after increasing numbers of steps ``(S,)``, from v = ``v0`` > 0 on the valley."""
        if not v0 > 0:
            raise ValueError(f"v0={v0}: expected > 0")
        start = self.gain * v0 - self.R / v0
        run = solve_ivp(
            lambda t, z: self.drift(*self.held(z[0])),
            (0, steps[-1]),
            [start],
            t_eval=steps,
            method="LSODA",
            rtol=1e-6,
            atol=1e-8,
        )
        v, rho = np.array([self.held(z) for z in run.y[0]]).T
        return v, rho

    def rest(self) -> tuple[float, float]:
        """v and ρ where dz/dt = 0; the drift falls in z, so there is one such point."""
        far = 1e6 * math.sqrt(self.R)
        z = brentq(lambda z: self.drift(*self.held(z)), -far, far)
        return self.held(float(z))


@dataclass(frozen=True)
class MuonColumn(Column):
    """One column under Muon with Nesterov ``momentum``, and its v under AdamW.

    Of a c × 1 matrix b the factor is b/‖b‖ times f, what Newton–Schulz makes of 1.  Noise of strength σ on θ makes ‖b‖
    = vσ√(cV), V the filter's variance, and a lasting force passes the filter whole: so w moves by f·factor/√(cV) times
    noise and pull over σ, and v by once that.
    """

    momentum: float = 0.9

    @property
    def gain(self) -> float:
        rule = Muon(self.lr, momentum=self.momentum)
        variance = float(gradient_filter(rule).variance(np.array(np.inf)))
        size = float(newton_schulz(np.ones(1), rule.ns_steps)[0]) * rule.lr_factor(self.c, 1)
        return size / math.sqrt(self.c * variance)

    def lag(self, v: float, rho: float) -> float:
        return 0.0
