"""How large weights become that noise moves and weight decay holds, for each optimizer: laws, and where they end.

Exact laws are proved from the stationarity of second moments; every prediction of `equilibrium.predict` is measured
against walks of a million coordinates.  "√(η/λ)" is the law of AdamW alone, for small ηλ, β₂ near 1 and ε → 0.

Source: arXiv 2601.04890 (noise–weight-decay equilibrium); the laws beyond AdamW's leading order are derived here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch

from scalevec_theory import abm
from scalevec_theory.abm import Gradients
from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting
from scalevec_theory.equilibrium import equilibrium, leading_order, norm_of_gaussians, predict
from scalevec_theory.equilibrium_proofs import (
    prove_matched_betas,
    prove_momentum,
    prove_nesterov,
    prove_sign,
    prove_unit_denominator,
)
from scalevec_theory.optimizers import SGD, Adam, AdamW, Lion, Muon, Optimizer, RMSProp, SignSGD
from scalevec_theory.paired import simulated
from scalevec_theory.problems import Between, Problems, ProblemSpace, Real
from scalevec_theory.proof import Proof
from scalevec_theory.schedules import SCHEDULES
from scalevec_theory.update_rules import initial_state, update
from scalevec_theory.walks_at_rest import rms_at_rest, walk_at_rest

CLAIM = "equilibrium"


def every_sign(problems: Problems, accuracy: float) -> Margin:
    """The mean of u² over all signs of the gradients, by running AdamW, against the law."""
    g, beta1 = problems["g"], problems["beta"]
    t = g.shape[1]
    signs = torch.tensor(list(product((-1.0, 1.0), repeat=t)), dtype=g.dtype, device=g.device)
    squares = torch.stack(
        [_last_update(row[:, None] * signs.T, float(b)).square().mean() for row, b in zip(g, beta1, strict=True)]
    )
    law = (1 - beta1) * (1 + beta1**t) / ((1 + beta1) * (1 - beta1**t))
    return Margin.equal(squares, law, accuracy)


def _last_update(gradients: torch.Tensor, beta1: float) -> torch.Tensor:
    """u of the last of the gradients ``(t, n)``."""
    optimizer = AdamW(1.0, betas=(beta1, beta1**2), eps=0.0)
    w = torch.zeros_like(gradients[0])
    state = initial_state(optimizer, w)
    for k, g in enumerate(gradients):
        before = w.clone()
        update(optimizer, state, w, g, k + 1, 1.0, 0.0)
    return before - w


def _agrees(
    name: str,
    statement: str,
    optimizers: Sequence[Optimizer],
    *,
    holds: bool = True,
    tolerance: float = 0.005,
    law: Callable[[Optimizer], float] | None = None,
    gradients: Gradients | None = None,
    shape: tuple[int, ...] = (),
    sizes: tuple[int, int, int] = (352_000, 2_000_000, 4_000_000),
    proof: Callable[[], Proof] | None = None,
) -> Scope:
    """The scope that √E[w²] at rest is within ``tolerance`` of √``law`` (default: `equilibrium`) for each optimizer."""

    def stated(optimizer: Optimizer) -> float:
        if law is not None:
            return law(optimizer)
        return equilibrium(optimizer, noise=gradients.std if gradients else 1.0, shape=shape or None).mean_square

    def measure(setting: Setting) -> list[Evidence]:
        n = setting.choose(*sizes)
        walks = {o: walk_at_rest(o, setting, n, gradients=gradients, shape=shape) for o in optimizers}
        return [rms_at_rest(f"{CLAIM}:{name}", o, stated(o), tolerance, setting, walk) for o, walk in walks.items()]

    return Scope(name, statement, holds, measure=measure, proof=proof)


def half_ratio(optimizer: Optimizer) -> float:
    """η/(2λ)."""
    return optimizer.lr / (2 * optimizer.weight_decay)


TRANSIENT_STEPS, WARMUP, FIRST = 500, 50, 20
TRANSIENT_OPTIMIZERS = (
    AdamW(0.1, 0.1, betas=(0.9, 0.95)),
    Adam(0.1, 0.1, betas=(0.9, 0.95)),
    RMSProp(0.1, 0.1),
    Lion(0.1, 0.1),
)


def measure_transients(setting: Setting) -> list[Evidence]:
    """The largest deviation of the rms along each schedule."""
    found = []
    record = np.unique(np.geomspace(FIRST, TRANSIENT_STEPS, 12).astype(int))
    for optimizer, (name, schedule) in product(TRANSIENT_OPTIMIZERS, SCHEDULES.items()):
        factors = schedule(TRANSIENT_STEPS, WARMUP)
        run = abm.run(
            optimizer,
            setting.choose(200_000, 1_000_000, 2_000_000),
            TRANSIENT_STEPS,
            seed=int(setting.rng.integers(2**63)),
            lr_schedule=factors,
            record=record.tolist(),
        )
        expected = predict(optimizer, TRANSIENT_STEPS, lr_schedule=factors).rms[run.steps]
        deviation = np.abs(np.sqrt(run.mean_square) / expected - 1)
        worst = int(deviation.argmax())
        stderr = float(run.stderr[worst] / (2 * run.mean_square[worst]))
        detail = f"{optimizer}, {name}: rms off by {deviation[worst]:.2%} at step {run.steps[worst]}"
        found.append(
            simulated(
                setting,
                f"{CLAIM}:transients",
                0.01 - float(deviation[worst]),
                detail,
                stderr=stderr,
                instances=len(run.weights),
            )
        )
    return found


def measure_fluctuation(setting: Setting) -> list[Evidence]:
    """The standard deviation of ‖W‖_F over matrices, for two sizes."""
    found = []
    optimizer = AdamW(0.1, 0.1, betas=(0.9, 0.95))
    for shape in ((8, 8), (8, 16)):
        walk = walk_at_rest(optimizer, setting, setting.choose(3000, 8000, 20_000), shape=shape)
        norms = np.sqrt(walk.squares[-1] * np.prod(shape))
        stated = float(norm_of_gaussians(np.array(equilibrium(optimizer).rms), int(np.prod(shape)))[1])
        ratio, stderr = float(norms.std(ddof=1) / stated), 1 / (2 * len(norms)) ** 0.5
        detail = f"{shape}: ‖W‖_F is {norms.mean():.3f} ± {norms.std(ddof=1):.4f}, stated ± {stated:.4f}"
        margin = 0.1 - abs(ratio - 1)
        found.append(simulated(setting, f"{CLAIM}:fluctuation", margin, detail, stderr=stderr, instances=len(norms)))
    return found


EVERY_SIGN = ProblemSpace(
    "any gradients but zero", {"t": (1, 2, 4)}, {"g": Real("t"), "beta": Between("", 0.05, 0.95)},
    where=lambda p: (p["g"].abs() > 1e-3).all(1),
)  # fmt: skip
MUON = (32, 64)

claim = Claim(
    id=CLAIM,
    title="Noise–decay equilibria: E[w²] at rest and on the way, optimizer by optimizer",
    statement="Weights moved by zero-mean gradient noise come to rest at E[w²] = η/(2λ) times the sum over all lags of "
    "the update's autocovariance. That sum is 1 for AdamW alone, to leading order: it is σ for Adam with L2, "
    "σ²/(1 − μ) for SGD, and far above 1 for Lion and Muon, whose signs forget more slowly than they average.",
    formula=r"\mathbb{E}[w^2] \simeq \frac{\eta}{2 \lambda} \sum_{k=-\infty}^{\infty} \operatorname{Cov}(u_t, "
    r"u_{t+k}) \quad \text{as } \eta \lambda \to 0",
    source="arXiv 2601.04890 for AdamW's leading order; the rest is derived here",
    figures=("equilibrium",),
    scopes=(
        Scope(
            "adamw-unit-denominator",
            "With v̂ = 1 and i.i.d. gradients of variance 1, AdamW's stationary E[w²] is exactly "
            "η²(1 − β₁)²(1 + aβ₁)/((1 − a²)(1 − β₁²)(1 − aβ₁)), a = 1 − ηλ, which tends to η/(2λ).",
            True,
            proof=prove_unit_denominator,
        ),
        Scope(
            "adamw-matched-betas",
            "With β₂ = β₁², ε = 0 and independent symmetric gradients of any law, E[u_t²] of Adam's normalised update "
            "is exactly (1 − β₁)(1 + β₁^t)/((1 + β₁)(1 − β₁^t)) at every step t, bias correction included.",
            True,
            EVERY_SIGN,
            every_sign,
            proof=prove_matched_betas,
            cost=10,
        ),
        _agrees(
            "adamw",
            "AdamW at ηλ = 0.01: √E[w²] at rest is within 0.5% of the expansion in 1 − β₂, for (β₁, β₂) = (0.9, "
            "0.999), (0.95, 0.95) and (0, 0.95), and for ε = σ/2.",
            (
                AdamW(0.1, 0.1),
                AdamW(0.1, 0.1, betas=(0.95, 0.95)),
                AdamW(0.1, 0.1, betas=(0.0, 0.95)),
                AdamW(0.1, 0.1, betas=(0.9, 0.95), eps=0.5),
            ),
        ),
        _agrees(
            "adamw-leading-order",
            "AdamW with (β₁, β₂) = (0, 0.95), ηλ = 0.01: √E[w²] at rest is within 1% of √(η/2λ).",
            (AdamW(0.1, 0.1, betas=(0.0, 0.95)),),
            holds=False,
            sizes=(100_032, 400_000, 1_000_000),
            tolerance=0.01,
            law=half_ratio,
        ),
        _agrees(
            "adamw-epsilon",
            "AdamW with ε = σ: √E[w²] at rest is within 2% of √(η/2λ). (It is half of that.)",
            (AdamW(0.05, 0.2, betas=(0.9, 0.99), eps=1.0),),
            holds=False,
            tolerance=0.02,
            law=half_ratio,
            sizes=(100_032, 400_000, 1_000_000),
        ),
        _agrees(
            "adamw-small-beta2",
            "AdamW with (β₁, β₂) = (0, 0.5): √E[w²] at rest is within 0.5% of the expansion in 1 − β₂.",
            (AdamW(0.1, 0.1, betas=(0.0, 0.5)),),
            holds=False,
            sizes=(100_032, 400_000, 1_000_000),
        ),
        _agrees(
            "adamw-correlated",
            "AdamW, gradients AR(1) with φ = 0.5, ηλ = 0.001: √E[w²] at rest is within 2% of √(η/2λ), as for "
            "independent gradients. (E[w²] is (1 + φ)/(1 − φ) = 3 times that.)",
            (AdamW(0.03, 0.033),),
            holds=False,
            tolerance=0.02,
            law=half_ratio,
            gradients=Gradients(correlation=0.5),
            sizes=(32_000, 100_032, 400_000),
        ),
        _agrees(
            "adamw-correlated-law",
            "AdamW, gradients AR(1) with φ = 0.5, ηλ = 0.001: √E[w²] at rest is within 3% of the root of "
            "(η/2λ)(1 + φ)/(1 − φ).",
            (AdamW(0.03, 0.033),),
            tolerance=0.03,
            law=lambda o: leading_order(o, correlation=0.5),
            gradients=Gradients(correlation=0.5),
            sizes=(64_000, 200_000, 400_000),
        ),
        _agrees(
            "adam-l2",
            "Adam with L2 at ηλ/σ = 0.01, σ = 0.5: √E[w²] at rest is within 0.5% of the expansion, about ησ/(2λ), for "
            "(β₁, β₂) = (0.9, 0.999) and (0.95, 0.95).",
            (Adam(0.1, 0.05), Adam(0.1, 0.05, betas=(0.95, 0.95))),
            gradients=Gradients(0.5),
            sizes=(480_000, 2_000_000, 4_000_000),
        ),
        _agrees(
            "adam-l2-noise-scale",
            "Adam with L2: E[w²] at rest does not depend on the gradient's size: at σ = 0.5 it is within 5% of η/(2λ).",
            (Adam(0.1, 0.05),),
            holds=False,
            tolerance=0.05,
            law=half_ratio,
            gradients=Gradients(0.5),
            sizes=(100_032, 400_000, 1_000_000),
        ),
        _agrees(
            "adam-l2-large-decay",
            "Adam with L2, (β₁, β₂) = (0.9, 0.95), ηλ/σ = 1: √E[w²] at rest is within 0.5% of the expansion.",
            (Adam(1.0, 1.0, betas=(0.9, 0.95)),),
            holds=False,
        ),
        _agrees(
            "sgd",
            "SGD with momentum μ, any symmetric or other i.i.d. zero-mean noise: stationary E[w²] is exactly "
            "ησ²(1 + μ)/(λ(1 − μ)(2(1 + μ) − ηλ)), 0 < ηλ < 2(1 + μ).",
            (SGD(0.1, 0.1), SGD(0.1, 0.1, momentum=0.9), SGD(1.0, 1.5, momentum=0.5)),
            tolerance=0.03,
            gradients=Gradients(2.0, student_df=8),
            sizes=(20_032, 64_000, 200_000),
            proof=prove_momentum,
        ),
        _agrees(
            "nesterov",
            "SGD with Nesterov momentum μ, i.i.d. zero-mean noise, x = ηλ: stationary E[w²] is exactly "
            "ησ²(1 + μ + xμ + 2xμ²)/(λ(1 − μ + xμ)(2(1 + μ) − x(1 + 2μ))), 0 < x < 2(1 + μ)/(1 + 2μ).",
            (SGD(0.1, 0.1, momentum=0.9, nesterov=True), SGD(1.0, 0.5, momentum=0.5, nesterov=True)),
            tolerance=0.01,
            sizes=(64_000, 400_000, 1_000_000),
            proof=prove_nesterov,
        ),
        _agrees(
            "signsgd",
            "Sign descent without momentum, independent symmetric gradients that are never 0: stationary E[w²] is "
            "exactly η/(λ(2 − ηλ)).",
            (SignSGD(0.1, 0.1), SignSGD(0.5, 1.0)),
            law=lambda o: o.lr / (o.weight_decay * (2 - o.lr * o.weight_decay)),
            tolerance=0.01,
            sizes=(200_000, 400_000, 1_000_000),
            proof=prove_sign,
        ),
        _agrees(
            "lion",
            "Lion and sign descent with momentum, Gaussian gradients: E[w²] at rest is η²/(1 − a²) · (1 + 2 Σ_k a^k "
            "(2/π) arcsin ρ_k), ρ_k the autocorrelation of what the sign is taken of; measured to 0.5%.",
            (Lion(0.1, 0.1), Lion(0.1, 0.1, betas=(0.95, 0.98)), SignSGD(0.1, 0.1, momentum=0.9)),
        ),
        _agrees(
            "lion-as-adamw",
            "Lion: √E[w²] at rest is √(η/2λ) to a factor 2, as for independent updates of size η.",
            (Lion(0.1, 0.1),),
            holds=False,
            tolerance=1.0,
            law=half_ratio,
            sizes=(32_000, 100_032, 400_000),
        ),
        _agrees(
            "muon",
            f"Muon on {MUON[0]} × {MUON[1]} matrices, momentum 0.8, ηλ = 0.2: √E‖W‖² at rest is within 3% of its limit "
            "for large matrices, the root of η²/(1 − a²) (h(1) + 2 Σ_k a^k h(ρ_k)) h by free Hermite polynomials.",
            (Muon(0.5, 0.4, momentum=0.8),),
            tolerance=0.03,
            shape=MUON,
            sizes=(8, 32, 64),
        ),
        _agrees(
            "muon-independent",
            f"Muon on {MUON[0]} × {MUON[1]} matrices: √E‖W‖² at rest is √(min(c, d) η/2λ) to 30%, as for independent "
            "orthogonal updates (momentum 0.8).",
            (Muon(0.5, 0.4, momentum=0.8),),
            holds=False,
            tolerance=0.3,
            law=lambda o: half_ratio(o) / max(MUON),
            shape=MUON,
            sizes=(4, 16, 32),
        ),
        Scope(
            "transients",
            "From w = 0 at η = λ = 0.1, 500 steps of constant, cosine and WSD schedules after 50 of warm-up: the rms "
            f"of w is within 1% of the recursion from step {FIRST} on, for AdamW, Adam, RMSProp and Lion.",
            True,
            measure=measure_transients,
        ),
        Scope(
            "fluctuation",
            "‖W‖_F of a matrix at rest under AdamW fluctuates by √(E[w²]/2), whatever its size (within 10%).",
            True,
            measure=measure_fluctuation,
        ),
    ),
)
