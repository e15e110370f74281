"""Compiled Euler–Maruyama steps of noisy gradient flow of least squares for θ = W diag(v), v learned or fixed at 1.

64 paths of one problem are a group with a stream of random numbers of its own.  A group's state lies in the first-level
cache as structure of arrays, row by row of 64 paths, v first and then W; it takes all its steps before the next group.
"""

# What numba compiles is untyped here.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from scalevec_theory.generator import STATE, fill_normals, seed_stream
from scalevec_theory.generator import STREAM_LANES as LANES
from scalevec_theory.simd import item, load, store

_PART: dict[str, Any] = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(nogil=True, cache=True)
def seed_groups(seed, rng):
    """Give group g, a row of ``rng``, the stream number g."""
    for g in range(len(rng)):
        seed_stream(rng[g], seed, g)


@njit(**_PART)
def _correlate(noise, factor, outer, size, step, stride, width):
    """Replace series x of ``size`` rows by L x, L lower triangular: ``outer`` series ``step`` rows apart."""
    for lane in range(0, LANES, width):
        for series in range(outer):
            for i in range(size - 1, -1, -1):
                at = (series * step + i * stride) * LANES + lane
                value = item(factor, i * size + i) * load(noise, at)
                for k in range(i):
                    value = value + item(factor, i * size + k) * load(noise, at - (i - k) * stride * LANES)
                store(noise, at, value)


@njit(**_PART)
def _entry(s, noise, at, v, pull, G, h, gradient_noise, entry_noise, keep_W, W):
    """Move the entry ``at`` of W by its gradient; return the pull on v with this entry's share added."""
    xi, w = load(noise, at), load(s, W + at)
    D = h * G + gradient_noise * xi
    store(s, W + at, keep_W * w - v * D + entry_noise * xi)
    return pull + w * D


@njit(**_PART)
def _step(s, noise, E, H, T, c, d, has_v, h, gradient_noise, entry_noise, keep_v, keep_W, width):
    """One step: with D = G h + the noise of G, and plus the noise of the entries themselves,

    w_ij ← (1 − hλ_W) w_ij − v_j D_ij,  v_j ← (1 − hλ_v) v_j − Σ_i w_ij D_ij.
    """
    W = d * LANES
    for lane in range(0, LANES, width):
        for i in range(c):
            for j in range(d):
                at = i * d + j
                w = load(s, W + at * LANES + lane)
                store(E, at * width, load(s, j * LANES + lane) * w - item(T, at))
        for j in range(d):
            v = load(s, j * LANES + lane)
            pull = v - v
            i = 0
            while i + 4 <= c:
                e, x = i * d * width, item(H, j * d)
                G0, G1 = x * load(E, e), x * load(E, e + d * width)
                G2, G3 = x * load(E, e + 2 * d * width), x * load(E, e + 3 * d * width)
                for k in range(1, d):
                    e += width
                    x = item(H, j * d + k)
                    G0 = G0 + x * load(E, e)
                    G1 = G1 + x * load(E, e + d * width)
                    G2 = G2 + x * load(E, e + 2 * d * width)
                    G3 = G3 + x * load(E, e + 3 * d * width)
                at = (i * d + j) * LANES + lane
                row = d * LANES
                pull = _entry(s, noise, at, v, pull, G0, h, gradient_noise, entry_noise, keep_W, W)
                pull = _entry(s, noise, at + row, v, pull, G1, h, gradient_noise, entry_noise, keep_W, W)
                pull = _entry(s, noise, at + 2 * row, v, pull, G2, h, gradient_noise, entry_noise, keep_W, W)
                pull = _entry(s, noise, at + 3 * row, v, pull, G3, h, gradient_noise, entry_noise, keep_W, W)
                i += 4
            while i < c:
                G = item(H, j * d) * load(E, i * d * width)
                for k in range(1, d):
                    G = G + item(H, j * d + k) * load(E, (i * d + k) * width)
                at = (i * d + j) * LANES + lane
                pull = _entry(s, noise, at, v, pull, G, h, gradient_noise, entry_noise, keep_W, W)
                i += 1
            if has_v:
                xi = load(noise, (c * d + j) * LANES + lane)  # zeros where the entries have no noise of their own
                store(s, j * LANES + lane, keep_v * v - pull + entry_noise * xi)


@njit(nogil=True, cache=True)
def _advance(
    state,
    rng,
    groups,
    H,
    T,
    rows,
    columns,
    c,
    d,
    has_v,
    isotropic,
    h,
    scale,
    steps,
    decay_v,
    decay_W,
    width,
    first,
    last,
):
    """``steps`` steps of the groups first <= g < last; ``groups`` to a problem."""
    noise = np.zeros((c * d + d + 1) * LANES, state.dtype)
    drawn = noise[: (c * d + (d if isotropic and has_v else 0) + 1) // 2 * 2 * LANES]
    E = np.empty(c * d * width, state.dtype)
    gradient_noise, entry_noise = (0.0, scale) if isotropic else (scale, 0.0)
    for g in range(first, last):
        b = g // groups
        for _ in range(steps):
            fill_normals(rng[g], drawn)
            if rows.size > 0:
                _correlate(noise, rows[b], d, c, 1, d, width)
            if columns.size > 0:
                _correlate(noise, columns[b], c, d, d, 1, width)
            _step(
                *(state[g], noise, E, H[b], T[b], c, d, has_v, h, gradient_noise, entry_noise),
                *(1 - h * decay_v, 1 - h * decay_W, width),
            )


def advance(
    state: np.ndarray,
    rng: np.ndarray,
    H: np.ndarray,
    T: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    *,
    has_v: bool,
    isotropic: bool,
    h: float,
    sigma: float,
    steps: int,
    decay: tuple[float, float],
    threads: int,
) -> None:
    """Take ``steps`` steps of length ``h`` in place, with the same result for any number of threads.

    ``state`` ``(B * groups, d + c d, 64)`` and ``rng`` ``(B * groups, STATE)`` as `seed_groups` leaves it; ``H``
    ``(B, d, d)`` and ``T`` ``(B, c, d)`` of the state's type.  ``isotropic``: noise of size σ on every parameter;
    otherwise on the effective gradient, with covariance A Aᵀ across its rows and L Lᵀ across its columns for the lower
    triangular ``rows`` A ``(B, c, c)`` and ``columns`` L ``(B, d, d)``; of no entries where it is the identity.
    ``decay`` of v and of W.
    """
    B, c, d = T.shape
    total = len(state)
    flat = [np.ascontiguousarray(x, state.dtype).reshape(B, -1) for x in (H, T, rows, columns)]
    scalar = state.dtype.type

    def run(first: int, last: int) -> None:
        _advance(
            *(state.reshape(total, -1), rng, total // B, *flat, c, d, has_v, isotropic),
            *(scalar(h), scalar(sigma * h**0.5), steps, scalar(decay[0]), scalar(decay[1])),
            *(64 // state.itemsize, first, last),
        )

    if threads == 1:
        run(0, total)
    else:
        share = -(-total // (4 * threads))
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(0, total, share), [min(k + share, total) for k in range(0, total, share)]))


def new_streams(seed: int, count: int) -> np.ndarray:
    """The states of streams 0 … ``count`` − 1, ``(count, STATE)``."""
    rng = np.empty((count, STATE), np.uint64)
    seed_groups(np.uint64(seed), rng)
    return rng
