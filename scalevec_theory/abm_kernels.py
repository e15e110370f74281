"""Compiled noise-driven walks: 64 coordinates at a time go through all their steps in the first-level cache.

A block of 64 coordinates has a stream of random numbers of its own, so that nothing depends on the number of threads.
Normals are drawn for ROWS steps of a block; one vector of coordinates after another, its weights and optimizer state in
registers, then takes these steps.  Four kinds of update cover every optimizer but Muon; what differs from step to step
(schedules, bias corrections) is a row of coefficients.
"""

# What numba compiles is untyped here.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from scalevec_theory.generator import STATE, STREAM_LANES, check_seed, fill_normals, seed_stream
from scalevec_theory.optimizers import SGD, Adam, Lion, Optimizer, RMSProp, SignSGD
from scalevec_theory.sign_updates import gradient_filter
from scalevec_theory.simd import bits, broadcast, from_bits, item, load, sqrt, store, total

ROWS = 32
ADAMW, ADAM, MOMENTUM, SIGN = range(4)
COLUMNS = 4
"""Coefficients of a step: what multiplies w, the L2 term, the update (−η with bias corrections), and √v."""

_PART: dict[str, Any] = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(**_PART)
def _adamw(x, m, v, g, coefficients, k, constants):
    """``constants`` are β₁, β₂ and ε; m and v lack their factors 1 − β, which the coefficients hold."""
    m = item(constants, 0) * m + g
    v = item(constants, 1) * v + g * g
    size = sqrt(v) * item(coefficients, k + 3) + item(constants, 2)
    return x * item(coefficients, k) + item(coefficients, k + 2) * (m / size), m, v


@njit(**_PART)
def _adam(x, m, v, g, coefficients, k, constants):
    """Adam and RMSProp.  Apart from AdamW, whose steps need not wait for each other's divisions as these do."""
    return _adamw(x, m, v, g + item(coefficients, k + 1) * x, coefficients, k, constants)


@njit(**_PART)
def _momentum(x, m, v, g, coefficients, k, constants):
    """SGD: ``constants`` are the momentum and the parts of the gradient and of the buffer in the update."""
    g = g + item(coefficients, k + 1) * x
    m = item(constants, 0) * m + g
    return x + item(coefficients, k + 2) * (item(constants, 1) * g + item(constants, 2) * m), m, v


@njit(**_PART)
def _sign(x, m, v, g, coefficients, k, constants):
    """SignSGD, Lion: ``constants`` are the filter's own, past, memory and 1 − memory, then 1 and −0; sign(0) is ±1."""
    q = item(constants, 0) * g + item(constants, 1) * m
    sign = from_bits(bits(broadcast(item(constants, 4))) | (bits(q) & bits(broadcast(item(constants, 5)))))
    m = item(constants, 2) * m + item(constants, 3) * g
    return x * item(coefficients, k) + item(coefficients, k + 2) * sign, m, v


def _advance_with(step):
    """The kernel that takes a vector of coordinates from step t to ``end`` by an update rule."""

    @njit(**_PART)
    def advance(w, mean, square, i, normals, t, end, coefficients, constants, record, saved, squares, total_at):
        x, m, v = load(w, i), load(mean, i), load(square, i)
        at = i
        while t < end:
            k, g = t * COLUMNS, load(normals, at)
            x, m, v = step(x, m, v, g, coefficients, k, constants)
            at += STREAM_LANES
            t += 1
            if t == record[saved]:
                squares[saved, total_at] += total(x * x)
                saved += 1
        store(w, i, x)
        store(mean, i, m)
        store(square, i, v)
        return saved

    return advance


_advance_adamw, _advance_adam, _advance_momentum, _advance_sign = (
    _advance_with(step) for step in (_adamw, _adam, _momentum, _sign)
)


@njit(**_PART)
def _student(normals, df):
    """Turn groups of 1 + df rows of normals into rows of Student's t of variance 1, at the front of the array."""
    for row in range(len(normals) // ((1 + df) * STREAM_LANES)):
        for lane in range(STREAM_LANES):
            at = row * (1 + df) * STREAM_LANES + lane
            chi2 = normals[at + STREAM_LANES] ** 2
            for r in range(2, 1 + df):
                chi2 += normals[at + r * STREAM_LANES] ** 2
            normals[row * STREAM_LANES + lane] = normals[at] * np.sqrt((df - 2) / chi2)


@njit(**_PART)
def _filter(normals, last, width, noise, correlation):
    """Turn ROWS rows ξ into gradients g_t = φ g_{t−1} + √(1 − φ²) noise ξ_t; ``last`` is the gradient before."""
    share = noise * np.sqrt(1 - correlation * correlation)
    for i in range(0, STREAM_LANES, width):
        g = load(last, i)
        for at in range(i, ROWS * STREAM_LANES, STREAM_LANES):
            g = correlation * g + share * load(normals, at)
            store(normals, at, g)
        store(last, i, g)


@njit(nogil=True, cache=True)
def _walk(kind, seed, first, last_block, init, df, noise, phi, coefficients, constants, record, w, squares):
    """Walk blocks first <= b < last_block; w is flat, ``squares`` ``(S, blocks)``."""
    state = np.empty(STATE, np.uint64)
    drawn = np.empty(ROWS * (1 + df) * STREAM_LANES, w.dtype)
    x, last = np.empty(STREAM_LANES, w.dtype), np.empty(STREAM_LANES, w.dtype)
    mean, square = np.empty(STREAM_LANES, w.dtype), np.empty(STREAM_LANES, w.dtype)
    width, steps = 64 // w.itemsize, len(coefficients) // COLUMNS
    for b in range(first, last_block):
        seed_stream(state, seed, b)
        fill_normals(state, drawn[: 2 * STREAM_LANES])
        for lane in range(STREAM_LANES):
            x[lane] = init * drawn[lane]
            last[lane] = noise * drawn[STREAM_LANES + lane]
            mean[lane] = square[lane] = 0
        saved = 0
        if record[0] == 0:
            for lane in range(STREAM_LANES):
                squares[0, b] += x[lane] * x[lane]
            saved = 1
        for t in range(0, steps, ROWS):
            fill_normals(state, drawn)
            if df > 0:
                _student(drawn, df)
            if phi != 0 or noise != 1:
                _filter(drawn, last, width, noise, phi)
            end, before = min(t + ROWS, steps), saved
            for i in range(0, STREAM_LANES, width):
                inputs = (x, mean, square, i, drawn, t, end, coefficients, constants, record, before)
                if kind == ADAMW:
                    saved = _advance_adamw(*inputs, squares, b)
                elif kind == ADAM:
                    saved = _advance_adam(*inputs, squares, b)
                elif kind == MOMENTUM:
                    saved = _advance_momentum(*inputs, squares, b)
                else:
                    saved = _advance_sign(*inputs, squares, b)
        for lane in range(STREAM_LANES):  # to assign a slice takes seconds to compile, for its error message
            w[b * STREAM_LANES + lane] = x[lane]


def walk(
    optimizer: Optimizer,
    blocks: int,
    lr: np.ndarray,
    weight_decay: np.ndarray,
    *,
    seed: int,
    init: float,
    noise: float,
    correlation: float,
    student_df: int | None,
    record: np.ndarray,
    dtype: Any,
    threads: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Weights ``(64 blocks,)`` after the last step, and their sums of squares by block at the recorded steps ``(S,
    blocks)``; arguments are checked by the caller."""
    kind, constants = _constants(optimizer)
    steps = np.arange(1, len(lr) + 1)
    columns = np.zeros((len(lr), COLUMNS))
    columns[:, 0] = 1 if optimizer.coupled else 1 - lr * weight_decay
    columns[:, 1] = weight_decay if optimizer.coupled else 0
    columns[:, 2] = -lr
    columns[:, 3] = 1
    if isinstance(optimizer, Adam):
        beta1, beta2 = optimizer.betas
        columns[:, 2] *= (1 - beta1) / (1 - beta1**steps)
        columns[:, 3] = np.sqrt((1 - beta2) / (1 - beta2**steps))
    elif isinstance(optimizer, RMSProp):
        columns[:, 3] = np.sqrt(1 - optimizer.alpha)
    key, size = check_seed(seed), blocks * STREAM_LANES
    w, squares = np.empty(size, dtype), np.zeros((len(record), blocks))
    targets = np.append(record, np.iinfo(np.int64).max)  # what comes after the last is never reached
    law = (dtype(init), student_df or 0, dtype(noise), dtype(correlation))
    tables = (columns.astype(dtype).reshape(-1), np.array(constants, dtype), targets)

    def run(first: int, last: int) -> None:
        _walk(kind, key, first, last, *law, *tables, w, squares)

    share = max(1, -(-blocks // (4 * threads)))  # several shares a thread, should one be held up
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(0, blocks, share), [min(b + share, blocks) for b in range(0, blocks, share)]))
    return w, squares


def _constants(optimizer: Optimizer) -> tuple[int, list[float]]:
    if isinstance(optimizer, Adam | RMSProp):
        beta1, beta2 = optimizer.betas if isinstance(optimizer, Adam) else (0.0, optimizer.alpha)
        return ADAM if optimizer.coupled else ADAMW, [beta1, beta2, optimizer.eps]
    if isinstance(optimizer, SGD):
        parts = [1.0, optimizer.momentum] if optimizer.nesterov else [0.0, 1.0]
        return MOMENTUM, [optimizer.momentum, *parts]
    assert isinstance(optimizer, SignSGD | Lion)
    q = gradient_filter(optimizer)
    return SIGN, [q.own, q.past, q.memory, 1 - q.memory, 1.0, -0.0]
