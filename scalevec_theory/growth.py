"""Does an expectation stay bounded or grow?  A test on means over independent groups of paths at increasing times.

The statistic is the slope of ln E[X(t)] against ln t over the last octaves of a simulation, by least squares, with a
jackknife over groups for its standard error.  Slope s > 0 means growth like t^s; a bounded expectation has slope 0.
The test calls the expectation *growing* if the slope exceeds `LEAST_SLOPE` by more than three standard errors,
*bounded* if it falls short of it by as much, and is otherwise undecided.  Many times help: they average over time.

What it cannot see: growth slower than t^0.05 over the simulated octaves (growth like ln t has slope 1/ln t, above 0.05
until t = e²⁰), a relaxation that is not over when the fit begins, and a rare event that no path met: a mean of infinite
variance is judged by its groups' spread only.  Of a bounded 1 − e^(−t/τ) with τ above T/17 the slope exceeds 0.05, and
once the noise is small it is called growing; one that comes down to its limit is never called growing.
The claim ``growth-test`` measures its error rates on processes whose answer is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalevec_theory.claim import Z_SCORE

LEAST_SLOPE = 0.05
"""The slope that separates the two answers."""

OCTAVES = 3.0
"""The slope is fitted to times from T/8 to T."""


@dataclass(frozen=True)
class Growth:
    """Slope of ln E[X] against ln t with its standard error; ``answer`` is bounded, growing or undecided."""

    slope: float
    stderr: float

    @property
    def answer(self) -> str:
        distance = (self.slope - LEAST_SLOPE) / self.stderr if self.stderr > 0 else np.nan
        if not np.isfinite(distance):
            return "undecided"
        return "growing" if distance > Z_SCORE else "bounded" if distance < -Z_SCORE else "undecided"


def growth(times: np.ndarray, means: np.ndarray) -> Growth:
    """The test on means ``(G, K)`` of G >= 8 independent groups at K >= 3 increasing times > 0.

    Raises
    ------
    ValueError : shapes that do not fit, fewer than 8 groups, or fewer than 3 times in the last `OCTAVES` octaves.
    """
    times, means = np.asarray(times, float), np.asarray(means, float)
    if times.ndim != 1 or means.shape[1:] != times.shape or len(means) < 8:
        raise ValueError(f"means has shape {means.shape}, times {times.shape}: expected (G, K) with G >= 8, and (K,)")
    if not (times[0] > 0 and (np.diff(times) > 0).all()):
        raise ValueError(f"times={times}: expected increasing and > 0")
    late = times >= times[-1] * 2.0 ** (-OCTAVES) * (1 - 1e-9)
    if late.sum() < 3:
        raise ValueError(f"times={times}: expected at least 3 from {times[-1] * 2.0**-OCTAVES:g} on")
    x = np.log(times[late])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    total = means[:, late].sum(0)
    G = len(means)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = float(np.log(total) @ weights)
        left_out = np.log(total - means[:, late]) @ weights
    return Growth(slope, float(np.sqrt((G - 1) / G * ((left_out - left_out.mean()) ** 2).sum())))
