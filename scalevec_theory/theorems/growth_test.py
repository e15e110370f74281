"""Can the test of `growth` tell a bounded expectation from a growing one?  Its error rates on processes that are known.

- Ornstein–Uhlenbeck dX = −X dt + dB from 0, E[X²] → ½: bounded.
- Brownian motion, E[X²] = t, and squared Bessel processes of dimension δ, E[X²] = δt: growing with slope 1.
- Student diffusions dX = −(a/2) X/(1 + X²) dt + dB with stationary density ∝ (1 + X²)^(−a/2): E[X²] grows like √t
  for a = 2 and like ln t for a = 3, and converges for a > 3, with infinite variance of X² up to a = 5.

The rates that each scope allows were set after a first look at other draws; the processes' answers are mathematics.

Source: ours; the densities are the marginal laws of a scale vector with weight decay on W only (claim ``curvature``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from scalevec_theory.claim import Claim, Evidence, Scope, Setting, measured
from scalevec_theory.growth import growth
from scalevec_theory.paired import simulated

STEP = 0.1
TIMES = STEP * np.unique(np.round(np.geomspace(16, 128, 64) / STEP))
GROUPS, PATHS = 16, 64
"""Each trial of the test sees 16 groups of 64 paths."""

CONFIDENCE = 0.95

Drift = Callable[[np.ndarray], np.ndarray] | None
"""None is Brownian motion, whose increments from one time to the next are drawn at once."""


def squares(drift: Drift, dimension: int, trials: int, rng: np.random.Generator) -> np.ndarray:
    """Group means ``(trials, GROUPS, K)`` of ‖X‖² at `TIMES`, X in R^dimension from 0, by steps of `STEP`."""
    X = np.zeros((dimension, trials, GROUPS, PATHS))
    means = np.empty((trials, GROUPS, len(TIMES)))
    for k, interval in enumerate(np.diff(TIMES, prepend=0)):
        if drift is None:
            X += np.sqrt(interval) * rng.standard_normal(X.shape)
        else:
            for _ in range(round(interval / STEP)):
                X += drift(X) * STEP + np.sqrt(STEP) * rng.standard_normal(X.shape)
        means[..., k] = (X**2).sum(0).mean(-1)
    return means


def towards_zero(X: np.ndarray) -> np.ndarray:
    return -X


def student(X: np.ndarray, a: float) -> np.ndarray:
    return -a / 2 * X / (1 + X**2)


def answers(drift: Drift, dimension: int, trials: int, rng: np.random.Generator) -> list[str]:
    """The test's answers on independent simulations of one process."""
    means = squares(drift, dimension, trials, rng)
    return [growth(TIMES, trial).answer for trial in means]


def rate_at_most(limit: float, count: int, trials: int, detail: str, seed: int) -> Evidence:
    """Evidence that a rate is at most ``limit``: decided where its Clopper–Pearson interval excludes the limit."""
    from scipy.stats import binomtest  # slow to import, and no other claim needs it

    interval = binomtest(count, trials).proportion_ci(2 * CONFIDENCE - 1)
    middle, half = (interval.low + interval.high) / 2, (interval.high - interval.low) / 2
    return measured("simulation", limit - middle, detail, error=half, instances=trials, seed=seed)


def _scope(
    name: str, process: str, drift: Drift, opposite: str, *, missed: float, wrong: float = 0.05, dimension: int = 1
) -> Scope:
    """The test gives the ``opposite`` answer in at most the share ``wrong``, and no answer in at most ``missed``."""

    def measure(setting: Setting) -> list[Evidence]:
        trials = setting.choose(80, 200, 1000)
        found = answers(drift, dimension, trials, setting.rng)
        said = ", ".join(f"{answer} {found.count(answer)}" for answer in ("bounded", "growing", "undecided"))
        detail = f"of {trials} trials of {GROUPS} groups of {PATHS} paths to t = {TIMES[-1]:g}: {said}"
        limits = ((opposite, wrong), ("undecided", missed))
        return [rate_at_most(limit, found.count(a), trials, detail, setting.seed) for a, limit in limits if limit < 1]

    right = {"bounded": "growing", "growing": "bounded"}[opposite]
    power = f", and stays undecided in at most {missed:.0%}" if missed < 1 else ""
    statement = f"{process} is {right}: the test says {opposite} in at most {wrong:.0%} of trials{power}."
    return Scope(name, statement, True, measure=measure)


def _fooled(setting: Setting) -> list[Evidence]:
    """A process whose relaxation time exceeds the simulation: dX = −εX dt + dB with 1/ε = 2,000."""
    trials = setting.choose(12, 60, 400)
    found = answers(partial(_slow, rate=1 / 2000), 1, trials, setting.rng)
    wrong = found.count("growing") / trials
    detail = f"called growing in {wrong:.0%} of {trials} trials, though E[X²] → 1,000"
    stderr = (wrong * (1 - wrong) / trials) ** 0.5
    return [simulated(setting, "growth-test:slow-relaxation", 0.05 - wrong, detail, stderr=stderr, instances=trials)]


def _slow(X: np.ndarray, rate: float) -> np.ndarray:
    return -rate * X


claim = Claim(
    id="growth-test",
    title="The test that tells a bounded expectation from a growing one",
    statement="On processes of known answer the test of bounded against growing expectations is never wrong within its "
    "stated reach, and decides most of them.",
    formula=r"s = \frac{d \ln\,\mathbb{E}[X_t^2]}{d \ln\,t}: \qquad \hat s - 3\,\mathrm{se} > 0.05 \Rightarrow "
    r"\text{growing}, \qquad \hat s + 3\,\mathrm{se} < 0.05 \Rightarrow \text{bounded}",
    source="ours: the instrument behind the measured phase diagram of curvature",
    figures=("growth-test",),
    scopes=(
        _scope("ornstein-uhlenbeck", "E[X²] of an Ornstein–Uhlenbeck process", towards_zero, "growing", missed=0.3),
        _scope("brownian", "E[X²] of Brownian motion", None, "bounded", missed=0.1),
        _scope("bessel-3", "The squared Bessel process of dimension 3", None, "bounded", missed=0.1, dimension=3),
        _scope(
            "student-2",
            "E[X²] of the Student diffusion a = 2 (like √t)",
            partial(student, a=2.0),
            "bounded",
            missed=0.3,
        ),
        _scope(
            "student-3",
            "E[X²] of the Student diffusion a = 3 (like ln t)",
            partial(student, a=3.0),
            "bounded",
            missed=1,
        ),
        _scope(
            "student-4",
            "E[X²] of the Student diffusion a = 4 (tail index 3/2)",
            partial(student, a=4.0),
            "growing",
            missed=1,
            wrong=0.2,
        ),
        _scope("student-8", "E[X²] of the Student diffusion a = 8", partial(student, a=8.0), "growing", missed=0.5),
        Scope(
            "slow-relaxation",
            "The test calls a bounded expectation growing in at most 5% of trials, whatever the relaxation time.",
            False,
            measure=_fooled,
        ),
    ),
)
