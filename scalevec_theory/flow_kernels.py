"""Compiled gradient flow of least squares for θ = diag(u) W diag(v) with u, v learned or fixed at 1.

One problem's state, its stages, H and T lie in one scratch array in the first-level cache; a thread integrates its
problems one after another and allocates nothing in between.  W is cut into tiles of ROWS × LANES entries, padded with
zeros, which stay zero.
"""

# What numba compiles is untyped here.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

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
from scalevec_theory.simd import LANES, copy, item, larger_magnitude, load, put, store, total, zeros

ROWS = 4

_PART: dict[str, Any] = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(**_PART)
def _velocity(s, z, H, T, residual, out, c, d, width, decay, has_u, has_v):
    """Write the flow at state s[z:] to s[out:]: with G = (θ − T) H,

    Ẇ_ij = −u_i G_ij v_j − λ_W W_ij,  v̇_j = −Σ_i u_i W_ij G_ij − λ_v v_j,  u̇_i = −Σ_j W_ij v_j G_ij − λ_u u_i.
    """
    W, u = width, width + c * width
    decay_u, decay_v, decay_W = decay
    for i in range(0, c, ROWS):
        for j in range(0, width, LANES):
            v = load(s, z + j)
            for r in range(ROWS):
                at = (i + r) * width + j
                store(s, residual + at, item(s, z + u + i + r) * (load(s, z + W + at) * v) - load(s, T + at))
    if has_u:
        for i in range(0, c):
            put(s, out + u + i, -decay_u * item(s, z + u + i))
    for j in range(0, width, LANES):
        v = load(s, z + j)
        pull_v = decay_v * v
        for i in range(0, c, ROWS):
            G0, G1, G2, G3 = zeros(), zeros(), zeros(), zeros()
            row, at = residual + i * width, H + j
            for k in range(d):
                h = load(s, at)
                G0 = G0 + item(s, row + k) * h
                G1 = G1 + item(s, row + width + k) * h
                G2 = G2 + item(s, row + 2 * width + k) * h
                G3 = G3 + item(s, row + 3 * width + k) * h
                at += width
            for r in range(ROWS):
                G = G0 if r == 0 else (G1 if r == 1 else (G2 if r == 2 else G3))
                at = W + (i + r) * width + j
                w = load(s, z + at)
                uG = item(s, z + u + i + r) * G
                store(s, out + at, zeros() - (uG * v + decay_W * w))
                pull_v = pull_v + uG * w
                if has_u:
                    put(s, out + u + i + r, item(s, out + u + i + r) - total(w * v * G))
        if has_v:
            store(s, out + j, zeros() - pull_v)


@njit(**_PART)
def _stage(s, y, K, n, stage, h, z):
    """Write the argument of the given stage (a constant at every call, so that the sum is unrolled) to s[z:]."""
    for i in range(0, n, LANES):
        slope = zeros()
        for j in range(stage):
            slope = slope + A[stage, j] * load(s, K + j * n + i)
        store(s, z + i, load(s, y + i) + h * slope)


@njit(**_PART)
def _squared_error(s, y, z, K, n, h, rtol, atol):
    """Σ (error / (atol + rtol max(|y|, |z|)))² of the step from s[y:] to s[z:]."""
    squares = zeros()
    for i in range(0, n, LANES):
        error = zeros()
        for j in range(STAGES):
            error = error + E[j] * load(s, K + j * n + i)
        ratio = h * error / (atol + rtol * larger_magnitude(load(s, y + i), load(s, z + i)))
        squares = squares + ratio * ratio
    return total(squares)


@njit(**_PART)
def _interpolate(s, y, K, n, h, x, z):
    """Write the state at the fraction x of the step from s[y:] to s[z:]."""
    for i in range(0, n, LANES):
        slope = zeros()
        for j in range(STAGES):
            slope = slope + x * (D[j, 0] + x * (D[j, 1] + x * (D[j, 2] + x * D[j, 3]))) * load(s, K + j * n + i)
        store(s, z + i, load(s, y + i) + h * slope)


@njit(**_PART)
def _first_step(s, y, K, begin, n, count, rtol, atol):
    """A first step for error control to correct; NaN if the state or its derivative is not finite.

    Parameters are s[y + begin : y + n]: what lies before is a scale fixed at 1.
    """
    sizes, slopes = zeros(), zeros()
    for i in range(begin, n, LANES):
        state = load(s, y + i)
        scale = atol + rtol * larger_magnitude(state, state)
        size, slope = state / scale, load(s, K + i) / scale
        sizes, slopes = sizes + size * size, slopes + slope * slope
    size, slope = math.sqrt(total(sizes) / count), math.sqrt(total(slopes) / count)
    if not (size < math.inf and slope < math.inf):
        return math.nan
    h = (0.01 / max(slope, 1e-15)) ** 0.2
    return min(h, 0.01 * size / slope) if size > 1 and slope > 1e-15 else h


@njit(nogil=True, cache=True)
def _integrate(
    H, T, u, v, W, c, d, S, times, rtol, atol, max_steps, decay, first, last, out_u, out_v, out_W, status, steps, saves
):
    """Integrate problems first <= b < last; arrays are flat.  A scale of no entries is fixed at 1."""
    has_u, has_v = len(u) > 0, len(v) > 0
    width, rows = -(-d // LANES) * LANES, -(-c // ROWS) * ROWS
    at_W, at_u = width, width + rows * width
    size = at_u + -(-rows // LANES) * LANES
    n = size if has_u else at_u
    count = c * d + (c if has_u else 0) + (d if has_v else 0)
    y, z, sample, residual = 0, size, 2 * size, 3 * size
    at_H = residual + rows * width
    at_T = at_H + d * width
    K = at_T + rows * width
    s = np.zeros(K + STAGES * n)
    for j in range(d):
        s[y + j] = 1.0
    for i in range(c):
        s[y + at_u + i] = 1.0
    for b in range(first, last):
        if has_u:
            copy(u, b * c, s, y + at_u, c)
        if has_v:
            copy(v, b * d, s, y, d)
        for i in range(c):
            copy(W, (b * c + i) * d, s, y + at_W + i * width, d)
            copy(T, (b * c + i) * d, s, at_T + i * width, d)
        for j in range(d):
            copy(H, (b * d + j) * d, s, at_H + j * width, d)
        copy(s, y, s, z, size)
        t, h, end, log_before = 0.0, 0.0, times[b * S + S - 1], 0.0
        saved = 1 if times[b * S] == 0.0 else 0  # the caller knows the state at time 0
        taken, condition = 0, OK
        while saved < S and condition == OK:
            final = t + h >= end * (1 - SHORTEST)
            if final:
                h = end - t
            for stage in range(0 if taken == 0 else 1, STAGES):
                if stage == 1:
                    _stage(s, y, K, n, 1, h, z)
                elif stage == 2:
                    _stage(s, y, K, n, 2, h, z)
                elif stage == 3:
                    _stage(s, y, K, n, 3, h, z)
                elif stage == 4:
                    _stage(s, y, K, n, 4, h, z)
                elif stage == 5:
                    _stage(s, y, K, n, 5, h, z)
                elif stage == 6:
                    _stage(s, y, K, n, 6, h, z)
                _velocity(s, z, at_H, at_T, residual, K + stage * n, rows, d, width, decay, has_u, has_v)
                if stage == 0:
                    h = _first_step(s, y, K, 0 if has_v else width, n, count, rtol, atol)
                    final = h >= end
                    if final:
                        h = end
            squared_error = _squared_error(s, y, z, K, n, h, rtol, atol) / count
            taken += 1
            if squared_error <= 1.0:
                reached = end if final else t + h
                while saved < S and times[b * S + saved] <= reached:
                    _interpolate(s, y, K, n, h, (times[b * S + saved] - t) / h, sample)
                    at = b * S + saved
                    if has_u:
                        copy(s, sample + at_u, out_u, at * c, c)
                    if has_v:
                        copy(s, sample, out_v, at * d, d)
                    for i in range(c):
                        copy(s, sample + at_W + i * width, out_W, (at * c + i) * d, d)
                    saved += 1
                t = reached
                for i in range(0, n, LANES):
                    store(s, y + i, load(s, z + i))
                    store(s, K + i, load(s, K + (STAGES - 1) * n + i))
                log_error = math.log(max(math.sqrt(squared_error), SMALLEST_ERROR))
                h *= SAFETY * math.exp(PROPORTIONAL * log_error + INTEGRAL * log_before)
                log_before = log_error
            elif squared_error > 1.0:
                h *= max(SHRINK, SAFETY * squared_error ** (RETRY / 2))
            else:
                h *= SHRINK
            if saved < S:
                if not h > SHORTEST * t or h < 1e-100:
                    condition = NON_FINITE
                elif taken >= max_steps:
                    condition = STEP_LIMIT
        status[b], steps[b], saves[b] = condition, taken, saved


FEWEST_SHARED = 256
"""Problems from which on threads are used: starting them takes longer than they save on fewer."""


def integrate(
    H: np.ndarray,
    T: np.ndarray,
    start: Mapping[str, np.ndarray],
    decay: Mapping[str, float],
    times: np.ndarray,
    rtol: float,
    atol: float,
    max_steps: int,
    threads: int,
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Blocks at the saved times, status and steps of B problems, the same for any number of threads.

    ``H`` ``(B, d, d)``, ``T`` ``(B, c, d)``, ``start`` with W ``(B, c, d)`` and possibly u ``(B, c)`` and v ``(B, d)``,
    all float64; ``decay`` by block name; ``times`` ``(B, S)``.
    """
    B, S = times.shape
    c, d = T.shape[1:]
    blocks = [start.get(name, np.empty((B, 0))) for name in "uvW"]
    outputs = [np.empty((B, S, *block.shape[1:])) for block in blocks]
    status, steps, saves = (np.empty(B, np.int64) for _ in range(3))
    H, T, u, v, W, clock = (np.ascontiguousarray(x).reshape(-1) for x in (H, T, *blocks, times))
    rates = tuple(float(decay.get(name, 0.0)) for name in "uvW")
    flat = [x.reshape(-1) for x in outputs]

    def run(first: int, last: int) -> None:
        _integrate(
            *(H, T, u, v, W, c, d, S, clock, float(rtol), float(atol), max_steps, rates, first, last),
            *(*flat, status, steps, saves),
        )

    if threads == 1 or B < FEWEST_SHARED:
        run(0, B)
    else:
        share = max(1, -(-B // (8 * threads)))  # several shares a thread, since problems take different times
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(0, B, share), [min(first + share, B) for first in range(0, B, share)]))

    begun = times[:, 0] == 0
    unsaved = np.arange(S) >= saves[:, None]
    for output, block in zip(outputs, blocks, strict=True):
        output[begun, 0] = block[begun]
        output[unsaved] = np.nan
    return {name: x for name, x in zip("uvW", outputs, strict=True) if name in start}, status, steps
