"""How large the lead of a scaled model is at first: the constant of t³, for any smooth loss.

Write φ(t) = φ_0 + φ_1 t + φ_2 t² + …, and g for the gradient at θ(t), a series whose coefficient g_k depends on
θ_1, …, θ_k only.  From W(0) = 0 two models agree in θ_1 and θ_2, hence in g_0, g_1 and g_2, and part in θ_3.

Source: arXiv 2605.26895 (early advantage of scale vectors and of dual placement).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from sympy import Eq, Rational, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.flow import gradient_flow
from scalevec_theory.leading_order import leading_term_margin, measuring_times
from scalevec_theory.losses import CrossEntropy, LeastSquares, Loss
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN, Parametrization
from scalevec_theory.problems import PositiveDefinite, Probabilities, Problems, ProblemSpace, Real, Zero
from scalevec_theory.proof import Lemma, Proof, inner

v0, a1, a2, a3, b1, b2, single_a2 = symbols("v0 v1 v2 v3 u1 u2 v2_single", real=True)
W1, W2, W3, single_W3, G0, G1, G2, gap3 = symbols("W1 W2 W3 W3_single G0 G1 G2 Dtheta3", real=True)
row, column, row_W0G0, column_W0G0 = symbols("rho_i gamma_j W0.G0_i W0.G0_j", real=True)
STANDARD = {"v(0) = 1": Eq(v0, 1)}
DV_0 = {"order 0 of dv/dt = -<w,g>": Eq(a1, -inner("w0", "g0"))}
FROM_ZERO = {"w(0) = 0, against g0": Eq(inner("w0", "g0"), 0)}


def prove_scaled() -> Proof:
    """Coefficients of θ = v w and of the plain θ, per column, for w and g in R^c and every c."""
    return Proof(
        (
            Lemma(
                "theta_1 and theta_2 are those of the unscaled model, -g0 and -g1/2, against every x",
                (
                    Eq(v0 * inner("w1", "x") + a1 * inner("w0", "x"), -inner("g0", "x")),
                    Eq(
                        v0 * inner("w2", "x") + a1 * inner("w1", "x") + a2 * inner("w0", "x"),
                        -Rational(1, 2) * inner("g1", "x"),
                    ),
                ),
                {
                    "order 0 of dw/dt = -v g": Eq(inner("w1", "x"), -v0 * inner("g0", "x")),
                    "order 1 of dw/dt = -v g": Eq(2 * inner("w2", "x"), -v0 * inner("g1", "x") - a1 * inner("g0", "x")),
                    **DV_0,
                    **FROM_ZERO,
                    "w(0) = 0, against x": Eq(inner("w0", "x"), 0),
                    **STANDARD,
                },
            ),
            Lemma(
                "<g0, theta_3> + <g0, g2>/3 = -(2/3) <g0,g0>^2; the unscaled theta_3 is -g2/3",
                Eq(inner("g0", "theta3") + inner("g0", "g2") / 3, -Rational(2, 3) * inner("g0", "g0") ** 2),
                {
                    "order 3 of theta = v w": Eq(
                        inner("g0", "theta3"),
                        v0 * inner("g0", "w3")
                        + a1 * inner("g0", "w2")
                        + a2 * inner("g0", "w1")
                        + a3 * inner("g0", "w0"),
                    ),
                    "order 0 of dw/dt = -v g": Eq(inner("g0", "w1"), -v0 * inner("g0", "g0")),
                    "order 2 of dw/dt = -v g": Eq(
                        3 * inner("g0", "w3"),
                        -v0 * inner("g0", "g2") - a1 * inner("g0", "g1") - a2 * inner("g0", "g0"),
                    ),
                    **DV_0,
                    "order 1 of dv/dt = -<w,g>": Eq(2 * a2, -inner("w1", "g0") - inner("w0", "g1")),
                    **FROM_ZERO,
                    "w(0) = 0, against g1": Eq(inner("w0", "g1"), 0),
                    **STANDARD,
                },
            ),
        ),
        "By Taylor's theorem (L three times continuously differentiable) L_unscaled - L_scaled = -sum_j <g0_j, "
        "theta_3 - its unscaled value> t^3 + O(t^4) = (2/3) t^3 sum_j |g0_j|^4 + O(t^4).",
    )


def prove_dual() -> Proof:
    """Entry (i, j) of θ = u W v against W v: ρ_i and γ_j are the squared norms of row i and column j of G0."""
    first = a1 + b1
    second = a2 + b2 + a1 * b1
    return Proof(
        (
            Lemma(
                "theta_3 - its single-sided value = -(2/3) rho_i G0",
                Eq(gap3, -Rational(2, 3) * row * G0),
                {
                    "order 3 of theta = u W v, against W v": Eq(
                        gap3, W3 + first * W2 + second * W1 - single_W3 - single_a2 * W1
                    ),
                    "order 0 of dW/dt = -u v G": Eq(W1, -G0),
                    "order 2 of dW/dt = -u v G": Eq(3 * W3, -G2 - first * G1 - second * G0),
                    "order 2 of the single dW/dt = -v G": Eq(3 * single_W3, -G2 - single_a2 * G0),
                    "order 0 of du/dt = -<row of W v, row of G>": Eq(b1, -row_W0G0),
                    "W(0) = 0, along the row": Eq(row_W0G0, 0),
                    "order 1 of du/dt, from W1 = -G0": Eq(2 * b2, row),
                    "order 0 of dv/dt = -<column of u W, column of G>": Eq(a1, -column_W0G0),
                    "W(0) = 0, along the column": Eq(column_W0G0, 0),
                    "order 1 of dv/dt, from W1 = -G0": Eq(2 * a2, column),
                    "order 1 of the single dv/dt": Eq(2 * single_a2, column),
                },
            ),
        ),
        "theta_1 = -G0 and theta_2 = -G1/2 in both models (first order of u and v vanishes), so G0, G1 and G2 are "
        "common.  Summed over all entries, L_single - L_dual = (2/3) t^3 sum_i |row i of G0|^4 + O(t^4), for every "
        "c and d.",
    )


def prove_from_nonzero() -> Proof:
    """At equal θ and v = 1 the rates differ by ⟨w,g⟩² in every column."""
    gdw, gdtheta, dv = inner("g", "dw"), inner("g", "dtheta"), symbols("dv", real=True)
    return Proof(
        (
            Lemma(
                "-<g,dtheta> - <g,g> = <w,g>^2",
                Eq(-gdtheta - inner("g", "g"), inner("g", "w") ** 2),
                {
                    "theta = v w": Eq(gdtheta, v0 * gdw + dv * inner("g", "w")),
                    "w flows: dw = -v g": Eq(gdw, -v0 * inner("g", "g")),
                    "v flows: dv = -<w,g>": Eq(dv, -inner("g", "w")),
                    **STANDARD,
                },
            ),
        ),
        "L_unscaled - L_scaled vanishes at t = 0 and has the derivative sum_j <w_j,g_j>^2 there.",
    )


SQUARES = ProblemSpace(
    "squared loss, correlated inputs, v(0) = 1, W(0) = 0, G(0) not small",
    {"c": (1, 2, 3), "d": (1, 2, 3)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), "W0": Zero("cd")},
    lambda problems: _pull(problems) >= 0.1,
)
LOGISTIC = ProblemSpace(
    "softmax cross-entropy on n samples, v(0) = 1, W(0) = 0, G(0) not small",
    {"c": (2, 3), "d": (1, 2), "n": (3,)},
    {"X": Real("nd"), "Y": Probabilities("nc"), "W0": Zero("cd")},
    lambda problems: _pull(problems) >= 0.1,
)
ANY_START = replace(
    SQUARES,
    assumptions="squared loss, correlated inputs, v(0) = 1, any W(0), some ⟨w_j(0), g_j(0)⟩ not small",
    fields={**SQUARES.fields, "W0": Real("cd")},
    where=lambda problems: (_alignment(problems) >= 0.5) & (_pull(problems) >= 0.05),
)

ACCURACY = 3e-4
TOLERANCE = 1e-14
GLOBAL_ERROR = 20.0
"""Bound of the error of θ over the tolerance, relative to 1 + ‖W(0)‖, at times this short; at most 14 was measured."""

Constant = Callable[[Tensor, Tensor], Tensor]
"""W(0) and G(0) ``(B, c, d)`` to the predicted constant ``(B,)``."""


def columns(W0: Tensor, G0: Tensor) -> Tensor:
    """(2/3) Σ_j ‖g_j(0)‖⁴."""
    return 2 / 3 * G0.square().sum(-2).square().sum(-1)


def rows(W0: Tensor, G0: Tensor) -> Tensor:
    """(2/3) Σ_i ‖row i of G(0)‖⁴."""
    return 2 / 3 * G0.square().sum(-1).square().sum(-1)


def alignment(W0: Tensor, G0: Tensor) -> Tensor:
    """Σ_j ⟨w_j(0), g_j(0)⟩²."""
    return (W0 * G0).sum(-2).square().sum(-1)


def _loss(problems: Problems) -> tuple[Loss, Tensor]:
    """The loss, and a bound ``(B,)`` of its curvature (the Hessian of softmax cross-entropy in the logits is ≤ 1/2)."""
    if "H" in problems.fields:
        return LeastSquares(problems["H"], problems["T"]), torch.linalg.eigvalsh(problems["H"])[:, -1]
    X = problems["X"]
    return CrossEntropy(X, problems["Y"]), 0.5 * torch.linalg.eigvalsh(X.mT @ X / X.shape[1])[:, -1]


def _norm(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1)


def _unit(problems: Problems) -> Tensor:
    """A time ``(B,)`` within which neither the loss nor the parameters can change much."""
    loss, curvature = _loss(problems)
    w = _norm(problems["W0"])
    return 1 / (curvature * (1 + w**2) + 2 * (1 + w) * _norm(loss.gradient(problems["W0"])))


def _pull(problems: Problems) -> Tensor:
    """‖G(0)‖ in that unit of time."""
    return _norm(_loss(problems)[0].gradient(problems["W0"])) * _unit(problems)


def _alignment(problems: Problems) -> Tensor:
    """Σ_j ⟨w_j(0), g_j(0)⟩² over the larger of ‖W(0)‖²‖G(0)‖² and what the next orders add within the unit of time."""
    W0, G0 = problems["W0"], _loss(problems)[0].gradient(problems["W0"])
    return alignment(W0, G0) / (_norm(G0) * torch.maximum(_norm(W0), _pull(problems))) ** 2


def gap_margin(
    slower: Parametrization, faster: Parametrization, exponent: int, constant: Constant
) -> Callable[[Problems, float], Margin]:
    """The margin of "L_slower − L_faster = C t^p + O(t^{p+1})", by `leading_term_margin`."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        loss, _ = _loss(problems)
        W0 = problems["W0"]
        G0 = loss.gradient(W0)
        times = measuring_times(_unit(problems), accuracy)
        L_slow, L_fast = (
            gradient_flow(p, loss, p.init(W0), times, rtol=TOLERANCE, atol=TOLERANCE).loss for p in (slower, faster)
        )
        of_theta = GLOBAL_ERROR * TOLERANCE * (1 + _norm(W0))
        noise = 2 * of_theta * _norm(G0) + 4 * torch.finfo(W0.dtype).eps * loss.value(W0)
        return leading_term_margin(L_slow - L_fast, noise, times, constant(W0, G0), exponent, accuracy)

    return margin


def _gap(
    name: str,
    statement: str,
    space: ProblemSpace,
    margin: Callable[[Problems, float], Margin],
    proof: Callable[[], Proof],
) -> Scope:
    return Scope(
        name, statement, True, space, margin, accuracy=ACCURACY, proof=proof, cost=2 if "H" in space.fields else 8
    )


LEAD = gap_margin(PLAIN, INPUT_SCALE, 3, columns)
DUAL_LEAD = gap_margin(INPUT_SCALE, DUAL_SCALE, 3, rows)
FIRST_ORDER = gap_margin(PLAIN, INPUT_SCALE, 1, alignment)

claim = Claim(
    id="early-gap",
    title="The lead of a scaled model starts as t³",
    statement="From W(0) = 0, for any smooth loss, L_unscaled(t) − L_scaled(t) = (2/3) t³ Σ_j ‖g_j(0)‖⁴ + O(t⁴) and "
    "L_scaled(t) − L_dual(t) = (2/3) t³ Σ_i ‖row i of G(0)‖⁴ + O(t⁴).",
    formula=r"\begin{split} L_{\text{unscaled}}(t) - L_{\text{scaled}}(t) &= \tfrac{2}{3} t^3 \sum_j \lVert g_j(0) "
    r"\rVert^4 + O(t^4) \\ L_{\text{scaled}}(t) - L_{\text{dual}}(t) &= \tfrac{2}{3} t^3 \sum_i \lVert \hat g_i(0) "
    r"\rVert^4 + O(t^4) \end{split}",
    source="arXiv 2605.26895, early advantage",
    figures=("early-gap",),
    scopes=(
        _gap(
            "scaled-least-squares",
            "Squared loss, v(0) = 1, W(0) = 0: L_unscaled − L_scaled = (2/3) t³ Σ_j ‖g_j(0)‖⁴ + O(t⁴).",
            SQUARES,
            LEAD,
            prove_scaled,
        ),
        _gap(
            "scaled-cross-entropy",
            "Softmax cross-entropy, v(0) = 1, W(0) = 0: L_unscaled − L_scaled = (2/3) t³ Σ_j ‖g_j(0)‖⁴ + O(t⁴).",
            LOGISTIC,
            LEAD,
            prove_scaled,
        ),
        _gap(
            "dual-least-squares",
            "Squared loss, u(0) = v(0) = 1, W(0) = 0: L_single − L_dual = (2/3) t³ Σ_i ‖row i of G(0)‖⁴ + O(t⁴).",
            SQUARES,
            DUAL_LEAD,
            prove_dual,
        ),
        _gap(
            "dual-cross-entropy",
            "Softmax cross-entropy, u(0) = v(0) = 1, W(0) = 0: L_single − L_dual = (2/3) t³ Σ_i ‖row i of G(0)‖⁴ + "
            "O(t⁴).",
            LOGISTIC,
            DUAL_LEAD,
            prove_dual,
        ),
        _gap(
            "first-order",
            "Any smooth loss, v(0) = 1, W(0) not orthogonal to G(0) in every column: L_unscaled − L_scaled = t Σ_j "
            "⟨w_j(0), g_j(0)⟩² + O(t²) (searched on squared loss).",
            ANY_START,
            FIRST_ORDER,
            prove_from_nonzero,
        ),
        Scope(
            "nonzero-init",
            "Squared loss, v(0) = 1, any W(0): L_unscaled − L_scaled = (2/3) t³ Σ_j ‖g_j(0)‖⁴ + O(t⁴).",
            holds=False,
            space=ANY_START,
            margin=LEAD,
            accuracy=ACCURACY,
            cost=2,
        ),
    ),
)
