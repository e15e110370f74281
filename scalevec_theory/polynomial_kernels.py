"""Compiled gradient flow of least squares for any parametrisation whose θ is a polynomial of the parameters.

A polynomial is a list of monomials, and a monomial a list of the parameters it multiplies, so one compiled integrator
serves every parametrisation and every size.  What is no polynomial is left to the batched integrator of `flow`.
"""

# What numba compiles is untyped here.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy
import torch
from numba import njit

from scalevec_theory.parametrizations import Parametrization
from scalevec_theory.runge_kutta import (
    INTEGRAL,
    NON_FINITE,
    OK,
    PROPORTIONAL,
    RETRY,
    SAFETY,
    SHORTEST,
    SHRINK,
    SMALLEST_ERROR,
    STAGES,
    STEP_LIMIT,
    A,
    D,
    E,
)
from scalevec_theory.symbolic import evaluate

MOST_MONOMIALS = 1000
"""Beyond so many the batched integrator, which works on whole matrices, is the better one."""


@dataclass(frozen=True, eq=False)
class Polynomials:
    """θ_k = Σ over its monomials of coefficient · product of parameters.

    Attributes
    ----------
    entry, coefficient : of every monomial, ``(M,)``: the k it belongs to, in C order of θ.
    factors : parameters of all monomials one after another, ``(F,)``; a power repeats its parameter.
    ends : where each monomial's factors end, ``(M,)``.
    """

    entry: np.ndarray
    coefficient: np.ndarray
    factors: np.ndarray
    ends: np.ndarray


def polynomials_of(parametrization: Parametrization, dims: Mapping[str, int]) -> Polynomials | None:
    """θ as polynomials of the parameters; None if it is no polynomial, or too long a one."""
    axes = tuple(parametrization.axes.items())
    return _polynomials(parametrization.forward, axes, parametrization.theta_rows, tuple(sorted(dims.items())))


@lru_cache(maxsize=256)
def _polynomials(
    forward: Callable[..., Any],
    axes: tuple[tuple[str, str], ...],
    theta_rows: str,
    dims: tuple[tuple[str, int], ...],
) -> Polynomials | None:
    parametrization = Parametrization("", dict(axes), forward, lambda **blocks: {}, theta_rows=theta_rows)
    entry: list[int] = []
    coefficient: list[float] = []
    factors: list[int] = []
    ends: list[int] = []
    try:
        symbols, theta = evaluate(parametrization, dict(dims))
        place = {symbol: i for i, symbol in enumerate(symbols)}
        for k, expression in enumerate(theta):
            own = sorted(expression.free_symbols, key=place.__getitem__) or symbols[:1]
            for powers, number in sympy.Poly(expression, *own, domain="QQ").terms():
                entry.append(k)
                coefficient.append(float(number))
                factors += [place[symbol] for symbol, power in zip(own, powers, strict=True) for _ in range(power)]
                ends.append(len(factors))
                if len(ends) > MOST_MONOMIALS:
                    return None
    except (ValueError, sympy.PolynomialError):
        return None
    found = Polynomials(*(np.array(x) for x in (entry, coefficient, factors, ends)))
    return found if _agrees(found, parametrization, dict(dims)) else None


def _agrees(found: Polynomials, parametrization: Parametrization, dims: dict[str, int]) -> bool:
    """Whether the polynomials give what ``forward`` does: symbols are positive, numbers are not, so |v| differs."""
    rng = np.random.default_rng(0)
    blocks = {name: rng.standard_normal((8, *shape)) for name, shape in parametrization.shapes(**dims).items()}
    flat = np.concatenate([x.reshape(8, -1) for x in blocks.values()], 1)
    theta = parametrization.forward(**{name: torch.from_numpy(x) for name, x in blocks.items()})
    mine = np.zeros((8, theta[0].numel()))
    begin = 0
    for k, number, end in zip(found.entry, found.coefficient, found.ends, strict=True):
        mine[:, k] += number * flat[:, found.factors[begin:end]].prod(1)
        begin = end
    return bool(np.allclose(mine, theta.numpy().reshape(8, -1), rtol=1e-9, atol=1e-12))


@njit(nogil=True, inline="always")
def _velocity(y, H, T, b, c, d, entry, coefficient, factors, ends, decay, theta, G, out):
    """Write −Jᵀ ∂L/∂θ − λ y to ``out``, with ∂L/∂θ = (θ − T) H of problem b."""
    for i in range(len(theta)):
        theta[i] = 0.0
    begin = 0
    for m in range(len(ends)):
        product = coefficient[m]
        for f in range(begin, ends[m]):
            product *= y[factors[f]]
        theta[entry[m]] += product
        begin = ends[m]
    for i in range(c):
        for j in range(d):
            total = 0.0
            for k in range(d):
                total += (theta[i * d + k] - T[b, i, k]) * H[b, k, j]
            G[i * d + j] = total
    for i in range(len(y)):
        out[i] = -decay[i] * y[i]
    begin = 0
    for m in range(len(ends)):
        for f in range(begin, ends[m]):
            product = coefficient[m] * G[entry[m]]
            for g in range(begin, ends[m]):
                if g != f:
                    product *= y[factors[g]]
            out[factors[f]] -= product
        begin = ends[m]


@njit(nogil=True, inline="always")
def _first_step(y, slope, rtol, atol):
    """A first step for error control to correct; NaN if the state or its derivative is not finite."""
    sizes, slopes = 0.0, 0.0
    for i in range(len(y)):
        scale = atol + rtol * abs(y[i])
        sizes += (y[i] / scale) ** 2
        slopes += (slope[i] / scale) ** 2
    size, rate = math.sqrt(sizes / len(y)), math.sqrt(slopes / len(y))
    if not (size < math.inf and rate < math.inf):
        return math.nan
    h = (0.01 / max(rate, 1e-15)) ** 0.2
    return min(h, 0.01 * size / rate) if size > 1 and rate > 1e-15 else h


@njit(nogil=True, cache=True)
def _integrate(
    H, T, start, times, rtol, atol, max_steps, decay, entry, coefficient, factors, ends, saved, status, steps
):
    B, S = times.shape
    c, d, n = T.shape[1], T.shape[2], start.shape[1]
    K = np.empty((STAGES, n))
    z, theta, G = np.empty(n), np.empty(c * d), np.empty(c * d)
    for b in range(B):
        y = start[b].copy()
        end, t, h, log_before = times[b, S - 1], 0.0, 0.0, 0.0
        saves, taken, condition = 0, 0, OK
        if times[b, 0] == 0.0:
            for i in range(n):  # assigning the row would compile for seconds longer
                saved[b, 0, i] = y[i]
            saves = 1
        while saves < S and condition == OK:
            final = t + h >= end * (1 - SHORTEST)
            if final:
                h = end - t
            for stage in range(0 if taken == 0 else 1, STAGES):
                for i in range(n):
                    slope = 0.0
                    for j in range(stage):
                        slope += A[stage, j] * K[j, i]
                    z[i] = y[i] + h * slope
                _velocity(z, H, T, b, c, d, entry, coefficient, factors, ends, decay, theta, G, K[stage])
                if stage == 0:
                    h = _first_step(y, K[0], rtol, atol)
                    final = h >= end * (1 - SHORTEST)
                    if final:
                        h = end
            squared_error = 0.0
            for i in range(n):
                error = 0.0
                for j in range(STAGES):
                    error += E[j] * K[j, i]
                squared_error += (h * error / (atol + rtol * max(abs(y[i]), abs(z[i])))) ** 2
            squared_error /= n
            taken += 1
            if squared_error <= 1.0:
                reached = end if final else t + h
                while saves < S and times[b, saves] <= reached:
                    x = (times[b, saves] - t) / h
                    for i in range(n):
                        slope = 0.0
                        for j in range(STAGES):
                            slope += x * (D[j, 0] + x * (D[j, 1] + x * (D[j, 2] + x * D[j, 3]))) * K[j, i]
                        saved[b, saves, i] = y[i] + h * slope
                    saves += 1
                t = reached
                for i in range(n):
                    y[i], K[0, i] = z[i], K[STAGES - 1, i]
                log_error = math.log(max(math.sqrt(squared_error), SMALLEST_ERROR))
                h *= SAFETY * math.exp(PROPORTIONAL * log_error + INTEGRAL * log_before)
                log_before = log_error
            elif squared_error > 1.0:
                h *= max(SHRINK, SAFETY * squared_error ** (RETRY / 2))
            else:
                h *= SHRINK
            if saves < S:
                if not h > SHORTEST * t or h < 1e-100:
                    condition = NON_FINITE
                elif taken >= max_steps:
                    condition = STEP_LIMIT
        status[b], steps[b] = condition, taken


def integrate(
    polynomials: Polynomials,
    H: np.ndarray,
    T: np.ndarray,
    start: np.ndarray,
    decay: np.ndarray,
    times: np.ndarray,
    rtol: float,
    atol: float,
    max_steps: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters ``(B, S, n)`` at the saved times (NaN where not reached), status and steps ``(B,)``.

    ``H`` ``(B, d, d)``, ``T`` ``(B, c, d)``, ``start`` ``(B, n)`` and ``times`` ``(B, S)`` in float64; ``decay``
    ``(n,)`` of each parameter.
    """
    B, S = times.shape
    saved = np.full((B, S, start.shape[1]), math.nan)
    status, steps = np.empty(B, np.int64), np.empty(B, np.int64)
    H, T, start, times = (np.ascontiguousarray(x) for x in (H, T, start, times))
    p = polynomials
    _integrate(
        *(H, T, start, times, float(rtol), float(atol), max_steps, decay),
        *(p.entry, p.coefficient, p.factors, p.ends, saved, status, steps),
    )
    return saved, status, steps
