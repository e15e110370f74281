"""The symmetry c → σc of a loss of c/‖c‖: flow keeps ‖c‖, steps only let it grow, light decay stops it.

Source: arXiv 2601.04890 (normalisation symmetry); the equilibrium is that of Kosson et al. 2023 (rotational
equilibrium); growth law and threshold are worked out in `scalevec_theory.symmetries`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from sympy import Eq, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting
from scalevec_theory.paired import agreement
from scalevec_theory.problems import Between, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner
from scalevec_theory.symmetries import holding_decay, norm_square, simulate_direction

CLAIM = "normalisation-symmetry"
eta, decay, n2, G2, grown = symbols("eta lambda |c|^2 G^2 |c'|^2", real=True)
ORTHOGONAL = {"the loss does not change along c: <c,g> = 0": Eq(inner("c", "g"), 0)}


def prove_flow() -> Proof:
    """Differentiate L(σc) = L(c) at σ = 1."""
    flow = {"c flows": Eq(inner("c", "dc"), -inner("c", "g"))}
    return Proof(
        (Lemma("2 <c,dc> = 0, c of any length", Eq(2 * inner("c", "dc"), 0), ORTHOGONAL | flow),),
        "|c|² is constant for every differentiable loss of c/|c|.",
    )


def prove_growth() -> Proof:
    """c − ηg, and the norm that decay and growth agree on."""
    stepped = Vector.named("c") - eta * Vector.named("g")
    growth = Eq(stepped.dot(stepped) - inner("c", "c"), eta**2 * inner("g", "g"))
    return Proof(
        (
            Lemma("|c'|^2 - |c|^2 = eta^2 |g|^2, c of any length", growth, ORTHOGONAL),
            Lemma(
                "|c|^2 ((2 eta lambda - eta^2 lambda^2) |c|^4 - eta^2 G^2) = 0",
                Eq(n2 * ((2 * eta * decay - eta**2 * decay**2) * n2**2 - eta**2 * G2), 0),
                {
                    "|c| is stationary under decay and steps": Eq(n2, (1 - eta * decay) ** 2 * n2 + eta**2 * grown),
                    "|g|^2 = G^2/|c|^2": Eq(grown * n2, G2),
                },
            ),
        ),
        "|c|⁴ = ηG²/(2λ − ηλ²), where each step turns c by η|g|/|c| = √(2ηλ) to leading order.",
    )


SPACE = ProblemSpace(
    "L = ½ (n − e)ᵀH(n − e), n = c/‖c‖, any c with ‖c‖ > 0.1, step eta",
    {"d": (2, 3, 5)},
    {"H": PositiveDefinite("dd", high=20.0), "e": Real("d"), "c": Real("d"), "eta": Between("", 1e-3, 0.3)},
    where=lambda p: p["c"].square().sum(1) > 0.01,
)


def _gradient(problems: Problems) -> Tensor:
    c = problems["c"].clone().requires_grad_()
    error = c / c.norm(dim=1, keepdim=True) - problems["e"]
    loss = 0.5 * ((problems["H"] @ error[..., None])[..., 0] * error).sum()
    return torch.autograd.grad(loss, c)[0]


def flow_margin(problems: Problems, accuracy: float) -> Margin:
    c, g = problems["c"], _gradient(problems)
    speed = -2 * (c * g).sum(1)
    return Margin.equal(speed, torch.zeros_like(speed), accuracy, scale=c.norm(dim=1) * _size(problems))


def _size(problems: Problems) -> Tensor:
    """The size of the terms that cancel in the gradient."""
    error = 1 + problems["e"].norm(dim=1)
    return torch.linalg.eigvalsh(problems["H"])[:, -1] * error / problems["c"].norm(dim=1)


def _step_margin(expected: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Problems, float], Margin]:
    """The increment of ‖c‖² in a gradient step against ``expected(g, eta)``."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        c, g, eta = problems["c"], _gradient(problems), problems["eta"]
        stepped = c - eta[:, None] * g
        size = c.square().sum(1) + stepped.square().sum(1) + (eta * _size(problems)) * c.norm(dim=1)
        increment = stepped.square().sum(1) - c.square().sum(1)
        return Margin.equal(increment, expected(g, eta), accuracy, scale=size)

    return margin


N, STEP, DECAY, STEPS = 16, 0.02, 0.05, 1500
STRENGTH = math.sqrt(N - 1)
"""G of unit noise in N dimensions; from ‖c‖ = 1, ηG = 0.077 per step, and ηλ = 10⁻³."""


def _norms(setting: Setting, decay: float, n_steps: int = STEPS) -> Tensor:
    generator = torch.Generator().manual_seed(int(setting.rng.integers(2**63)))
    c = torch.randn(setting.choose(100, 400, 1600), N, generator=generator, dtype=torch.float64)
    return simulate_direction(c / c.norm(dim=1, keepdim=True), 1.0, STEP, decay, n_steps, generator)


def _growth(name: str, decay: float, predicted: Callable[[Tensor], Tensor]) -> Callable[[Setting], list[Evidence]]:
    times = torch.tensor([50, 150, 500, STEPS])

    def measure(setting: Setting) -> list[Evidence]:
        ratio = (_norms(setting, decay)[times] / predicted(times)[:, None]).T
        detail = f"‖c‖² after {', '.join(map(str, times.tolist()))} steps"
        return [agreement(ratio, 0.03, setting, f"{CLAIM}:{name}", detail)]

    return measure


def _held(name: str, factor: float) -> Callable[[Setting], list[Evidence]]:
    """Largest ‖c‖ over that allowed, 1.5 times the start, with ``factor`` times the decay said to suffice."""
    least = holding_decay(1.0, STRENGTH, STEP, 1.5)

    def measure(setting: Setting) -> list[Evidence]:
        norms = _norms(setting, factor * least).sqrt() / 1.5
        ratio = norms[norms.mean(1).argmax()]
        return [agreement(ratio[:, None], 0.03, setting, f"{CLAIM}:{name}", f"largest ‖c‖, λ = {factor * least:.3g}")]

    return measure


claim = Claim(
    id=CLAIM,
    title="Steps let ‖c‖ grow along c → σc, and light decay stops it",
    statement="For a loss of c/‖c‖, gradient flow keeps ‖c‖; a gradient step adds exactly η²‖g‖² to ‖c‖²; noise of "
    "strength G lets ‖c‖⁴ grow as 2η²G²t, so that the turn per step, ηG/‖c‖², dies out; decay λ stops it at "
    "‖c‖⁴ = ηG²/2λ, where the turn is √(2ηλ).",
    formula=r"\begin{split} \text{flow: } & \frac{d}{dt} \lVert c \rVert = 0 \\ \text{step: } & \lVert c \rVert^2 \to "
    r"\lVert c \rVert^2 + \eta^2 \lVert g \rVert^2 \\ \text{noise and decay: } & \lVert c(t) \rVert^4 \simeq "
    r"\frac{\eta G^2}{2 \lambda} \left(1 - e^{-4 \eta \lambda t}\right) + \lVert c(0) \rVert^4 e^{-4 \eta \lambda t} "
    r"\end{split}",
    source="arXiv 2601.04890, normalisation symmetry; Kosson et al. 2023 for the equilibrium",
    figures=("symmetry-drift",),
    scopes=(
        Scope(
            "flow",
            "Gradient flow of every differentiable loss of c/‖c‖ conserves ‖c‖.",
            holds=True,
            space=SPACE,
            margin=flow_margin,
            accuracy=1e-10,
            proof=prove_flow,
        ),
        Scope(
            "gd-growth",
            "A gradient step adds exactly η²‖g‖² to ‖c‖².",
            holds=True,
            space=SPACE,
            margin=_step_margin(lambda g, eta: eta**2 * g.square().sum(1)),
            accuracy=1e-11,
            proof=prove_growth,
        ),
        Scope(
            "gd-keeps-norm",
            "A gradient step of size at most 0.3 changes ‖c‖² by less than 1e-6 of its size.",
            holds=False,
            space=SPACE,
            margin=_step_margin(lambda g, eta: torch.zeros_like(eta)),
            accuracy=1e-6,
        ),
        Scope(
            "noise",
            "On noise of strength G, without decay, ‖c‖⁴ = ‖c(0)‖⁴ + 2η²G²t, within 3% of ‖c‖² "
            f"(n = {N}, ηG = {STEP * STRENGTH:.2g}).",
            holds=True,
            measure=_growth("noise", 0.0, lambda t: norm_square(t, 1.0, STRENGTH, STEP)),
        ),
        Scope(
            "noise-random-walk",
            "On noise of strength G, without decay, ‖c‖² = ‖c(0)‖² + η²G²t, as if ‖g‖ did not shrink with ‖c‖.",
            holds=False,
            measure=_growth("noise-random-walk", 0.0, lambda t: 1 + (STEP * STRENGTH) ** 2 * t),
        ),
        Scope(
            "decay",
            "With decoupled decay λ, ‖c‖⁴ = (ηG²/2λ)(1 − e^{−4ηλt}) + ‖c(0)‖⁴e^{−4ηλt}, within 3% of ‖c‖² "
            f"(ηλ = {STEP * DECAY:g}).",
            holds=True,
            measure=_growth("decay", DECAY, lambda t: norm_square(t, 1.0, STRENGTH, STEP, DECAY)),
        ),
        Scope(
            "sufficient-decay",
            "The decay ηG²/(2·1.5⁴‖c(0)‖⁴) lets ‖c‖ grow to 1.5 times its start and no further, within 3%.",
            holds=True,
            measure=_held("sufficient-decay", 1.0),
        ),
        Scope(
            "insufficient-decay",
            "Half of the decay ηG²/(2·1.5⁴‖c(0)‖⁴) lets ‖c‖ grow to 1.5 times its start and no further, within 3%.",
            holds=False,
            measure=_held("insufficient-decay", 0.5),
        ),
    ),
)
