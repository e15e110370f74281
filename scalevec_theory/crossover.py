"""When a parameter leaves the noise–decay equilibrium and follows the data: a minimal model in closed form.

A parameter w is moved by normalised updates with step η and decoupled weight decay λ.  On noise alone its rms is
√(η/2λ).  Let its gradient have mean ρσ and noise of strength σ.  A normalised update has mean ρ/√(1+ρ²) and variance
1/(1+ρ²), and decay remembers 1/(ηλ) updates, so

    E[w] = ρ / (λ √(1+ρ²)),   Var[w] = (η/2λ) / (1+ρ²),   E[w]² > Var[w]  if and only if  ρ > ρ* = √(ηλ/2).

The threshold is far below 1: what counts is the signal-to-noise of the gradient summed over the memory of the decay.
The question is left open in arXiv 2601.04890; the answer is ours.  Exact for the linear recursion to leading order in
ηλ; Adam's normalisation follows it as β2 → 1, whatever β1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def threshold(step: float, decay: float, persistence: float = math.inf) -> float:
    """ρ* = √((ηλ + 1/τ)/2): the signal-to-noise at which signal and noise contribute equally to E[w²].

    ``persistence`` τ is the correlation time of the signal in steps; infinite is a constant signal.  A signal that
    changes faster than decay forgets, τ < 1/(ηλ), has to be seen within its own lifetime.
    """
    _check(step, decay)
    if not persistence > 0:
        raise ValueError(f"persistence={persistence}: expected a number of steps > 0")
    return math.sqrt((step * decay + 1 / persistence) / 2)


def threshold_after(steps: Tensor, retain: Tensor) -> Tensor:
    """ρ* after each of T steps of a schedule, for a constant signal and a parameter that starts at 0.

    ``steps`` are the step sizes η_k and ``retain`` what decay leaves at each, 1 − η_k λ_k; both, and the result,
    ``(T,)``.  Of update k there is left c_k = η_k Π_{j>k} retain_j: a signal adds up to Σ c_k, noise to √(Σ c_k²), and
    ρ* is the latter over the former.  It is 1 after one step and tends to `threshold` where the step is constant.

    Raises
    ------
    ValueError : a first step that is not above 0, or shapes that differ.
    """
    if steps.ndim != 1 or steps.shape != retain.shape or not (len(steps) and steps[0] > 0):
        raise ValueError(
            f"steps {tuple(steps.shape)}, retain {tuple(retain.shape)}: expected one length of 1 or more, and a first "
            "step > 0"
        )
    signal = noise = torch.zeros((), dtype=torch.float64)
    found = []
    for step, kept in zip(steps.double(), retain.double(), strict=True):
        signal, noise = kept * signal + step, kept**2 * noise + step**2
        found.append(noise.sqrt() / signal)
    return torch.stack(found)


def departure(snr: Tensor, crossover: float) -> Tensor:
    """E[w²] over its value on noise alone, (1 + (ρ/ρ*)²) / (1 + ρ²), at signal-to-noise ρ ``snr``, ρ* ``crossover``.

    A fluctuating signal is Gaussian with rms ρσ and autocorrelation e^{−k/τ}.
    """
    return (1 + (snr / crossover) ** 2) / (1 + snr**2)


def sign_departure(snr: Tensor, step: float, decay: float) -> Tensor:
    """As `departure`, for updates by the sign of the gradient (signSGD, Lion without momentum) with Gaussian noise.

    The mean update is e = erf(ρ/√2), its variance 1 − e²: E[w²] / (η/2λ) = 1 − e² + 2e²/(ηλ), so the threshold is
    larger than Adam's by √(π/2).
    """
    _check(step, decay)
    mean = torch.erf(snr / math.sqrt(2))
    return 1 - mean**2 + 2 * mean**2 / (step * decay)


@dataclass(frozen=True)
class Equilibrium:
    """Stationary ``mean`` and ``variance`` of a parameter, and the rms of its ``gradient``."""

    mean: Tensor
    variance: Tensor
    gradient: Tensor


def well(curvature: Tensor, target: Tensor, noise: Tensor, step: float, decay: float) -> Equilibrium:
    """The equilibrium in a quadratic well: gradient h (w − w*) plus noise of strength σ, normalised updates with decay.

    With v = E[g²] and S = h/√v: mean w* S/(λ + S), variance (η σ²/v) / (2(λ + S)), v = σ² + h² E[(w − w*)²].  The data
    set half the parameter at h/σ = λ: the pull of the well, in units of the gradient's rms, equals that of decay.

    Raises
    ------
    RuntimeError : the fixed point for v was not reached (an inner step η(λ + S) near 2).
    """
    _check(step, decay)
    v = noise**2 + (curvature * target) ** 2
    for _ in range(500):
        S = curvature / v.sqrt()
        mean = target * S / (decay + S)
        variance = step * noise**2 / v / (2 * (decay + S))
        new = noise**2 + curvature**2 * ((mean - target) ** 2 + variance)
        if bool(((new - v).abs() <= 1e-13 * new).all()):
            return Equilibrium(mean, variance, v.sqrt())
        v = 0.5 * (v + new)
    raise RuntimeError("the rms of the gradient did not converge")


def simulate(
    optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
    gradient: Callable[[Tensor], Tensor],
    start: Tensor,
    burn_in: int,
    n_average: int,
) -> tuple[Tensor, Tensor]:
    """Time averages of w and w², each the shape of ``start``, after ``burn_in`` steps of a torch optimizer.

    ``gradient`` is called at every step with the current parameters and returns what the optimizer is given.
    """
    parameter = start.clone().requires_grad_()
    updates = optimizer([parameter])
    mean, square = torch.zeros_like(start), torch.zeros_like(start)
    with torch.no_grad():
        for index in range(burn_in + n_average):
            parameter.grad = gradient(parameter)
            updates.step()
            if index >= burn_in:
                mean += parameter
                square += parameter**2
    return mean / n_average, square / n_average


def _check(step: float, decay: float) -> None:
    if not step > 0:
        raise ValueError(f"step={step}: expected a step size > 0")
    if not decay > 0:
        raise ValueError(f"decay={decay}: expected a weight decay > 0; without decay there is no equilibrium")
    if not step * decay < 1:
        raise ValueError(f"step*decay={step * decay}: expected < 1; larger is unstable or oscillates")
