"""The generator: its integers are the published ones, its normals are normal, its streams are independent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import njit
from scipy import stats

from scalevec_theory import generator
from scalevec_theory.generator import (
    STATE,
    STREAM_LANES,
    TAIL,
    check_seed,
    fill_bits,
    fill_normals,
    normals,
    seed_stream,
)
from scalevec_theory.simd import load, store

MASK = 2**64 - 1
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def splitmix64(seed: int, count: int) -> list[int]:
    return [mix((seed + GOLDEN * (k + 1)) & MASK) for k in range(count)]


def xoshiro256pp(state: list[int], count: int) -> list[int]:
    def rotate(x: int, k: int) -> int:
        return (x << k | x >> (64 - k)) & MASK

    s, out = list(state), []
    for _ in range(count):
        out.append((rotate((s[0] + s[3]) & MASK, 23) + s[0]) & MASK)
        t = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
    return out


def reference_bits(seed: int, stream: int, count: int) -> np.ndarray:
    """``(count, 64)`` outputs of a stream, by Python's integers."""
    start = mix((seed + GOLDEN) & MASK) + stream * STATE * GOLDEN
    words = splitmix64(start, STATE)
    lanes = [xoshiro256pp(words[4 * lane : 4 * lane + 4], count) for lane in range(STREAM_LANES)]
    return np.array(lanes, np.uint64).T


@njit
def draw(seed: Any, stream: Any, fills: Any, out: Any) -> None:
    """Fill ``out`` in ``fills`` equal parts."""
    state = np.empty(STATE, np.uint64)
    seed_stream(state, seed, stream)
    part = len(out) // fills
    for k in range(fills):
        fill_normals(state, out[k * part : (k + 1) * part])


@njit
def draw_bits(seed: Any, stream: Any, out: Any) -> None:
    state = np.empty(STATE, np.uint64)
    seed_stream(state, seed, stream)
    fill_bits(state, out)


@njit
def pair32(radius: Any, angle: Any, first: Any, second: Any) -> None:
    a, b = generator._pair32(load(radius, 0), load(angle, 0))
    store(first, 0, a)
    store(second, 0, b)


@njit
def pair64(radius: Any, angle: Any, first: Any, second: Any) -> None:
    a, b = generator._pair64(load(radius, 0), load(angle, 0))
    store(first, 0, a)
    store(second, 0, b)


def test_references_give_published_outputs() -> None:
    """xoshiro256++ from the state 1, 2, 3, 4 and SplitMix64 from 1234567, as widely published."""
    assert xoshiro256pp([1, 2, 3, 4], 4) == [41943041, 58720359, 3588806011781223, 3591011842654386]
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(("seed", "stream"), [(0, 0), (1, 7), (2**64 - 1, 2**40 + 3)])
def test_integers_are_those_of_xoshiro(seed: int, stream: int) -> None:
    out = np.empty(10 * STREAM_LANES, np.uint64)
    draw_bits(np.uint64(seed), np.uint64(stream), out)
    np.testing.assert_array_equal(out.reshape(10, STREAM_LANES), reference_bits(seed, stream, 10))


@DTYPES
def test_normals_are_box_muller_of_the_integers(dtype: type) -> None:
    """Against logarithm, sine and cosine of the C library in long double, from the same uniform numbers."""
    rows = 40
    found = normals(3, [5], rows, dtype)[0].reshape(rows // 2, 2, STREAM_LANES).astype(float)
    integers = reference_bits(3, 5, rows * STREAM_LANES * np.dtype(dtype).itemsize // 512).reshape(-1)
    if dtype is np.float32:
        words = integers.view(np.int32).reshape(rows // 2, 2, STREAM_LANES)
        k, angle = words[:, 0].view(np.uint32), words[:, 1]
        u = ((k >> 1) * 2.0**-31 + 2.0**-32).astype(np.float32)
        x, left = (angle * 2.0**-31).astype(np.float32), angle & 1
    else:
        words = integers.reshape(rows // 2, 2, STREAM_LANES)
        u = (words[:, 0] >> 12) * 2.0**-52 + 2.0**-53
        x, left = (words[:, 1] >> 12) * 2.0**-51 - 1, words[:, 1] & 1
    r = np.sqrt(-2 * np.log(u.astype(np.longdouble)))
    phi = np.pi / 2 * x.astype(np.longdouble)
    expected = np.stack([np.where(left == 1, -1, 1) * r * np.cos(phi), r * np.sin(phi)], 1)
    # ten roundings, and polynomials within a rounding or two: relative to the radius, not to a small sine
    assert np.abs((found - expected) / r[:, None]).max() < 16 * np.finfo(dtype).eps / 2


@DTYPES
def test_tail_ends_where_stated_and_nothing_is_infinite(dtype: type) -> None:
    pair, integer, lanes = (pair32, np.int32, 16) if dtype is np.float32 else (pair64, np.uint64, 8)
    first, second = np.empty(lanes, dtype), np.empty(lanes, dtype)
    no_angle = np.full(lanes, 0 if dtype is np.float32 else 1 << 63, integer)
    pair(np.zeros(lanes, integer), no_angle, first, second)
    assert first[0] == pytest.approx(TAIL[dtype], rel=1e-6)
    assert second[0] == 0
    ones = np.full(lanes, -1 if dtype is np.float32 else MASK, integer)
    pair(ones, ones, first, second)
    assert np.isfinite(first).all() and np.abs(first).max() < 2e-3


@DTYPES
def test_moments(dtype: type) -> None:
    z = normals(11, range(256), 400, dtype).astype(float).reshape(-1)  # 6.6 million
    for power, (mean, variance) in {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96), 6: (15, 10170)}.items():
        score = (np.mean(z**power) - mean) / math.sqrt(variance / len(z))
        assert abs(score) < 4, f"moment {power} is {score:.1f} standard errors off"


@DTYPES
def test_distribution(dtype: type) -> None:
    z = normals(12, range(64), 400, dtype).astype(float)
    assert stats.kstest(z.reshape(-1), "norm").pvalue > 1e-3
    # each of the sine and cosine rows on its own, and the angle between them
    assert stats.kstest(z[:, ::2].reshape(-1), "norm").pvalue > 1e-3
    assert stats.kstest(z[:, 1::2].reshape(-1), "norm").pvalue > 1e-3
    angle = np.arctan2(z[:, 1::2], z[:, ::2]).reshape(-1) / (2 * np.pi) + 0.5
    assert stats.kstest(angle, "uniform").pvalue > 1e-3


@DTYPES
def test_tail_counts(dtype: type) -> None:
    """How many of 10⁸ lie beyond 3, 4, 5 and 5.7 on either side, against the normal law."""
    edges = np.array([3.0, 4.0, 5.0, 5.7])
    counts = np.zeros((2, len(edges)), np.int64)
    for part in range(16):
        z = normals(13, range(part * 100, part * 100 + 100), 1000, dtype).reshape(-1)
        counts += [[(sign * z > edge).sum() for edge in edges] for sign in (1, -1)]
    expected = 16 * 100 * 1000 * STREAM_LANES * stats.norm.sf(edges)
    for side in counts:
        assert (stats.poisson.sf(side - 1, expected) > 1e-4).all(), f"{side} against {expected}"
        assert (stats.poisson.cdf(side, expected) > 1e-4).all(), f"{side} against {expected}"


@pytest.mark.parametrize("transform", [lambda z: z, lambda z: z**2 - 1], ids=["values", "squares"])
@DTYPES
def test_lanes_streams_and_seeds_are_uncorrelated(dtype: type, transform: Any) -> None:
    """All pairs of lanes of neighbouring streams and seeds, and neighbouring rows: n Σ ρ² is χ² of the pairs."""
    rows = 4000
    z = np.concatenate([normals(seed, range(3), rows, dtype) for seed in (1, 2, 2**63)]).astype(float)
    x = transform(z.transpose(0, 2, 1).reshape(-1, rows))  # every lane of every stream a series
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    for lag in (0, 1, 2):
        rho = x[:, lag:] @ x[:, : rows - lag].T / (rows - lag)
        pairs = rho[np.triu_indices(len(x), 1)] if lag == 0 else rho.reshape(-1)
        total = (rows - lag) * (pairs**2).sum()
        assert abs(total - len(pairs)) < 5 * math.sqrt(2 * len(pairs)), f"lag {lag}: {total} against {len(pairs)}"
        assert np.abs(pairs).max() * math.sqrt(rows - lag) < 6.5


@DTYPES
def test_numbers_do_not_depend_on_threads_nor_on_other_streams(dtype: type) -> None:
    one = normals(4, range(7), 20, dtype)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(normals(4, range(7), 20, dtype, threads), one)
    np.testing.assert_array_equal(normals(4, [6, 2], 20, dtype), one[[6, 2]])
    assert (normals(5, range(7), 20, dtype) != one).mean() > 0.99


@DTYPES
def test_rows_follow_one_another(dtype: type) -> None:
    whole, parts = np.empty(20 * STREAM_LANES, dtype), np.empty(20 * STREAM_LANES, dtype)
    draw(np.uint64(1), np.uint64(2), 1, whole)
    draw(np.uint64(1), np.uint64(2), 5, parts)
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(whole.reshape(20, STREAM_LANES), normals(1, [2], 20, dtype)[0])


def test_bad_input_is_named() -> None:
    for seed in (-1, 2**64, 1.5, True):
        with pytest.raises(ValueError, match="seed="):
            check_seed(seed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rows=3"):
        normals(1, [0], 3)
    with pytest.raises(ValueError, match="dtype="):
        normals(1, [0], 2, np.float16)
    with pytest.raises(ValueError, match="streams holds -1"):
        normals(1, [-1], 2)
