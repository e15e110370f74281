"""Rational points at which given radicals are rational too."""

from __future__ import annotations

import numpy as np
from flint import fmpq, fmpq_mpoly, fmpz


def random_rational(rng: np.random.Generator) -> fmpq:
    return fmpq(int(rng.integers(1, 1000)), int(rng.integers(1, 10)))


def make_power(point: list[fmpq], m: int, q: int, R: fmpq_mpoly, own: list[int], rng: np.random.Generator) -> bool:
    """Move the coordinates ``own`` of ``point`` so that R is a q-th power, and set coordinate m to its root.

    A coordinate in which R is linear is solved for.  A square root otherwise starts at a small integer point where R
    is a square and moves to the second point where a random line through it meets R = y².  Failing both, a small
    integer point has to do.
    """
    linear = [g for g in own if R.degrees()[g] == 1]
    if linear:
        (g, *_), root = linear, random_rational(rng)
        at_zero, at_one = (R(*(fmpq(x) if i == g else c for i, c in enumerate(point))) for x in (0, 1))
        if at_one == at_zero:
            return False
        point[g], point[m] = (root**q - at_zero) / (at_one - at_zero), root
        return True
    for _ in range(3000):
        root = _root(R(*point), q)
        if root is not None:
            if q == 2 and _second_intersection(point, m, root, R, own, rng):
                return True
            if root:
                point[m] = root
                return True
        for g in own:
            point[g] = fmpq(int(rng.integers(-12 if q == 2 else 1, 13)))
    return False


def _root(x: fmpq, q: int) -> fmpq | None:
    """The rational q-th root of x >= 0, if there is one."""
    if x < 0:
        return None
    root = fmpq(fmpz(x.p).root(q), fmpz(x.q).root(q))
    return root if root**q == x else None


def _second_intersection(
    point: list[fmpq], m: int, root: fmpq, R: fmpq_mpoly, own: list[int], rng: np.random.Generator
) -> bool:
    """Move from a point with R = root² along a random line y = root + slope t, if R is quadratic along it."""
    direction = [random_rational(rng) if g in own else fmpq(0) for g in range(len(point))]
    slope = random_rational(rng)

    def on_line(t: fmpq | int) -> list[fmpq]:
        return [x + t * dx for x, dx in zip(point, direction, strict=True)]

    ahead, behind = R(*on_line(1)), R(*on_line(-1))
    linear, quadratic = (ahead - behind) / 2, (ahead + behind) / 2 - root**2
    if slope**2 == quadratic:
        return False
    t = (linear - 2 * root * slope) / (slope**2 - quadratic)
    moved = on_line(t)
    moved[m] = root + slope * t
    if not moved[m] or moved[m] ** 2 != R(*moved):
        return False
    point[:] = moved
    return True
