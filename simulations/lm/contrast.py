"""What an experiment compares: one number for each seed, a linear combination over arms; its mean and interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import nctdtr, ndtr, stdtrit

from scalevec_theory.claim import Z_SCORE

LOSS = "held_out_loss"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Contrast:
    """The mean over seeds of Σ over arms of weight · metric, and what is asked of it; all is settled before the runs.

    Attributes
    ----------
    name : short, with hyphens.
    weights : by arm.
    metric : the held-out loss, or ``measure.number`` as in `measures`.
    logarithm : whether the metric's natural logarithm counts.
    evaluation : which evaluation along the run; of measures the first is the one after the start.
    within : the statement that is tested is that the mean lies between these two.
    paper : the paper's number; None where it gives none.
    """

    name: str
    weights: Mapping[str, float]
    metric: str = LOSS
    logarithm: bool = False
    evaluation: int = -1
    within: tuple[float, float] = (0.0, math.inf)
    paper: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for an interval that is empty."""
        low, high = self.within
        if not low < high:
            raise ValueError(f"contrast {self.name!r}: within={self.within}: expected a lower end below the upper one")

    @property
    def pair(self) -> tuple[str, str] | None:
        """The arms (worse, better) of a plain difference of losses; None for any other contrast."""
        arms = {weight: arm for arm, weight in self.weights.items()}
        plain = self.metric == LOSS and not self.logarithm and sorted(self.weights.values()) == [-1, 1]
        return (arms[1], arms[-1]) if plain else None

    @property
    def quantity(self) -> str:
        """What is combined: what may share an axis has the same name."""
        if self.metric == LOSS and not self.logarithm:
            return "difference of held-out losses" if self.pair is not None else "combination of held-out losses"
        measure = self.metric.partition(".")[0].replace("_", " ")
        return f"log {measure}" if self.logarithm else measure

    @property
    def formula(self) -> str:
        """The combination in words."""
        if self.pair is not None:
            return " − ".join(self.pair)
        what = f"log {self.metric}" if self.logarithm else self.metric
        if list(self.weights.values()) == [1]:
            return f"{what} of {next(iter(self.weights))}"
        terms = [
            f"{'−' if w < 0 else '+'} {'' if abs(w) == 1 else f'{abs(w):.3g} '}{a}" for a, w in self.weights.items()
        ]
        return f"{what}: {' '.join(terms).removeprefix('+ ')}"

    @property
    def units(self) -> str:
        return " nats per token" if self.metric == LOSS and not self.logarithm else ""

    @property
    def question(self) -> str:
        """What the mean is asked to be."""
        low, high = self.within
        if high == math.inf:
            return f"> {low:g}"
        return f"< {high:g}" if low == -math.inf else f"{low:g} to {high:g}"


def difference(name: str, worse: str, better: str, paper: float | None = None, **more: object) -> Contrast:
    """metric(worse) − metric(better), of the loss unless ``more`` says otherwise."""
    return Contrast(name, {worse: 1.0, better: -1.0}, paper=paper, **more)  # type: ignore[arg-type]


def ratio(name: str, arm: str, metric: str, within: tuple[float, float], **more: object) -> Contrast:
    """The logarithm of a metric that is a ratio, such as measured over predicted."""
    return Contrast(name, {arm: 1.0}, metric, True, within=within, **more)  # type: ignore[arg-type]


def mean(name: str, arm: str, metric: str, within: tuple[float, float], **more: object) -> Contrast:
    """The mean of a metric."""
    return Contrast(name, {arm: 1.0}, metric, within=within, **more)  # type: ignore[arg-type]


def slope(name: str, at: Mapping[str, float], metric: str, within: tuple[float, float], **more: object) -> Contrast:
    """The least-squares slope of log metric against log x, where arm a stands at x = ``at[a]``.

    Raises
    ------
    ValueError : fewer than two different places.
    """
    x = np.log(list(at.values()))
    x = x - x.mean()
    if not np.any(x):
        raise ValueError(f"contrast {name!r}: arms at {list(at.values())}; expected two different places or more")
    weights = dict(zip(at, (float(w) for w in x / (x @ x)), strict=True))
    return Contrast(name, weights, metric, True, within=within, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Estimate:
    """A contrast's mean with its interval.

    Attributes
    ----------
    value, stderr, low, high : mean over seeds, its standard error and Student's interval, in the contrast's units.
    seeds : how many.
    efficiency : of a plain difference of losses, the tokens after which ``better`` has the final loss of ``worse``, as
        a share of all; NaN if it never has, and for other contrasts.
    """

    value: float
    stderr: float
    low: float
    high: float
    seeds: int
    efficiency: float


def estimated(numbers: np.ndarray, efficiency: float = math.nan) -> Estimate:
    """The estimate from one number for each seed, two or more."""
    mean, stderr = float(numbers.mean()), float(numbers.std(ddof=1) / len(numbers) ** 0.5)
    half = float(stdtrit(len(numbers) - 1, (1 + CONFIDENCE) / 2)) * stderr
    return Estimate(mean, stderr, mean - half, mean + half, len(numbers), efficiency)


def decisive(seeds: int) -> float:
    """Standard errors beyond which a mean over seeds decides: Student's quantile of the tail of `Z_SCORE`."""
    return -float(stdtrit(seeds - 1, ndtr(-Z_SCORE)))


def power(threshold: float, spread: float, seeds: int) -> float:
    """Chance that a true value ``threshold`` is decided to be above 0, by the noncentral law of Student, for a standard
    deviation ``spread`` between seeds."""
    if spread == 0:
        return float(threshold > 0)
    return 1 - float(nctdtr(seeds - 1, threshold / (spread / seeds**0.5), decisive(seeds)))
