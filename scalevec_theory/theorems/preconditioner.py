"""The preconditioner that a scale vector induces on θ = W diag(v): P_j = v_j² I + w_j w_jᵀ, column by column.

Source: arXiv 2605.26895 (the scale vector as a preconditioner, self-amplifying).
"""

from __future__ import annotations

import torch
from sympy import Eq, Expr, Ge, Gt, Integer, Le, Ne, diff, symbols
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.problems import Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner

v, dv, w1, w2, v_other, w_other = symbols("v_j dv W_ij W_kj v_l W_il", real=True)
R, R_new, s, s_new, cosh, P, slope, x, y = symbols("R R' |θ|^2 |θ'|^2 cosh P φ'' θ_i θ_k", real=True)
ww, thth = inner("w", "w"), inner("θ", "θ")

STANDARD = {"Q = 1: v^2 = 1 + <w,w>": Eq(v**2, 1 + ww), "<w,w> >= 0": Ge(ww, 0)}
ROOT = {"R^2 = 1 + 4|θ|^2": Eq(R**2, 1 + 4 * thth), "R >= 0": Ge(R, 0)}


def _P(vector: Vector) -> Vector:
    w = Vector.named("w")
    return v**2 * vector + w.dot(vector) * w


def prove_closed_form() -> Proof:
    """Entry (a, b) of J Jᵀ sums ∂θ_a/∂φ ∂θ_b/∂φ over the parameters that both depend on: v_j and their own W."""

    def entry(a: Expr, b: Expr) -> Expr:
        return sum((diff(a, p) * diff(b, p) for p in (v, w1, w2, v_other, w_other)), Integer(0))

    z, w, g = Vector.named("z"), Vector.named("w"), Vector.named("g")
    flow = {
        "v flows: dv = -<w,g>": Eq(dv, -w.dot(g)),
        "w flows: <z,dw> = -v <z,g>": Eq(inner("dw", "z"), -v * z.dot(g)),
    }
    return Proof(
        (
            Lemma(
                "(J J^T) is v_j^2 + W_ij^2 at one entry, W_ij W_kj in one column, 0 between columns",
                tuple(
                    Eq(entry(v * w1, other), stated, evaluate=False)
                    for other, stated in ((v * w1, v**2 + w1**2), (v * w2, w1 * w2), (v_other * w_other, Integer(0)))
                ),
            ),
            Lemma(
                "<z, dθ> = -<z, P g> for θ = v w, every z in R^c, every c",
                Eq(dv * z.dot(w) + v * inner("dw", "z"), -z.dot(_P(g))),
                flow,
            ),
        ),
        "J J^T is block diagonal with the blocks P_j = v_j^2 I + w_j w_j^T, for every c and d.",
    )


def prove_lower_bound() -> Proof:
    """⟨z, P z⟩ − v²⟨z, z⟩ is a square, and v² ≥ 1 where Q = 1."""
    z, zPz = Vector.named("z"), inner("z", "P z")
    return Proof(
        (
            Lemma(
                "<z, P z> >= v^2 <z,z>, every c",
                Ge(zPz, v**2 * z.dot(z)),
                {"P = v^2 I + w w^T": Eq(zPz, z.dot(_P(z)))},
                squares=((1, inner("w", "z")),),
            ),
            Lemma("v^2 >= 1", Ge(v**2, 1), STANDARD),
        ),
        "The smallest eigenvalue is the minimum of <z, P z>/<z,z> (Rayleigh).",
    )


def prove_eigenvalues() -> Proof:
    """P w = (v² + ‖w‖²) w, and P z = v² z for z ⊥ w."""
    y, z, w = Vector.named("y"), Vector.named("z"), Vector.named("w")
    return Proof(
        (
            Lemma("<y, P w> = (v^2 + <w,w>) <y,w>, every y", Eq(y.dot(_P(w)), (v**2 + ww) * y.dot(w))),
            Lemma("<y, P z> = v^2 <y,z>, every y", Eq(y.dot(_P(z)), v**2 * y.dot(z)), {"z ⊥ w": Eq(w.dot(z), 0)}),
        ),
        "The complement of w has dimension c - 1; at w = 0 every eigenvalue is v^2.",
    )


COLUMN = {"θ = v w: |θ|^2 = v^2 <w,w>": Eq(thth, v**2 * ww)}


def prove_closed_form_in_theta() -> Proof:
    """On Q = 1, 2v² − 1 = v² + ‖w‖² is the non-negative root of 1 + 4‖θ‖²."""
    hypotheses = {**STANDARD, **COLUMN, **ROOT}
    y, z = Vector.named("y"), Vector.named("z")
    images = {f"θ = v w: <{a},θ> = v <{a},w>": Eq(inner(a, "θ"), v * inner(a, "w")) for a in "yz"}
    return Proof(
        (
            Lemma("v^2 = (1 + R)/2", (Ge(2 * v**2, 1 + R), Le(2 * v**2, 1 + R)), hypotheses),
            Lemma("v^2 + <w,w> = R", (Ge(v**2 + ww, R), Le(v**2 + ww, R)), hypotheses),
            Lemma(
                "<y, P z> = v^2 <y,z> + <y,θ><θ,z>/v^2",
                Eq(y.dot(_P(z)), v**2 * y.dot(z) + inner("y", "θ") * inner("z", "θ") / v**2),
                images,
            ),
        ),
        "So v_j^2, the largest eigenvalue R and P_j are functions of θ_j alone, for every c.",
    )


def prove_self_amplifying() -> Proof:
    """R = √(1 + 4‖θ‖²) grows with ‖θ‖, and so does v² = (1 + R)/2."""
    hypotheses = {
        "θ has grown: |θ'|^2 > |θ|^2": Gt(s_new, s),
        "R^2 = 1 + 4|θ|^2": Eq(R**2, 1 + 4 * s),
        "R'^2 = 1 + 4|θ'|^2": Eq(R_new**2, 1 + 4 * s_new),
        "R' >= 0": Ge(R_new, 0),
    }
    return Proof(
        (Lemma("R' > R", Gt(R_new, R), hypotheses),),
        "R is the largest eigenvalue and (1 + R)/2 = v^2 the others (closed form in θ), so every one of them grows.",
    )


def prove_mirror_flow_one_output() -> Proof:
    """sinh 2φ' = 2θ gives cosh(2φ') φ'' = 1, and P = v² + w² = cosh 2φ'."""
    one = {
        "P = v^2 + w^2": Eq(P, v**2 + w1**2),
        "Q = 1": Eq(v**2 - w1**2, 1),
        "cosh^2 - sinh^2 = 1, sinh = 2θ = 2 v w": Eq(cosh**2 - (2 * v * w1) ** 2, 1),
        "cosh > 0": Gt(cosh, 0),
    }
    two = {"P = cosh": Eq(P, cosh), "cosh φ'' = 1": Eq(cosh * slope, 1)}
    return Proof(
        (
            Lemma("P = cosh(2 φ')", (Ge(P, cosh), Le(P, cosh)), one),
            Lemma("P φ'' = 1", Eq(P * slope, 1), two),
        ),
        "d/dt φ'(θ_j) = φ'' dθ_j/dt = -g_j with φ'(θ) = arcsinh(2θ)/2: mirror flow.",
    )


def prove_not_a_hessian() -> Proof:
    """M = P⁻¹ as a function of θ: ∂_k M_ii − ∂_i M_ki is not zero where θ_k is not, for any i ≠ k."""
    z, t = Vector.named("z"), Vector.named("θ")
    Mz = 2 / (1 + R) * z + -4 * t.dot(z) / (R * (1 + R) ** 2) * t
    PMz = (1 + R) / 2 * Mz + 2 * t.dot(Mz) / (1 + R) * t
    R_x, R_y, gap = symbols("dR/dθ_i dR/dθ_k gap", real=True)
    M_xx, M_xy = 2 / (1 + R) - 4 * x * x / (R * (1 + R) ** 2), -4 * x * y / (R * (1 + R) ** 2)
    found = diff(M_xx, y) + diff(M_xx, R) * R_y - diff(M_xy, x) - diff(M_xy, R) * R_x
    return Proof(
        (
            Lemma(
                "<y, P M z> = <y,z> with P = (1 + R)/2 I + 2/(1 + R) θθ^T, M = 2/(1 + R) I - 4/(R (1 + R)^2) θθ^T",
                Eq(Vector.named("y").dot(PMz), inner("y", "z")),
                {"R^2 = 1 + 4|θ|^2": Eq(R**2, 1 + 4 * thth)},
            ),
            Lemma(
                "∂_k M_ii - ∂_i M_ki = -4 θ_k/(R (1 + R)^2), i != k",
                Eq(found, -4 * y / (R * (1 + R) ** 2)),
                {"R ∂_i R = 4 θ_i": Eq(R * R_x, 4 * x), "R ∂_k R = 4 θ_k": Eq(R * R_y, 4 * y)},
            ),
            Lemma(
                "the difference is not 0",
                Ne(gap, 0),
                {"gap R (1 + R)^2 = -4 θ_k": Eq(gap * R * (1 + R) ** 2, -4 * y), "θ_k is not 0": Ne(y, 0)},
            ),
        ),
        "Third derivatives of a function are symmetric (Schwarz), so for c >= 2 the inverse of P_j is not a Hessian on "
        "any open set: some θ_k is not 0 on it, and there is an i != k.",
    )


SIZES = {"c": (1, 2, 3), "d": (1, 2, 4)}
ANYWHERE = ProblemSpace("any v and W", SIZES, {"v": Real("d"), "W": Real("cd")})
ON_STANDARD = ProblemSpace("v_j² = 1 + ‖w_j‖², any W", SIZES, {"W": Real("cd")})
ONE_OUTPUT = ProblemSpace("one output, v_j² = 1 + w_j², any w", {"c": (1,), "d": (1, 2, 4)}, {"W": Real("cd")})
COLUMNS = ProblemSpace("c ≥ 2 outputs, v² = 1 + ‖w‖², one column θ ≠ 0", {"c": (2, 3, 4)}, {"theta": Real("c")})
GROWN = ProblemSpace(
    "one column before and after, ‖θ‖ ≤ ‖grown‖, v² = 1 + ‖w‖²",
    {"c": (1, 2, 3)},
    {"theta": Real("c"), "grown": Real("c")},
    where=lambda p: p["theta"].norm(dim=1) <= p["grown"].norm(dim=1),
)


def induced_blocks(v: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """J Jᵀ by differentiation: the block of each column ``(B, d, c, c)``, and all of it ``(B, c, d, c, d)``."""
    P = operators.matrix(INPUT_SCALE, {"v": v, "W": W}).unflatten(2, W.shape[1:]).unflatten(1, W.shape[1:])
    return P.diagonal(dim1=2, dim2=4).movedim(-1, 1), P


def _on_standard(problems: Problems) -> tuple[Tensor, Tensor]:
    """v and W with v_j² = 1 + ‖w_j‖²."""
    W = problems["W"]
    return (1 + W.square().sum(1)).sqrt(), W


def closed_form_margin(problems: Problems, accuracy: float) -> Margin:
    v, W = problems["v"], problems["W"]
    blocks = operators.input_scale(v, W)
    closed = torch.einsum("njik,jl->nijkl", blocks, torch.eye(v.shape[1], dtype=v.dtype, device=v.device))
    return Margin.equal(induced_blocks(v, W)[1], closed, accuracy)


def lower_bound_margin(problems: Problems, accuracy: float) -> Margin:
    """λ_min ≥ v² to relative accuracy, because they are equal for c ≥ 2; v² ≥ 1 likewise, equal at w = 0."""
    v, W = _on_standard(problems)
    lowest = torch.linalg.eigvalsh(induced_blocks(v, W)[0])[..., 0]
    ratios = torch.stack([lowest / v**2, v**2], 1)
    return Margin.at_least(ratios, torch.full_like(ratios, 1 - accuracy), 0.0)


def eigenvalues_margin(problems: Problems, accuracy: float) -> Margin:
    v, W = problems["v"], problems["W"]
    found = torch.linalg.eigvalsh(induced_blocks(v, W)[0])
    stated = (v**2)[..., None].repeat(1, 1, W.shape[1])
    stated[..., -1] += W.square().sum(1)
    return Margin.equal(found, stated, accuracy)


def closed_form_in_theta_margin(problems: Problems, accuracy: float) -> Margin:
    v, W = _on_standard(problems)
    theta = INPUT_SCALE.forward(v=v, W=W)
    found = induced_blocks(v, W)[0]
    top = (1 + 4 * theta.square().sum(1)).sqrt()
    return Margin.equal(
        torch.cat([found.flatten(2), torch.linalg.eigvalsh(found)[..., -1:], v[..., None] ** 2], -1),
        torch.cat([operators.standard_input_scale(theta).flatten(2), top[..., None], (1 + top[..., None]) / 2], -1),
        accuracy,
    )


def self_amplifying_margin(problems: Problems, accuracy: float) -> Margin:
    """Every eigenvalue, in order, is at least as large after as before, relative to the largest."""
    before, after = (torch.linalg.eigvalsh(_P_of(problems[k])) for k in ("theta", "grown"))
    return Margin.at_least(after / after[:, -1:], before / after[:, -1:], 1e-12)


def loewner_margin(problems: Problems, accuracy: float) -> Margin:
    before, after = _P_of(problems["theta"]), _P_of(problems["grown"])
    lowest = torch.linalg.eigvalsh(after - before)[:, 0]
    return Margin(lowest / torch.linalg.matrix_norm(after, 2), torch.full_like(lowest, 1e-12))


def _P_of(theta: Tensor) -> Tensor:
    """P ``(..., c, c)`` of one column θ ``(..., c)`` on v² = 1 + ‖w‖²."""
    return operators.standard_input_scale(theta[..., None])[..., 0, :, :]


def one_output_margin(problems: Problems, accuracy: float) -> Margin:
    """P against 1/φ'' by differentiating φ'(θ) = arcsinh(2θ)/2."""
    v, W = _on_standard(problems)
    theta = INPUT_SCALE.forward(v=v, W=W)
    curvature = torch.func.jvp(lambda t: torch.asinh(2 * t) / 2, (theta,), (torch.ones_like(theta),))[1]
    return Margin.equal(induced_blocks(v, W)[0][..., 0], 1 / curvature.transpose(1, 2), accuracy)


def third_derivatives(theta: Tensor) -> Tensor:
    """∂_k (P⁻¹)_ij ``(B, i, j, k)`` at columns θ ``(B, c)``, by differentiation."""
    return torch.func.vmap(torch.func.jacfwd(lambda column: torch.linalg.inv(_P_of(column))))(theta)


def mirror_flow_margin(problems: Problems, accuracy: float) -> Margin:
    D = third_derivatives(problems["theta"])
    return Margin.equal(D, D.transpose(1, 3), accuracy)


def asymmetry_margin(problems: Problems, accuracy: float) -> Margin:
    """∂_k M_ij − ∂_i M_kj against −4 (δ_ij θ_k − δ_jk θ_i)/(R(1+R)²)."""
    theta = problems["theta"]
    root = (1 + 4 * theta.square().sum(1)).sqrt()
    part = torch.einsum("ij,nk->nijk", torch.eye(theta.shape[1], dtype=theta.dtype, device=theta.device), theta)
    stated = -4 * (part - part.transpose(1, 3)) / (root * (1 + root) ** 2)[:, None, None, None]
    D = third_derivatives(theta)
    return Margin.equal(D - D.transpose(1, 3), stated, accuracy)


claim = Claim(
    id="preconditioner",
    title="A scale vector preconditions each column by P_j = v_j² I + w_j w_jᵀ",
    statement="For θ = W diag(v), gradient flow moves θ_j by −P_j g_j; where v_j² − ‖w_j‖² = 1, P_j is a function "
    "of θ_j with no eigenvalue below 1, and they grow with ‖θ_j‖.",
    formula=r"\dot \theta_j = -P_j g_j, \qquad P_j = v_j^2 I + w_j w_j^\top",
    source="arXiv 2605.26895, preconditioner",
    figures=("preconditioner",),
    scopes=(
        Scope(
            "closed-form",
            "J Jᵀ of θ = W diag(v) is block diagonal with blocks P_j = v_j² I + w_j w_jᵀ.",
            holds=True,
            space=ANYWHERE,
            margin=closed_form_margin,
            proof=prove_closed_form,
        ),
        Scope(
            "lower-bound",
            "Where v_j² − ‖w_j‖² = 1, λ_min(P_j) ≥ v_j² ≥ 1.",
            holds=True,
            space=ON_STANDARD,
            margin=lower_bound_margin,
            proof=prove_lower_bound,
        ),
        Scope(
            "eigenvalues",
            "P_j has the eigenvalue v_j² + ‖w_j‖² once and v_j² c − 1 times.",
            holds=True,
            space=ANYWHERE,
            margin=eigenvalues_margin,
            proof=prove_eigenvalues,
        ),
        Scope(
            "closed-form-in-theta",
            "Where v_j² − ‖w_j‖² = 1: v_j² = (1 + √(1 + 4‖θ_j‖²))/2, λ_max(P_j) = √(1 + 4‖θ_j‖²) and "
            "P_j = v_j² I + θ_j θ_jᵀ/v_j².",
            holds=True,
            space=ON_STANDARD,
            margin=closed_form_in_theta_margin,
            proof=prove_closed_form_in_theta,
        ),
        Scope(
            "self-amplifying",
            "Where v_j² − ‖w_j‖² = 1, every eigenvalue of P_j, in order, grows with ‖θ_j‖.",
            holds=True,
            space=GROWN,
            margin=self_amplifying_margin,
            proof=prove_self_amplifying,
        ),
        Scope(
            "loewner-order",
            "Where v_j² − ‖w_j‖² = 1, ‖θ'‖ ≥ ‖θ‖ implies zᵀP(θ')z ≥ zᵀP(θ)z for every z.",
            holds=False,
            space=GROWN,
            margin=loewner_margin,
        ),
        Scope(
            "mirror-flow-one-output",
            "For c = 1 where v_j² − w_j² = 1, P_j = 1/φ''(θ_j), φ'(θ) = ½ arcsinh(2θ): gradient flow is mirror flow.",
            holds=True,
            space=ONE_OUTPUT,
            margin=one_output_margin,
            proof=prove_mirror_flow_one_output,
        ),
        Scope(
            "mirror-flow",
            "For c ≥ 2 where v_j² − ‖w_j‖² = 1, M = P_j⁻¹ is the Hessian of a function of θ_j: ∂_k M_il = ∂_i M_kl.",
            holds=False,
            space=COLUMNS,
            margin=mirror_flow_margin,
        ),
        Scope(
            "not-a-hessian",
            "For c ≥ 2 where v_j² − ‖w_j‖² = 1, M = P_j⁻¹ has ∂_k M_ii − ∂_i M_ki = −4θ_k/(R(1 + R)²) for i ≠ k, "
            "R = √(1 + 4‖θ_j‖²): P_j⁻¹ is a Hessian on no open set.",
            holds=True,
            space=COLUMNS,
            margin=asymmetry_margin,
            proof=prove_not_a_hessian,
        ),
    ),
)
