"""At what signal-to-noise a parameter leaves the noise–decay equilibrium and follows the data.

Source: arXiv 2601.04890 leaves the question open; model and answer are those of `scalevec_theory.crossover`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sympy import Eq, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Evidence, Scope, Setting
from scalevec_theory.crossover import departure, sign_departure, simulate, threshold, well
from scalevec_theory.multipliers import equilibrium_rms, snr_gain
from scalevec_theory.paired import agreement
from scalevec_theory.proof import Lemma, Proof

CLAIM = "noise-crossover"
STEP, DECAY = 0.02, 0.1
"""ηλ = 2·10⁻³; w/η depends on the product only."""

AVERAGE = 2000
TOLERANCE = 0.05
"""Leading order in ηλ: Adam's momentum alone changes E[w²] by about ηλβ1/(1 − β1), 2% at β1 = 0.9."""

m, V, kappa, e, a, C, eta, decay, q, h, S, target, rho, one_plus = symbols(
    "m V ηλ e a C eta lambda q h S w* rho D", real=True
)


def prove_threshold() -> Proof:
    """w ← (1 − ηλ) w + η u with E[u] = e and Var[u] = q."""
    return Proof(
        (
            Lemma(
                "mean: eta (lambda m - e) = 0",
                Eq(eta * (decay * m - e), 0),
                {"m is stationary": Eq(m, (1 - eta * decay) * m + eta * e)},
            ),
            Lemma(
                "variance: eta (lambda (2 - eta lambda) V - eta q) = 0",
                Eq(eta * (decay * (2 - eta * decay) * V - eta * q), 0),
                {"V is stationary": Eq(V, (1 - eta * decay) ** 2 * V + eta**2 * q)},
            ),
            Lemma(
                "2 lambda^2 (1 + rho^2) (m^2 - V) = 2 rho^2 - eta lambda to leading order",
                Eq(2 * decay**2 * one_plus * (m**2 - V), 2 * rho**2 - eta * decay),
                {
                    "mean, normalised: lambda^2 m^2 D = rho^2": Eq(decay**2 * m**2 * one_plus, rho**2),
                    "variance, normalised: 2 lambda V D = eta": Eq(2 * decay * V * one_plus, eta),
                },
            ),
        ),
        "The recursion is linear in (w, u); D = 1 + rho^2.  m^2 > V exactly when rho > √(eta lambda/2).",
    )


def prove_fluctuating() -> Proof:
    """u = e z with z ← a z + √(1 − a²) ζ of variance 1, a = e^{−1/τ}; V is the signal's part of Var[w]."""
    keep = 1 - kappa
    return Proof(
        (
            Lemma(
                "V (1 - (1 - ηλ)^2) (1 - (1 - ηλ) a) = eta^2 e^2 (1 + (1 - ηλ) a)",
                Eq(V * (1 - keep**2) * (1 - keep * a), eta**2 * e**2 * (1 + keep * a)),
                {
                    "C = E[w z] is stationary": Eq(C, a * (keep * C + eta * e)),
                    "V is stationary": Eq(V, keep**2 * V + 2 * keep * eta * e * C + eta**2 * e**2),
                },
            ),
        ),
        "For small ηλ and 1/τ this is V = e² / (λ² (1 + 1/(ηλτ))).",
    )


def prove_well() -> Proof:
    """Gradient h (w − w*) plus noise, divided by its rms: S = h/rms."""
    return Proof(
        (
            Lemma(
                "eta ((lambda + S) m - S w*) = 0",
                Eq(eta * ((decay + S) * m - S * target), 0),
                {"m is stationary": Eq(m, (1 - eta * decay) * m - eta * S * (m - target))},
            ),
        ),
        "The data set the share S/(lambda + S) of the parameter: half of it at S = lambda.",
    )


def adamw(step: float, decay: float, beta1: float = 0.9) -> Callable[[list[Tensor]], torch.optim.Optimizer]:
    return lambda p: torch.optim.AdamW(p, lr=step, betas=(beta1, 0.999), weight_decay=decay, eps=1e-30)


def sign_descent(step: float, decay: float) -> Callable[[list[Tensor]], torch.optim.Optimizer]:
    """Given signs as gradients, w ← w − η (sign + λw): decoupled decay."""
    return lambda p: torch.optim.SGD(p, lr=step, weight_decay=decay)


def mirrored(rng: np.random.Generator, *shape: int) -> Tensor:
    """Normal numbers ``(..., 2P)`` for ``shape`` ``(..., P)``, the second half minus the first.

    In the mean over a pair the product of signal and noise cancels.
    """
    half = torch.from_numpy(rng.standard_normal(shape))
    return torch.cat([half, -half], -1)


def pairs(x: Tensor) -> Tensor:
    """Mean over mirrored columns, ``(K, 2P)`` to ``(P, K)``."""
    return x.reshape(len(x), 2, -1).mean(1).T


def constant_signal(setting: Setting, ratios: Tensor, step: float = STEP, signs: bool = False) -> Tensor:
    """(E[w²] − E[w²] on noise alone) / (η/2λ), ``(P, K)``, at signal-to-noise ρ ``ratios`` ``(K,)`` in one noise.

    By AdamW, or by ``signs`` of the gradient.  Runs start at the predicted mean, so that there is no transient of it.
    """
    P = setting.choose(100, 300, 1000) * (4 if signs else 1)
    rho = torch.cat([torch.zeros(1, dtype=torch.float64), ratios])[:, None]
    update = torch.erf(rho / math.sqrt(2)) if signs else rho / (1 + rho**2).sqrt()

    def gradient(w: Tensor) -> Tensor:
        g = mirrored(setting.rng, 1, P) - rho
        return g.sign() if signs else g

    optimizer = sign_descent(step, DECAY) if signs else adamw(step, DECAY)
    _, square = simulate(optimizer, gradient, (update / DECAY).expand(-1, 2 * P), 300, AVERAGE)
    square = pairs(square) / equilibrium_rms(step, DECAY) ** 2
    return square[:, 1:] - square[:, :1]


def _constant(
    name: str, predicted: Callable[[Tensor], Tensor], multiples: Sequence[float] = (0.5, 1, 2, 8), **options: Any
) -> Callable[[Setting], list[Evidence]]:
    """Measured departure from the noise equilibrium against ``predicted`` E[w²]/(η/2λ), at ``multiples`` of ρ*."""
    ratios = torch.tensor(multiples, dtype=torch.float64) * threshold(STEP, DECAY)

    def measure(setting: Setting) -> list[Evidence]:
        excess = constant_signal(setting, ratios, **options)
        detail = f"excess of E[w²] over noise alone at ρ/ρ* = {multiples}, ηλ = {STEP * DECAY:g}"
        return [agreement(excess / (predicted(ratios) - 1), TOLERANCE, setting, f"{CLAIM}:{name}", detail)]

    return measure


SIGN_MULTIPLES = (4.0, 8.0)
"""Larger, since the signs of one noise with and without signal are not the same updates, and less of it cancels."""


def _adam(ratios: Tensor) -> Tensor:
    return departure(ratios, threshold(STEP, DECAY))


def _only_above_one(ratios: Tensor) -> Tensor:
    """What is seen if the threshold is ρ = 1."""
    return 1 + ratios**2


def measure_step(setting: Setting) -> list[Evidence]:
    """The same signal-to-noise at a quarter of the step size."""
    ratios = torch.tensor([2 * threshold(STEP, DECAY)], dtype=torch.float64)
    ratio = constant_signal(setting, ratios, step=STEP / 4) / (_adam(ratios) - 1)
    return [agreement(ratio, TOLERANCE, setting, f"{CLAIM}:step-free", "excess at ρ = 2ρ*, step η/4")]


def _well(name: str, expected: Callable[[Tensor], Tensor], curvatures: Tensor) -> Callable[[Setting], list[Evidence]]:
    def measure(setting: Setting) -> list[Evidence]:
        P = setting.choose(100, 300, 1000)
        h, one = curvatures[:, None], torch.ones((), dtype=torch.float64)
        start = well(curvatures, one, one, STEP, DECAY).mean[:, None].expand(-1, 2 * P)
        mean, _ = simulate(adamw(STEP, DECAY), lambda w: h * (w - 1) + mirrored(setting.rng, 1, P), start, 300, AVERAGE)
        detail = f"mean of w at h/(σλ) = {', '.join(f'{x:.3g}' for x in (curvatures / DECAY).tolist())}, w* = σ = 1"
        return [agreement(pairs(mean) / expected(curvatures), TOLERANCE, setting, f"{CLAIM}:{name}", detail)]

    return measure


def _well_mean(h: Tensor) -> Tensor:
    one = torch.ones((), dtype=torch.float64)
    return well(h, one, one, STEP, DECAY).mean


FLUCTUATING = 0.1
"""Step size of the fluctuating signal's runs: ηλ = 0.01, so that τ = 10 … 300 lies on both sides of 1/(ηλ)."""


def _fluctuating(name: str, persistence_matters: bool) -> Callable[[Setting], list[Evidence]]:
    persistence = torch.tensor([10.0, 100.0, 300.0], dtype=torch.float64)

    def measure(setting: Setting) -> list[Evidence]:
        P, rng = setting.choose(2500, 5000, 20_000), setting.rng
        rho = torch.tensor([threshold(FLUCTUATING, DECAY, tau) for tau in persistence.tolist()], dtype=torch.float64)
        keep = torch.exp(-1 / persistence)[:, None]
        z = torch.from_numpy(rng.standard_normal((len(rho), P)))

        def gradient(w: Tensor) -> Tensor:
            z.mul_(keep).add_((1 - keep**2).sqrt() * torch.from_numpy(rng.standard_normal(z.shape)))
            noise = mirrored(rng, 1, P)
            return torch.cat([noise - (rho[:, None] * z).repeat(1, 2), noise])

        start = torch.zeros(len(rho) + 1, 2 * P, dtype=torch.float64)
        _, square = simulate(adamw(FLUCTUATING, DECAY, beta1=0.0), gradient, start, 1000, 600)
        square = pairs(square) / equilibrium_rms(FLUCTUATING, DECAY) ** 2
        tau = persistence.tolist() if persistence_matters else [math.inf] * len(rho)
        expected = [departure(r, threshold(FLUCTUATING, DECAY, t)) - 1 for r, t in zip(rho, tau, strict=True)]
        ratio = (square[:, :-1] - square[:, -1:]) / torch.stack(expected)
        return [agreement(ratio, 0.1, setting, f"{CLAIM}:{name}", "excess at ρ* for τ = 10, 100, 300, 1/(ηλ) = 100")]

    return measure


def measure_multiplier(setting: Setting) -> list[Evidence]:
    """A multiplier that sums 64 entries with the weights' signs right, and the entries, on the same gradients."""
    P, n = setting.choose(20, 60, 200), 64
    rho = torch.tensor(threshold(STEP, DECAY) / 4, dtype=torch.float64)
    rhos = torch.stack([rho * snr_gain(n, 1.0), rho])

    def gradient(w: Tensor) -> Tensor:
        noise = mirrored(setting.rng, n, P)
        gradients = torch.cat([noise - rho, noise])
        return torch.cat([gradients, *(g.sum(0, keepdim=True) for g in gradients.split(n))])

    signal = torch.cat([rho.expand(n), torch.zeros(n), rhos[:1], torch.zeros(1)])[:, None]
    start = (signal / (1 + signal**2).sqrt() / DECAY).expand(-1, 2 * P)
    _, square = simulate(adamw(STEP, DECAY), gradient, start, 300, AVERAGE)
    square = pairs(square) / equilibrium_rms(STEP, DECAY) ** 2
    entries, noise, multiplier, multiplier_noise = square.split([n, n, 1, 1], 1)
    excess = torch.cat([multiplier - multiplier_noise, (entries - noise).mean(1, keepdim=True)], 1)
    detail = "excess of E[w²] of a multiplier of 64 entries at ρ*/4, and of these entries"
    ratio = excess / (_adam(rhos) - 1)
    return [agreement(ratio, 0.1, setting, f"{CLAIM}:multiplier", detail)]


claim = Claim(
    id=CLAIM,
    title="A parameter follows the data above signal-to-noise √(ηλ/2)",
    statement="Under AdamW with step η and decay λ, a gradient of mean ρσ and noise σ gives E[w²] = (η/2λ) (1 + "
    "(ρ/ρ*)²)/(1 + ρ²) with ρ* = √(ηλ/2): below ρ* the parameter sits in the noise–decay equilibrium, above it follows "
    "the data. A signal that persists for τ steps has ρ* = √((ηλ + 1/τ)/2). In a well of curvature h the data set the "
    "share S/(λ + S), S = h/rms(g). A multiplier that sums n entries has its crossover at ρ*/(α√n) of an entry's.",
    formula=r"\mathbb{E}[w^2] \simeq \frac{\eta}{2 \lambda} \cdot \frac{1 + (\rho / \rho^*)^2}{1 + \rho^2}, \qquad "
    r"\rho^* = \sqrt{\frac{\eta \lambda}{2}}",
    source="arXiv 2601.04890 leaves the crossover open; the model and its answer are ours",
    figures=("signal-to-noise",),
    scopes=(
        Scope(
            "linear",
            "w ← (1 − ηλ)w + ηu with u independent of mean ρ/√(1+ρ²) and variance 1/(1+ρ²), to leading order in ηλ: "
            "the mean of w exceeds its standard deviation exactly when ρ > √(ηλ/2).",
            holds=True,
            proof=prove_threshold,
        ),
        Scope(
            "linear-fluctuating",
            "w ← (1 − ηλ)w + ηez with z of variance 1 and autocorrelation a^k, A = 1 − ηλ: Var[w] = η²e² (1 + Aa) / "
            "((1 − A²)(1 − Aa)).",
            holds=True,
            proof=prove_fluctuating,
        ),
        Scope(
            "linear-well",
            "w ← (1 − ηλ)w − ηS(w − w*) + noise of mean 0: the mean of w is w* S/(λ + S).",
            holds=True,
            proof=prove_well,
        ),
        Scope(
            "adamw",
            "AdamW (0.9, 0.999): signal at ρ raises E[w²] by (η/2λ)((1 + (ρ/ρ*)²)/(1 + ρ²) − 1), within "
            f"{TOLERANCE:.0%} at ηλ = {STEP * DECAY:g}; at ρ* it doubles.",
            holds=True,
            measure=_constant("adamw", _adam),
        ),
        Scope(
            "signal-to-noise-one",
            "AdamW (0.9, 0.999): the crossover is at ρ = 1, so that E[w²] is (η/2λ)(1 + ρ²).",
            holds=False,
            measure=_constant("signal-to-noise-one", _only_above_one),
        ),
        Scope(
            "step-free",
            "AdamW (0.9, 0.999): the crossover depends on λ and not on the step size.",
            holds=False,
            measure=measure_step,
        ),
        Scope(
            "sign-updates",
            "Updates by the sign of the gradient, Gaussian noise: E[w²] = (η/2λ)(1 − e² + 2e²/(ηλ)), e = erf(ρ/√2); "
            "the threshold is √(π/2) times AdamW's.",
            holds=True,
            measure=_constant(
                "sign-updates",
                lambda ratios: sign_departure(ratios, STEP, DECAY),
                SIGN_MULTIPLES,
                signs=True,
            ),
        ),
        Scope(
            "sign-updates-as-adamw",
            "Updates by the sign of the gradient depart from the noise equilibrium as AdamW's do.",
            holds=False,
            measure=_constant("sign-updates-as-adamw", _adam, SIGN_MULTIPLES, signs=True),
        ),
        Scope(
            "fluctuating-signal",
            "AdamW (0, 0.999), a signal with autocorrelation e^{−k/τ}: E[w²] doubles at ρ* = √((ηλ + 1/τ)/2), within "
            "10% at ηλ = 0.01 for τ = 10, 100 and 300.",
            holds=True,
            measure=_fluctuating("fluctuating-signal", persistence_matters=True),
        ),
        Scope(
            "fluctuating-as-constant",
            "AdamW (0, 0.999), a signal with autocorrelation e^{−k/τ}: E[w²] is that of a constant signal of its rms.",
            holds=False,
            measure=_fluctuating("fluctuating-as-constant", persistence_matters=False),
        ),
        Scope(
            "well",
            "AdamW (0.9, 0.999), gradient h(w − w*) plus noise σ: the mean is w* S/(λ + S), S = h/rms(g), within "
            f"{TOLERANCE:.0%}; half of w* near h/σ = λ.",
            holds=True,
            measure=_well("well", _well_mean, torch.tensor([0.25, 1.0, 4.0, 16.0], dtype=torch.float64) * DECAY),
        ),
        Scope(
            "well-at-threshold",
            "AdamW (0.9, 0.999), gradient h(w − w*) plus noise σ: the mean is half of w* where h/σ = ρ* = √(ηλ/2).",
            holds=False,
            measure=_well(
                "well-at-threshold",
                lambda h: torch.full_like(h, 0.5),
                torch.tensor([threshold(STEP, DECAY)], dtype=torch.float64),
            ),
        ),
        Scope(
            "multiplier",
            "AdamW (0.9, 0.999): of 64 entries at ρ*/4 the entries stay in equilibrium (E[w²] up 6%) while a "
            "multiplier that sums them with the right signs follows the data (E[w²] five times).",
            holds=True,
            measure=measure_multiplier,
        ),
    ),
)
