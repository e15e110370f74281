"""Why a projector's multiplier falls as d⁻¹ and that of q·k as d⁻²: equilibrium norms, and weights that are aligned.

The model: features x = yξ, a fixed pattern ξ_i = ±1 with a sign y; every entry of W is moved by AdamW on a gradient of
signal-to-noise ρ along the pattern, the same at every width d, so that it has mean mξ_i and noise of rms ω = √(η/2λ),
neither depending on d (`crossover`).  The multiplier gives s⟨W, x⟩ a size that the data ask for and d does not change.

Source: arXiv 2601.04890 (width scaling of learned multipliers, slopes a little shallower than d⁻¹ and d⁻²).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from sympy import Eq, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting
from scalevec_theory.crossover import simulate, threshold
from scalevec_theory.multipliers import projector_multiplier, projector_slope
from scalevec_theory.paired import agreement
from scalevec_theory.problems import Between, Problems, ProblemSpace
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.theorems.noise_crossover import adamw

CLAIM = "multiplier-width"
STEP, DECAY = 0.2, 0.1
WIDTHS = (8, 16, 32, 64, 128)
HEAD = 4
"""Rows of W_q and of W_k that meet in q·k, and rows of one projector: fixed while the width changes."""

s, d, m, omega, output, slope, squared = symbols("s d m omega R slope |Wx|^2", real=True)


def prove_slope() -> Proof:
    """E⟨W, x⟩² = d²m² + dω², s² of it is R², and the slope is d ln s/d ln d = −½ d ln E⟨W, x⟩²/d ln d."""
    return Proof(
        (
            Lemma(
                "s^2 d (d m^2 + omega^2) = R^2",
                Eq(s**2 * d * (d * m**2 + omega**2), output**2),
                {
                    "means add, variances add: |Wx|^2 = (d m)^2 + d omega^2": Eq(squared, (d * m) ** 2 + d * omega**2),
                    "the output has the size asked for": Eq(s**2 * squared, output**2),
                },
            ),
            Lemma(
                "slope (d m^2 + omega^2) = -(d m^2 + omega^2) + omega^2/2",
                Eq(slope * (d * m**2 + omega**2) * d, (-(d * m**2 + omega**2) + omega**2 / 2) * d),
                {
                    "slope = -(d/2) (d/dd) ln |Wx|^2, cleared": Eq(
                        slope * (d**2 * m**2 + d * omega**2), -d / 2 * (2 * d * m**2 + omega**2)
                    )
                },
            ),
        ),
        "The slope is −1 + ½/(1 + d m²/ω²), between −1 and −½; q·k is a product of two such outputs, so its multiplier "
        "has twice the slope.",
    )


SPACE = ProblemSpace(
    "any width, aligned part and noise",
    {},
    {"d": Between("", 1.0, 1e4), "m": Between("", 1e-3, 10.0), "omega": Between("", 1e-2, 10.0)},
)


def slope_margin(problems: Problems, accuracy: float) -> Margin:
    """The slope formula against central differences of ln s over a factor 1.01."""
    d, m, omega = problems["d"], problems["m"], problems["omega"]
    h = torch.log(torch.tensor(1.01, dtype=d.dtype))

    def log_s(width: Tensor) -> Tensor:
        return projector_multiplier(1.0, width, m, omega).log()

    measured = (log_s(d * torch.exp(h)) - log_s(d * torch.exp(-h))) / (2 * h)
    return Margin.equal(measured, projector_slope(d, m, omega), accuracy)


def weights(setting: Setting, rho: float, n: int) -> list[Tensor]:
    """``n`` weight rows ``(d, n)`` of each width after AdamW (0, 0.999) on noise with signal ρ, ξ = 1 for all."""
    mean = rho / (1 + rho**2) ** 0.5 / DECAY
    start = torch.full((sum(WIDTHS), n), mean, dtype=torch.float64)
    noise = torch.Generator().manual_seed(int(setting.rng.integers(2**63)))
    final, _ = simulate(
        adamw(STEP, DECAY, beta1=0.0),
        lambda w: torch.randn(w.shape, generator=noise, dtype=w.dtype) - rho,
        start,
        300,
        1,
    )
    return list(final.split(WIDTHS))


def fitted_slope(log_s: Tensor) -> Tensor:
    """Least-squares slope ``(B,)`` of ``log_s`` ``(B, len(WIDTHS))`` against ln d."""
    x = torch.tensor(WIDTHS, dtype=torch.float64).log()
    x = (x - x.mean()) / (x - x.mean()).square().sum()
    return (log_s * x).sum(1)


def projector_slopes(rows: list[Tensor]) -> Tensor:
    """Slope of ln s, s giving the `HEAD` outputs Wx rms 1, one per group of `HEAD` rows."""
    rms = [w.sum(0).unflatten(0, (-1, HEAD)).square().mean(1).sqrt() for w in rows]
    return fitted_slope(-torch.stack(rms, 1).log())


def query_key_slopes(rows: list[Tensor]) -> Tensor:
    """Slope of ln s, s giving s q·k modulus 1, one per `HEAD` rows of W_q and `HEAD` of W_k."""
    scores = []
    for w in rows:
        q, k = w.sum(0).unflatten(0, (2, -1, HEAD))
        scores.append((q * k).sum(1).abs())
    return fitted_slope(-torch.stack(scores, 1).log())


def predicted_slope(ratio: float) -> float:
    """The fitted slope of the projector at ρ = ``ratio`` ρ*: m²/ω² = (ρ/ρ*)²."""
    s = projector_multiplier(1.0, torch.tensor(WIDTHS, dtype=torch.float64), ratio, 1.0)
    return float(fitted_slope(s.log()[None]))


def _measure(
    name: str, slopes: Callable[[list[Tensor]], Tensor], ratio: float, expected: float, tolerance: float, rows: int = 80
) -> Callable[[Setting], list[Evidence]]:
    def measure(setting: Setting) -> list[Evidence]:
        n = rows * setting.choose(1, 3, 10)
        found = slopes(weights(setting, ratio * threshold(STEP, DECAY), n))
        detail = f"slope against {expected:.3f}, d = {WIDTHS[0]} … {WIDTHS[-1]}, ρ = {ratio:g} ρ*"
        return [agreement((found / expected)[:, None], tolerance, setting, f"{CLAIM}:{name}", detail)]

    return measure


WEAK = 1 / 6
"""ρ/ρ* of entries deep in the noise–decay equilibrium, where √d of them still add up to an aligned output."""

claim = Claim(
    id=CLAIM,
    title="Multipliers scale as d⁻¹ and d⁻² where equilibrium weights are aligned",
    statement="With entries at the noise–decay equilibrium, of rms √(η/2λ) at every width, the multiplier of a "
    "projector scales as d^(−1 + ½/(1 + d(ρ/ρ*)²)) and that of q·k with twice the exponent: d⁻¹ and d⁻² for entries "
    "that follow the data, d^−½ and d⁻¹ for weights that know nothing of them, a little shallower than −1 and −2 in "
    "between.",
    formula=r"\frac{\partial \ln\,s}{\partial \ln\,d} = -1 + \frac{1 / 2}{1 + d\,(\rho / \rho^*)^2}",
    source="arXiv 2601.04890, width scaling; the model is ours",
    figures=("multiplier-width",),
    scopes=(
        Scope(
            "slope",
            "s = R/√(d²m² + dω²) has d ln s/d ln d = −1 + ½/(1 + d m²/ω²).",
            holds=True,
            space=SPACE,
            margin=slope_margin,
            accuracy=1e-4,
            proof=prove_slope,
        ),
        Scope(
            "projector",
            "Entries at signal-to-noise 2ρ* under AdamW (0, 0.999): the projector's multiplier scales as d⁻¹, "
            "exponent within 5%.",
            holds=True,
            measure=_measure("projector", projector_slopes, 2.0, -1.0, 0.05),
        ),
        Scope(
            "query-key",
            "Entries at signal-to-noise 2ρ* under AdamW (0, 0.999): the multiplier of q·k scales as d⁻², "
            "exponent within 5%.",
            holds=True,
            measure=_measure("query-key", query_key_slopes, 2.0, -2.0, 0.05),
        ),
        Scope(
            "shallower",
            "Entries at ρ*/6 under AdamW (0, 0.999), in equilibrium one by one: the exponent is "
            f"{predicted_slope(WEAK):.2f}, as the formula says, within 20%.",
            holds=True,
            measure=_measure("shallower", projector_slopes, WEAK, predicted_slope(WEAK), 0.2, rows=240),
        ),
        Scope(
            "projector-unaligned",
            "Entries on noise alone: the projector's multiplier scales as d⁻¹.",
            holds=False,
            measure=_measure("projector-unaligned", projector_slopes, 0.0, -1.0, 0.2),
        ),
        Scope(
            "query-key-unaligned",
            "Entries on noise alone: the multiplier of q·k scales as d⁻².",
            holds=False,
            measure=_measure("query-key-unaligned", query_key_slopes, 0.0, -2.0, 0.2, rows=240),
        ),
    ),
)
