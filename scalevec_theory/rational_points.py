"""Rational points at which given radicals are rational too."""

from __future__ import annotations

import numpy as np
from flint import fmpq, fmpq_mpoly, fmpz


def random_rational(rng: np.random.Generator) -> fmpq:
    return fmpq(int(rng.integers(1, 1000)), int(rng.integers(1, 10)))


def _root(x: fmpq, q: int) -> fmpq | None:
    """The rational q-th root of x > 0, if there is one."""
    if x <= 0:
        return None
    root = fmpq(fmpz(x.p).root(q), fmpz(x.q).root(q))
    return root if root**q == x else None


def make_power(point: list[fmpq], m: int, q: int, R: fmpq_mpoly, own: list[int], rng: np.random.Generator) -> bool:
    """Move the coordinates ``own`` of ``point`` so that R is a q-th power, and set coordinate m to the root.

    Small integers are tried first.  A square root of a quadratic then moves along a random line to the second point
    where it meets the line y = y0 + slope t, which is rational and generic.
    """
    for _ in range(3000):
        root = _root(R(*point), q)
        if root is not None:
            break
        for g in own:
            point[g] = fmpq(int(rng.integers(1, 13)))
    else:
        return False
    point[m] = root
    if q != 2:
        return True
    direction = [random_rational(rng) if g in own else fmpq(0) for g in range(len(point))]

    def on_line(t: fmpq | int) -> list[fmpq]:
        return [x + t * dx for x, dx in zip(point, direction, strict=True)]

    ahead, behind, slope = R(*on_line(1)), R(*on_line(-1)), random_rational(rng)
    linear, quadratic = (ahead - behind) / 2, (ahead + behind) / 2 - root**2
    t = (linear - 2 * root * slope) / (slope**2 - quadratic) if slope**2 != quadratic else fmpq(0)
    moved = on_line(t)
    moved[m] = root + slope * t
    if moved[m] ** 2 == R(*moved):
        point[:] = moved
    return True
