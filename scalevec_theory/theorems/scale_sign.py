"""Can a learned scale change its sign?  Learned directly or in exponential space it cannot; as β α/rms(α) it can.

Source: arXiv 2605.26895 (reparameterisations of the scale vector); the question and its answer are ours.
"""

from __future__ import annotations

import torch
from sympy import Eq, Ge, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Counterexample, Evidence, Margin, Scope, Setting, measured
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE, MAGNITUDE_DIRECTION
from scalevec_theory.problems import Diagonal, PositiveDefinite, Problems, ProblemSpace, Real, Zero
from scalevec_theory.proof import Lemma, Proof

a_j, v, w2 = symbols("α_j v_j |w_j|^2", real=True)


def prove_direct() -> Proof:
    """v_j² = 1 + ‖w_j‖² on the manifold of standard initialisation."""
    hypotheses = {"Q is conserved: v^2 - |w|^2 = 1": Eq(v**2 - w2, 1), "|w|^2 >= 0": Ge(w2, 0)}
    return Proof(
        (Lemma("v_j^2 >= 1", Ge(v**2, 1), hypotheses),),
        "v_j(0) = 1 and v_j is continuous, so v_j >= 1 at every time, for every differentiable loss.",
    )


def prove_uncorrelated() -> Proof:
    """Uncorrelated inputs: w_j = ρ_j T_j from W(0) = 0, and α_j ≥ 0, ρ_j ≥ 0 cannot be left."""
    rate, rho, h, TT, dalpha, drho, m_j, nm = symbols("β√d/|α| ρ h |T|^2 dα dρ m <n\\,m>/|α|", real=True)
    inside = {"β√d/|α| >= 0": Ge(rate, 0), "ρ_j >= 0": Ge(rho, 0), "h >= 0": Ge(h, 0), "|T|^2 >= 0": Ge(TT, 0)}
    return Proof(
        (
            Lemma(
                "where α_j = 0, dα_j >= 0",
                Ge(dalpha, 0),
                {
                    "α flows: dα = -(β√d/|α|)(m - <n,m> α/|α|)": Eq(dalpha, -rate * (m_j - nm * a_j)),
                    "m = <w, h (v w - T)>, w = ρ T": Eq(m_j, h * rho * (v * rho - 1) * TT),
                    "α_j = 0": Eq(a_j, 0),
                    "v_j = 0": Eq(v, 0),
                    **inside,
                },
            ),
            Lemma(
                "where ρ_j = 0, dρ_j >= 0",
                Ge(drho, 0),
                {
                    "w flows: dρ = -v h (v ρ - 1)": Eq(drho, -v * h * (v * rho - 1)),
                    "ρ_j = 0": Eq(rho, 0),
                    "v_j >= 0": Ge(v, 0),
                    "h >= 0": Ge(h, 0),
                },
            ),
        ),
        "w_j stays on the ray ρ_j T_j from W(0) = 0 (uniqueness), β^2 = 1 + |W|^2 keeps β > 0, and the set "
        "{α_j >= 0, ρ_j >= 0 for every j} is invariant (Nagumo).",
    )


def least_share(H: Tensor, T: Tensor, accuracy: float) -> Tensor:
    """The least v_j/rms(v) ``(B,)`` over ten times until 4, from α = 1, β = 1, W = 0, within ``accuracy``."""
    start = MAGNITUDE_DIRECTION.init(torch.zeros_like(T))
    times = torch.linspace(0.4, 4, 10, dtype=T.dtype, device=T.device)
    run = gradient_flow(MAGNITUDE_DIRECTION, LeastSquares(H, T), start, times, rtol=accuracy / 100, atol=accuracy / 100)
    return (run.blocks["alpha"] * run.blocks["beta"].sign()[..., None]).flatten(1).amin(1)


def measure_uncorrelated(setting: Setting) -> list[Evidence]:
    """Random problems of one size, all integrated at once."""
    space = ProblemSpace("", {"c": (2,), "d": (3,)}, {"H": Diagonal("dd", high=2.0), "T": Real("cd", 2.0)})
    problems = space.draw(setting.choose(200, 1000, 10_000), {"c": 2, "d": 3}, setting.rng).to(setting.device)
    shares = least_share(problems["H"], problems["T"], 1e-4)
    return [
        measured(
            "simulation",
            float(shares.amin()),
            "least v_j/rms(v) over all problems",
            error=1e-4,
            instances=len(shares),
            seed=setting.seed,
        )
    ]


CROSSING = {"H": [[1.0, -0.9], [-0.9, 1.0]], "T": [[1.0, 6.0]]}
"""A problem on which v_1 changes sign, found among random ones and rounded."""


def measure_correlated(setting: Setting) -> list[Evidence]:
    """`CROSSING`, at two accuracies."""
    H, T = (torch.tensor([x], dtype=torch.float64, device=setting.device) for x in CROSSING.values())
    loose, tight = (float(least_share(H, T, accuracy)[0]) for accuracy in (1e-4, 1e-6))
    code = (
        "import torch\n\nfrom scalevec_theory.theorems.scale_sign import least_share\n\n"
        + "".join(f"{name} = torch.tensor([{x}], dtype=torch.float64)\n" for name, x in CROSSING.items())
        + "margin = least_share(H, T, 1e-6).item()\nassert margin < 0, margin\n"
    )
    detail = f"least v_j/rms(v) is {tight:.3f}, and {loose:.3f} at a hundredth of the accuracy"
    return [measured("simulation", tight, detail, error=1e-6, counterexample=Counterexample(CROSSING, tight, code))]


FROM_ZERO = ProblemSpace(
    "squared loss with correlated inputs, v(0) = 1, W(0) = 0",
    {"c": (1, 2), "d": (1, 2, 3)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), "W": Zero("cd")},
)
FROM_ANY = ProblemSpace(
    "squared loss with correlated inputs, v(0) = 1, any W(0)", FROM_ZERO.dims, {**FROM_ZERO.fields, "W": Real("cd")}
)


def _direct(problems: Problems, accuracy: float) -> Tensor:
    """v ``(B, S, d)`` of the scale learned directly at four times up to 3/λ_max(H)."""
    times = torch.tensor([0.1, 0.3, 1.0, 3.0], dtype=torch.float64, device=problems["H"].device)
    times = times / torch.linalg.eigvalsh(problems["H"])[:, -1:]
    loss, start = LeastSquares(problems["H"], problems["T"]), INPUT_SCALE.init(problems["W"])
    return gradient_flow(INPUT_SCALE, loss, start, times, rtol=accuracy / 100, atol=accuracy / 100).blocks["v"]


def direct_margin(problems: Problems, accuracy: float) -> Margin:
    """v_j ≥ 1; v_j − 1 is of second order in small times, so it is given the accuracy."""
    v = _direct(problems, accuracy)
    return Margin.at_least(v, torch.full_like(v, 1 - accuracy), accuracy / 10)


def any_weights_margin(problems: Problems, accuracy: float) -> Margin:
    v = _direct(problems, accuracy)
    return Margin.at_least(v, torch.zeros_like(v), accuracy)


claim = Claim(
    id="scale-sign",
    title="Whether a learned scale keeps its sign depends on how it is parametrised",
    statement="From standard initialisation a scale learned directly stays ≥ 1, one learned in exponential space stays "
    "positive, and v = β α/rms(α) can cross zero where inputs are correlated.",
    formula=r"\begin{split} v \text{ direct: } & v_j(t) \ge 1 \\ \ln\,v = \beta \mathbf{1} + (\alpha - \bar \alpha): "
    r"\ & v_j(t) > 0 \\ v = \beta\,\alpha / \operatorname{rms}(\alpha): \ & v_j(t) < 0 \text{ can happen} \end{split}",
    source="found while checking arXiv 2605.26895's reparameterisations; not claimed there",
    figures=("scale-sign",),
    scopes=(
        Scope(
            "direct",
            "For θ = W diag(v), v(0) = 1, W(0) = 0, gradient flow of any differentiable loss keeps every v_j ≥ 1 "
            "(searched on squared loss).",
            holds=True,
            space=FROM_ZERO,
            margin=direct_margin,
            proof=prove_direct,
        ),
        Scope(
            "direct-any-weights",
            "For θ = W diag(v), v(0) = 1 and any W(0), gradient flow of squared loss keeps every v_j ≥ 0.",
            holds=False,
            space=FROM_ANY,
            margin=any_weights_margin,
        ),
        Scope(
            "original-space-uncorrelated",
            "For v = β α/rms(α), α(0) = 1, β(0) = 1, W(0) = 0, gradient flow of squared loss with uncorrelated inputs "
            "keeps every v_j ≥ 0.",
            holds=True,
            proof=prove_uncorrelated,
            measure=measure_uncorrelated,
        ),
        Scope(
            "original-space",
            "For v = β α/rms(α), α(0) = 1, β(0) = 1, W(0) = 0, gradient flow of squared loss with correlated inputs "
            "keeps every v_j ≥ 0.",
            holds=False,
            measure=measure_correlated,
        ),
    ),
)
