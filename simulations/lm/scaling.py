"""A scaling law L = E + A C^−a of the loss in the compute, and how much compute a design is worth by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares
from scipy.special import ndtr, stdtrit

from simulations.lm.contrast import CONFIDENCE
from simulations.lm.model import count_parameters

if TYPE_CHECKING:
    from simulations.lm.experiment import Experiment, Outcome

DRAWS = 1000


@dataclass(frozen=True)
class Scaling:
    """Arms of an experiment by growing size: those the law is fitted to, and those that are measured by it; and the
    compute multiplier that the paper has."""

    base: tuple[str, ...]
    improved: tuple[str, ...]
    paper: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for fewer than four sizes: three leave nothing to judge the law's three parameters by."""
        if len(self.base) < 4 or len(self.base) != len(self.improved):
            raise ValueError(f"scaling: {len(self.base)} and {len(self.improved)} sizes; expected four or more of each")


@dataclass(frozen=True, eq=False)
class Multiplier:
    """The base's compute for the loss of the improved arms over theirs: geometric mean over sizes, and its interval.

    Attributes
    ----------
    compute : of every size, 6 × parameters × tokens, in floating-point operations, ``(sizes,)``.
    base : mean losses of the base, ``(sizes,)``, in nats per token.
    limit, factor, exponent : the base's law, limit + factor · (C / the geometric mean of ``compute``)^−exponent.
    """

    value: float
    low: float
    high: float
    compute: np.ndarray
    base: np.ndarray
    limit: float
    factor: float
    exponent: float

    @property
    def residual(self) -> float:
        """The largest departure of the base's losses from the law, in nats per token."""
        return float(np.abs(self.law(self.compute) - self.base).max())

    def law(self, compute: np.ndarray) -> np.ndarray:
        """The base's loss at other compute, in nats per token."""
        return self.limit + self.factor * (compute / _unit(self.compute)) ** -self.exponent


def fitted(compute: np.ndarray, loss: np.ndarray, near: np.ndarray | None = None) -> np.ndarray:
    """(E, A, a) of least squares in the logarithm of the loss, all above 0; compute counts in its geometric mean.

    Parameters
    ----------
    compute, loss : ``(sizes,)``.
    near : parameters to start from; None: several starts, of which the best fit counts.
    """
    x, y = np.log(compute / _unit(compute)), np.log(loss)

    def residuals(p: np.ndarray) -> np.ndarray:
        return np.logaddexp(p[0], p[1] - np.exp(p[2]) * x) - y

    def jacobian(p: np.ndarray) -> np.ndarray:
        limit = np.exp(p[0] - residuals(p) - y)
        return np.stack([limit, 1 - limit, -(1 - limit) * np.exp(p[2]) * x], 1)

    middle = float(y.mean())
    starts = (
        [np.log(near)]
        if near is not None
        else [(middle + math.log(share), middle + math.log1p(-share), math.log(0.3)) for share in (0.1, 0.5, 0.8)]
    )
    found = [least_squares(residuals, start, jacobian, method="lm") for start in starts]
    best = min(found, key=lambda one: one.cost)
    return np.exp(best.x)


def multiplier(compute: np.ndarray, base: np.ndarray, improved: np.ndarray, near: np.ndarray | None = None) -> float:
    """Geometric mean over sizes of the compute at which the base's law has the improved loss, over that of its own.

    So the law's departures from the base's losses cancel.  It is infinite if a loss is not above the law's limit E.

    Parameters
    ----------
    compute, base, improved : ``(sizes,)``.
    """
    limit, _, exponent = fitted(compute, base, near)
    if not np.all(np.minimum(base, improved) > limit):
        return math.inf
    return float(np.exp(np.mean(np.log((base - limit) / (improved - limit)) / exponent)))


def interval(values: Sequence[float], seeds: int) -> tuple[float, float]:
    """The bootstrap interval of values that were drawn again from so many seeds, two or more.

    Its tails are such that for a mean it is Student's: the usual ones leave out that few seeds tell their own spread
    badly, and hold 89% for eight (Hesterberg 2015, "What teachers should know about the bootstrap").
    """
    student = float(stdtrit(seeds - 1, (1 + CONFIDENCE) / 2))
    tail = float(ndtr(-math.sqrt(seeds / (seeds - 1)) * student))
    low, high = np.quantile(values, [tail, 1 - tail], method="nearest")
    return float(low), float(high)


def compute_multiplier(experiment: Experiment, outcome: Outcome, draws: int = DRAWS) -> Multiplier:
    """The multiplier of the mean losses, with a bootstrap interval over seeds, which are drawn in pairs.

    Raises
    ------
    ValueError : an experiment without sizes.
    """
    scaling = experiment.scaling
    if scaling is None:
        raise ValueError(f"{experiment.id}: expected an experiment that says which of its arms are sizes")
    runs = [experiment.run(arm, 0, outcome.effort) for arm in scaling.base]
    compute = np.array([6.0 * count_parameters(r.architecture) * r.tokens for r in runs])
    seeds = sorted(set.intersection(*(set(outcome.curves[a]) for a in (*scaling.base, *scaling.improved))))
    base, improved = (_losses(outcome, arms, seeds) for arms in (scaling.base, scaling.improved))
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, len(seeds), len(seeds)) for _ in range(draws)]
    law = fitted(compute, base.mean(1))
    values = [multiplier(compute, base[:, d].mean(1), improved[:, d].mean(1), law) for d in drawn]
    low, high = interval(values, len(seeds))
    value = multiplier(compute, base.mean(1), improved.mean(1), law)
    return Multiplier(value, low, high, compute, base.mean(1), *map(float, law))


def _losses(outcome: Outcome, arms: Sequence[str], seeds: Sequence[int]) -> np.ndarray:
    """Final losses, ``(sizes, seeds)``."""
    return np.array([[outcome.curves[arm][seed][-1] for seed in seeds] for arm in arms])


def _unit(compute: np.ndarray) -> float:
    return float(np.exp(np.log(compute).mean()))
