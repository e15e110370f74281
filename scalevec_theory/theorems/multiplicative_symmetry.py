"""The symmetry (a, b) → (σa, b/σ): what gradient flow conserves, what steps, noise and light decay do to it.

Source: arXiv 2601.04890 (multiplicative symmetry; light weight decay against it); the rates are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from sympy import Eq, Symbol, symbols
from torch import Tensor

from scalevec_theory import ito
from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting
from scalevec_theory.losses import LeastSquares
from scalevec_theory.paired import agreement
from scalevec_theory.parametrizations import Parametrization
from scalevec_theory.problems import Between, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner
from scalevec_theory.symmetries import LIGHT_DECAY, product_spread, simulate_pair, sufficient_decay

CLAIM = "multiplicative-symmetry"
OUTER = Parametrization(
    "outer-product",
    {"a": "c", "b": "d"},
    lambda a, b: a[..., :, None] * b[..., None, :],
    lambda a, b: {"|a|^2-|b|^2": (a * a).sum(-1) - (b * b).sum(-1)},
)
eta, sigma, c, d, dQ, Q, g, a, b, new_Q = symbols("eta sigma c d dQ Q g a b Q_new", real=True)
aa, bb = inner("a", "a"), inner("b", "b")
INVARIANT = {"the loss is invariant: <a,g_a> = <b,g_b>": Eq(inner("a", "g_a"), inner("b", "g_b"))}


def prove_conserved() -> Proof:
    """Differentiate L(σa, b/σ) = L(a, b) at σ = 1."""
    return Proof(
        (
            Lemma(
                "2 <a,da> - 2 <b,db> = 0, a and b of any lengths",
                Eq(2 * inner("a", "da") - 2 * inner("b", "db"), 0),
                {
                    **INVARIANT,
                    "a flows": Eq(inner("a", "da"), -inner("a", "g_a")),
                    "b flows": Eq(inner("b", "db"), -inner("b", "g_b")),
                },
            ),
        ),
        "|a|² − |b|² is constant for every differentiable loss that depends on a and b through such products only.",
    )


def prove_increment() -> Proof:
    """a − η g_a, b − η g_b."""
    new_a = Vector.named("a") - eta * Vector.named("g_a")
    new_b = Vector.named("b") - eta * Vector.named("g_b")
    increment = new_a.dot(new_a) - new_b.dot(new_b) - aa + bb
    squares = eta**2 * (inner("g_a", "g_a") - inner("g_b", "g_b"))
    return Proof(
        (
            Lemma("Q' - Q = eta^2 (|g_a|^2 - |g_b|^2), any lengths", Eq(increment, squares), INVARIANT),
            Lemma(
                "scalars, θ = ab: Q' = (1 - eta^2 g^2) Q",
                Eq(new_Q, (1 - eta**2 * g**2) * Q),
                {
                    "a and b step": Eq(new_Q, (a - eta * b * g) ** 2 - (b - eta * a * g) ** 2),
                    "Q = a^2 - b^2": Eq(Q, a**2 - b**2),
                },
            ),
        ),
        "The invariance holds for the loss of every batch, so the increments do, too, whatever the noise.",
    )


def prove_minibatch() -> Proof:
    """θ = a bᵀ, noise dM (c × d, independent entries of strength σ) on ∂L/∂θ: da = … − dM b, db = … − dMᵀ a."""
    bilinear = inner("a", "dM b")
    return Proof(
        (
            Lemma(
                "martingale part: 2 <a,da> - 2 <b,db> = 0",
                Eq(2 * inner("a", "da") - 2 * inner("b", "db"), 0),
                {
                    "a is moved by - dM b": Eq(inner("a", "da"), -bilinear),
                    "b is moved by - dM' a, and <b,dM' a> = <a,dM b>": Eq(inner("b", "db"), -bilinear),
                },
            ),
            _ito("dQ = sigma^2 (c |b|^2 - d |a|^2) dt", c * sigma**2 * bb, d * sigma**2 * aa, c * bb - d * aa),
        ),
        "Q moves without randomness to d |a|² = c |b|²; for scalars Q decays as e^(−σ²t).",
    )


def prove_isotropic() -> Proof:
    """Independent noise on every entry of a and b."""
    variance = Symbol("d<Q>/dt", real=True)
    return Proof(
        (
            _ito("dQ = sigma^2 (c - d) dt + martingale", c * sigma**2, d * sigma**2, c - d),
            Lemma(
                "quadratic variation: 4 sigma^2 (|a|^2 + |b|^2)",
                Eq(variance, 4 * sigma**2 * (aa + bb)),
                {
                    "slopes 2a and -2b": Eq(
                        variance, sigma**2 * ((2 * Vector.named("a")).dot(2 * Vector.named("a")) + 4 * bb)
                    )
                },
            ),
        ),
        "Q diffuses along the orbit at a rate that does not fall: E[Q²] grows without bound.",
    )


def _ito(statement: str, of_a: Symbol, of_b: Symbol, drift: Symbol) -> Lemma:
    """Itô's drift of |a|² − |b|² is E|da|² − E|db|² per unit of time, as the flow itself conserves it."""
    da2, db2 = inner("da", "da"), inner("db", "db")
    return Lemma(
        statement,
        Eq(dQ, sigma**2 * drift),
        {"Ito: dQ = |da|^2 - |db|^2": Eq(dQ, da2 - db2), "E|da|^2": Eq(da2, of_a), "E|db|^2": Eq(db2, of_b)},
    )


VECTORS = {"a": Real("c"), "b": Real("d")}
SQUARES = ProblemSpace(
    "squared loss of θ = a bᵀ, any vectors a and b, step eta",
    {"c": (1, 2, 3), "d": (1, 2, 3)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), **VECTORS, "eta": Between("", 1e-3, 0.1)},
)
NOISY = ProblemSpace(
    "θ = a bᵀ, any vectors a and b, noise of strength sigma",
    {"c": (1, 2), "d": (1, 3)},
    {**VECTORS, "sigma": Between("", 0.1, 10.0)},
)


def _blocks(problems: Problems) -> dict[str, Tensor]:
    return {"a": problems["a"], "b": problems["b"]}


def _invariant(blocks: Mapping[str, Tensor]) -> Tensor:
    return OUTER.invariants(**blocks)["|a|^2-|b|^2"]


def _gradient(problems: Problems) -> dict[str, Tensor]:
    blocks = {name: x.clone().requires_grad_() for name, x in _blocks(problems).items()}
    loss = LeastSquares(problems["H"], problems["T"]).value(OUTER.forward(**blocks)).sum()
    return dict(zip(blocks, torch.autograd.grad(loss, list(blocks.values())), strict=True))


def conserved_margin(problems: Problems, accuracy: float) -> Margin:
    """The velocity of |a|² − |b|² along gradient flow."""
    gradient = _gradient(problems)
    terms = {name: 2 * x * gradient[name] for name, x in _blocks(problems).items()}
    speed = terms["a"].sum(1) - terms["b"].sum(1)
    size = torch.cat(list(terms.values()), 1).abs().sum(1)
    return Margin.equal(speed, torch.zeros_like(speed), accuracy, scale=size)


def _step_margin(expected: Callable[[dict[str, Tensor], Tensor], Tensor]) -> Callable[[Problems, float], Margin]:
    """The increment of Q in a gradient step against ``expected(gradient, eta)``, relative to the squares involved."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        gradient, eta = _gradient(problems), problems["eta"]
        blocks = _blocks(problems)
        after = {name: x - eta[:, None] * gradient[name] for name, x in blocks.items()}
        size = torch.cat([*blocks.values(), *after.values()], 1).square().sum(1)
        return Margin.equal(_invariant(after) - _invariant(blocks), expected(gradient, eta), accuracy, scale=size)

    return margin


def _increment(gradient: dict[str, Tensor], eta: Tensor) -> Tensor:
    return eta**2 * (gradient["a"].square().sum(1) - gradient["b"].square().sum(1))


def _ito_margin(shared: bool) -> Callable[[Problems, float], Margin]:
    """Drift and quadratic variation of Q by differentiation, against their formulas."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        drift, variance, expected, scale = _rates(problems, shared)
        aa, bb = (x.square().sum(1) for x in _blocks(problems).values())
        variance_expected = torch.zeros_like(variance) if shared else 4 * problems["sigma"] ** 2 * (aa + bb)
        left, right = torch.stack([drift, variance], 1), torch.stack([expected, variance_expected], 1)
        return Margin.equal(left / scale[:, None], right / scale[:, None], accuracy, scale=torch.ones_like(scale))

    return margin


def _rates(problems: Problems, shared: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Drift and quadratic variation of Q, the drift expected, and the size of all of them."""
    blocks, sigma = _blocks(problems), problems["sigma"]
    c, d = problems.dims["c"], problems.dims["d"]
    aa, bb = (x.square().sum(1) for x in blocks.values())
    if shared:
        root = sigma[:, None, None] * torch.eye(c * d, dtype=sigma.dtype, device=sigma.device)
        noise = ito.effective_noise(OUTER, blocks, root)
        expected = sigma**2 * (c * bb - d * aa)
    else:
        unit = ito.independent_noise(blocks)
        noise = {name: x * sigma[:, None] for name, x in unit.items()}
        expected = sigma**2 * (c - d) * torch.ones_like(aa)
    drift, variance = ito.rates(_invariant, blocks, noise)
    return drift, variance, expected, sigma**2 * ((c + d) * (aa + bb + 1) + (aa + bb) ** 2)


def diffuses_margin(problems: Problems, accuracy: float) -> Margin:
    """Quadratic variation of Q under minibatch noise, relative to its size under isotropic noise, at least 1e-3."""
    _, variance, _, scale = _rates(problems, shared=True)
    return Margin.at_least(variance / scale, torch.full_like(scale, 1e-3), accuracy)


SIGMA, DT, STIFFNESS = 0.5, 0.004, 10.0
"""Simulated noise, time step, and curvature of the valley ab = 1: ab is held within σ/√(2 · stiffness) = 0.11."""


def _paths(setting: Setting, decay: float, time: float, n_saved: int, noise: float = SIGMA) -> Tensor:
    """Paths from balance a = b = 1 under isotropic noise."""
    n_steps = round(time / DT)
    return simulate_pair(
        torch.ones(setting.choose(2500, 8000, 32_000), 2, dtype=torch.float64),
        1.0,
        noise,
        decay,
        shared=False,
        stiffness=STIFFNESS,
        dt=DT,
        n_steps=n_steps,
        save_every=n_steps // n_saved,
        generator=torch.Generator().manual_seed(int(setting.rng.integers(2**63))),
    )


def measure_diffusion(setting: Setting) -> list[Evidence]:
    """E[u²] against 4σ² ∫ E[a² + b²] dt, both from the same paths, to t = 4 without decay."""
    paths = _paths(setting, 0.0, 4.0, n_saved=40)
    Q, size = paths[..., 0] ** 2 - paths[..., 1] ** 2, paths.square().sum(-1)
    rate = 4 * SIGMA**2 * (4.0 / 40) * (size[:-1].sum(0) + 0.5 * size[-1] + 1.0)
    ratio = 1 + (Q[-1] ** 2 - rate) / rate.mean()
    return [agreement(ratio[:, None], 0.2, setting, f"{CLAIM}:diffusion", "E[Q²] at t = 4 over 4σ² ∫ E[a² + b²] dt")]


def measure_bounded(setting: Setting) -> list[Evidence]:
    """E[Q²] at t = 4 over that at t = 2, without decay; 1 if it had settled."""
    paths = _paths(setting, 0.0, 4.0, n_saved=2)
    square = (paths[..., 0] ** 2 - paths[..., 1] ** 2) ** 2
    ratio = square[1] / square[0].mean()
    return [agreement(ratio[:, None], 0.2, setting, f"{CLAIM}:no-decay-settles", "E[Q²] at t = 4 over t = 2")]


def _stationary(
    name: str, kappa: float, spread: Callable[[float], float], settle: float, noise: float = SIGMA
) -> Callable[[Setting], list[Evidence]]:
    """rms of ½ ln(a/b) at κ = 2λ/σ² against ``spread(κ)``, averaged over the later half of the run.

    Decay pulls the valley itself in by λ/stiffness, which adds about 2κσ²/(4 · stiffness) to E[x²]/spread².
    """

    def measure(setting: Setting) -> list[Evidence]:
        paths = _paths(setting, kappa * noise**2 / 2, 2 * settle, n_saved=20, noise=noise)[10:]
        x = 0.5 * (paths[..., 0] / paths[..., 1]).abs().log()
        ratio = x.square().mean(0) / spread(kappa) ** 2
        return [agreement(ratio[:, None], 0.1, setting, f"{CLAIM}:{name}", f"E[x²], x = ½ ln(a/b), at κ = {kappa:g}")]

    return measure


def _formula(kappa: float) -> float:
    return product_spread(1.0, 1.0, kappa / 2)[0] ** 0.5


STEP = 1e-3
KAPPA = 2 * LIGHT_DECAY / STEP
"""κ = 2pλ/η = 4 of the light decay for p = 1 and updates of size 10⁻³."""

claim = Claim(
    id=CLAIM,
    title="Noise, steps and light decay along (a, b) → (σa, b/σ)",
    statement="Gradient flow conserves Q = ‖a‖² − ‖b‖²; a step adds η²(‖g_a‖² − ‖g_b‖²). Minibatch noise drives Q "
    "without randomness to balance; only isotropic noise diffuses along the orbit, at 4σ²(‖a‖² + ‖b‖²), and without "
    "end unless there is decay. With decay x = ½ ln(a/b) has the density exp(−κ cosh 2x), κ = 2pλ/σ², ab = p (2pλ/η "
    "for updates of size η).",
    formula=r"\begin{split} \text{flow: } & \dot Q = 0, \quad Q = \lVert a \rVert^2 - \lVert b \rVert^2 \\ "
    r"\text{step: } & Q \to Q + \eta^2 \left(\lVert g_a \rVert^2 - \lVert g_b \rVert^2\right) \\ \text{isotropic "
    r"noise: } & d\langle Q \rangle = 4 \sigma^2 \left(\lVert a \rVert^2 + \lVert b \rVert^2\right) dt \\ "
    r"\text{decay: } & p(x) \propto e^{-\kappa \cosh\,2x}, \quad x = \tfrac{1}{2} \ln(a / b) \end{split}",
    source="arXiv 2601.04890, multiplicative symmetry; rates and threshold ours",
    figures=("symmetry-drift",),
    scopes=(
        Scope(
            "flow",
            "Gradient flow of every differentiable loss that depends on a bᵀ conserves ‖a‖² − ‖b‖².",
            holds=True,
            space=SQUARES,
            margin=conserved_margin,
            accuracy=1e-10,
            proof=prove_conserved,
        ),
        Scope(
            "gd-increment",
            "A gradient step changes Q by exactly η²(‖g_a‖² − ‖g_b‖²); for scalars by the factor 1 − η²g².",
            holds=True,
            space=SQUARES,
            margin=_step_margin(_increment),
            accuracy=1e-11,
            proof=prove_increment,
        ),
        Scope(
            "gd-conserves",
            "A gradient step of size at most 0.1 changes Q by less than 1e-6 of the squares of a and b.",
            holds=False,
            space=SQUARES,
            margin=_step_margin(lambda gradient, eta: torch.zeros_like(eta)),
            accuracy=1e-6,
        ),
        Scope(
            "minibatch-noise",
            "Independent noise σ on the entries of ∂L/∂(a bᵀ): dQ = σ²(c‖b‖² − d‖a‖²) dt, with no martingale part.",
            holds=True,
            space=NOISY,
            margin=_ito_margin(shared=True),
            accuracy=1e-10,
            proof=prove_minibatch,
            cost=16,
        ),
        Scope(
            "minibatch-diffuses",
            "Noise on the gradient of a bᵀ diffuses along the orbit (the papers' drift, read as a random one).",
            holds=False,
            space=NOISY,
            margin=diffuses_margin,
            accuracy=1e-9,
            cost=16,
        ),
        Scope(
            "isotropic-noise",
            "Independent noise σ on every entry of a and b: dQ = σ²(c − d) dt + 2σ√(‖a‖² + ‖b‖²) dB.",
            holds=True,
            space=NOISY,
            margin=_ito_margin(shared=False),
            accuracy=1e-10,
            proof=prove_isotropic,
            cost=16,
        ),
        Scope(
            "diffusion",
            "A scalar pair held at ab = 1, isotropic noise, no decay: E[Q²] = 4σ² ∫ E[a² + b²] dt from balance, within "
            "20% at t = 4, σ = 0.5.",
            holds=True,
            measure=measure_diffusion,
        ),
        Scope(
            "no-decay-settles",
            "A scalar pair held at ab = 1, isotropic noise, no decay: E[Q²] has settled at t = 2 (σ = 0.5).",
            holds=False,
            measure=measure_bounded,
        ),
        Scope(
            "decay",
            "A scalar pair held at ab = 1, isotropic noise and decay, κ = 1: E[x²] is that of the density "
            "exp(−κ cosh 2x), within 10%.",
            holds=True,
            measure=_stationary("decay", 1.0, _formula, settle=10.0),
        ),
        Scope(
            "light-decay",
            f"Decay {LIGHT_DECAY:g}, updates of size {STEP:g} and ab = 1 (κ = {KAPPA:g}): the rms of ½ ln(a/b) settles "
            f"at {_formula(KAPPA):.3f}, within 5%, after about 1/(2ηλ) = {1 / (2 * STEP * LIGHT_DECAY):,.0f} steps.",
            holds=True,
            measure=_stationary("light-decay", KAPPA, _formula, settle=5.0, noise=0.35),
        ),
        Scope(
            "light-decay-large-step",
            f"Decay {LIGHT_DECAY:g} holds the rms of ½ ln(a/b) at {_formula(KAPPA):.3f} with updates of size 10⁻² as "
            f"well (that takes a decay of {sufficient_decay(1.0, 0.1, _formula(KAPPA)):.2g}).",
            holds=False,
            measure=_stationary("light-decay-large-step", KAPPA / 10, lambda _: _formula(KAPPA), settle=10.0),
        ),
    ),
)
