"""log v = β1 + (α − mean α): the scale moves by the same operator everywhere, on log v, and stays positive.

Source: arXiv 2605.26895 (magnitude–direction reparameterisation in exponential space).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from sympy import Eq, Ge, Le, symbols
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.descent import descend
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import EXPONENTIAL, exponential_scale
from scalevec_theory.problems import Between, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner
from scalevec_theory.theorems.magnitude_direction import at_most, early_flow, prove_on_theta

d, share, step, dlog, dbeta = symbols("d 1/d η dlog(v_j) dβ", real=True)
s_j, total, dw2, dW2, w2, W2 = symbols("v_j*m_j Σ_k(v_k*m_k) d|w_j|^2 d|W|^2 |w_j|^2 |W|^2", real=True)
y, z, one, s = (Vector.named(name) for name in ("y", "z", "1", "s"))
COUNT = {"<1,1> = d": Eq(one.dot(one), d)}


def centred(vector: Vector) -> Vector:
    """(∂log v/∂α)ᵀ = I − eeᵀ, symmetric; eeᵀ = 11ᵀ/d."""
    return vector - one.dot(vector) / d * one


def prove_operator() -> Proof:
    """⟨y, J Jᵀ z⟩ from ∂log v/∂β = 1 and ∂log v/∂α = I − 11ᵀ/d, for y and z in R^d."""
    stated = d * (y.dot(one) * one.dot(z) / d) + y.dot(centred(z))
    return Proof(
        (
            Lemma(
                "<y, J J^T z> = d <y,e><e,z> + <y,z> - <y,e><e,z>",
                Eq(y.dot(one) * one.dot(z) + centred(y).dot(centred(z)), stated),
                COUNT,
            ),
        ),
        "For every d; ∂L/∂log v = v*m with m = ∂L/∂v, so d log v/dt = -(d ee^T + I - ee^T)(v*m).",
    )


def prove_sum_conserved() -> Proof:
    """α̇ = −(I − eeᵀ) s is orthogonal to 1, whatever s = v⊙m is; so is every step of gradient descent."""
    return Proof(
        (
            Lemma(
                "<1, α - η (I - ee^T) s> = <1, α>",
                Eq(one.dot(Vector.named("α") - step * centred(s)), inner("1", "α")),
                COUNT,
            ),
        ),
        "So every step of gradient descent conserves the sum of α, and so does gradient flow, for every loss.",
    )


def prove_positive() -> Proof:
    """d log v_j = dβ + ⟨r, dα⟩ with r = e_j − 1/d: Cauchy–Schwarz in R^{1+d}."""
    r2, a2, ra = inner("r", "r"), inner("dα", "dα"), inner("dα", "r")
    return Proof(
        (
            Lemma(
                "(d log v_j)^2 <= (2 - 1/d)(dβ^2 + |dα|^2)",
                Le(dlog**2, (2 - share) * (dbeta**2 + a2)),
                {
                    "log v_j = β + α_j - mean α": Eq(dlog, dbeta + ra),
                    "|r|^2 = 1 - 1/d": Eq(r2, 1 - share),
                    "|r|^2 >= 0": Ge(r2, 0),
                    "|dα|^2 >= 0": Ge(a2, 0),
                    "Cauchy-Schwarz: <r,dα>^2 <= |r|^2 |dα|^2": Le(ra**2, r2 * a2),
                },
            ),
        ),
        "dL/dt = -|dφ/dt|^2, so φ travels at most sqrt(t (L(0) - L(t))) <= sqrt(t L(0)) until t by Cauchy-Schwarz: the "
        "flow exists for all t, and log v_j moves by at most sqrt((2 - 1/d) t L(0)).",
    )


def prove_from_weights() -> Proof:
    """Row j of the operator, s_j + (1 − 1/d) Σ_k s_k, is what moves ½‖w_j‖² + ½(1 − 1/d)‖W‖²."""
    return Proof(
        (
            Lemma(
                "2 dlog(v_j) = d|w_j|^2 + (1 - 1/d) d|W|^2",
                Eq(2 * dlog, dw2 + (1 - share) * dW2),
                {
                    "log v flows: dlog v = -(d ee^T + I - ee^T) s": Eq(dlog, -(total + s_j - share * total)),
                    "w_j flows: <w_j,dw_j> = -v_j <w_j,g_j> = -s_j": Eq(dw2, -2 * s_j),
                    "W flows: the sum of that over the columns": Eq(dW2, -2 * total),
                },
            ),
            Lemma(
                "|w_j|^2 + (1 - 1/d)|W|^2 >= 0",
                Ge(w2 + (1 - share) * W2, 0),
                {"|w_j|^2 >= 0": Ge(w2, 0), "|W|^2 >= 0": Ge(W2, 0), "d >= 1": Le(share, 1)},
            ),
        ),
        "From v = 1 and W = 0 the conserved difference is 0, so log v_j >= 0 at every time, for every loss.",
    )


SIZES = {"c": (1, 2), "d": (1, 2, 4)}
SCALE = ProblemSpace("any β and α", {"d": (1, 2, 4)}, {"beta": Real(""), "alpha": Real("d")})
ON_V = ProblemSpace("any β, α and gradient m of v", SCALE.dims, {**SCALE.fields, "m": Real("d")})
ON_THETA = ProblemSpace("any β, α, W and gradient G of θ", SIZES, {**SCALE.fields, "W": Real("cd"), "G": Real("cd")})
SQUARES = ProblemSpace(
    "squared loss with correlated inputs, T and parameters up to 2 in size",
    {"c": (1, 2), "d": (2, 3)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), **SCALE.fields, "W": Real("cd")},
    where=lambda p: at_most(2.0, p),
)
STEPS = ProblemSpace(
    f"{SQUARES.assumptions}, step η", {"c": (1, 2), "d": (2, 3, 4)}, {**SQUARES.fields, "eta": Between("", 1e-3, 0.1)}
)


def _log_scale(beta: Tensor, alpha: Tensor) -> Tensor:
    return exponential_scale(beta, alpha).log()


def operator_margin(problems: Problems, accuracy: float) -> Margin:
    found = operators.matrix(_log_scale, problems.fields)
    return Margin.equal(found, operators.exponential(problems.dims["d"], problems["alpha"]), accuracy)


def on_v_margin(problems: Problems, accuracy: float) -> Margin:
    """The operator of log v applied to ∂L/∂v = m against what moves v."""
    scale, m = {"beta": problems["beta"], "alpha": problems["alpha"]}, problems["m"]
    S = operators.exponential(m.shape[1], m)
    return Margin.equal(operators.apply(exponential_scale, scale, m), m @ S, accuracy)


def on_theta_margin(problems: Problems, accuracy: float) -> Margin:
    W, G = problems["W"], problems["G"]
    v = exponential_scale(problems["beta"], problems["alpha"])
    on_v = v[:, :, None] * operators.exponential(v.shape[1], v) * v[:, None, :]
    size = operators.scaled_columns(v, W.abs(), on_v.abs(), G.abs()).flatten(1).amax(1)
    found = operators.apply(EXPONENTIAL, {name: problems[name] for name in EXPONENTIAL.axes}, G)
    return Margin.equal(found, operators.scaled_columns(v, W, on_v, G), accuracy, scale=size)


def sum_margin(problems: Problems, accuracy: float) -> Margin:
    alpha = early_flow(EXPONENTIAL, problems, accuracy).blocks["alpha"]
    return Margin.equal(alpha.sum(-1), alpha[:, :1].sum(-1), accuracy, scale=1 + alpha.abs().sum(-1).amax(1))


def one_step(optimizer: Literal["gd", "adam"]) -> Callable[[Problems, float], Margin]:
    """Margin of Σα conserved in one step of an optimiser."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        loss, start = LeastSquares(problems["H"], problems["T"]), {b: problems[b] for b in EXPONENTIAL.axes}
        run = descend(EXPONENTIAL, loss, start, optimizer=optimizer, step=problems["eta"], n_steps=1)
        alpha = run.blocks["alpha"]
        # (I − eeᵀ) s cancels: what rounds is s, not its projection
        v = exponential_scale(start["beta"], start["alpha"])
        s = v * (start["W"] * loss.gradient(run.theta[:, 0])).sum(1)
        size = 1 + alpha.abs().sum(-1).amax(1) + problems["eta"] * s.abs().sum(-1)
        return Margin.equal(alpha[:, 1].sum(-1), alpha[:, 0].sum(-1), accuracy, scale=size)

    return margin


def positive_margin(problems: Problems, accuracy: float) -> Margin:
    """Each log v_j has fallen by at most its bound, relative to the bound."""
    run = early_flow(EXPONENTIAL, problems, accuracy)
    log_v = _log_scale(run.blocks["beta"], run.blocks["alpha"])
    d = log_v.shape[-1]
    bound = ((2 - 1 / d) * run.times[:, 1:] * run.loss[:, :1]).sqrt()
    moved = (log_v[:, 1:] - log_v[:, :1]) / bound[..., None]
    return Margin.at_least(moved, torch.full_like(moved, -1.0), accuracy / bound)


def from_weights_margin(problems: Problems, accuracy: float) -> Margin:
    """log v_j − ½‖w_j‖² − ½(1 − 1/d)‖W‖² is conserved."""
    run = early_flow(EXPONENTIAL, problems, accuracy)
    log_v, columns = _log_scale(run.blocks["beta"], run.blocks["alpha"]), run.blocks["W"].square().sum(-2)
    all_columns = columns.sum(-1, keepdim=True)
    quantity = log_v - columns / 2 - (1 - 1 / log_v.shape[-1]) * all_columns / 2
    size = 1 + (log_v.abs() + all_columns).flatten(1).amax(1)
    return Margin.equal(quantity, quantity[:, :1], accuracy, scale=size)


claim = Claim(
    id="exponential",
    title="log v = β1 + (α − mean α) has one operator everywhere, and keeps v positive",
    statement="For log v = β1 + (α − mean α), gradient flow moves log v by −(d·eeᵀ + (I − eeᵀ)) (v⊙∂L/∂v), e = 1/√d, "
    "conserves Σα and keeps v > 0.",
    formula=r"\frac{d \ln\,v}{dt} = -\left(d\,e e^\top + (I - e e^\top)\right) \left(v \odot \nabla_v L\right), "
    r"\qquad e = \frac{\mathbf{1}}{\sqrt{d}}, \qquad \sum_j \dot \alpha_j = 0",
    source="arXiv 2605.26895, reparameterisation in exponential space",
    figures=("exponential",),
    scopes=(
        Scope(
            "operator",
            "J Jᵀ of (β, α) ↦ log v is d·eeᵀ + (I − eeᵀ), e = 1/√d, at every β and α; it acts on ∂L/∂log v = v⊙∂L/∂v.",
            holds=True,
            space=SCALE,
            margin=operator_margin,
            proof=prove_operator,
        ),
        Scope(
            "operator-on-v",
            "The same operator moves v itself: v̇ = −(d·eeᵀ + (I − eeᵀ)) ∂L/∂v.",
            holds=False,
            space=ON_V,
            margin=on_v_margin,
        ),
        Scope(
            "on-theta",
            "Gradient flow moves column j of θ = W diag(v) by −(v_j² g_j + w_j (S m)_j), m_k = ⟨w_k, g_k⟩, "
            "S = diag(v) (d·eeᵀ + (I − eeᵀ)) diag(v).",
            holds=True,
            space=ON_THETA,
            margin=on_theta_margin,
            proof=prove_on_theta,
        ),
        Scope(
            "sum-conserved",
            "Gradient flow of any differentiable loss conserves Σα (searched on squared loss).",
            holds=True,
            space=SQUARES,
            margin=sum_margin,
            accuracy=1e-5,
            proof=prove_sum_conserved,
            cost=8,
        ),
        Scope(
            "gd-conserves-sum",
            "One step of gradient descent conserves Σα, unlike ‖α‖ of v = β α/rms(α).",
            holds=True,
            space=STEPS,
            margin=one_step("gd"),
            accuracy=1e-10,
            proof=prove_sum_conserved,
        ),
        Scope(
            "adam-conserves-sum",
            "One step of Adam conserves Σα.",
            holds=False,
            space=STEPS,
            margin=one_step("adam"),
        ),
        Scope(
            "positivity",
            "Gradient flow of any differentiable loss L ≥ 0 keeps v_j(t) ≥ v_j(0) exp(−√((2 − 1/d) t L(0))) > 0.",
            holds=True,
            space=SQUARES,
            margin=positive_margin,
            accuracy=1e-5,
            proof=prove_positive,
            cost=8,
        ),
        Scope(
            "scale-from-weights",
            "Gradient flow of any differentiable loss conserves log v_j − ½‖w_j‖² − ½(1 − 1/d)‖W‖²; from v = 1 and "
            "W = 0 it is 0, so v_j ≥ 1.",
            holds=True,
            space=SQUARES,
            margin=from_weights_margin,
            accuracy=1e-5,
            proof=prove_from_weights,
            cost=8,
        ),
    ),
)
