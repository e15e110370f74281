"""The closed form of a column's radius under gradient flow, and its rate of approach h_j √(1 + 4‖T_j‖²).

The closed form itself is in `radial`; here it is proved to solve ṙ = h √(1 + 4r²)(R − r), which `loss_dominance`
derives, and compared with integration.

Source: arXiv 2605.26895 (the theory of input-side scale vectors under gradient flow).
"""

from __future__ import annotations

import torch
from sympy import Eq, Ge, Le, Rational, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.problems import Diagonal, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.radial import radius, sharpness
from scalevec_theory.scopes import GLOBAL_ERROR

E, E1, F, F1 = symbols("e^(s/2) e^(-s/2) e^(S/2) e^(-S/2)", real=True)
ds, dE, dE1, dr, dPhi, dcosh, dsinh = symbols("ds d(e^(s/2)) d(e^(-s/2)) dr dPhi d(cosh) d(sinh)", real=True)
r, R, h, s, S, inverse = symbols("r R h sqrt(1+4r^2) sqrt(1+4R^2) 1/x", real=True)
HALF = Rational(1, 2)
cosh_S, cosh_a, sinh_a, cosh_b, sinh_b = symbols("cosh(S) cosh(a) sinh(a) cosh(b) sinh(b)", real=True)
RADIUS = {"r = sinh(s)/2": Eq(r, (E**2 - E1**2) / 4)}
RECIPROCAL = {"e^(s/2) e^(-s/2) = 1": Eq(E * E1, 1)}
ROOT = {"s^2 = 1 + 4 r^2": Eq(s**2, 1 + 4 * r**2)}


def prove_closed_form() -> Proof:
    """With E = e^{s/2} and F = e^{S/2} everything is a polynomial: Φ(s) = h t + const along the flow."""
    return Proof(
        (
            Lemma(
                "sqrt(1+4r^2) = cosh s",
                (Ge(s, HALF * (E**2 + E1**2)), Le(s, HALF * (E**2 + E1**2))),
                {**RADIUS, **RECIPROCAL, **ROOT, "s >= 0": Ge(s, 0)},
            ),
            Lemma(
                "ds = 2 h (R - r)",
                Eq(ds, 2 * h * (R - r)),
                {
                    "d of r = sinh(s)/2": Eq(dr, HALF * (E * dE - E1 * dE1)),
                    "d(e^(s/2)) = e^(s/2) ds/2": Eq(dE, HALF * E * ds),
                    "d(e^(-s/2)) = -e^(-s/2) ds/2": Eq(dE1, -HALF * E1 * ds),
                    "dr = h sqrt(1+4r^2)(R - r), sqrt(1+4r^2) = cosh s": Eq(dr, h * HALF * (E**2 + E1**2) * (R - r)),
                    "cosh s is not 0": Eq(inverse * (E**2 + E1**2), 1),
                },
            ),
            Lemma(
                "2 cosh a sinh b = sinh S - sinh s and cosh a cosh b + sinh a sinh b = cosh S, a = (S+s)/2, b = "
                "(S-s)/2",
                (
                    Eq((F * E + F1 * E1) * (F * E1 - F1 * E), F**2 - F1**2 - E**2 + E1**2),
                    Eq(
                        (F * E + F1 * E1) * (F * E1 + F1 * E) + (F * E - F1 * E1) * (F * E1 - F1 * E),
                        2 * (F**2 + F1**2),
                    ),
                ),
                {**RECIPROCAL, "e^(S/2) e^(-S/2) = 1": Eq(F * F1, 1)},
            ),
            Lemma(
                "Phi = (ln cosh a - ln sinh b) / cosh S has dPhi = h",
                Eq(dPhi, h),
                {
                    "d of the logarithms": Eq(dPhi * cosh_S * cosh_a * sinh_b, dcosh * sinh_b - dsinh * cosh_a),
                    "d cosh a = sinh a ds/2": Eq(dcosh, HALF * sinh_a * ds),
                    "d sinh b = -cosh b ds/2": Eq(dsinh, -HALF * cosh_b * ds),
                    "cosh a cosh b + sinh a sinh b = cosh S": Eq(cosh_a * cosh_b + sinh_a * sinh_b, cosh_S),
                    "ds = 2 h (R - r) = h (sinh S - sinh s)": Eq(ds, 2 * h * cosh_a * sinh_b),
                    "r < R, so sinh b is not 0": Eq(inverse * cosh_S * cosh_a * sinh_b, 1),
                },
            ),
        ),
        "Phi(s(t)) - Phi(s(0)) = h t with s(0) = 0, for every h > 0 and R > 0; Phi increases to infinity as s tends "
        "to S, so the equation determines r(t) for all t.",
    )


def prove_rate() -> Proof:
    """−d ln(R − r)/dt = h√(1+4r²), which differs from h√(1+4R²) by at most 2h(R − r)."""
    END = {"S^2 = 1 + 4 R^2": Eq(S**2, 1 + 4 * R**2)}
    return Proof(
        (
            Lemma(
                "sqrt(1+4R^2) >= sqrt(1+4r^2)",
                Ge(S, s),
                {**ROOT, **END, "S >= 0": Ge(S, 0), "0 <= r": Ge(r, 0), "r <= R": Ge(R, r)},
            ),
            Lemma(
                "sqrt(1+4R^2) - sqrt(1+4r^2) <= 2 (R - r)",
                Le(S - s, 2 * (R - r)),
                {**ROOT, **END, "s >= 0": Ge(s, 0), "r <= R": Ge(R, r)},
            ),
        ),
        "R - r decreases, so the mean rate of its logarithm after time t lies within 2 h (R - r(t)) below h "
        "sqrt(1+4R^2), and tends to it.",
    )


SIZES = {"c": (1, 2, 3), "d": (1, 2, 3)}
UNCORRELATED = ProblemSpace(
    "squared loss, uncorrelated inputs, v(0) = 1, W(0) = 0", SIZES, {"H": Diagonal("dd"), "T": Real("cd")}
)
CORRELATED = ProblemSpace(
    "squared loss, correlated inputs, v(0) = 1, W(0) = 0",
    {"c": (1, 2, 3), "d": (2, 3)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd")},
)
HORIZONS = torch.logspace(-1, 1.3, 16, dtype=torch.float64)
"""Saved times in units of the time scale of the fastest column."""


def _flow(problems: Problems, tolerance: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """θ ``(B, S, c, d)``, times ``(B, S, 1)``, and h and R ``(B, 1, d)`` with h_j = H_jj."""
    T = problems["T"]
    h, R = torch.diagonal(problems["H"], dim1=-2, dim2=-1)[:, None], T.norm(dim=1)[:, None]
    times = HORIZONS.to(T) / sharpness(h, R).amax(-1)
    start = INPUT_SCALE.init(torch.zeros_like(T))
    run = gradient_flow(INPUT_SCALE, LeastSquares(problems["H"], T), start, times, rtol=tolerance, atol=tolerance)
    return run.theta, times[..., None], h, R


def closed_form_margin(problems: Problems, accuracy: float) -> Margin:
    """θ_j = r_j(t) T_j/‖T_j‖, relative to 1 + max_j ‖T_j‖ (θ is v w, and v is at least 1)."""
    theta, t, h, R = _flow(problems, accuracy / GLOBAL_ERROR)
    share = radius(t, h, R) / torch.where(R > 0, R, 1.0)
    return Margin.equal(theta, share[:, :, None] * problems["T"][:, None], accuracy, scale=1 + R.amax((1, 2)))


def rate_margin(problems: Problems, accuracy: float) -> Margin:
    """2h(R − r) − |mean rate − h√(1+4R²)| between successive times, over h√(1+4R²), where integration resolves it."""
    theta, t, h, R = _flow(problems, accuracy)
    distance = (problems["T"][:, None] - theta).norm(dim=2)
    rate, step = sharpness(h, R), t.diff(dim=1)
    measured = torch.log(distance[:, :-1] / distance[:, 1:]) / step
    bound = 2 * h * distance[:, :-1]
    error = 2 * GLOBAL_ERROR * accuracy * (1 + R) / (step * distance[:, 1:])
    seen = (error < 0.05 * bound) | distance[:, 1:].isnan()
    larger = torch.where(seen, bound / rate, torch.inf)
    smaller = torch.where(seen, (measured - rate).abs() / rate, 0.0)
    return Margin.at_least(larger, smaller, torch.where(seen, error / rate, 0.0).nan_to_num(0.0))


claim = Claim(
    id="radial-solution",
    title="The radius of a column in closed form",
    statement="For uncorrelated inputs, squared loss, v(0) = 1 and W(0) = 0, θ_j stays on the ray of T_j at the "
    "radius r with cosh(S) h_j t = ln[cosh((S+s)/2)/sinh((S−s)/2)] − ln coth(S/2), s = arcsinh 2r, S = arcsinh "
    "2‖T_j‖.",
    formula=r"h_j t \cosh\,S = \ln\,\frac{\cosh\,\frac{S + s}{2}}{\sinh\,\frac{S - s}{2}} - \ln\,\coth\,\frac{S}{2}, "
    r"\qquad s = \operatorname{arcsinh}\,2r, \quad S = \operatorname{arcsinh}\,2 \lVert T_j \rVert",
    source="arXiv 2605.26895, radial solution",
    figures=("radial-solution",),
    scopes=(
        Scope(
            "closed-form",
            "Squared loss, uncorrelated inputs, v(0) = 1, W(0) = 0: the closed form with h_j = H_jj is θ_j(t), for "
            "every c and d.",
            holds=True,
            space=UNCORRELATED,
            margin=closed_form_margin,
            proof=prove_closed_form,
        ),
        Scope(
            "rate",
            "Squared loss, uncorrelated inputs, v(0) = 1, W(0) = 0: −ln(‖T_j‖ − r_j(t))/t tends to h_j √(1 + "
            "4‖T_j‖²); the mean rate after time t is within 2h_j(‖T_j‖ − r_j(t)) of it.",
            holds=True,
            space=UNCORRELATED,
            margin=rate_margin,
            accuracy=1e-10,
            proof=prove_rate,
        ),
        Scope(
            "correlated-inputs",
            "Squared loss, correlated inputs, v(0) = 1, W(0) = 0: the closed form with h_j = H_jj is θ_j(t).",
            holds=False,
            space=CORRELATED,
            margin=closed_form_margin,
        ),
    ),
)
