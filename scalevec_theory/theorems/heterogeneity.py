"""One scale vector per branch against one shared by all branches that read the same input, under gradient flow.

The shared vector has v_j² = 1 + Σ_b‖w_bj‖², more than each vector of its own, and one pull, the sum of the branches'.
While the branches' pulls agree it is the faster one; only where they cancel can a vector per branch get ahead.

Source: arXiv 2605.26895 (branch-specific heterogeneity); the comparison under gradient flow is a derivation here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from sympy import Eq, Ge, Le, Rational, symbols
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.problems import Diagonal, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof

h, R, Rb, f, S, Sb, v, w, A, a, gg, s, t, rest = symbols("h R R_b f S S_b v w A a |g|^2 s t rest", real=True)
G0, rho, W1, DV2, lag3, gap3 = symbols("G0 rho W1 DV2 DW3 Dtheta3", real=True)


def prove_uncorrelated() -> Proof:
    """f = r/R obeys ḟ = h √(1 + 4R²f²)(1 − f), with the R of all branches together or of one alone."""
    return Proof(
        (
            Lemma(
                "(v^2 + |w|^2)^2 = 1 + 4 r^2, where r = v |w|",
                Eq((v**2 + w**2) ** 2, 1 + 4 * (v * w) ** 2),
                {"v^2 = 1 + |w|^2, conserved from standard initialisation": Eq(v**2, 1 + w**2)},
            ),
            Lemma(
                "h sqrt(1 + 4 R_b^2 f^2)(1 - f) <= h sqrt(1 + 4 R^2 f^2)(1 - f)",
                Le(h * Sb * (1 - f), h * S * (1 - f)),
                {
                    "S^2 = 1 + 4 R^2 f^2": Eq(S**2, 1 + 4 * R**2 * f**2),
                    "S_b^2 = 1 + 4 R_b^2 f^2": Eq(Sb**2, 1 + 4 * Rb**2 * f**2),
                    "S >= 0": Ge(S, 0),
                    "R^2 is R_b^2 plus the other branches'": Eq(R**2, Rb**2 + rest**2),
                    "h >= 0": Ge(h, 0),
                    "f <= 1": Le(f, 1),
                },
            ),
        ),
        "With uncorrelated inputs and W(0) = 0 every column stays on the ray of its target, the stacked column of all "
        "branches too, so that all branches share one f = r/R with df/dt = (v^2 + |w|^2) h (1 - f). By the comparison "
        "theorem for scalar ODEs f_b(t) <= f(t) < 1, hence branch b's loss, the sum of h_j R_bj^2 (1 - f_bj)^2 / 2, is "
        "at least its loss with the shared vector, for every number of branches, outputs and inputs.",
    )


def prove_early() -> Proof:
    """θ_shared − θ_separate at third order in t, from V − v_b = DV2 t² and W = W1 t + …; G agrees far enough."""
    return Proof(
        (
            Lemma(
                "an entry of theta_shared - theta_separate is -(2/3) t^3 rho G0 + O(t^4)",
                Eq(gap3, -Rational(2, 3) * rho * G0),
                {
                    "dW/dt = -G0 at t = 0": Eq(W1, -G0),
                    "d(V - v_b)/dt = -<w,g> of the others = rho t + O(t^2), rho = their |g(0)|^2": Eq(2 * DV2, rho),
                    "d(W_shared - W_separate)/dt = -(V - v_b) G + O(t^3)": Eq(3 * lag3, -DV2 * G0),
                    "theta = v W": Eq(gap3, DV2 * W1 + lag3),
                },
            ),
        ),
        "L_separate - L_shared = -<G0, theta_shared - theta_separate> + O(t^4): the sum over columns and branches of "
        "|g_bj|^2 rho_bj is positive unless every column has gradient in one branch at most.",
    )


def prove_agreeing() -> Proof:
    """A = V² and a = v_b² solve A(A − 1) = Σ_b‖θ_b‖² and a(a − 1) = ‖θ_b‖²; s = ⟨θ_b, g_b⟩."""
    return Proof(
        (
            Lemma(
                "V^2 >= v_b^2",
                Ge(A, a),
                {
                    "A(A-1) = |theta_b|^2 + the other branches'": Eq(A * (A - 1), a * (a - 1) + rest**2),
                    "A >= 1": Ge(A, 1),
                },
            ),
            Lemma(
                "V^2 |g|^2 + s^2 / V^2 >= v_b^2 |g|^2 + s^2 / v_b^2, times V^2 v_b^2",
                Ge((A * gg * A + s**2) * a, (a * gg * a + s**2) * A),
                {
                    "V^2 >= v_b^2": Ge(A, a),
                    "v_b^2 >= 1": Ge(a, 1),
                    "s^2 <= |theta_b|^2 |g|^2 (Cauchy-Schwarz)": Le(s**2, a * (a - 1) * gg),
                    "|g|^2 >= 0": Ge(gg, 0),
                },
            ),
            Lemma(
                "(s + t)^2 >= s^2 + t^2",
                Ge((s + t) ** 2, s**2 + t**2),
                {"the pulls s and t have one sign": Ge(s * t, 0)},
            ),
        ),
        "The shared rate is V^2 sum_b |g_b|^2 + (sum_b s_b)^2 / V^2 in each column. By the third lemma, branch after "
        "branch, the square is at least sum_b s_b^2; by the second each branch then has at least its own rate.",
    )


def prove_cancelling() -> Proof:
    """Two branches of size r with pulls ±s: 2(2a − 1) against 2A, a(a − 1) = r² and A(A − 1) = 2r²."""
    return Proof(
        (
            Lemma(
                "V^2 <= 2 v_b^2 - 1 = sqrt(1 + 4 r^2)",
                Le(A, 2 * a - 1),
                {"A(A-1) = 2 a(a-1) = 2 r^2": Eq(A * (A - 1), 2 * a * (a - 1)), "a >= 1": Ge(a, 1)},
            ),
        ),
        "With cancelling pulls the shared vector does not move and its rate is V^2 (g^2 + g^2); each branch of its own "
        "has the rate sqrt(1 + 4 r^2) g^2.",
    )


BRANCHES = {"b": (2, 3), "c": (1, 2), "d": (1, 2)}
UNCORRELATED = ProblemSpace(
    "squared loss, uncorrelated inputs, b branches, W(0) = 0", BRANCHES, {"H": Diagonal("dd"), "T": Real("bcd")}
)
CORRELATED = ProblemSpace(
    "squared loss, correlated inputs, b branches, W(0) = 0",
    BRANCHES,
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("bcd")},
)
NOT_SMALL = replace(
    CORRELATED,
    assumptions=f"{CORRELATED.assumptions}, ‖T‖ ≥ 0.1 so that a lead of order ‖T‖⁴ stands out from integration errors",
    where=lambda problems: problems["T"].flatten(1).norm(dim=1) >= 0.1,
)
STATES = ProblemSpace("any θ and gradient G of b branches", BRANCHES, {"theta": Real("bcd"), "G": Real("bcd")})


def _pulls_agree(problems: Problems) -> Tensor:
    pulls = (problems["theta"] * problems["G"]).sum(-2)
    return ((pulls >= 0).all(1) | (pulls <= 0).all(1)).all(-1)


AGREEING = replace(STATES, assumptions=f"{STATES.assumptions}, pulls of one sign in each column", where=_pulls_agree)
CANCELLING = ProblemSpace(
    "two branches of one output at θ = r, with gradients G and −G", {"d": (1, 2, 3)}, {"r": Real("d"), "G": Real("d")}
)
TIMES = torch.logspace(-1, 1.5, 26, dtype=torch.float64)
"""Saved times in units of 1/λ_max(H)."""

GLOBAL_ERROR = 30.0
"""Bound of the error of √(L/L(0)) over the tolerance, relative to 1 + 1/‖T‖; at most 12.3 was measured."""

ROUNDING = 1e-13
"""Bound of the relative rounding of a rate of decrease."""


def flows(H: Tensor, T: Tensor, times: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Losses ``(B, b, S)`` of the branches with the shared vector and with one each, from W(0) = 0.

    A shared vector is an input-side scale of all rows together; with one per branch the branches do not interact.
    ``T`` is ``(B, b, c, d)``, ``times`` ``(B, S)``.
    """
    B, b, c = T.shape[:3]
    stacked = LeastSquares(H, T.flatten(1, 2))
    each = LeastSquares(H.repeat_interleave(b, 0), T.flatten(0, 1))
    shared, separate = (
        gradient_flow(INPUT_SCALE, x, INPUT_SCALE.init(torch.zeros_like(x.T)), t, rtol=tolerance, atol=tolerance)
        for x, t in ((stacked, times), (each, times.repeat_interleave(b, 0)))
    )
    rows = shared.theta.unflatten(2, (b, c)).transpose(1, 2).flatten(0, 1)
    return each.value(rows).unflatten(0, (B, b)), separate.loss.unflatten(0, (B, b))


def _ahead(problems: Problems, accuracy: float, lead: Callable[[Tensor, Tensor], Tensor]) -> Margin:
    """The least ``lead(L_shared, L_separate)``, both over L(0), as long as L_separate > 10⁻³ L(0)."""
    H, T = problems["H"], problems["T"]
    first = LeastSquares(H, T.flatten(1, 2)).value(torch.zeros_like(T.flatten(1, 2)))
    times = TIMES.to(H) / torch.linalg.eigvalsh(H)[:, -1:]
    shared, separate = (x / first[:, None, None] for x in flows(H, T, times, accuracy / GLOBAL_ERROR))
    value = lead(shared, separate).masked_fill(separate.sum(1, keepdim=True) < 1e-3, torch.inf)
    return Margin.at_least(value, torch.zeros_like(value), accuracy * (1 + 1 / T.flatten(1).norm(dim=1)))


def separate_margin(problems: Problems, accuracy: float) -> Margin:
    return _ahead(problems, accuracy, lambda shared, separate: (shared - separate).sum(1, keepdim=True))


def shared_margin(problems: Problems, accuracy: float) -> Margin:
    return _ahead(problems, accuracy, lambda shared, separate: (separate - shared).sum(1, keepdim=True))


def each_branch_margin(problems: Problems, accuracy: float) -> Margin:
    return _ahead(problems, accuracy, lambda shared, separate: separate - shared)


def early_margin(problems: Problems, accuracy: float) -> Margin:
    """L_separate − L_shared over (2/3) t³ Σ_j (Σ_b ‖g_bj(0)‖²)², at the early time 0.1/(λ_max(H) + 2‖G(0)‖)."""
    H, T = problems["H"], problems["T"]
    G = T @ H[:, None]
    t = 0.1 / (torch.linalg.eigvalsh(H)[:, -1] + 2 * G.flatten(1).norm(dim=1))
    shared, separate = (x.sum((1, 2)) for x in flows(H, T, t[:, None], accuracy / GLOBAL_ERROR))
    size = 2 / 3 * t**3 * G.square().sum((1, 2)).square().sum(-1)
    error = accuracy * separate * (1 + 1 / T.flatten(1).norm(dim=1))
    return Margin.at_least((separate - shared) / size, torch.zeros_like(t), error / size)


def rates(theta: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """−dL/dt with the shared vector and with one per branch at equal θ ``(B, b, c, d)``, from standard starts."""

    def rate(theta: Tensor, G: Tensor) -> Tensor:
        return torch.einsum("...ij,...jik,...kj->...", G, operators.standard_input_scale(theta), G)

    return rate(theta.flatten(1, 2), G.flatten(1, 2)), rate(theta, G).sum(1)


def shared_rate_margin(problems: Problems, accuracy: float) -> Margin:
    shared, separate = rates(problems["theta"], problems["G"])
    return Margin.at_least(shared / separate, torch.ones_like(shared), ROUNDING)


def cancelling_margin(problems: Problems, accuracy: float) -> Margin:
    r, G = problems["r"][:, None, None], problems["G"][:, None, None]
    shared, separate = rates(torch.cat([r, r], 1), torch.cat([G, -G], 1))
    return Margin.at_least(separate / shared, torch.ones_like(shared), ROUNDING)


claim = Claim(
    id="heterogeneity",
    title="Under gradient flow one shared scale vector beats one per branch, unless the branches conflict",
    statement="Gradient flow does not explain a gain from one scale vector per branch: from standard initialisation "
    "with uncorrelated inputs the shared vector is never behind, and at equal θ it is the faster one wherever the "
    "branches pull it the same way. Separate vectors win where the pulls cancel.",
    formula=r"\begin{split} L_{\text{shared}}(t) &\le L_{\text{separate}}(t) \quad \text{for all } t \\ "
    r"L_{\text{separate}}(t) - L_{\text{shared}}(t) &= \tfrac{2}{3} t^3 \sum_j \left( \left(\sum_b \lVert g_{bj}(0) "
    r"\rVert^2\right)^2 - \sum_b \lVert g_{bj}(0) \rVert^4 \right) + O(t^4) \end{split}",
    source="arXiv 2605.26895, branch-specific heterogeneity",
    figures=("heterogeneity",),
    scopes=(
        Scope(
            "separate-faster",
            "Squared loss, uncorrelated inputs, W(0) = 0: L_separate(t) ≤ L_shared(t) for all t.",
            holds=False,
            space=UNCORRELATED,
            margin=separate_margin,
            cost=4,
        ),
        Scope(
            "shared-never-behind",
            "Squared loss, uncorrelated inputs, W(0) = 0: L_shared(t) ≤ L_separate(t) for all t, and in every branch.",
            holds=True,
            space=UNCORRELATED,
            margin=each_branch_margin,
            proof=prove_uncorrelated,
            cost=2,
        ),
        Scope(
            "shared-never-behind-correlated",
            "Squared loss, correlated inputs, W(0) = 0: L_shared(t) ≤ L_separate(t) for all t.",
            holds=False,
            space=CORRELATED,
            margin=shared_margin,
            cost=2,
        ),
        Scope(
            "early",
            "From W(0) = 0 and v = 1, for any smooth loss, L_separate(t) − L_shared(t) = (2/3) t³ Σ_j "
            "((Σ_b ‖g_bj(0)‖²)² − Σ_b ‖g_bj(0)‖⁴) + O(t⁴): the shared vector is ahead for all small t > 0 if in some "
            "column two branches have a gradient.",
            holds=True,
            space=NOT_SMALL,
            margin=early_margin,
            accuracy=1e-10,
            proof=prove_early,
        ),
        Scope(
            "agreeing-pulls",
            "At equal θ, each model on the manifold it stays on from standard initialisation, if in every column the "
            "branches' pulls ⟨θ_bj, g_bj⟩ have one sign, −dL/dt with the shared vector is at least that with one per "
            "branch, for any differentiable loss.",
            holds=True,
            space=AGREEING,
            margin=shared_rate_margin,
            proof=prove_agreeing,
        ),
        Scope(
            "any-pulls",
            "At equal θ, each model on the manifold it stays on from standard initialisation, −dL/dt with the shared "
            "vector is at least that with one per branch.",
            holds=False,
            space=STATES,
            margin=shared_rate_margin,
        ),
        Scope(
            "cancelling-pulls",
            "At equal θ, each model on the manifold it stays on from standard initialisation, two branches of one "
            "output and equal |θ_bj| whose pulls cancel in every column: −dL/dt with one vector per branch is at "
            "least that with the shared one.",
            holds=True,
            space=CANCELLING,
            margin=cancelling_margin,
            proof=prove_cancelling,
        ),
    ),
)
