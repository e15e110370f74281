"""Second moments of w under sign-like updates: SignSGD, Lion, Muon, whose u is an odd function of filtered gradients.

Gradients are i.i.d. Gaussian.  The filtered gradient q_t has Cov(q_s, q_t) = R(s) μ^(t−s−1) for s < t, and an odd
function of two Gaussians of correlation ρ has a covariance h(ρ) = Σ_j c_j² ρ^(2j+1), so that

    E[w_t²] = a_t² E[w_{t−1}²] + 2 a_t η_t Σ_{s<t} η_s (Π_{s<r<t} a_r) h(ρ_st) + η_t² h(1).

- sign of a number: h(ρ) = (2/π) arcsin ρ.
- Muon's spectral function of a large c × d matrix, q = min(c, d)/max(c, d): singular values of X/√max(c, d) are s with
  s² = 1 + q + 2√q cos θ, and the Hermite polynomials of free Gaussian matrices are s U_j(cos θ), so that

    c_j = (2/π) ∫_0^π (f(s)/s) sin((j+1)θ) sin θ dθ;

  for c = d and f = 1 this is c_j = ±(4/π) m/(m² − 1), m = 2j + 2.  h(1) = E[f(s)²]: 1 for the exact factor.

Source: arXiv 2601.04890 (equilibria of Lion and Muon are asked for there; the laws are derived here).
"""

# What numba compiles is untyped here.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit

from scalevec_theory.optimizers import SGD, AdamW, Lion, Muon, SignSGD

FloatArray = np.ndarray
SignLike = SignSGD | Lion | Muon

ANGLES = 8192
"""Nodes of the quadrature over θ."""

TERMS = 512
"""Terms of the series for h; what is left out is below h(1) ρ^1025."""

NODES = 1 << 16
"""Nodes of the table of h that the recursion interpolates; its error is below 1e-7 for ρ < 0.99."""

FORGOTTEN = 1e-10
"""Lags whose share in the sum is below this are left out."""

MOST_LAGS = 10_000_000
"""What a sum at rest may need."""


@dataclass(frozen=True)
class Filter:
    """q_t = own·g_t + past·m_{t−1}, m_t = μ m_{t−1} + (1 − μ) g_t, from m_0 = 0."""

    own: float
    past: float
    memory: float

    def variance(self, t: FloatArray) -> FloatArray:
        """Var(q_t)/σ² at steps t = 1, 2, …, ∞."""
        mu = self.memory
        return self.own**2 + self.past**2 * (1 - mu) / (1 + mu) * (1 - mu ** (2 * (t - 1)))

    def covariance(self, t: FloatArray) -> FloatArray:
        """Cov(q_t, q_{t+1})/σ² at steps t = 1, 2, …, ∞; each further step multiplies it by the memory."""
        mu = self.memory
        past = self.past**2 * mu * (1 - mu) / (1 + mu) * (1 - mu ** (2 * (t - 1)))
        return self.own * self.past * (1 - mu) + past


def gradient_filter(optimizer: SignLike | SGD | AdamW) -> Filter:
    """What the optimizer takes the sign of, or divides by √v̂; of SGD's momentum, 1 − μ times what it takes."""
    if isinstance(optimizer, Lion | AdamW):
        beta1, beta2 = optimizer.betas
        return Filter(1 - beta1, beta1, beta2 if isinstance(optimizer, Lion) else beta1)
    mu = optimizer.momentum
    if isinstance(optimizer, Muon | SGD) and optimizer.nesterov:
        return Filter(1 - mu**2, mu**2, mu)
    return Filter(1 - mu, mu, mu)


def newton_schulz(s: FloatArray, steps: int) -> FloatArray:
    """The quintic iteration of Muon on singular values; 0 steps stand for its aim, 1."""
    a, b, c = Muon.NS
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return s if steps else np.ones_like(s)


def free_coefficients(optimizer: Muon, shape: tuple[int, ...]) -> tuple[FloatArray, float]:
    """c_j ``(TERMS,)`` and h(1) of a large matrix of this shape."""
    small, large = sorted(shape)
    q = small / large
    theta = (np.arange(ANGLES) + 0.5) * np.pi / ANGLES
    s = np.sqrt(1 + q + 2 * np.sqrt(q) * np.cos(theta))
    # The iteration starts from the matrix over its Frobenius norm, √(small · large) for entries of variance 1.
    ratio = newton_schulz(s / np.sqrt(small), optimizer.ns_steps) / s
    weight = 2 / ANGLES * np.sin(theta)
    modes = np.sin(np.outer(np.arange(1, TERMS + 1), theta))
    return modes @ (weight * ratio), float(np.sum(weight * np.sin(theta) * ratio**2))


def covariance_law(
    optimizer: SignLike, shape: tuple[int, ...] | None
) -> tuple[Callable[[FloatArray], FloatArray], float]:
    """h and h(1) of one entry of u.

    Raises
    ------
    ValueError : Muon without the shape of its matrix.
    """
    if not isinstance(optimizer, Muon):
        return lambda rho: 2 / np.pi * np.arcsin(rho), 1.0
    if shape is None or len(shape) != 2:
        raise ValueError(f"shape={shape}: Muon's update needs the shape of its matrix, such as (256, 1024)")
    coefficients, variance = free_coefficients(optimizer, shape)
    scale = optimizer.lr_factor(*shape) ** 2 / max(shape)
    odd = np.zeros(2 * TERMS)
    odd[1::2] = scale * coefficients**2
    return np.polynomial.Polynomial(odd), scale * variance


def transient(
    optimizer: SignLike,
    shape: tuple[int, int] | None,
    lr: FloatArray,
    weight_decay: FloatArray,
    initial: float,
    invariant: int = 0,
) -> tuple[FloatArray, FloatArray]:
    """E[w²] at steps 0 … T ``(T + 1,)`` and E[u²] at steps 1 … T ``(T,)``, from E[w(0)²] = ``initial``.

    ``invariant`` n > 0: a scale-invariant tensor of n weights, whose gradients go as the inverse of its norm, so that
    older ones weigh more in q while the norm grows.
    """
    h, variance = covariance_law(optimizer, shape)
    q, t = gradient_filter(optimizer), np.arange(1.0, len(lr) + 1)
    # Where β₁ > β₂ the first steps are correlated more closely than those at rest.
    first = (q.covariance(t) / np.sqrt(q.variance(t) * q.variance(t + 1))).max()
    top = 1.0 if invariant else max(float(first), float(correlations(q, 1)[0]), 1e-9)
    table = h(np.linspace(0, top, NODES + 1))
    laws = (q.own, q.past, q.memory, _lags(q), table, top, variance)
    return _recursion(1 - lr * weight_decay, lr, *laws, initial, invariant), np.full(len(lr), variance)


def _lags(q: Filter, retain: float = 1.0) -> int:
    """How many earlier updates are felt, if a step leaves no more than ``retain`` of them."""
    if q.past == 0:
        return 0
    kept = q.memory * abs(retain)
    return 1 + (int(np.ceil(np.log(FORGOTTEN) / np.log(kept))) if kept > 0 else 0)


def correlations(q: Filter, lags: int) -> FloatArray:
    """ρ of steps k = 1 … ``lags`` apart, at rest ``(lags,)``."""
    infinite = np.array(np.inf)
    return q.covariance(infinite) / q.variance(infinite) * q.memory ** np.arange(lags)


def nonlinear_share(optimizer: SignLike, shape: tuple[int, ...]) -> float:
    """1 − h'(0) Σ_k ρ_k/Σ_k h(ρ_k), k from −∞ to ∞: of the power of u at frequency 0, what is not linear in q."""
    h, variance = covariance_law(optimizer, shape)
    q = gradient_filter(optimizer)
    rho, small = correlations(q, _lags(q)), 1e-6
    linear = float(h(np.array(small))) / small * (1 + 2 * rho.sum())
    return 1 - linear / (variance + 2 * float(h(rho).sum()))


@njit(cache=True)
def _recursion(retain, lr, own, past, memory, lags, table, top, variance, initial, invariant):
    T, nodes = len(lr), len(table) - 1
    ww, spread, covariance = np.empty(T + 1), np.empty(T), np.empty(T)
    ww[0], mm = initial, 0.0
    for t in range(T):
        share = (invariant - 1) / (invariant * invariant * ww[t]) if invariant > 0 else 1.0
        spread[t] = np.sqrt(own * own * share + past * past * mm)
        covariance[t] = past * (own * (1 - memory) * share + past * memory * mm)
        mm = memory * memory * mm + (1 - memory) ** 2 * share
        before, kept, fade = 0.0, 1.0, 1.0
        for s in range(t - 1, max(t - 1 - lags, -1), -1):
            x = covariance[s] * fade / (spread[s] * spread[t]) * (nodes / top)
            i = min(int(x), nodes - 1)
            before += lr[s] * kept * (table[i] + (x - i) * (table[i + 1] - table[i]))
            kept *= retain[s]
            fade *= memory
        ww[t + 1] = retain[t] ** 2 * ww[t] + 2 * retain[t] * lr[t] * before + lr[t] ** 2 * variance
    return ww


def stationary(optimizer: SignLike, shape: tuple[int, int] | None) -> tuple[float, float]:
    """E[w²] and E[u²] at rest: η²/(1 − a²) (h(1) + 2 Σ_k a^k h(ρ_k)), a = 1 − ηλ.

    Raises
    ------
    ValueError : Muon without the shape of its matrix, or a sum over more than `MOST_LAGS` steps.
    """
    h, variance = covariance_law(optimizer, shape)
    q, retain = gradient_filter(optimizer), 1 - optimizer.lr * optimizer.weight_decay
    lags = _lags(q, retain)
    if lags > MOST_LAGS:
        raise ValueError(f"a memory of {q.memory!r} is felt for {lags:.1g} steps: expected at most {MOST_LAGS:,}")
    memory = np.sum(retain ** np.arange(1, lags + 1) * h(correlations(q, lags)))
    return optimizer.lr**2 / (1 - retain**2) * (variance + 2 * float(memory)), variance
