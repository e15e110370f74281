"""Drift along the symmetry orbits of a model: (a, b) → (σa, b/σ) and c → σc, under noise and light weight decay.

A function that depends on a and b through such a product has a loss with ⟨a, ∂_a⟩ = ⟨b, ∂_b⟩ at every point, and one
of c/‖c‖ has ⟨c, ∂_c⟩ = 0, batch by batch.  Gradient flow therefore conserves ‖a‖² − ‖b‖² and ‖c‖²; what follows is what
discrete steps, noise and decay do to them.  Source: arXiv 2601.04890 (symmetries, light weight decay); the rates,
densities and thresholds are ours, the equilibrium norm that of Kosson et al. 2023 (rotational equilibrium).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import k0e, k1e
from torch import Tensor

LIGHT_DECAY = 2e-3
"""The weight decay that arXiv 2601.04890 puts on multipliers."""


def product_spread(product: float, noise: float, decay: float) -> tuple[float, float]:
    """E[x²] and E[a² + b²] of a pair with ab = p and isotropic noise: x = ½ ln(a/b), in the stationary state.

    da = −b g dt − λa dt + σ dB₁, db = −a g dt − λb dt + σ dB₂, g holding ab at p > 0.  u = a² − b² obeys
    du = −2λu dt + 2σ√(a² + b²) dB, so in the limit of a narrow valley x has the density ∝ exp(−κ cosh 2x), κ = 2pλ/σ².
    Then E[a² + b²] = 2p K₁(κ)/K₀(κ); E[x²] is 1/(4κ) for κ ≫ 1 and grows only as ln²(2/κ)/12 for κ → 0.  Without decay
    the orbit is null recurrent: no stationary law.

    Updates of fixed size η with independent signs are σ² = η per unit of Ση: there κ = 2pλ/η.
    """
    if not (product > 0 and noise > 0 and decay > 0):
        raise ValueError(f"product={product}, noise={noise}, decay={decay}: expected all > 0")
    kappa = 2 * product * decay / noise**2
    x = np.linspace(0, 0.5 * math.acosh(1 + 40 / kappa), 4001)
    density = np.exp(-kappa * (np.cosh(2 * x) - 1))
    return float((x**2 * density).sum() / (density.sum() - 0.5)), float(2 * product * k1e(kappa) / k0e(kappa))


def sufficient_decay(product: float, noise: float, spread: float) -> float:
    """The decay λ that holds the rms of ½ ln(a/b) at ``spread`` in the stationary state, by bisection.

    For a small spread δ it is σ²/(8pδ²); with updates of size η, η/(8pδ²).
    """
    if not spread > 0:
        raise ValueError(f"spread={spread}: expected > 0")
    low, high = 1e-12, 1e12
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if product_spread(product, noise, middle)[0] > spread**2 else (low, middle)
    return high


def norm_square(times: Tensor, start: float, strength: float, step: float, decay: float = 0.0) -> Tensor:
    """‖c‖² after ``times`` steps of SGD on a loss of c/‖c‖, E‖g‖² = G²/‖c‖², decoupled decay λ; G is ``strength``.

    d‖c‖²/dt = η²G²/‖c‖² − 2ηλ‖c‖² per step: ‖c‖⁴ = (ηG²/2λ)(1 − e^{−4ηλt}) + ‖c(0)‖⁴ e^{−4ηλt}, and
    ‖c(0)‖⁴ + 2η²G²t without decay.  To leading order in (ηG/‖c‖²)² and ηλ.
    """
    if not decay >= 0:
        raise ValueError(f"decay={decay}: expected >= 0")
    if decay == 0:
        return (start**4 + 2 * step**2 * strength**2 * times).sqrt()
    kept = torch.exp(-4 * step * decay * times)
    return (step * strength**2 / (2 * decay) * (1 - kept) + start**4 * kept).sqrt()


def holding_decay(start: float, strength: float, step: float, growth: float) -> float:
    """The decay λ above which ‖c‖ never exceeds ``growth`` times its start: ηG²/(2 growth⁴ ‖c(0)‖⁴)."""
    if not growth >= 1:
        raise ValueError(f"growth={growth}: expected a factor >= 1")
    if not start > 0:
        raise ValueError(f"start={start}: expected a norm > 0")
    return step * strength**2 / (2 * (growth * start) ** 4)


def simulate_pair(
    start: Tensor,
    product: float,
    noise: float,
    decay: float,
    *,
    shared: bool,
    stiffness: float,
    dt: float,
    n_steps: int,
    save_every: int,
    generator: torch.Generator,
) -> Tensor:
    """Euler–Maruyama paths of (a, b) ``(P, 2)`` from ``start``, saved ``(S, P, 2)``; g = ``stiffness`` (ab − p).

    ``shared``: noise on g, one Brownian motion for both (minibatch noise); otherwise one for each (isotropic).
    """
    a, b = start.unbind(1)
    saved = []
    for index in range(1, n_steps + 1):
        g = stiffness * (a * b - product)
        kick = noise * math.sqrt(dt) * torch.randn(2, len(a), generator=generator, dtype=a.dtype)
        if shared:
            g = g + kick[0] / dt
            kick = torch.zeros_like(kick)
        a, b = a - dt * (b * g + decay * a) + kick[0], b - dt * (a * g + decay * b) + kick[1]
        if index % save_every == 0:
            saved.append(torch.stack([a, b], 1))
    return torch.stack(saved)


def simulate_direction(
    start: Tensor, noise: float, step: float, decay: float, n_steps: int, generator: torch.Generator
) -> Tensor:
    """‖c‖² ``(n_steps + 1, P)`` of SGD from ``start`` ``(P, n)`` on pure noise in a loss of c/‖c‖, decoupled decay.

    The gradient is the tangential part of normal noise of strength σ divided by ‖c‖: G² = σ²(n − 1).
    """
    c = start
    squares = [c.square().sum(1)]
    for _ in range(n_steps):
        square = squares[-1][:, None]
        xi = noise * torch.randn(c.shape, generator=generator, dtype=c.dtype)
        g = (xi - (xi * c).sum(1, keepdim=True) / square * c) / square.sqrt()
        c = (1 - step * decay) * c - step * g
        squares.append(c.square().sum(1))
    return torch.stack(squares)
