"""Weight decay on W but not on v moves scale from W into v: without noise forever, under noise until it is balanced.

One column (v, w) of least squares with h = 1, target T, R = ‖T‖, g = v w − T; p = v², q = ‖w‖², valley pq = R².

Source: arXiv 2605.26895 (which scale vectors to decay); the mechanism and its constants are derived here.
"""

from __future__ import annotations

import numpy as np
import torch
from sympy import Eq, Ge, Le, symbols
from torch import Tensor

from scalevec_theory import pumping
from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.paired import agreement
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.problems import Between, Identity, Problems, ProblemSpace
from scalevec_theory.proof import Lemma, Proof, inner
from scalevec_theory.stochastic_descent import stochastic_descent

v, lam, R2, p, q, dp, dq, dQ, Q, U, U0 = symbols("v λ R^2 p q dp dq dQ Q U U(0)", real=True)
c, lr, rho, dz, dv, drho, pull, across = symbols("c η ρ dz dv dρ δ κ", real=True)
decay_v, decay_W = symbols("λ_v λ_W", real=True)
wg, ww, Tg, Tw = inner("w", "g"), inner("w", "w"), inner("T", "g"), inner("T", "w")


def prove_flow_diverges() -> Proof:
    """The flow descends U = L + ½λ‖w‖², whose critical points have v = 0, and v² ≥ Q ≥ Q(0) keeps away from them."""
    no_w = Lemma(
        "at a critical point |w|^2 = 0",
        Eq(lam * ww, 0),
        {"dv = 0, no decay on v: <w,g> = 0": Eq(wg, 0), "<w,dw> = 0: v <w,g> + λ |w|^2 = 0": Eq(v * wg + lam * ww, 0)},
    )
    no_v = Lemma(
        "and there v R^2 = 0",
        Eq(v * R2, 0),
        {
            "<T,dw> = 0: v <T,g> + λ <T,w> = 0": Eq(v * Tg + lam * Tw, 0),
            "w = 0: <T,w> = 0": Eq(Tw, 0),
            "w = 0: g = -T": Eq(Tg, -R2),
        },
    )
    grows = Lemma(
        "v^2 >= Q(0) if dQ = 2 λ |w|^2 >= 0 has kept Q >= Q(0)",
        Ge(p, U0),
        {"Q = v^2 - |w|^2": Eq(Q, p - q), "|w|^2 >= 0": Ge(q, 0), "Q >= Q(0)": Ge(Q, U0)},
    )
    confined = Lemma(
        "λ |w|^2 <= 2 U(0)",
        Le(lam * q, 2 * U0),
        {"U falls: U <= U(0)": Le(U, U0), "U >= λ |w|^2/2, since L >= 0": Ge(U, lam * q / 2)},
    )
    return Proof(
        (no_w, no_v, grows, confined),
        "For T != 0 and Q(0) > 0 no critical point can be reached, and a bounded trajectory of the gradient flow of a "
        "polynomial would converge to one (Lojasiewicz); w is bounded, so v^2 is not.",
    )


def prove_valley_law() -> Proof:
    """dQ = 2λq with q = R²/p."""
    lemma = Lemma(
        "p dp + R^2 dp/p = 2 λ R^2",
        Eq(p**2 * dp + R2 * dp, 2 * lam * R2 * p),
        {
            "Q = p - q, weight decay of Q: dp - dq = 2 λ q": Eq(dp - dq, 2 * lam * q),
            "valley: p q = R^2": Eq(p * q, R2),
            "along it: p dq + q dp = 0": Eq(p * dq + q * dp, 0),
        },
    )
    return Proof((lemma,), "So p^2/2 + R^2 ln p = 2 λ R^2 t + const, and v^2 = p ~ 2 R sqrt(λ t).")


def prove_both_bounded() -> Proof:
    lemma = Lemma(
        "λ (v^2 + |w|^2) <= 2 U(0), λ the smaller decay",
        Le(lam * (p + q), 2 * U0),
        {
            "U falls: U <= U(0)": Le(U, U0),
            "U >= λ_v v^2/2 + λ_W |w|^2/2, since L >= 0": Ge(U, (decay_v * p + decay_W * q) / 2),
            "λ <= λ_v": Le(lam, decay_v),
            "λ <= λ_W": Le(lam, decay_W),
            "p = v^2 >= 0": Ge(p, 0),
            "q = |w|^2 >= 0": Ge(q, 0),
        },
    )
    return Proof((lemma,), "So both norms are bounded at every time if both decays are positive.")


def prove_adamw_law() -> Proof:
    """z = v − ρ under normalised updates: what is common to v and ρ drops out."""
    motion = Lemma(
        "dz = η (λ_W ρ - λ_v v) - (c - 1) η^2/(2 ρ)",
        Eq(2 * rho * dz, 2 * rho * lr * (decay_W * rho - decay_v * v) - (c - 1) * lr**2),
        {
            "z = v - ρ": Eq(dz, dv - drho),
            "v: pull and noise along w, as for ρ, and decay": Eq(dv, pull - lr * decay_v * v),
            "ρ: the same, decay, and Itô's term of the noise across w": Eq(
                2 * rho * drho, 2 * rho * (pull - lr * decay_W * rho) + across
            ),
            "c - 1 directions of unit variance": Eq(across, (c - 1) * lr**2),
        },
    )
    limit = Lemma(
        "at rest v^2 = 2 λ R^2/((c - 1) η)",
        Eq(p * (c - 1) * lr, 2 * lam * R2),
        {
            "dz = 0, decay on W only: 2 λ ρ^2 = (c - 1) η": Eq(2 * lam * q, (c - 1) * lr),
            "valley: v^2 ρ^2 = R^2": Eq(p * q, R2),
        },
    )
    return Proof(
        (motion, limit),
        "Decay on W only: v^2 = 2 η λ R t for large t if c = 1; for c >= 2 it stops where ρ^2 has come down to its "
        "noise-decay equilibrium (c - 1) η/(2 λ). Decay on neither: ρ^2 grows like (c - 1) η^2 t. "
        "The step from AdamW to these updates (gradient noise dominates, learning rate small) is the model's.",
    )


COLUMN = {"H": Identity("dd"), "T": Between("cd", 0.3, 2.0), "lam": Between("", 0.003, 0.03)}
VALLEY = ProblemSpace(
    "one column of positive target, whitened; v(0) = 1, W(0) = 0", {"c": (1, 2, 3), "d": (1,)}, COLUMN
)
LATE = (4.0, 20.0)
"""λt at which the law is compared: after the fast approach to the valley."""


def _run(problems: Problems, times: Tensor, accuracy: float, decays: dict[str, float]) -> tuple[Tensor, Tensor]:
    """p and q ``(B, S)`` at times ``(B, S)``; each problem has its own decay, so time is scaled by it."""
    # gradient_flow takes one decay: with time in units of 1/λ the loss is multiplied by 1/λ instead.
    lam = problems["lam"][:, None, None]
    loss = LeastSquares(problems["H"] / lam, problems["T"])
    start = INPUT_SCALE.init(torch.zeros_like(problems["T"]))
    run = gradient_flow(INPUT_SCALE, loss, start, times, rtol=accuracy, atol=accuracy, weight_decay=decays)
    return run.blocks["v"].square()[..., 0], run.blocks["W"].square().sum(-2)[..., 0]


def _law(problems: Problems, accuracy: float, decayed: str, growing: int) -> Margin:
    """Growth of p²/2 + R² ln p (or of q) between the times `LATE`, relative to 2R²Δ(λt), allowed to miss by 4λ."""
    times = torch.tensor(LATE, dtype=torch.float64, device=problems["T"].device)
    x = _run(problems, times, accuracy / 100, {decayed: 1.0})[growing]
    R2 = problems["T"].square().flatten(1).sum(-1)
    law = x.square() / 2 + R2[:, None] * x.log()
    ratio = law.diff(dim=-1)[:, 0] / (2 * R2 * (LATE[1] - LATE[0]))
    return Margin(4 * problems["lam"] - (ratio - 1).abs(), torch.full_like(ratio, accuracy))


def w_only_margin(problems: Problems, accuracy: float) -> Margin:
    return _law(problems, accuracy, "W", 0)


def v_only_margin(problems: Problems, accuracy: float) -> Margin:
    return _law(problems, accuracy, "v", 1)


def bounded_margin(problems: Problems, accuracy: float) -> Margin:
    """Is v² below 2R + 1 until λt = 4, with decay on W only?"""
    times = torch.tensor(LATE[:1], dtype=torch.float64, device=problems["T"].device)
    p, _ = _run(problems, times, accuracy / 100, {"W": 1.0})
    R = problems["T"].square().flatten(1).sum(-1).sqrt()
    return Margin.at_least((2 * R + 1)[:, None].expand_as(p), p, accuracy)


def both_margin(problems: Problems, accuracy: float) -> Margin:
    """λ(p + q) ≤ 2U(0) at both times, with U(0) = ½R² + ½λ."""
    times = torch.tensor((0.1, *LATE), dtype=torch.float64, device=problems["T"].device)
    p, q = _run(problems, times, accuracy / 100, {"v": 1.0, "W": 1.0})
    start = problems["T"].square().flatten(1).sum(-1) / problems["lam"] + 1
    return Margin.at_least(torch.ones_like(p), (p + q) / start[:, None], accuracy)


GROUPS, RATE, DECAY = 16, 0.005, 0.1
LAW_STEPS = (1000, 2000)


def measured_over_law(c: int, decays: dict[str, float], paths: int, seed: int) -> Tensor:
    """Group means of v² and ‖w‖² after `LAW_STEPS` of AdamW over those of `pumping.adamw`, ``(GROUPS, 4)``.

    T of norm 1 and equal entries, v(0) = 1, w(0) = T, batches of 4 of x ~ N(0, 1) with label noise 2, so that the
    gradient of θ has noise of standard deviation 1.
    """
    T = torch.full((GROUPS, c, 1), c**-0.5, dtype=torch.float64)
    run = stochastic_descent(
        INPUT_SCALE,
        LeastSquares(torch.ones(GROUPS, 1, 1, dtype=torch.float64), T),
        {"v": T.new_ones(GROUPS, 1), "W": T.clone()},
        LAW_STEPS,
        label_noise=2.0,
        batch=4,
        optimizer="adamw",
        step=RATE,
        paths=paths,
        seed=seed,
        observe={"v": lambda v, W: v.square()[..., 0], "w": lambda v, W: W.square().sum((-2, -1))},
        weight_decay=decays,
    )
    law = pumping.adamw(np.array(LAW_STEPS), 1.0, c, RATE, decays["v"], decays["W"], v0=1.0, sigma=1.0)
    return torch.cat([run.mean[name] / torch.from_numpy(x**2) for name, x in zip("vw", law, strict=True)], 1)


def _measure_law(name: str, c: int, holds_v: float, holds_W: float, tolerance: float) -> Scope:
    def measure(setting: Setting) -> list[Evidence]:
        ratio = measured_over_law(c, {"v": holds_v, "W": holds_W}, setting.choose(16, 64, 512), _seed(setting))
        return [
            agreement(ratio, tolerance, setting, f"decay-pumping:{name}", f"c = {c}, η = {RATE}, {LAW_STEPS} steps")
        ]

    decays = "decay on W only" if holds_W else "no decay"
    statement = (
        f"AdamW on noisy minibatches, c = {c}, {decays}: E[v²] and E‖w‖² follow that law within {tolerance:.0%}."
    )
    return Scope(name, statement, True, measure=measure)


def _seed(setting: Setting) -> int:
    return int(setting.rng.integers(2**31))


claim = Claim(
    id="decay-pumping",
    title="Decay on W but not on v moves scale into v",
    statement="With weight decay on W only, gradient flow moves scale from W into v without end, v² ~ 2R√(λt); AdamW "
    "on noisy gradients does so until ‖w‖² has come down to its noise–decay equilibrium.",
    source="arXiv 2605.26895, which scale vectors to decay; the law is derived here",
    figures=("decay-pumping",),
    scopes=(
        Scope(
            "flow-diverges",
            "Gradient flow with decay on W only, from v = 1 and W = 0, T ≠ 0: v² is unbounded, for every c.",
            holds=True,
            proof=prove_flow_diverges,
        ),
        Scope(
            "flow-rate",
            "There v⁴/2 + R² ln v² grows by 2λR² per unit time, to a relative 4λ once λt ≥ 4; so v² ~ 2R√(λt).",
            holds=True,
            space=VALLEY,
            margin=w_only_margin,
            accuracy=1e-6,
            proof=prove_valley_law,
            cost=16,
        ),
        Scope(
            "flow-rate-v",
            "With decay on v only ‖w‖² grows by the same law.",
            holds=True,
            space=VALLEY,
            margin=v_only_margin,
            accuracy=1e-6,
            proof=prove_valley_law,
            cost=16,
        ),
        Scope(
            "flow-bounded",
            "With decay on W only v² stays below 2R + 1 until λt = 4.",
            holds=False,
            space=VALLEY,
            margin=bounded_margin,
            accuracy=1e-3,
            cost=16,
        ),
        Scope(
            "flow-both",
            "With decay on both λ(v² + ‖w‖²) ≤ 2U(0), U the loss with its decay terms, at every time.",
            holds=True,
            space=VALLEY,
            margin=both_margin,
            accuracy=1e-6,
            proof=prove_both_bounded,
            cost=16,
        ),
        Scope(
            "adamw-model",
            "Updates g/rms(g) dominated by noise: z = v − ‖w‖ has dz/dt = η(λ_W‖w‖ − λ_v v) − (c−1)η²/(2‖w‖), with no "
            "noise of its own; with decay on W only v² → 2λR²/((c−1)η).",
            holds=True,
            proof=prove_adamw_law,
        ),
        _measure_law("adamw-one-output", 1, 0.0, DECAY, 0.08),
        _measure_law("adamw-many-outputs", 16, 0.0, DECAY, 0.08),
        _measure_law("adamw-no-decay", 16, 0.0, 0.0, 0.08),
    ),
)
