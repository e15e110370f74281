"""An input-side scale against none: where L_scaled(t) < L_unscaled(t) for all t > 0, and where not.

The instantaneous inequality holds for every loss.  Along a trajectory it is enough where columns do not interact
(uncorrelated inputs, W(0) = 0), and not elsewhere: the two models stand at different θ.  Counted in steps of the size
that the curvature at the optimum allows, the scaled model loses the lead (see `matched_sharpness`).

Source: arXiv 2605.26895 (loss dominance under gradient flow).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from sympy import Eq, Ge, Gt, Lt, Ne, symbols

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.flow import parameter_gradient
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN
from scalevec_theory.problems import Between, Identity, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner
from scalevec_theory.scopes import dominates
from scalevec_theory.theorems.matched_sharpness import ahead_margin
from scalevec_theory.theorems.radial_solution import UNCORRELATED

v, dv, y, r, R, h, h_jk, rate, dr = symbols("v dv y r R h h_jk rate dr", real=True)
gg, wg = inner("g", "g"), inner("w", "g")
gdw, gdtheta = inner("g", "dw"), inner("g", "dtheta")
n, e = Vector.named("n"), Vector.named("e")


def prove_instantaneous() -> Proof:
    """Column j contributes v²‖g‖² + ⟨w,g⟩² to −dL/dt, and ‖g‖² without a scale."""
    return Proof(
        (
            Lemma(
                "-<g,dtheta> = v^2 <g,g> + <w,g>^2, every c",
                Eq(-gdtheta, v**2 * gg + wg**2),
                {
                    "theta = v w": Eq(gdtheta, v * gdw + dv * wg),
                    "w flows: dw = -v g": Eq(gdw, -v * gg),
                    "v flows: dv = -<w,g>": Eq(dv, -wg),
                },
            ),
            Lemma(
                "v^2 <g,g> + <w,g>^2 >= <g,g>",
                Ge(v**2 * gg + wg**2, gg),
                {"v^2 >= 1": Ge(v**2, 1), "<g,g> >= 0": Ge(gg, 0)},
            ),
        ),
        "Summed over the columns, -dL/dt >= sum_j |g_j|^2, which is -dL/dt of the unscaled model, for every loss.",
    )


def prove_uncorrelated() -> Proof:
    """On the ray w = y n, T_j = R n the radius r = v y obeys ṙ = h(v² + y²)(R − r) > h(R − r)."""
    w, T = y * n, R * n
    g = h * (v * w - T) + h_jk * e
    unit, uncorrelated = Eq(n.dot(n), 1), Eq(h_jk, 0)
    return Proof(
        (
            Lemma(
                "on the ray, <x,dw> = h v (R - v y) <x,n> for every x: dw is a multiple of n",
                Eq(inner("dw", "x"), h * v * (R - v * y) * inner("n", "x")),
                {
                    "w flows: dw = -v g": Eq(inner("dw", "x"), -v * g.dot(Vector.named("x"))),
                    "uncorrelated inputs: h_jk = 0": uncorrelated,
                },
            ),
            Lemma(
                "dr = h (v^2 + y^2)(R - r), r = v y",
                Eq(dr, h * (v**2 + y**2) * (R - v * y)),
                {
                    "r = v y": Eq(dr, v * inner("dw", "n") + dv * y),
                    "w flows: dw = -v g": Eq(inner("dw", "n"), -v * g.dot(n)),
                    "v flows: dv = -<w,g>": Eq(dv, -w.dot(g)),
                    "uncorrelated inputs: h_jk = 0": uncorrelated,
                    "n is a unit vector": unit,
                },
            ),
            Lemma(
                "h (v^2 + y^2)(R - r) > h (R - r)",
                Gt(h * (v**2 + y**2) * (R - r), h * (R - r)),
                {
                    "Q = 1, conserved from W(0) = 0": Eq(v**2 - y**2, 1),
                    "the column has left 0": Ne(y, 0),
                    "h > 0": Gt(h, 0),
                    "the target is not reached": Lt(r, R),
                },
            ),
        ),
        "The ray is invariant, so by uniqueness (Picard-Lindelof) the column stays on it, and r < R because r = R "
        "is an equilibrium.  Without a scale dr = h (R - r).  By the comparison theorem for scalar ODEs r_scaled(t) "
        "> r_unscaled(t) for t > 0 where T_j is not 0; L = sum_j h_j (R_j - r_j)^2 / 2 decreases in every r_j.",
    )


SIZES = {"c": (1, 2, 3), "d": (1, 2, 3)}
SAME_STATE = ProblemSpace(
    "any θ = W diag(v) with v_j ≥ 1, any gradient (squared loss with any H and T)",
    SIZES,
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), "v": Between("d", 1.0, 5.0), "W": Real("cd")},
)
SMALL_START = ProblemSpace(
    "squared loss, whitened inputs, ‖w_j(0)‖ ≤ 0.1",
    SIZES,
    {"H": Identity("dd"), "T": Real("cd"), "W0": Real("cd", scale=0.05)},
    lambda problems: (problems["W0"].norm(dim=1) <= 0.1).all(-1),
)

ROUNDING = 1e-13
"""Bound of the rounding of a sum of squares of gradients, relative to it."""


def instantaneous_margin(problems: Problems, accuracy: float) -> Margin:
    """−dL/dt as the squared norm of the parameters' gradient, by reverse-mode differentiation."""
    loss, blocks = LeastSquares(problems["H"], problems["T"]), {name: problems[name] for name in "vW"}
    scaled = torch.stack([g.flatten(1).square().sum(1) for g in parameter_gradient(INPUT_SCALE, loss, blocks).values()])
    unscaled = loss.gradient(INPUT_SCALE.forward(**blocks)).square().sum((-2, -1))
    return Margin.at_least(torch.ones_like(unscaled), unscaled / scaled.sum(0), ROUNDING)


claim = Claim(
    id="loss-dominance",
    title="With an input-side scale the loss falls faster",
    statement="From the same initial effective state, gradient flow of θ = W diag(v) has a smaller loss than that "
    "of θ = W at every t > 0.",
    formula=r"L_{\text{scaled}}(t) < L_{\text{unscaled}}(t) \quad \text{for all } t > 0",
    source="arXiv 2605.26895, loss dominance",
    figures=("loss-dominance",),
    scopes=(
        Scope(
            "instantaneous",
            "At equal θ, −dL/dt = Σ_j g_jᵀP_j g_j ≥ Σ_j‖g_j‖² whenever v_j² ≥ 1 for all j, for any differentiable "
            "loss.",
            holds=True,
            space=SAME_STATE,
            margin=instantaneous_margin,
            proof=prove_instantaneous,
        ),
        replace(
            dominates(INPUT_SCALE, PLAIN, inputs="uncorrelated"),
            name="uncorrelated-zero-init",
            statement="Squared loss, uncorrelated inputs, v(0) = 1, W(0) = 0, T ≠ 0: L_scaled(t) < L_unscaled(t) "
            "for all t > 0.",
            proof=prove_uncorrelated,
        ),
        replace(
            dominates(INPUT_SCALE, PLAIN, inputs="correlated", holds=False),
            name="correlated-inputs",
            statement="Squared loss, correlated inputs, v(0) = 1, W(0) = 0: L_scaled(t) ≤ L_unscaled(t) for all t > 0.",
        ),
        replace(
            dominates(INPUT_SCALE, PLAIN, inputs="whitened", zero_start=False, holds=False),
            name="large-init",
            statement="Squared loss, whitened inputs, v(0) = 1, any W(0): L_scaled(t) ≤ L_unscaled(t) for all t > 0.",
        ),
        replace(
            dominates(INPUT_SCALE, PLAIN, inputs="whitened", zero_start=False, holds=False),
            name="small-init",
            statement="Squared loss, whitened inputs, v(0) = 1, ‖w_j(0)‖ ≤ 0.1 for all j: L_scaled(t) ≤ "
            "L_unscaled(t) for all t > 0.",
            space=SMALL_START,
        ),
        Scope(
            "matched-sharpness",
            "Squared loss, uncorrelated inputs, v(0) = 1, W(0) = 0, time in units of 1/λ_max of each model's own "
            "Hessian at the optimum: L_scaled(τ) ≤ L_unscaled(τ) for all τ > 0.",
            holds=False,
            space=UNCORRELATED,
            margin=ahead_margin,
        ),
    ),
)
