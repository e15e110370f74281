"""What is left of loss dominance when each model's step fits its own curvature: conditioning, and nothing else.

The Hessian at the optimum has the eigenvalues h_j along the rays of the targets without a scale and h_j S_j with one,
S_j = √(1 + 4R_j²).  Gradient descent bears steps up to 2/λ_max, so time counts in units of 1/λ_max.  In that unit the
scaled model starts behind (its rate is h_j/λ_max at r = 0, and its λ_max is larger) and ends ahead if and only if it is
better conditioned.  With whitened inputs there is nothing to condition, and it is never ahead.

Source: arXiv 2605.26895 (loss dominance); the matched comparison is a derivation of this project.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from sympy import Eq, Ge, Gt, Le, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.descent import descend
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN
from scalevec_theory.problems import Between, Identity, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.radial import remaining_distance, sharpness
from scalevec_theory.theorems.radial_solution import UNCORRELATED, prove_rate

v, w, v_new, w_new, r, R, s, Q, top, eta, x = symbols("v w v_new w_new r R s Q lambda eta x", real=True)
STEP_V = {"v steps: v_new = v - eta <w,g>": Eq(v_new, v + eta * w * (R - r))}
STEP_W = {"w steps: w_new = w - eta v g": Eq(w_new, w + eta * v * (R - r))}
RADII = {"0 <= r": Ge(r, 0), "r <= R": Ge(R, r)}
TOP = {"lambda >= 0": Ge(top, 0), "lambda^2 >= 1 + 4 R^2": Ge(top**2, 1 + 4 * R**2)}


def prove_whitened() -> Proof:
    """In matched time the rates are √(1+4r²)(R − r)/λ with λ ≥ √(1+4R²), against R − r."""
    return Proof(
        (
            Lemma(
                "sqrt(1+4r^2) <= lambda, the scaled model's largest sqrt(1+4R_j^2)",
                Le(s, top),
                {"s^2 = 1 + 4 r^2": Eq(s**2, 1 + 4 * r**2), **RADII, **TOP},
            ),
        ),
        "With dr = sqrt(1+4r^2)(R - r) (radial-solution), in matched time dr/dtau <= R - r in every column, which "
        "is the unscaled model's; by the comparison theorem for scalar ODEs r_scaled(tau) <= r_unscaled(tau) for "
        "all tau.",
    )


def prove_gd_whitened() -> Proof:
    """One step of size η = α/λ contracts R − r by no more than 1 − α, and keeps 0 ≤ r ≤ R and 0 ≤ Q ≤ 1."""
    product = {"r = v w": Eq(r, v * w)}
    step = {"eta >= 0": Ge(eta, 0), "alpha = eta lambda <= 1": Le(eta * top, 1)}
    return Proof(
        (
            Lemma(
                "R - r_new = (R - r)(1 - eta (s + eta r (R - r))), s = v^2 + w^2",
                Eq(R - v_new * w_new, (R - r) * (1 - eta * (s + eta * r * (R - r)))),
                {**product, **STEP_V, **STEP_W, "s = v^2 + w^2": Eq(s, v**2 + w**2)},
            ),
            Lemma(
                "Q_new = Q (1 - eta^2 (R - r)^2)",
                Eq(v_new**2 - w_new**2, (v**2 - w**2) * (1 - eta**2 * (R - r) ** 2)),
                {**STEP_V, **STEP_W},
            ),
            Lemma(
                "s^2 = Q^2 + 4 r^2",
                Eq((v**2 + w**2) ** 2, Q**2 + 4 * r**2),
                {"Q = v^2 - w^2": Eq(Q, v**2 - w**2), **product},
            ),
            Lemma(
                "s^2 <= 1 + 4 r^2",
                Le(s**2, 1 + 4 * r**2),
                {"s^2 = Q^2 + 4 r^2": Eq(s**2, Q**2 + 4 * r**2), "Q >= 0": Ge(Q, 0), "Q <= 1": Le(Q, 1)},
            ),
            Lemma(
                "r (R - r) <= lambda (lambda - s)",
                Le(r * (R - r), top * (top - s)),
                {
                    "s^2 <= 1 + 4 r^2": Le(s**2, 1 + 4 * r**2),
                    **RADII,
                    "lambda^2 >= 1 + 4 R^2": TOP["lambda^2 >= 1 + 4 R^2"],
                },
            ),
            Lemma(
                "s + eta r (R - r) <= lambda, so R - r_new >= (1 - alpha)(R - r) >= 0",
                Le(s + eta * x, top),
                {
                    "x = r (R - r) <= lambda (lambda - s)": Le(x, top * (top - s)),
                    "x >= 0": Ge(x, 0),
                    "lambda > 0": Gt(top, 0),
                    "alpha = eta lambda <= 1": step["alpha = eta lambda <= 1"],
                },
            ),
            Lemma(
                "eta^2 (R - r)^2 <= 1, so 0 <= Q_new <= Q",
                Le(eta**2 * (R - r) ** 2, 1),
                {**RADII, **TOP, **step},
            ),
        ),
        "Every step moves column j along its target (g_j = -(R - r) n).  By induction, from v = 1 and w = 0: the "
        "unscaled model contracts R - r by exactly 1 - alpha, the scaled one by no more, in every column, every c "
        "and d.",
    )


def prove_late() -> Proof:
    """The rate of column j lies between h_j and h_j S_j and tends to h_j S_j as its radius tends to R_j."""
    return replace(
        prove_rate(),
        conclusion="-d ln(R_j - r_j)/dt = h_j sqrt(1+4r_j^2) (radial-solution) tends to h_j S_j, exponentially "
        "fast, so R_j - r_j = exp(-h_j S_j t + O(1)), and the loss sum_j h_j (R_j - r_j)^2 / 2 = exp(-2 min_j h_j "
        "S_j t + O(1)).",
    )


SIZES = {"c": (1, 2, 3), "d": (1, 2, 3)}


def _visible(problems: Problems) -> Tensor:
    """Targets so large that the lag, of order ‖T‖², stands out from rounding."""
    return problems["T"].flatten(1).norm(dim=1) >= 0.01


WHITENED = ProblemSpace(
    "squared loss, whitened inputs, W(0) = 0, ‖T‖ ≥ 0.01", SIZES, {"H": Identity("dd"), "T": Real("cd")}, _visible
)
STEPS = replace(
    WHITENED,
    assumptions=f"{WHITENED.assumptions}, steps α/λ_max with 0.1 ≤ α ≤ 1",
    fields={**WHITENED.fields, "alpha": Between("", 0.1, 1.0)},
)
TAU = torch.logspace(-1, 1.3, 24, dtype=torch.float64)
ROUNDING = 1e-11
"""Bound of the relative error of a loss in closed form."""


def _curvatures(problems: Problems) -> tuple[Tensor, Tensor]:
    """h and R of every column, ``(B, d)``."""
    return torch.diagonal(problems["H"], dim1=-2, dim2=-1), problems["T"].norm(dim=1)


def _matched_losses(problems: Problems, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Scaled and unscaled losses ``(B, S)`` at t = τ/λ_max of each model, in closed form; ``tau`` is ``(S,)``."""
    h, R = (x[:, None] for x in _curvatures(problems))
    t = tau.to(h)[..., None] / sharpness(h, R).amax(-1, keepdim=True)
    distance = remaining_distance(t, h, R), R * torch.exp(-h * tau.to(h)[..., None] / h.amax(-1, keepdim=True))
    scaled, unscaled = (0.5 * (h * x * x).sum(-1) for x in distance)
    return scaled, unscaled


def _log_lead(problems: Problems) -> Tensor:
    """ln(L_unscaled/L_scaled) at matched times τ, ``(B, S)``."""
    scaled, unscaled = _matched_losses(problems, TAU)
    return torch.log(unscaled / scaled)


def ahead_margin(problems: Problems, accuracy: float) -> Margin:
    """The scaled model is never behind."""
    lead = _log_lead(problems)
    return Margin.at_least(lead, torch.zeros_like(lead), ROUNDING)


def behind_margin(problems: Problems, accuracy: float) -> Margin:
    """The scaled model is never ahead."""
    lead = _log_lead(problems)
    return Margin.at_least(torch.zeros_like(lead), lead, ROUNDING)


def gd_margin(problems: Problems, accuracy: float) -> Margin:
    """1 − √(L_unscaled/L_scaled) after 1 to 20 steps of size α/λ_max of each model, as long as L_scaled > 10⁻¹² "
    "L(0)."""
    loss, alpha = LeastSquares(problems["H"], problems["T"]), problems["alpha"]
    h, R = _curvatures(problems)
    zero = torch.zeros_like(loss.T)
    scaled, unscaled = (
        (descend(p, loss, p.init(zero), step=alpha / top.amax(1), n_steps=20).loss / loss.value(zero)[:, None]).sqrt()
        for p, top in ((INPUT_SCALE, sharpness(h, R)), (PLAIN, h))
    )
    share = torch.where((scaled > 1e-6) | scaled.isnan(), unscaled / scaled, -torch.inf)[:, 1:]
    return Margin.at_least(torch.ones_like(share), share, 1e-14 / scaled[:, 1:].clamp_min(1e-6))


def late_margin(problems: Problems, accuracy: float) -> Margin:
    """The mean exponents of both losses from τ = K to 2K, within the bound of the O(1) term over K.

    (R − r) e^{hSt} grows from R to its limit in the closed form, S² tanh(arcsinh(2R)/2); without a scale it stays at R.
    """
    h, R = _curvatures(problems)
    K = 150.0
    tau = torch.tensor([K, 2 * K]).to(h)
    S = torch.sqrt(1 + 4 * R * R)
    final = S**2 * torch.tanh(torch.asinh(2 * R) / 2), R
    margins = []
    for losses, rates, constant in zip(_matched_losses(problems, tau), (h * S, h), final, strict=True):
        exponent = 2 * rates.amin(1) / rates.amax(1)
        slowest = rates.argmin(1, keepdim=True)
        bound = torch.log((h * constant**2).sum(1) / (h * R**2).gather(1, slowest)[:, 0]) / K
        measured = torch.log(losses[:, 0] / losses[:, 1]) / K
        margins.append(accuracy + bound - (measured - exponent).abs())
    return Margin(torch.stack(margins).amin(0), torch.full_like(exponent, ROUNDING))


claim = Claim(
    id="matched-sharpness",
    title="At matched sharpness only conditioning is left of the advantage",
    statement="With time in units of 1/λ_max of each model's own Hessian at the optimum, the input-side scale "
    "speeds up only what it conditions better.",
    formula=r"\ln\,L(\tau) = -2 \kappa \tau + O(1), \qquad \kappa = \frac{\min_j h_j S_j}{\max_j h_j S_j}, \qquad S_j "
    r"= \sqrt{1 + 4 \lVert T_j \rVert^2} \ (\text{unscaled: } 1)",
    source="arXiv 2605.26895, loss dominance; matched comparison derived here",
    figures=("matched-sharpness",),
    scopes=(
        Scope(
            "whitened",
            "Squared loss, whitened inputs, v(0) = 1, W(0) = 0, gradient flow with time in units of 1/λ_max of each "
            "model's own Hessian at the optimum: L_scaled(τ) ≥ L_unscaled(τ) for all τ.",
            holds=True,
            space=WHITENED,
            margin=behind_margin,
            proof=prove_whitened,
        ),
        Scope(
            "gd-whitened",
            "Squared loss, whitened inputs, v(0) = 1, W(0) = 0, gradient descent of each model with step α/λ_max of "
            "its own Hessian at the optimum, 0 < α ≤ 1: after any number of steps L_scaled ≥ L_unscaled.",
            holds=True,
            space=STEPS,
            margin=gd_margin,
            proof=prove_gd_whitened,
            cost=3,
        ),
        Scope(
            "late",
            "Squared loss, uncorrelated inputs, v(0) = 1, W(0) = 0, every T_j ≠ 0, S_j = √(1 + 4‖T_j‖²), time in "
            "units of 1/λ_max: ln L(τ) = −2κτ + O(1) with κ = min_j h_j S_j / max_j h_j S_j, against κ = min_j h_j "
            "/ max_j h_j without a scale; the scaled model ends ahead if it is the better conditioned.",
            holds=True,
            space=UNCORRELATED,
            margin=late_margin,
            proof=prove_late,
        ),
        Scope(
            "uncorrelated",
            "Squared loss, uncorrelated inputs, v(0) = 1, W(0) = 0, time in units of 1/λ_max: L_scaled(τ) ≥ "
            "L_unscaled(τ) for all τ.",
            holds=False,
            space=UNCORRELATED,
            margin=behind_margin,
        ),
    ),
)
