"""Second moments of w under updates that are linear in the gradients: SGD as it stands, the Adam family by expansion.

One coordinate, gradients i.i.d. of mean 0, standard deviation σ and given kurtosis κ.  Filters y and the weight obey

    y_t = R y_{t−1} + f_t w_{t−1} + ξ_t,   w_t = a_t w_{t−1} − η_t c_t·y_t,   Cov ξ_t = N_t,

so that E[w²], E[w y] and E[y yᵀ] follow a linear recursion for any schedule, and a discrete Lyapunov equation at rest.

Adam divides by √v̂ + ε, v̂ = σ²(1 + δ) with δ_t = Σ_s b_ts (g_s²/σ² − 1).  By symmetry only equal gradients correlate
in Cov(u_t, u_t') = Σ_s a_ts a_t's E[g_s² f(v̂_t) f(v̂_t')], with f(v) = 1/(√v + ε).  With p = 1/(1 + ε/σ), expanding f
gives, to first order in 1 − β₂, the covariance of

    u = (p/σ)[(1 + (p/8 + p²/4) B_tt) Σ_s a_ts g_s − (p/2) Σ_s a_ts b_ts (κ − 1) g_s + (p/2) z],
    Cov(z_t, z_t') = A_tt' B_tt',   A_tt' = Σ_s a_ts a_t's,   B_tt' = (κ − 1) Σ_s b_ts b_t's,

filters of memory β₁, β₁β₂ and β₁β₂ with the bias corrections in a and b.  Of the second order, the terms of a
gradient's own square are kept, those of (1 + 2b)^(−p/2) for Gaussians (memory β₁β₂²): they matter where β₁ = 0.

A coupled decay is a shift of the gradient by λw.  To first order in x = ηλp/σ and r = λ²E[w²]/σ², w being Gaussian and
γ = (1 − β₂)/(1 − β₂(1 − x)²) the share of w² that v̂ remembers: the shift enters the second filter twice (g² turns by
2gλw); λ²w² in v̂ multiplies noise by (1 + r)^(−p) and drift by (1 + r)^(−p(1 + 2γ)/2); and v̂'s memory of the steps that
made w, as squares g² and as products gλw, multiplies the drift by 1 + pγx(5 − κ)/2.

Source: arXiv 2601.04890 (Adam Brownian motion, of which this refines the leading order; the expansion is derived here).
"""

# What numba compiles is untyped here.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.linalg import solve_discrete_lyapunov

from scalevec_theory.optimizers import SGD, Adam, RMSProp

FloatArray = np.ndarray
Linear = Adam | RMSProp | SGD


@dataclass(frozen=True)
class LinearUpdates:
    """The recursion's coefficients at T steps with K filters; ``ratio``, ``drift_power`` and ``noise_power`` are the
    (λ/σ)², p(1 + 2γ)/2 and p of a coupled decay's square in v̂."""

    retain: FloatArray  # (T,) a
    rates: FloatArray  # (K,) the diagonal of R
    feed: FloatArray  # (T, K) f
    noise: FloatArray  # (T, K, K) N
    readout: FloatArray  # (T, K) c
    ratio: FloatArray  # (T,)
    drift_power: FloatArray  # (T,)
    noise_power: FloatArray  # (T,)


def linear_updates(
    optimizer: Linear, t: FloatArray, lr: FloatArray, weight_decay: FloatArray, noise: float, kurtosis: float
) -> LinearUpdates:
    """Coefficients at steps ``t`` (1, 2, …; infinity for the limit) with lr and weight decay ``(T,)``."""
    retain = np.ones(len(t)) if optimizer.coupled else 1 - lr * weight_decay
    if isinstance(optimizer, SGD):
        mu, zero = optimizer.momentum, np.zeros(len(t))
        readout = np.array([mu, 1.0] if optimizer.nesterov else [1.0, 0.0])
        return LinearUpdates(
            retain,
            np.array([mu, 0.0]),
            np.repeat(weight_decay[:, None], 2, axis=1),
            np.full((len(t), 2, 2), noise**2),
            np.tile(readout, (len(t), 1)),
            zero,
            zero,
            zero,
        )
    return _adam(optimizer, t, lr, weight_decay if optimizer.coupled else 0 * weight_decay, retain, noise, kurtosis)


def _adam(
    optimizer: Adam | RMSProp,
    t: FloatArray,
    lr: FloatArray,
    coupled_decay: FloatArray,
    retain: FloatArray,
    noise: float,
    kurtosis: float,
) -> LinearUpdates:
    beta1, beta2 = optimizer.betas if isinstance(optimizer, Adam) else (0.0, optimizer.alpha)
    seen1, seen2 = 1 - beta1**t, 1 - beta2**t
    # RMSProp lacks the bias correction of v: its √v is √v̂ times this.
    shrunk = np.sqrt(seen2) if isinstance(optimizer, RMSProp) else np.ones(len(t))
    p = 1 / (1 + optimizer.eps / (noise * shrunk))
    B = (kurtosis - 1) * (1 - beta2) / (1 + beta2) * (1 + beta2**t) / seen2
    scale = p / (seen1 * shrunk)
    mean = (p / 8 + p**2 / 4) * B
    late = (p / 8 + p**2 / 4) * (kurtosis - 1) * (1 - beta2) / (1 + beta2)
    readout = np.stack(
        [
            scale * (1 + mean),
            -scale * (p / 2) * (1 - beta2) * (1 / seen2 + late),
            scale * (p / 2) * (p / 2 + 1) / 2 * (1 - beta2) ** 2,
            scale * (p / 2) / seen2,
        ],
        axis=1,
    )

    def z_variance(t: FloatArray) -> FloatArray:
        A = (1 - beta1) / (1 + beta1) * (1 - beta1 ** (2 * t))
        return A * (kurtosis - 1) * (1 - beta2) / (1 + beta2) * (1 - beta2 ** (2 * t))

    own = (1 - beta1) * (kurtosis - 1) ** np.arange(3)
    N = np.zeros((len(t), 4, 4))
    N[:, :3, :3] = np.outer(own, own)
    N[:, 3, 3] = z_variance(t) - (beta1 * beta2) ** 2 * z_variance(t - 1)
    x = np.minimum(lr * coupled_decay * p / noise, 1.0)
    gamma = (1 - beta2) / (1 - beta2 * (1 - x) ** 2)
    pull = (1 - beta1) * coupled_decay / noise * (1 + p * gamma * x * (5 - kurtosis) / 2)
    feed = np.zeros((len(t), 4))
    feed[:, :3] = pull[:, None] * 2.0 ** np.arange(3)
    return LinearUpdates(
        retain,
        beta1 * beta2 ** np.array([0, 1, 2, 1]),
        feed,
        N,
        readout,
        (coupled_decay / noise) ** 2,
        p * (1 + 2 * gamma) / 2,
        p,
    )


def transient(
    updates: LinearUpdates, lr: FloatArray, initial: float, invariant: int = 0, divisor_memory: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """E[w²] at steps 0 … T ``(T + 1,)`` and E[u²] at steps 1 … T ``(T,)``, from E[w(0)²] = ``initial``.

    ``invariant`` n > 0: a scale-invariant vector of n weights, whose gradient has n − 1 directions and is divided by
    the vector's norm, the noise being that at norm 1; under AdamW it is also divided by √v̂, of ``divisor_memory`` β₂,
    which follows the mean size of the gradients.
    """
    u = updates
    laws = (u.retain, u.rates, u.feed, u.noise, u.readout, u.ratio, u.drift_power, u.noise_power)
    return _recursion(*laws, lr, initial, invariant, -1.0 if divisor_memory is None else divisor_memory)


@njit(cache=True)
def _recursion(retain, rates, feed, noise, readout, ratio, drift_power, noise_power, lr, initial, invariant, memory):
    T, K = feed.shape
    ww, uu = np.empty(T + 1), np.empty(T)
    wy, yy, f, cy = np.zeros(K), np.zeros((K, K)), np.zeros(K), np.zeros(K)
    ww[0] = initial
    square = seen = 0.0
    for t in range(T):
        w2, r = ww[t], 1 + ratio[t] * ww[t]
        share = r ** -noise_power[t]
        if invariant > 0:
            share *= (invariant - 1) / (invariant * invariant * w2)
        size = 1.0
        if memory >= 0:
            square, seen = memory * square + (1 - memory) * share, memory * seen + 1 - memory
            size = np.sqrt(square / seen)
        for i in range(K):
            f[i] = feed[t, i] * r ** -drift_power[t]
        for i in range(K):
            for j in range(K):
                yy[i, j] = (
                    rates[i] * rates[j] * yy[i, j]
                    + rates[i] * wy[i] * f[j]
                    + f[i] * wy[j] * rates[j]
                    + f[i] * f[j] * w2
                    + noise[t, i, j] * share
                )
        wu = u2 = 0.0
        for i in range(K):
            wy[i] = rates[i] * wy[i] + f[i] * w2
            cy[i] = 0.0
            for j in range(K):
                cy[i] += yy[i, j] * readout[t, j] / size
            wu += wy[i] * readout[t, i] / size
            u2 += cy[i] * readout[t, i] / size
        for i in range(K):
            wy[i] = retain[t] * wy[i] - lr[t] * cy[i]
        ww[t + 1] = retain[t] ** 2 * w2 - 2 * retain[t] * lr[t] * wu + lr[t] ** 2 * u2
        uu[t] = u2
    return ww, uu


def stationary(updates: LinearUpdates, lr: float, invariant: int = 0) -> tuple[float, float]:
    """E[w²] and E[u²] at rest, ``updates`` being one step's; ``invariant`` as in `transient`.

    Raises
    ------
    ValueError : the recursion does not contract (an unstable step), or only just (no decay).
    """
    w2 = 0.0
    for _ in range(100):
        before, r = w2, 1 + updates.ratio[0] * w2
        f = updates.feed[0] * r ** -updates.drift_power[0]
        N = updates.noise[0] * r ** -updates.noise_power[0]
        R, c, K = np.diag(updates.rates), updates.readout[0], len(f)
        to_w = np.concatenate([[1.0], -lr * c])
        step = np.empty((K + 1, K + 1))
        step[1:, 0], step[1:, 1:] = f, R
        step[0] = np.concatenate([[updates.retain[0]], np.zeros(K)]) - lr * c @ step[1:]
        radius = np.abs(np.linalg.eigvals(step)).max()
        if radius >= 1 - 1e-13:
            raise ValueError(f"lr={lr} with this weight decay: unstable, a step multiplies w by up to {radius:.6g}")
        spread = np.vstack([to_w[1:], np.eye(K)])
        P = solve_discrete_lyapunov(step, spread @ N @ spread.T)
        w2, u2 = float(P[0, 0]), float(c @ P[1:, 1:] @ c)
        if abs(w2 - before) <= 1e-14 * w2:
            break
    if invariant > 0:
        share = np.sqrt(w2 * (invariant - 1)) / invariant  # w2 at unit noise times (n − 1)/(n² E[w²]) is E[w²]
        return share, u2 * share / w2
    return w2, u2
