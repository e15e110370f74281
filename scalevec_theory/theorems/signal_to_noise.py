"""How much less noisy the gradient of a multiplier is than those of the entries it sums.

Source: arXiv 2601.04890 (averaging over a row or the matrix lowers the noise of a multiplier's gradient); the law, its
assumptions and its limits are ours.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from sympy import Eq, Ge, Gt, Le, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting
from scalevec_theory.multipliers import snr, snr_gain
from scalevec_theory.paired import agreement
from scalevec_theory.problems import Between, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner

CLAIM = "signal-to-noise"
n, rho = symbols("n rho", real=True)
aa, ab, bb = inner("a", "a"), inner("a", "b"), inner("b", "b")


def prove_bound() -> Proof:
    """Cauchy–Schwarz for a_i = w_i σ_i and b_i = μ_i/σ_i."""
    a, b = Vector.named("a"), Vector.named("b")
    rest = aa * b - ab * a
    return Proof(
        (
            Lemma(
                "<a,b>^2 <= <a,a><b,b>, every n",
                Le(ab**2, aa * bb),
                {"| <a,a> b - <a,b> a |^2 >= 0": Ge(rest.dot(rest), 0), "<a,a> > 0": Gt(aa, 0)},
            ),
        ),
        "With independent noise the multiplier's squared signal-to-noise is <a,b>²/<a,a> for a = (w_i σ_i) and "
        "b = (μ_i/σ_i), and <b,b> is the sum of the entries'; equality for w_i proportional to μ_i/σ_i².",
    )


def prove_correlated() -> Proof:
    """Weights ±w, noise σ² ((1 − ρ) δ_ik + ρ) once the signs are taken out."""
    w, sigma, variance, diagonal, off = symbols("w sigma V V_diag V_off", real=True)
    return Proof(
        (
            Lemma(
                "V = n w^2 sigma^2 (1 + rho (n - 1))",
                Eq(variance, n * w**2 * sigma**2 * (1 + rho * (n - 1))),
                {
                    "variances and covariances add: V = V_diag + V_off": Eq(variance, diagonal + off),
                    "n terms w^2 sigma^2": Eq(diagonal, n * w**2 * sigma**2),
                    "n (n - 1) terms rho w^2 sigma^2": Eq(off, n * (n - 1) * rho * w**2 * sigma**2),
                },
            ),
            Lemma(
                "n rho <= 1 + rho (n - 1)",
                Le(n * rho, 1 + rho * (n - 1)),
                {"rho <= 1": Le(rho, 1)},
            ),
        ),
        "|<w,μ>| = α √n w · √n rms(μ), so the gain is α √(n/(1 + ρ(n − 1))), which the second lemma bounds by α/√ρ.",
    )


INDEPENDENT = ProblemSpace(
    "n entries with independent noise of any strengths, any weights and signals",
    {"n": (1, 2, 5)},
    {"w": Real("n"), "mu": Real("n"), "sigma": Between("n", 0.1, 10.0)},
    where=lambda p: (p["w"].abs() > 1e-3).any(1),
)
CORRELATED = ProblemSpace(
    "two or more entries, noise of unit strength and correlation rho between any two, any weights and signals",
    {"n": (2, 5)},
    {"w": Real("n"), "mu": Real("n"), "rho": Between("", 1e-3, 0.999)},
    where=lambda p: (p["w"].abs() > 1e-3).any(1),
)
EQUAL = ProblemSpace(
    "n weights of one modulus, noise of unit strength and correlation rho in the weights' signs, any signals",
    {"n": (1, 2, 5)},
    {"mu": Real("n"), "rho": Between("", 1e-3, 1.0)},
    where=lambda p: (p["mu"].abs() > 1e-3).any(1),
)


def _covariance(rho: Tensor, n: int) -> Tensor:
    rho = rho[:, None, None]
    return (1 - rho) * torch.eye(n, dtype=rho.dtype, device=rho.device) + rho


def bound_margin(problems: Problems, accuracy: float) -> Margin:
    w, mu, sigma = problems["w"], problems["mu"], problems["sigma"]
    best = (mu / sigma).square().sum(1)
    squared = snr(w, mu, torch.diag_embed(sigma**2)) ** 2
    size = (w * mu).abs().sum(1) ** 2 / (w * sigma).square().sum(1) + best
    return Margin.at_least(best / size, squared / size, accuracy)


def correlated_bound_margin(problems: Problems, accuracy: float) -> Margin:
    w, mu = problems["w"], problems["mu"]
    best = mu.square().sum(1)
    squared = snr(w, mu, _covariance(problems["rho"], w.shape[1])) ** 2
    return Margin.at_least(best / (best + squared), squared / (best + squared), accuracy)


def _gain_margin(formula: Callable[[int, Tensor, Tensor], Tensor]) -> Callable[[Problems, float], Margin]:
    """Signal-to-noise of equal weights over the rms entry's, against ``formula(n, alignment, rho)``."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        mu, rho = problems["mu"], problems["rho"]
        count = mu.shape[1]
        rms = mu.square().mean(1).sqrt()
        alignment = mu.mean(1).abs() / rms
        gain = snr(torch.ones_like(mu), mu, _covariance(rho, count)) / rms
        scale = (count / (1 + rho * (count - 1))).sqrt()
        return Margin.equal(gain, formula(count, alignment, rho), accuracy, scale=scale)

    return margin


SIZES = (1, 4, 16, 64, 256)


def slope_of(gains: Tensor) -> Tensor:
    """Least-squares slope ``(B,)`` of ln gain ``(B, len(SIZES))`` against ln n."""
    x = torch.tensor(SIZES, dtype=torch.float64).log()
    x = (x - x.mean()) / (x - x.mean()).square().sum()
    return (gains.log() * x.to(gains)).sum(1)


def _measured_slope(name: str, expected: float, aligned: bool) -> Callable[[Setting], list[Evidence]]:
    """The slope of the measured gain, noise drawn and not computed; weights w = μ, or independent of it."""

    def measure(setting: Setting) -> list[Evidence]:
        groups, draws = setting.choose(60, 200, 600), 200
        mu = torch.from_numpy(setting.rng.standard_normal((groups, max(SIZES))))
        w = mu if aligned else torch.from_numpy(setting.rng.standard_normal(mu.shape))
        noise = torch.from_numpy(setting.rng.standard_normal((groups, draws, max(SIZES))))
        gains = []
        for size in SIZES:
            summed = (noise[..., :size] * w[:, None, :size]).sum(-1)
            signal = (w[:, :size] * mu[:, :size]).sum(1).abs()
            gains.append(signal / summed.std(1) / mu[:, :size].square().mean(1).sqrt())
        slopes = slope_of(torch.stack(gains, 1))
        detail = f"slope of ln gain against ln n for n = {SIZES[0]} … {SIZES[-1]}, {groups} groups of {draws} draws"
        return [agreement((slopes / expected)[:, None], 0.05, setting, f"{CLAIM}:{name}", detail)]

    return measure


claim = Claim(
    id=CLAIM,
    title="Signal-to-noise of a multiplier against the number of entries it sums",
    statement="With independent noise of one strength a multiplier's signal-to-noise is α√n times an entry's, α the "
    "cosine of weights and signal: √n for weights that have learned the signal, nothing for weights that have not; "
    "with noise of correlation ρ it is α √(n/(1 + ρ(n − 1))) and saturates at α/√ρ.",
    formula=r"\frac{\operatorname{SNR}(\text{multiplier})}{\operatorname{SNR}(\text{entry})} = \alpha "
    r"\sqrt{\frac{n}{1 + \rho\,(n - 1)}}",
    source="arXiv 2601.04890, averaging of the gradient noise; law and limits ours",
    figures=("signal-to-noise",),
    scopes=(
        Scope(
            "independent-bound",
            "With independent noise, the squared signal-to-noise of a multiplier is at most the sum of its entries', "
            "for any weights.",
            holds=True,
            space=INDEPENDENT,
            margin=bound_margin,
            accuracy=1e-12,
            proof=prove_bound,
        ),
        Scope(
            "correlated-bound",
            "With correlated noise, the squared signal-to-noise of a multiplier is at most the sum of its entries', "
            "for any weights.",
            holds=False,
            space=CORRELATED,
            margin=correlated_bound_margin,
            accuracy=1e-9,
        ),
        Scope(
            "correlated-gain",
            "With weights of one modulus and noise of correlation ρ in their signs, the gain is α √(n/(1 + ρ(n − 1))).",
            holds=True,
            space=EQUAL,
            margin=_gain_margin(snr_gain),
            accuracy=1e-10,
            proof=prove_correlated,
        ),
        Scope(
            "correlated-ignored",
            "With weights of one modulus and noise of correlation ρ in their signs, the gain is α √n.",
            holds=False,
            space=EQUAL,
            margin=_gain_margin(lambda n, alignment, rho: snr_gain(n, alignment)),
            accuracy=1e-10,
        ),
        Scope(
            "aligned-slope",
            "With independent noise and weights equal to the signal, the gain grows as n^½, within 5% of ½.",
            holds=True,
            measure=_measured_slope("aligned-slope", 0.5, aligned=True),
        ),
        Scope(
            "unaligned-slope",
            "With independent noise and weights drawn independently of the signal, the gain grows as n^½.",
            holds=False,
            measure=_measured_slope("unaligned-slope", 0.5, aligned=False),
        ),
    ),
)
