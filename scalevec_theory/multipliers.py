"""Learnable multipliers θ = s · diag(r) W diag(k): gradients, signal-to-noise, and the size that a width asks for.

Source: arXiv 2601.04890 (learnable multipliers; averaging of the gradient noise; width scaling).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scalevec_theory.parametrizations import Array, Parametrization

MULTIPLIERS = Parametrization(
    "multipliers",
    {"s": "", "r": "c", "k": "d", "W": "cd"},
    lambda s, r, k, W: W * s[..., None, None] * r[..., :, None] * k[..., None, :],
    lambda s, r, k, W: {
        "s^2-|W|^2": s * s - (W * W).sum(-1).sum(-1),
        "r^2-|w_i|^2": r * r - (W * W).sum(-1),
        "k^2-|w_j|^2": k * k - (W * W).sum(-2),
    },
)
"""A scalar, a row and a column multiplier on one matrix; leave one out by fixing it at 1."""


def gradients(G: Array, s: Array, r: Array, k: Array, W: Array) -> dict[str, Array]:
    """∂L/∂(s, r, k, W) from ``G`` = ∂L/∂θ ``(..., c, d)``; blocks as in `MULTIPLIERS`.

    Each multiplier sums what its entries see: the scalar over all of them, a row multiplier over its row.
    """
    row, column, scalar = r[..., :, None], k[..., None, :], s[..., None, None]
    return {
        "s": (row * W * column * G).sum(-1).sum(-1),
        "r": (scalar * W * column * G).sum(-1),
        "k": (scalar * row * W * G).sum(-2),
        "W": scalar * row * column * G,
    }


def snr(weights: Tensor, signal: Tensor, covariance: Tensor) -> Tensor:
    """|⟨w, μ⟩| / √(wᵀΣw), signal-to-noise of a multiplier that sums n entries; ``(...,)``.

    ``weights`` w ``(..., n)``; ``signal`` μ ``(..., n)``, the mean gradients of the entries; ``covariance`` Σ of their
    noise ``(..., n, n)``.

    Raises
    ------
    ValueError : shapes that do not fit.
    """
    n = weights.shape[-1] if weights.ndim else 0
    for name, x, expected in (("signal", signal, (n,)), ("covariance", covariance, (n, n))):
        if x.shape[-len(expected) :] != expected:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: expected (..., {', '.join(map(str, expected))})")
    noise = (weights[..., None, :] @ covariance @ weights[..., :, None])[..., 0, 0]
    return (weights * signal).sum(-1).abs() / noise.sqrt()


def snr_gain(n: Tensor | float, alignment: Tensor | float, correlation: Tensor | float = 0.0) -> Tensor:
    """Signal-to-noise of a multiplier over that of an entry: α √(n / (1 + ρ(n − 1))).

    An entry's is rms(μ)/σ.  Exact for noise of one strength σ if α = |cos(w, μ)| and either the noise is independent
    (ρ = 0) or all weights have one modulus and the noise of any two entries, times the signs of their weights, has
    correlation ρ.  It grows as √n at ρ = 0 and saturates at α/√ρ otherwise; with weights that know nothing of the
    signal α is about 1/√n and nothing is gained.
    """
    n, alignment, correlation = (torch.as_tensor(x, dtype=torch.float64) for x in (n, alignment, correlation))
    if not bool((n >= 1).all()):
        raise ValueError(f"n={n.min().item()}: expected numbers of entries >= 1")
    if not bool(((correlation >= 0) & (correlation <= 1)).all()):
        raise ValueError(f"correlation={correlation}: expected numbers in [0, 1]")
    return alignment * (n / (1 + correlation * (n - 1))).sqrt()


def projector_multiplier(output: float, width: Tensor, aligned: Tensor | float, noise: Tensor | float) -> Tensor:
    """The scale s at which s⟨W, x⟩ has rms ``output``: output / √(d² m² + d ω²), for widths d ``width``.

    x = y ξ, a fixed pattern ξ_i = ±1 with a random sign y; an entry of W is ``aligned`` m times ξ_i plus noise of rms
    ``noise`` ω.  At the noise–decay equilibrium neither depends on d.
    """
    return output / (width**2 * aligned**2 + width * noise**2) ** 0.5


def projector_slope(width: Tensor, aligned: Tensor | float, noise: Tensor | float) -> Tensor:
    """d ln s / d ln d of `projector_multiplier`: −1 + ½/(1 + d m²/ω²), −1 where the aligned part rules, −½ without it.

    A multiplier on the product of two such projections (q·k) has twice the slope.
    """
    return -1 + 0.5 * noise**2 / (noise**2 + width * aligned**2)


def equilibrium_rms(step: float, decay: float) -> float:
    """√(η/2λ): the rms of a weight that AdamW moves on noise alone, to leading order in ηλ (arXiv 2601.04890)."""
    if not (step > 0 and decay > 0):
        raise ValueError(f"step={step}, decay={decay}: expected both > 0")
    return math.sqrt(step / (2 * decay))
