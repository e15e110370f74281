"""How far the norm of scale-invariant weights strays from its mean, to first order in ηλ.

With n entries, N = ‖w‖², N' = (1 − ηλ)² N + D and ρ = E D/E N', relative deviations x of N and y of AdamW's v̂ obey

    x' = (1 − ρ) x − r ρ (x + y − χ) + ξ,   y' = β₂ y + (1 − β₂)(χ − x),   Var χ = 2/n,
    Var ξ = (4/n) [p ρ (1 − ρ) + (1 − p)² Q ρ²].

- χ is the deviation of ‖g‖²; r = 1 where the size of an update follows that of its gradients, SGD and AdamW, else 0.
- p is the share of the update's power at frequency 0 that is no linear function of the gradients, and so not orthogonal
  to w: 0 for SGD; 1 − h'(0) Σ_k ρ_k/Σ_k h(ρ_k) for sign-like updates, k from −∞ to ∞, see `sign_updates`; for AdamW a
  quarter of the variance of v̂'s entries, each averaged over the steps during which m remembers a gradient.
- Q = Σ_{k≥1} (1 − c_k − s ρ_k)² is of pairs of gradients k steps apart: c_k is the share of what a gradient does that
  it has done after k steps; s = 1 where the update has a size of its own, which takes out their product, else 0.

At rest ρ = 2ηλ (SGD 2ηλ/(1 − μ)), so that Var(N)/(E N)² is ηλ/n for SGD and (1 − 2/π)(2/n) for sign descent, where that
of independent Gaussians is 2/n.  While filters fill, at step t, Q is 1 − μ^(2(t−1)) and 1 − β₂ is 1/(1 − β₂^t) times as
large.

Left out are terms of order ηλ times the memory, and of sign-like updates those of order ηλ from pairs of what is not
linear: measured at rest, some 5% of the deviation where ηλ/(1 − β) is 0.03 (β = 0.9), 15% where it is 0.2 (Lion, 0.95);
on the way there up to a third, for Lion up to 60%.  Muon's lack more, see `equilibrium.MUON_SPREAD`.

Source: derived here; the question is that of Kosson et al. 2023, "Rotational Equilibrium", whose laws are of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalevec_theory.optimizers import SGD, AdamW, Lion, Muon, SignSGD
from scalevec_theory.sign_updates import correlations, gradient_filter, nonlinear_share

FloatArray = np.ndarray
InvariantRule = SGD | AdamW | SignSGD | Lion | Muon
"""Under which scale-invariant weights are predicted."""


@dataclass(frozen=True)
class SpreadLaw:
    """p, Q, r, μ and β₂ of the equations above (β₂ = 1: y stays 0)."""

    nonlinear: float
    pairs: float
    follows: bool
    memory: float
    divisor_memory: float = 1.0


def spread_law(optimizer: InvariantRule, shape: tuple[int, ...]) -> SpreadLaw:
    """The law of a scale-invariant tensor of this shape."""
    q = gradient_filter(optimizer)
    follows = isinstance(optimizer, SGD | AdamW)
    later = q.past - (0.0 if follows else float(correlations(q, 1)[0]))
    pairs = later**2 / (1 - q.memory**2)
    if isinstance(optimizer, SGD):
        return SpreadLaw(0.0, pairs, follows, q.memory)
    if isinstance(optimizer, AdamW):
        beta1, beta2 = optimizer.betas
        together = (1 - beta1) / (1 + beta1) * (1 + beta1 * beta2) / (1 - beta1 * beta2)
        return SpreadLaw((1 - beta2) / (1 + beta2) * together / 2, pairs, follows, q.memory, beta2)
    return SpreadLaw(nonlinear_share(optimizer, shape), pairs, follows, q.memory)


def norm_spread(law: SpreadLaw, growth: FloatArray) -> FloatArray:
    """Var(N) over that of independent Gaussians, which the weights are at the start, ``(T + 1,)``, from ρ ``(T,)``."""
    spread = np.empty(len(growth) + 1)
    spread[0] = xx = 1.0
    xy = yy = 0.0
    t = np.arange(1, len(growth) + 1)
    gone = law.divisor_memory**t if law.divisor_memory < 1 else np.zeros(len(t))
    p, pairs = law.nonlinear, law.pairs * (1 - law.memory ** (2 * (t - 1)))
    noises = 2 * (p * growth * (1 - growth) + (1 - p) ** 2 * pairs * growth**2)
    fresh = (1 - law.divisor_memory) / (1 - gone)
    felt = growth * law.follows
    for step, (rho, drive, noise, new) in enumerate(zip(growth, felt, noises, fresh, strict=True), 1):
        own, old = 1 - rho - drive, 1 - new
        xx, xy, yy = (
            own * own * xx - 2 * own * drive * xy + drive * drive * (yy + 1) + noise,
            -new * own * xx + (own * old + drive * new) * xy - drive * old * yy + drive * new,
            new * new * (xx + 1) - 2 * new * old * xy + old * old * yy,
        )
        spread[step] = xx
    return spread
