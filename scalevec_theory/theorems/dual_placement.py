"""A scale on both sides, θ = diag(u) W diag(v), against the input-side scale alone and against none.

Source: arXiv 2605.26895 (dual placement; the theory of scale vectors under gradient flow).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from sympy import Eq, Ge, symbols
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN
from scalevec_theory.problems import Identity, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.scopes import dominates
from scalevec_theory.theorems.early_gap import prove_dual

u, v, W, w, g, inverse, du, dv, dW, dtheta = symbols("u v W w g 1/v du dv dW dtheta", real=True)
row_pull, column_pull = symbols("p q", real=True)


def prove_same_v() -> Proof:
    """Entry by entry: the pull on v is the single model's, and what remains is at least the single model's."""
    flows = {
        "u flows: du = -p, p_i = sum_k W_ik v_k G_ik": Eq(du, -row_pull),
        "v flows: dv = -q, q_j = sum_k u_k W_kj G_kj": Eq(dv, -column_pull),
        "W flows: dW = -u v G": Eq(dW, -u * v * g),
        "theta = u W v": Eq(dtheta, du * W * v + u * dW * v + u * W * dv),
    }
    return Proof(
        (
            Lemma(
                "entry (i,j) of -<G, dtheta> is u^2 v^2 G^2 + (W v G) p + (u W G) q",
                Eq(-g * dtheta, u**2 * v**2 * g**2 + W * v * g * row_pull + u * W * g * column_pull),
                flows,
            ),
            Lemma(
                "the entry's part of q_j is that of the single model's <w_j, g_j>",
                Eq(u * W * g, w * g),
                {"same theta and v": Eq(u * W * v, w * v), "v is not 0": Eq(v * inverse, 1)},
            ),
            Lemma("u^2 v^2 G^2 >= v^2 G^2", Ge(u**2 * v**2 * g**2, v**2 * g**2), {"u^2 >= 1": Ge(u**2, 1)}),
        ),
        "Summed over all entries, -dL/dt = sum u_i^2 v_j^2 G_ij^2 + sum_i p_i^2 + sum_j q_j^2 for every c and d. The "
        "single model has sum v_j^2 G_ij^2 + sum_j q_j^2 with the same q; sum_i p_i^2 >= 0 comes on top.",
    )


def prove_whitened() -> Proof:
    """u²v² ≥ 1 bounds the rate from below by ‖G‖², which is 2L for whitened inputs."""
    return Proof(
        (
            Lemma(
                "u^2 v^2 G^2 >= G^2 (u^2 = 1 + |row of W|^2, v^2 = 1 + |column of W|^2 by conservation)",
                Ge(u**2 * v**2 * g**2, g**2),
                {"u^2 >= 1": Ge(u**2, 1), "v^2 >= 1": Ge(v**2, 1)},
            ),
        ),
        "-dL/dt >= |G|^2 = 2 L because G = theta - T; by Gronwall's inequality L_dual(t) <= L(0) exp(-2t), and that is "
        "L_unscaled(t).",
    )


def _visible(problems: Problems) -> Tensor:
    """Targets so large that the lead, of order ‖T‖⁴, stands out from the integration error."""
    return problems["T"].flatten(1).norm(dim=1) >= 0.1


SIZES = {"c": (1, 2, 3), "d": (1, 2, 3)}
STATE = ProblemSpace(
    "any gradient G at any dual state (u, v, W) with u_i² = 1 + s_i²",
    SIZES,
    {"G": Real("cd"), "W": Real("cd"), "v": Real("d"), "s": Real("c")},
)
SAME_THETA = ProblemSpace("any θ and any gradient G", SIZES, {"theta": Real("cd"), "G": Real("cd")})
CORRELATED = ProblemSpace(
    "squared loss, correlated inputs, W(0) = 0, ‖T‖ ≥ 0.1",
    SIZES,
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd")},
    _visible,
)
WHITENED = ProblemSpace("squared loss, whitened inputs, W(0) = 0", SIZES, {"H": Identity("dd"), "T": Real("cd")})
NOT_SMALL = replace(WHITENED, assumptions=f"{WHITENED.assumptions}, ‖T‖ ≥ 0.1", where=_visible)

ROUNDING = 1e-13
"""Bound of the rounding of a rate of decrease, relative to the same sum with the absolute values of its terms."""

GLOBAL_ERROR = 30.0
"""Bound of the error of √(L/L(0)) over the tolerance, relative to 1 + 1/‖T‖; at most 12.3 was measured."""

LATE = torch.logspace(0, 1.8, 40, dtype=torch.float64)
"""Saved times of whole trajectories, in units of `_times`."""


def same_v_margin(problems: Problems, accuracy: float) -> Margin:
    G, W, v, s = (problems[name] for name in ("G", "W", "v", "s"))
    u = (1 + s * s).sqrt()
    dual = (G * operators.dual_scale(u, v, W, G)).sum((-2, -1))
    single = (G * operators.apply(INPUT_SCALE, {"v": v, "W": u[..., None] * W}, G)).sum((-2, -1))
    size = (G.abs() * operators.dual_scale(u, v.abs(), W.abs(), G.abs())).sum((-2, -1))
    return Margin.at_least(dual / size, single / size, ROUNDING)


def own_manifold_margin(problems: Problems, accuracy: float) -> Margin:
    theta, G = problems["theta"], problems["G"]
    dual, single = (
        (G * operators.apply(p, p.balanced_init(theta, iterations=60), G)).sum((-2, -1))
        for p in (DUAL_SCALE, INPUT_SCALE)
    )
    return Margin.at_least(dual / single, torch.ones_like(single), ROUNDING)


def _lead(problems: Problems, times: Tensor, accuracy: float) -> tuple[Tensor, Tensor, Tensor]:
    """L_single − L_dual at ``times`` ``(B, S)``, a bound of its error, and L_single, all over L(0)."""
    loss, tolerance = LeastSquares(problems["H"], problems["T"]), accuracy / GLOBAL_ERROR
    zero = torch.zeros_like(loss.T)
    single, dual = (
        gradient_flow(p, loss, p.init(zero), times, rtol=tolerance, atol=tolerance).loss / loss.value(zero)[:, None]
        for p in (INPUT_SCALE, DUAL_SCALE)
    )
    of_root = accuracy * (1 + 1 / loss.T.flatten(1).norm(dim=1))[:, None]
    return single - dual, of_root * (single.sqrt() + of_root), single


def _times(problems: Problems, tau: Tensor) -> Tensor:
    """t = τ / (λ_max(H) + 2‖G(0)‖): the loss cannot change much before τ = 1."""
    rate = torch.linalg.eigvalsh(problems["H"])[:, -1] + 2 * (problems["T"] @ problems["H"]).flatten(1).norm(dim=1)
    return tau.to(rate) / rate[:, None]


def _early(problems: Problems, tau: Tensor, accuracy: float) -> Margin:
    """The lead over its leading term (2/3) t³ Σ_i ‖row i of G(0)‖⁴."""
    times, loss = _times(problems, tau), LeastSquares(problems["H"], problems["T"])
    lead, error, _ = _lead(problems, times, accuracy)
    zero = torch.zeros_like(loss.T)
    rows = loss.gradient(zero).square().sum(-1).square().sum(-1)
    predicted = 2 / 3 * times**3 * (rows / loss.value(zero))[:, None]
    return Margin.at_least(lead / predicted, torch.zeros_like(lead), error / predicted)


def early_margin(problems: Problems, accuracy: float) -> Margin:
    return _early(problems, torch.tensor([0.05, 0.1, 0.2]), accuracy)


def horizon_margin(problems: Problems, accuracy: float) -> Margin:
    return _early(problems, torch.linspace(0.25, 4, 16), accuracy)


def trajectory_margin(problems: Problems, accuracy: float) -> Margin:
    """The lead relative to L_single, while that exceeds 10⁻⁸ L(0): a lag grows there once both have nearly arrived."""
    lead, error, single = _lead(problems, _times(problems, LATE), accuracy)
    relative = torch.where(single < 1e-8, 0.0, 1 / single)
    return Margin.at_least(relative * lead, torch.zeros_like(lead), relative * error)


def lag_margin(problems: Problems, accuracy: float) -> Margin:
    lead, error, _ = _lead(problems, _times(problems, LATE), accuracy)
    return Margin.at_least(lead, torch.full_like(lead, -1e-4), error)


claim = Claim(
    id="dual-placement",
    title="A second scale vector on the output side",
    statement="θ = diag(u) W diag(v) descends at least as fast as W diag(v) at equal θ and v, is ahead of it early; "
    "at equal θ from equal starts, or over a whole trajectory, it need not be.  Of no scale at all it stays ahead as "
    "long as inputs are uncorrelated.",
    formula=r"\begin{split} -\dot L_{\text{dual}} &\ge -\dot L_{\text{single}} \quad \text{at equal } \theta \text{ "
    r"and } v \\ L_{\text{single}}(t) - L_{\text{dual}}(t) &= \tfrac{2}{3} t^3 \sum_i \lVert \hat g_i(0) \rVert^4 + "
    r"O(t^4) \end{split}",
    source="arXiv 2605.26895, dual placement",
    figures=("dual-placement",),
    scopes=(
        Scope(
            "same-v",
            "At equal θ and equal v, with u_i² ≥ 1 for all i, −dL/dt of the dual model is at least that of the "
            "input-side scale, for any differentiable loss.",
            holds=True,
            space=STATE,
            margin=same_v_margin,
            proof=prove_same_v,
        ),
        Scope(
            "early",
            "From W(0) = 0 and u = v = 1, for any smooth loss with G(0) ≠ 0, L_dual(t) < L_single(t) for all small "
            "t > 0: the lead is (2/3) t³ Σ_i ‖row i of G(0)‖⁴ + O(t⁴).",
            holds=True,
            space=CORRELATED,
            margin=early_margin,
            accuracy=1e-9,
            proof=prove_dual,
            cost=2,
        ),
        Scope(
            "early-horizon",
            "Squared loss, whitened inputs, W(0) = 0: L_dual(t) < L_single(t) for 0 < t ≤ 4/(1 + 2‖T‖), up to 3 × 3"
            " for ‖T‖ ≥ 0.1.",
            holds=True,
            space=NOT_SMALL,
            margin=horizon_margin,
            cost=2,
        ),
        Scope(
            "own-manifold",
            "At equal θ, each model on the manifold it stays on from standard initialisation (u² and v² exceed the "
            "squared norms of their row and column of W by 1), −dL/dt of the dual model is at least that of the "
            "input-side scale.",
            holds=False,
            space=SAME_THETA,
            margin=own_manifold_margin,
        ),
        Scope(
            "whole-trajectory",
            "Squared loss, whitened inputs, W(0) = 0: L_dual(t) ≤ L_single(t) for all t.",
            holds=False,
            space=WHITENED,
            margin=trajectory_margin,
            accuracy=1e-9,
            cost=2,
        ),
        Scope(
            "lag-below-1e-4",
            "Squared loss, whitened inputs, W(0) = 0, up to 3 × 3: L_dual(t) − L_single(t) never exceeds 10⁻⁴ L(0).",
            holds=False,
            space=WHITENED,
            margin=lag_margin,
            cost=2,
        ),
        replace(
            dominates(DUAL_SCALE, PLAIN, inputs="whitened"),
            name="unscaled",
            statement="Squared loss, whitened inputs, W(0) = 0: L_dual(t) ≤ L_unscaled(t) for all t.",
            proof=prove_whitened,
        ),
        replace(
            dominates(DUAL_SCALE, PLAIN, inputs="uncorrelated"),
            name="unscaled-uncorrelated",
            statement="Squared loss, uncorrelated inputs, W(0) = 0: L_dual(t) ≤ L_unscaled(t) for all t, up to 3 × 3.",
        ),
        replace(
            dominates(DUAL_SCALE, PLAIN, inputs="correlated", holds=False),
            name="unscaled-correlated",
            statement="Squared loss, correlated inputs, W(0) = 0: L_dual(t) ≤ L_unscaled(t) for all t.",
        ),
    ),
)
