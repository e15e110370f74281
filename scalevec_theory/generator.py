"""Normal random numbers inside compiled kernels: xoshiro256++ on 64 lanes, Box–Muller on vectors.

A *stream* is 64 independent generators (lanes), seeded by the successive outputs of one SplitMix64 sequence; it is
keyed by (seed, stream number), so what it yields depends neither on the number of threads nor on who else draws.
In a kernel, which gives each group of 64 paths or coordinates a stream of its own:

    state = np.empty(STATE, np.uint64)
    seed_stream(state, seed, stream)
    buffer = np.empty(ROWS * STREAM_LANES, np.float32)  # ROWS even; small enough for the first-level cache
    for block in range(blocks):
        fill_normals(state, buffer)  # row r, buffer[r * STREAM_LANES + lane], belongs to the 64 lanes
        ...

Rows follow one another: two fills of 10 rows give the numbers of one fill of 20.

The normals are exact up to rounding and up to the tail, which ends where the uniform number under the logarithm does:
at √(64 ln 2) = 6.66 for float32, of 32 bits (beyond it lie 2.7e-11 of a normal's mass), and at √(106 ln 2) = 8.57 for
float64, of 53 bits (1.0e-17).

Sources: Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2021), for xoshiro256++, with
SplitMix64 as the seeding they advise; Box and Muller (1958).
"""

# What numba compiles is untyped here.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.polynomial import Chebyshev, Polynomial

from scalevec_theory.simd import bits, from_bits, load, shift_right, sqrt, store, to_float

STREAM_LANES = 64
STATE = 4 * STREAM_LANES
"""Length of a stream's state, an array of uint64."""

TAIL = {np.float32: math.sqrt(64 * math.log(2)), np.float64: math.sqrt(106 * math.log(2))}
"""The largest magnitude a normal number can have."""

_PART: dict[str, Any] = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_U, _I, _F = np.uint64, np.int32, np.float32


def _polynomial(function: Callable[[np.ndarray], np.ndarray], count: int, end: tuple[float, float], dtype: type) -> Any:
    """Coefficients, lowest first, of the polynomial through ``function`` at the Chebyshev points of an interval."""
    fit = Chebyshev.interpolate(function, count - 1, domain=end)
    return tuple(dtype(c) for c in fit.convert(kind=Polynomial).coef)


def _log(t: np.ndarray) -> np.ndarray:
    return -2 * np.log1p(t) / t


def _atanh(y: np.ndarray) -> np.ndarray:
    return -4 * np.arctanh(np.sqrt(y)) / np.sqrt(y)


def _sine(y: np.ndarray) -> np.ndarray:
    return np.sin(np.pi / 2 * np.sqrt(y)) / np.sqrt(y)


def _cosine(y: np.ndarray) -> np.ndarray:
    return np.cos(np.pi / 2 * np.sqrt(y))


# m ∈ [√½, √2] is the mantissa under the logarithm: ln m is a series in m − 1, or in ((m − 1)/(m + 1))².
_LOG32 = _polynomial(_log, 9, (math.sqrt(0.5) - 1, math.sqrt(2) - 1), _F)
_LOG64 = _polynomial(_atanh, 8, (0, (math.sqrt(2) - 1) ** 4), float)
_SIN32, _COS32 = (_polynomial(f, 5, (0, 1), _F) for f in (_sine, _cosine))
_SIN64, _COS64 = (_polynomial(f, 9, (0, 1), float) for f in (_sine, _cosine))
_HALF32, _HALF64 = int(np.float32(math.sqrt(0.5)).view(np.int32)), int(np.float64(math.sqrt(0.5)).view(np.int64))
_LN4_32, _LN4_64 = _F(-2 * math.log(2)), -2 * math.log(2)
_ONE64 = 1023 << 52  # the bits of 1.0


@njit(**_PART)
def _mix(x):
    """The output function of SplitMix64."""
    x = (x ^ (x >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U(27))) * _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


@njit(**_PART)
def seed_stream(state, seed, stream):
    """Set a stream's state.  Streams of one seed share no word of seed: each takes the next ``STATE`` outputs."""
    start = _mix(_U(seed) + _U(0x9E3779B97F4A7C15)) + _U(stream) * _U(STATE) * _U(0x9E3779B97F4A7C15)
    for lane in range(STREAM_LANES):
        for word in range(4):
            start += _U(0x9E3779B97F4A7C15)
            state[word * STREAM_LANES + lane] = _mix(start)


@njit(**_PART)
def fill_bits(state, out):
    """Fill ``out``, uint64 of a length that is a multiple of 64, with rows of one output of every lane."""
    for lane in range(0, STREAM_LANES, 8):
        s0, s1 = load(state, lane), load(state, lane + STREAM_LANES)
        s2, s3 = load(state, lane + 2 * STREAM_LANES), load(state, lane + 3 * STREAM_LANES)
        at = lane
        for _ in range(len(out) // STREAM_LANES):
            x = s0 + s3
            store(out, at, ((x << 23) | (x >> 41)) + s0)
            at += STREAM_LANES
            t = s1 << 17
            s2 = s2 ^ s0
            s3 = s3 ^ s1
            s1 = s1 ^ s2
            s0 = s0 ^ s3
            s2 = s2 ^ t
            s3 = (s3 << 45) | (s3 >> 19)
        store(state, lane, s0)
        store(state, lane + STREAM_LANES, s1)
        store(state, lane + 2 * STREAM_LANES, s2)
        store(state, lane + 3 * STREAM_LANES, s3)


@njit(**_PART)
def _horner(coefficients, x):
    value = coefficients[-2] + coefficients[-1] * x
    for k in range(3, len(coefficients) + 1):
        value = coefficients[-k] + value * x
    return value


@njit(**_PART)
def _pair32(radius, angle):
    """Two vectors of normals from two of random int32: r cos φ and r sin φ with r² = −2 ln u and φ uniform.

    The angle's sine and the cosine's magnitude come from its right half, the cosine's sign from its lowest bit.
    """
    u = to_float(shift_right(radius, 1)) * _F(2.0**-31) + _F(2.0**-32)
    exponent = (bits(u) - _HALF32) >> 23
    t = from_bits(bits(u) - (exponent << 23)) - _F(1)
    r = sqrt(_horner(_LOG32, t) * t + to_float(exponent) * _LN4_32)
    x = to_float(angle) * _F(2.0**-31)
    signed = from_bits(bits(r) ^ (angle << 31))
    return signed * _horner(_COS32, x * x), r * x * _horner(_SIN32, x * x)


@njit(**_PART)
def _pair64(radius, angle):
    """`_pair32` for two vectors of random uint64."""
    u = from_bits((radius >> 12) | _ONE64) - (1 - 2.0**-53)
    exponent = (bits(u) - _U(_HALF64) + _U(_ONE64)) >> 52  # plus 1023
    t = from_bits(bits(u) - (exponent << 52) + _U(_ONE64)) - 1.0
    s = t / (t + 2.0)
    count = from_bits(exponent | _U(0x4330000000000000)) - (2.0**52 + 1023)  # the exponent as a float
    r = sqrt(_horner(_LOG64, s * s) * s + count * _LN4_64)
    x = from_bits((angle >> 12) | _ONE64) * 2.0 - 3.0
    signed = from_bits(bits(r) ^ (angle << 63))
    return signed * _horner(_COS64, x * x), r * x * _horner(_SIN64, x * x)


def fill_normals(state, out):
    """In a kernel: fill ``out``, flat float32 or float64 of an even number of rows of 64, with standard normals."""
    raise NotImplementedError("fill_normals is called from kernels compiled by numba")


@overload(fill_normals, jit_options={"nogil": True, "forceinline": True})
def _fill_normals(state, out):
    pair, integer, width = {
        types.float32: (_pair32, np.int32, 16),
        types.float64: (_pair64, np.uint64, 8),
    }[out.dtype]

    def fill(state, out):  # the random bits are drawn into the array and then turned into normals there
        fill_bits(state, out.view(np.uint64))
        words = out.view(integer)
        for row in range(0, len(out), 2 * STREAM_LANES):
            for i in range(row, row + STREAM_LANES, width):
                first, second = pair(load(words, i), load(words, i + STREAM_LANES))
                store(out, i, first)
                store(out, i + STREAM_LANES, second)

    return fill


@njit(nogil=True, cache=True)
def _rows(seed, streams, out):
    state = np.empty(STATE, np.uint64)
    for k in range(len(streams)):
        seed_stream(state, seed, streams[k])
        fill_normals(state, out[k])


def check_seed(seed: int) -> np.uint64:
    """The seed as a kernel takes it.

    Raises
    ------
    ValueError : not an integer from 0 to 2⁶⁴ − 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise ValueError(f"seed={seed!r}: expected an integer from 0 to 2**64 - 1")
    return np.uint64(seed)


def normals(
    seed: int, streams: Sequence[int], rows: int, dtype: type[np.floating[Any]] = np.float64, threads: int = 1
) -> np.ndarray:
    """The first ``rows`` rows of standard normals of each stream, ``(streams, rows, 64)``, as kernels see them.

    Raises
    ------
    ValueError : the seed or a stream is not in [0, 2⁶⁴) or [0, 2⁵⁶), ``rows`` is not even and positive, ``dtype`` is
        neither float32 nor float64.
    """
    if rows < 1 or rows % 2:
        raise ValueError(f"rows={rows}: expected an even number >= 2")
    if dtype not in TAIL:
        raise ValueError(f"dtype={dtype!r}: expected numpy.float32 or numpy.float64")
    for stream in streams:
        if not 0 <= stream < 2**56:
            raise ValueError(f"streams holds {stream}: expected integers from 0 to 2**56 - 1")
    key, numbers = check_seed(seed), np.asarray(streams, np.uint64)
    out = np.empty((len(streams), rows * STREAM_LANES), dtype)
    with ThreadPoolExecutor(threads) as pool:
        parts = zip(np.array_split(numbers, threads), np.array_split(out, threads), strict=True)
        list(pool.map(lambda part: _rows(key, *part), parts))
    return out.reshape(len(streams), rows, STREAM_LANES)
