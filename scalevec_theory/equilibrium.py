"""The noise–decay equilibrium: how large weights grow that an optimizer moves by noise alone and weight decay holds.

Gradients are i.i.d., of mean 0 and standard deviation ``noise``.  `predict` follows E[w²] through any schedule,
`equilibrium` is its limit, `leading_order` the limit for small ηλ and β₂ → 1 in closed form.  E[w²] is exact for SGD;
for SignSGD, Lion (Gaussian gradients) up to the table of arcsin; for the Adam family to first order in 1 − β₂; for Muon
in the limit of large matrices.

Source: arXiv 2601.04890 (noise–weight-decay equilibrium, E[w²] = η/(2λ)); scale-invariant weights: Kosson et al. 2023,
"Rotational Equilibrium".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from scalevec_theory import linear_updates as linear
from scalevec_theory import sign_updates as signs
from scalevec_theory.counts import check_count
from scalevec_theory.norm_spread import InvariantRule, norm_spread, spread_law
from scalevec_theory.optimizers import SGD, Adam, AdamW, Muon, Optimizer, RMSProp, check_optimizer

FloatArray = np.ndarray
Shape = tuple[int, ...]

SMALLEST_MEMORY, LARGEST_PRODUCT, LARGEST_KURTOSIS = 0.95, 0.01, 4.5
"""β₂, ηλ (over σ + ε where decay is coupled) and kurtosis up to which the Adam family's expansion has been tested: to
0.5% at rest, and to 1% on the way from step 20 on."""

LARGEST_DECAY = 0.15
"""λ√E[w²]/(σ + ε) up to which the same is true of coupled decay: beyond, v̂ is made of the weight, not of the noise."""

LEAST_WARMUP = 5
"""Steps of warm-up without which RMSProp, whose first steps are its largest, is off by up to 2.5% after step 20."""

SMALLEST_INVARIANT, LARGEST_EPSILON = 128, 0.005
"""Entries of scale-invariant weights, and ε‖w‖/σ, where their laws have been tested."""

LARGEST_STEP = 0.4
"""η over the rms of scale-invariant weights up to which AdamW's law is within 2% on the way to rest: where one step
changes the norm by much, v̂ is made of the first gradients and is not near its mean."""

LARGEST_REMEMBERED = 0.1
"""ηλ (SGD: ηλ/(1 − μ)) times 1/(1 − β) up to which the spread of scale-invariant norms was within 15% at rest."""

MUON_SPREAD, MUON_SPREAD_TOLD = 4.0, 1.05
"""What the law of the spread of scale-invariant norms lacks under Muon, in ηλ, and the factor from which it is told.

3 to 4.5 were measured on matrices of 8 × 16, 8 × 64 and 16 × 16, momentum 0.9 and 0.95, at ηλ from 0.005 to 0.02."""

SMALLEST_MATRIX = 4
"""Rows and columns from which Muon's limit of large matrices is within 3%."""

NORM_GUARD = 1e-7
"""What torch's Muon divides by where the norm of a matrix of gradients is smaller."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is expected of the weights at steps 0 … T.

    Attributes
    ----------
    mean_square : E[w²], ``(T + 1,)``.
    update_mean_square : E[u²] of the updates ηu that led to steps 1 … T, ``(T,)``.
    lr : η at steps 1 … T, ``(T,)``.
    retain : what steps 1 … T multiply w by apart from the update, 1 − ηλ where decay is decoupled, else 1; ``(T,)``.
    spread : the variance of ‖W‖² over that of independent Gaussians, ``(T + 1,)``: 1 but for scale-invariant weights.
    outside : what lies outside of the limits within which predictions have been tested, a line each.
    """

    mean_square: FloatArray
    update_mean_square: FloatArray
    lr: FloatArray
    retain: FloatArray
    spread: FloatArray
    outside: tuple[str, ...] = ()

    @property
    def rms(self) -> FloatArray:
        """√E[w²], ``(T + 1,)``."""
        return np.sqrt(self.mean_square)

    @property
    def angular_update(self) -> FloatArray:
        """The root mean square sine of the angle by which steps 1 … T turn w, ``(T,)``; NaN where w was 0."""
        before, after = self.mean_square[:-1], self.mean_square[1:]
        return _sine(before, after, self.lr**2 * self.update_mean_square, self.retain)

    def norm(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of ‖W‖_F over draws of noise and Gaussian start, for n weights; ``(T + 1,)``.

        What the deviation of scale-invariant weights leaves out, `norm_spread` says.  It is an upper bound for free
        weights under Muon, whose updates have one norm, where decay forgets as fast as momentum.
        """
        deviation = norm_of_gaussians(self.rms, n)[1] * np.sqrt(self.spread)
        return np.sqrt(n * self.mean_square - deviation**2), deviation


def norm_of_gaussians(rms: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the norm of n independent N(0, rms²) numbers: the χ law, std → rms/√2."""
    check_count("n", n)
    mean = math.sqrt(2) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) if n < 10_000 else math.sqrt(n - 0.5)
    return rms * mean, rms * math.sqrt(max(n - mean**2, 0.0)) if n < 10_000 else rms * math.sqrt(0.5)


def _sine(before: FloatArray, after: FloatArray, step: FloatArray, retain: FloatArray) -> FloatArray:
    """√E‖s_⊥‖²/√E‖w'‖² of w' = a w − s, a = ``retain``, from E[w²], E[w'²] and E[s²]: E[w s] follows from these."""
    along = (retain**2 * before + step - after) / (2 * retain)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((step - along**2 / before) / after)


@dataclass(frozen=True)
class Equilibrium:
    """The limit of a constant schedule: E[w²], infinite without decay, and E[u²]; ``lr`` and ``retain`` of a step;
    ``outside`` as of `Prediction`."""

    mean_square: float
    update_mean_square: float
    lr: float
    retain: float
    outside: tuple[str, ...] = ()

    @property
    def rms(self) -> float:
        return math.sqrt(self.mean_square)

    @property
    def angular_update(self) -> float:
        """As `Prediction.angular_update`; about √(2ηλ) for SGD, √(2ηλ(1 − β₁)/(1 + β₁)) for AdamW."""
        w2, step, retain = np.array([self.mean_square, self.lr**2 * self.update_mean_square, self.retain])[:, None]
        return float(_sine(w2, w2, step, retain)[0])


def predict(
    optimizer: Optimizer,
    steps: int,
    *,
    init: float = 0.0,
    noise: float = 1.0,
    kurtosis: float = 3.0,
    shape: Shape | None = None,
    scale_invariant: bool = False,
    lr_schedule: FloatArray | None = None,
    weight_decay_schedule: FloatArray | None = None,
) -> Prediction:
    """E[w²] of every step.

    Parameters
    ----------
    init : standard deviation of w(0).
    noise, kurtosis : of the gradient's entries; the kurtosis matters to the Adam family's first-order term.
    shape : of the tensor; needed for Muon and for scale-invariant weights.
    scale_invariant : the loss depends on w/‖w‖ only, so that its gradient is orthogonal to w and goes as 1/‖w‖;
        ``noise`` is its size at ‖w‖ = 1.
    lr_schedule, weight_decay_schedule : factors ``(steps,)`` on ``optimizer.lr`` and ``optimizer.weight_decay``.

    Raises
    ------
    ValueError : steps below 1, a schedule of another length, negative or not finite, noise not positive, init negative,
        kurtosis below 1, a missing shape, Muon on fewer than `SMALLEST_MATRIX` rows or columns, scale-invariant weights
        that start at 0 or have no law (under Adam, RMSProp), or an unstable ηλ.
    """
    check_count("steps", steps)
    n = _check(optimizer, noise, kurtosis, shape, scale_invariant)
    if not (init >= 0 and math.isfinite(init)):
        raise ValueError(f"init={init}: expected a finite number >= 0")
    if scale_invariant and init == 0:
        raise ValueError("init=0 with scale_invariant=True: expected > 0, a scale-invariant weight is not 0")
    lr = optimizer.lr * checked_schedule("lr_schedule", lr_schedule, steps)
    decay = optimizer.weight_decay * checked_schedule("weight_decay_schedule", weight_decay_schedule, steps)
    _check_stable(optimizer, float((lr * decay).max()))
    if isinstance(optimizer, SGD | Adam | RMSProp):
        updates = linear.linear_updates(optimizer, np.arange(1.0, steps + 1), lr, decay, noise, kurtosis)
        memory = optimizer.betas[1] if n and isinstance(optimizer, AdamW) else None
        ww, uu = linear.transient(updates, lr, init**2, n, memory)
    else:
        ww, uu = signs.transient(optimizer, shape, lr, decay, init**2, n)  # type: ignore[arg-type]
    rms = np.sqrt(ww)
    pull = float((decay * rms[:-1]).max())
    outside = _outside(optimizer, float((lr * decay).max()), pull, float(rms.max()), noise, kurtosis, shape, n)
    retain = np.ones(steps) if optimizer.coupled else 1 - lr * decay
    spread = np.ones(steps + 1)
    if n and shape is not None and isinstance(optimizer, InvariantRule):
        rate = lr * decay / (1 - optimizer.momentum) if isinstance(optimizer, SGD) else lr * decay
        growth = np.maximum(1 - (1 - rate) ** 2 * ww[:-1] / ww[1:], 0.0)
        spread = norm_spread(spread_law(optimizer, shape), growth)
        remembered = float(rate.max()) / (1 - signs.gradient_filter(optimizer).memory)
        if remembered > LARGEST_REMEMBERED * (1 + 1e-9):
            outside += (
                f"lr * weight_decay times the steps that momentum remembers is {remembered:.2g}, above "
                f"{LARGEST_REMEMBERED}: ± of the norm can be off by more than 15%",
            )
        missing = math.sqrt(1 + MUON_SPREAD * float(rate[-1] / spread[-1]))
        if isinstance(optimizer, Muon) and missing > MUON_SPREAD_TOLD:
            outside += (f"scale-invariant under Muon: ± of the norm is too small by a factor of about {missing:.2g}",)
    return Prediction(ww, uu, lr, retain, spread, (*outside, *_outside_on_the_way(optimizer, lr, rms[:-1], n)))


def equilibrium(
    optimizer: Optimizer,
    *,
    noise: float = 1.0,
    kurtosis: float = 3.0,
    shape: Shape | None = None,
    scale_invariant: bool = False,
) -> Equilibrium:
    """The limit of `predict` at constant η and λ; parameters and errors as there.  Without decay it is infinite."""
    n = _check(optimizer, noise, kurtosis, shape, scale_invariant)
    _check_stable(optimizer, optimizer.lr * optimizer.weight_decay)
    lr, decay = optimizer.lr, optimizer.weight_decay
    retain = 1.0 if optimizer.coupled else 1 - lr * decay
    if decay == 0:
        first = predict(optimizer, 1, noise=noise, shape=shape).update_mean_square[0]
        return Equilibrium(math.inf, float(first), lr, retain)
    one = np.ones(1)
    if isinstance(optimizer, SGD | Adam | RMSProp):
        updates = linear.linear_updates(optimizer, np.inf * one, lr * one, decay * one, noise, kurtosis)
        w2, u2 = linear.stationary(updates, lr, n if isinstance(optimizer, SGD) else 0)
    else:
        w2, u2 = signs.stationary(optimizer, shape)  # type: ignore[arg-type]
    rms = math.sqrt(w2)
    outside = _outside(optimizer, lr * decay, decay * rms, rms, noise, kurtosis, shape, n)
    return Equilibrium(w2, u2, lr, retain, outside)


def leading_order(
    optimizer: Optimizer, *, noise: float = 1.0, shape: Shape | None = None, correlation: float = 0.0
) -> float:
    """E[w²] at rest for ηλ → 0 and β₂ → 1: (η/2λ) times the sum of the update's autocovariance over all lags.

    AdamW η/(2λ) · 1/(1 + ε/σ)²; Adam and RMSProp with L2 ησ/(2λ) · 1/(1 + ε/σ); SGD ησ²/(2λ(1 − momentum)); SignSGD
    without momentum η/(2λ); with it, Lion and Muon: (η/2λ)(h(1) + 2 Σ_k h(ρ_k)), see `sign_updates`.

    Parameters
    ----------
    correlation : φ of gradients that are AR(1) instead of independent; multiplies SGD and the Adam family by
        (1 + φ)/(1 − φ).  Not for sign-like updates.
    """
    _check(optimizer, noise, 3.0, shape, False)
    if not -1 < correlation < 1:
        raise ValueError(f"correlation={correlation}: expected a number in (-1, 1)")
    if optimizer.weight_decay == 0:
        return math.inf
    ratio = optimizer.lr / (2 * optimizer.weight_decay)
    memory = (1 + correlation) / (1 - correlation)
    if isinstance(optimizer, SGD):
        return ratio * noise**2 / (1 - optimizer.momentum) * memory
    if isinstance(optimizer, Adam | RMSProp):
        gain = 1 / (1 + optimizer.eps / noise)
        return ratio * memory * (gain * noise if optimizer.coupled else gain**2)
    if correlation != 0:
        raise ValueError(f"correlation={correlation}: expected 0 for {type(optimizer).__name__}")
    # The ratio η/λ alone counts in the limit; at ηλ = 1e-9 neither memory nor rounding is felt.
    small = math.sqrt(1e-9 / (optimizer.lr * optimizer.weight_decay))
    scaled = replace(optimizer, lr=optimizer.lr * small, weight_decay=optimizer.weight_decay * small)
    return signs.stationary(scaled, shape)[0]  # type: ignore[arg-type]


def _check(optimizer: Optimizer, noise: float, kurtosis: float, shape: Shape | None, scale_invariant: bool) -> int:
    """The number of weights of a scale-invariant tensor, else 0, after checking the rule, the noise and the shape."""
    check_optimizer(optimizer)
    if not (noise > 0 and math.isfinite(noise)):
        raise ValueError(f"noise={noise}: expected a finite number > 0")
    if not kurtosis >= 1:
        raise ValueError(f"kurtosis={kurtosis}: expected >= 1")
    if shape is not None and not all(size >= 1 for size in shape):
        raise ValueError(f"shape={shape}: expected sizes >= 1")
    if (scale_invariant or isinstance(optimizer, Muon)) and shape is None:
        raise ValueError("shape=None: expected the tensor's shape, for Muon and for scale-invariant weights")
    if isinstance(optimizer, Muon) and shape is not None and min(shape) < SMALLEST_MATRIX:
        raise ValueError(f"shape={shape}: Muon's law is that of large matrices; expected sizes >= {SMALLEST_MATRIX}")
    if scale_invariant and not has_invariant_law(optimizer):
        name = type(optimizer).__name__
        raise ValueError(f"scale_invariant=True with {name}: no law; expected SGD, AdamW, Lion, SignSGD or Muon")
    return math.prod(shape) if scale_invariant and shape is not None else 0


def has_invariant_law(optimizer: Optimizer) -> bool:
    """Whether scale-invariant weights are predicted under it (claim ``rotational-equilibrium``)."""
    return isinstance(optimizer, InvariantRule)


def _outside(
    optimizer: Optimizer,
    product: float,
    pull: float,
    rms: float,
    noise: float,
    kurtosis: float,
    shape: Shape | None,
    invariant: int,
) -> tuple[str, ...]:
    """What lies outside of the tested limits, at the largest ηλ, λ√E[w²] and √E[w²]; ``invariant`` as from `_check`."""
    lines = []
    if isinstance(optimizer, Adam | RMSProp):
        memory = optimizer.betas[1] if isinstance(optimizer, Adam) else optimizer.alpha
        size, over = (noise + optimizer.eps, " / (noise + eps)") if optimizer.coupled else (1.0, "")
        product, pull = product / size, pull / size
        off = "the tested limit: can be off by more than 0.5% at rest"
        if memory < SMALLEST_MEMORY:
            name = "beta2" if isinstance(optimizer, Adam) else "alpha"
            lines.append(f"{name}={memory:g} is below {SMALLEST_MEMORY}, {off}")
        if product > LARGEST_PRODUCT * (1 + 1e-9):
            lines.append(f"lr * weight_decay{over} = {product:g} is above {LARGEST_PRODUCT}, {off}")
        if optimizer.coupled and pull > LARGEST_DECAY:
            lines.append(f"weight_decay * rms{over} reaches {pull:.3g}, above {LARGEST_DECAY}: can be off by a factor")
        if kurtosis > LARGEST_KURTOSIS:
            lines.append(f"kurtosis={kurtosis:g} is above {LARGEST_KURTOSIS}, {off}")
    if isinstance(optimizer, Muon) and shape is not None:
        seen = noise * math.sqrt(math.prod(shape) * float(signs.gradient_filter(optimizer).variance(np.array(1.0))))
        if seen < 10 * NORM_GUARD:
            lines.append(f"noise={noise:g}: norms of {seen:.2g} are not well above {NORM_GUARD:g}, torch's guard")
    if invariant > 0:
        if invariant < SMALLEST_INVARIANT:
            lines.append(f"{invariant} scale-invariant entries are fewer than {SMALLEST_INVARIANT}, as were tested")
        if isinstance(optimizer, AdamW):
            share = optimizer.eps * rms * math.sqrt(invariant) / noise
            if share > LARGEST_EPSILON:
                lines.append(f"eps * norm / noise = {share:.3g} is above {LARGEST_EPSILON}: the law has no such eps")
    return tuple(lines)


def _outside_on_the_way(optimizer: Optimizer, lr: FloatArray, rms: FloatArray, invariant: int) -> tuple[str, ...]:
    """What lies outside of the tested limits on the way to rest, with lr and the rms before the step, both ``(T,)``."""
    if isinstance(optimizer, RMSProp) and lr[0] * LEAST_WARMUP > lr.max() * (1 + 1e-9):
        return (f"no warm-up of {LEAST_WARMUP} steps: can be off by up to 2.5% until the first 20 steps are forgotten",)
    step = float((lr / rms).max()) if invariant > 0 else 0.0
    if isinstance(optimizer, AdamW) and step > LARGEST_STEP * (1 + 1e-9):
        return (
            f"scale-invariant, lr / rms reaches {step:.2g}, above {LARGEST_STEP}: off by up to a quarter for a while",
        )
    return ()


def _check_stable(optimizer: Optimizer, step: float) -> None:
    """A decoupled decay multiplies w by 1 − ηλ; a coupled one is checked where its recursion is known."""
    if not optimizer.coupled and step >= 2:
        raise ValueError(f"lr * weight_decay = {step:g}: unstable, |1 - lr * weight_decay| >= 1; expected < 2")


def checked_schedule(name: str, schedule: FloatArray | None, steps: int) -> FloatArray:
    if schedule is None:
        return np.ones(steps)
    schedule = np.asarray(schedule, dtype=np.float64)
    if schedule.shape != (steps,):
        raise ValueError(f"{name} has shape {schedule.shape}: expected ({steps},)")
    if not (np.isfinite(schedule).all() and (schedule >= 0).all()):
        raise ValueError(f"{name} has values from {schedule.min()} to {schedule.max()}: expected finite numbers >= 0")
    return schedule
