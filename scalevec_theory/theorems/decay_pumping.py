"""Weight decay on W but not on v moves scale from W into v: without end in the flow, up to a point of rest under AdamW.

One column (v, w) of least squares with h = 1, target T, R = ‖T‖, g = v w − T; p = v², q = ‖w‖², valley pq = R².

Source: arXiv 2605.26895 (which scale vectors to decay); the mechanism and its constants are derived here.
"""

from __future__ import annotations

import numpy as np
import torch
from sympy import Eq, Ge, Le, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting, measured
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.paired import agreement
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.problems import Between, Identity, Problems, ProblemSpace
from scalevec_theory.proof import Lemma, Proof, inner
from scalevec_theory.pumping import Column, MuonColumn
from scalevec_theory.stochastic_descent import stochastic_descent

v, lam, R2, p, q, dp, dq, dQ, Q, U, U0 = symbols("v λ R^2 p q dp dq dQ Q U U(0)", real=True)
c, lr, rho, dz, dv, drho, pull, across = symbols("c η ρ dz dv dρ δ κ", real=True)
decay_v, decay_W = symbols("λ_v λ_W", real=True)
lag, lag_v, lag_rho, kappa, square, sigma, inverse = symbols("lag lag_v lag_ρ κ E[δ^2] σ 1/σ", real=True)
gain, unit, V, b = symbols("a f V |b|", real=True)
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
    """z = v − ρ under normalised updates: what is common to v and ρ drops out, but for the lag of the normalisers."""
    motion = Lemma(
        "E[dz] = η (λ_W ρ - λ_v v) - (c - 1) η^2/(2 ρ) + E[lag]",
        Eq(2 * rho * dz, 2 * rho * lr * (decay_W * rho - decay_v * v) - (c - 1) * lr**2 + 2 * rho * lag),
        {
            "z = v - ρ": Eq(dz, dv - drho),
            "v: pull and noise along w, the lag of its normaliser, and decay": Eq(dv, pull + lag_v - lr * decay_v * v),
            "ρ: the same, decay, and Itô's term of the noise across w": Eq(
                2 * rho * drho, 2 * rho * (pull + lag_rho - lr * decay_W * rho) + across
            ),
            "c - 1 directions of unit variance": Eq(across, (c - 1) * lr**2),
            "lag is the difference of the two": Eq(lag, lag_v - lag_rho),
        },
    )
    lags = Lemma(
        "E[lag] = κ η^2/2 (1/v - 1/ρ)",
        Eq(2 * lag * v * rho, kappa * lr**2 * (rho - v)),
        {
            "deviation δ of both along w: v feels -η (v + ρ) δ/σ times κ δ/ρ too much": Eq(
                lag_v * rho * sigma, -lr * (v + rho) * kappa * square
            ),
            "and ρ the same times κ δ/v": Eq(lag_rho * v * sigma, -lr * (v + rho) * kappa * square),
            "lag is the difference of the two": Eq(lag, lag_v - lag_rho),
            "Ornstein-Uhlenbeck: E[δ^2] = η σ/(2 (v + ρ))": Eq(2 * (v + rho) * square, lr * sigma),
            "σ != 0": Eq(sigma * inverse, 1),
        },
    )
    limit = Lemma(
        "decay on W only, κ = 0: at rest v^2 = 2 λ R^2/((c - 1) η)",
        Eq(p * (c - 1) * lr, 2 * lam * R2),
        {
            "dz = 0: 2 λ ρ^2 = (c - 1) η": Eq(2 * lam * q, (c - 1) * lr),
            "valley: v^2 ρ^2 = R^2": Eq(p * q, R2),
        },
    )
    return Proof(
        (motion, lags, limit),
        "κ = a/(a + 1 - β2) with a = η (v + ρ)/σ is the share of δ that an average forgetting at the rate 1 - β2 has "
        "not followed. The step from AdamW to these updates (gradient noise dominates, small steps) is the model's.",
    )


def prove_muon_law() -> Proof:
    """z = a v − ρ where noise and pull move ρ by a times as much as v; a from the fixed size of Muon's update."""
    size = Lemma(
        "a^2 c V = f^2: noise moves w by a η ξ/σ a step",
        Eq(gain**2 * c * V, unit**2),
        {
            "the update is of size f, whatever b is: a |b| = f v σ": Eq(gain * b, unit * v * sigma),
            "b averages v ξ with variance V: |b|^2 = c V v^2 σ^2": Eq(b**2, c * V * v**2 * sigma**2),
            "v σ != 0": Eq(v * sigma * inverse, 1),
        },
    )
    motion = Lemma(
        "E[dz] = η (λ_W ρ - a λ_v v) - (c - 1) a^2 η^2/(2 ρ)",
        Eq(2 * rho * dz, 2 * rho * lr * (decay_W * rho - gain * decay_v * v) - (c - 1) * gain**2 * lr**2),
        {
            "z = a v - ρ": Eq(dz, gain * dv - drho),
            "v, AdamW: pull and noise along w, and decay": Eq(dv, pull - lr * decay_v * v),
            "ρ: a times these, decay, and Itô's term of the noise across w": Eq(
                2 * rho * drho, 2 * rho * (gain * pull - lr * decay_W * rho) + across
            ),
            "c - 1 directions of variance a^2": Eq(across, (c - 1) * gain**2 * lr**2),
        },
    )
    limit = Lemma(
        "decay on W only: at rest v^2 = 2 λ R^2/((c - 1) a^2 η)",
        Eq(p * (c - 1) * gain**2 * lr, 2 * lam * R2),
        {
            "dz = 0: 2 λ ρ^2 = (c - 1) a^2 η": Eq(2 * lam * q, (c - 1) * gain**2 * lr),
            "valley: v^2 ρ^2 = R^2": Eq(p * q, R2),
        },
    )
    return Proof(
        (size, motion, limit),
        "A force that lasts passes the momentum whole, noise does not: so a, with V < 1, exceeds what one step shows. "
        "The step from Muon to these updates (noise dominates, c large, small steps, no lags) is the model's.",
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
    """Growth of p²/2 + R² ln p (or of q) between the times `LATE`, relative to 2R²Δ(λt), allowed to miss by 4λ.

    Decay holds θ short of T by a relative λ/p, which moves the law by a few times λ.
    """
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


GROUPS = 16
NO_DECAY, ONE_OUTPUT = Column(1.0, 16, 0.04, 0.0, 0.0, 1.0), Column(1.0, 1, 0.04, 0.0, 0.1, 1.0)


def measured_over_law(
    column: Column, steps: tuple[int, ...], v0: float, paths: int, seed: int, optimizer: str = "adamw"
) -> Tensor:
    """Group means of v² and ‖w‖² after ``steps`` of ``optimizer`` over those of the law, ``(GROUPS, 2, S)``.

    v(0) = v0, w(0) = T/v0, equal entries of T; batches of 4 of x ~ N(0, 1) with label noise 2, so that the gradient of
    θ has noise of standard deviation 1.
    """
    T = torch.full((GROUPS, column.c, 1), column.R * column.c**-0.5, dtype=torch.float64)
    run = stochastic_descent(
        INPUT_SCALE,
        LeastSquares(torch.ones(GROUPS, 1, 1, dtype=torch.float64), T),
        {"v": T.new_full((GROUPS, 1), v0), "W": T / v0},
        steps,
        label_noise=2.0,
        batch=4,
        optimizer=optimizer,  # type: ignore[arg-type]
        step=column.lr,
        paths=paths,
        seed=seed,
        observe={"v": lambda v, W: v.square()[..., 0], "w": lambda v, W: W.square().sum((-2, -1))},
        weight_decay={"v": column.decay_v, "W": column.decay_W},
        betas=(0.9, column.beta2),
    )
    law = column.after(np.array(steps), v0)
    return torch.stack([run.mean_of_all(name) / torch.from_numpy(x**2) for name, x in zip("vw", law, strict=True)], 1)


def _adamw(name: str, statement: str, column: Column, steps: tuple[int, ...], *, at_rest: bool = False) -> Scope:
    """E[v²] and E‖w‖² follow the law within 10%.

    The law leaves out terms of relative order η(v + ρ)/(σ(1 − β1)), the pull's delay by momentum: 0.1 at η = 0.005 and
    0.2 at 0.01.  (At η = 0.04 that order is 1.9; that the law is within 10% there, too, is an observation, and the
    tolerance, set after a first look, is what was observed.)  At rest the mean over ``steps`` is compared.
    """

    def measure(setting: Setting) -> list[Evidence]:
        v0 = column.rest()[0] if at_rest else 1.0
        paths, seed = setting.choose(6, 64, 512), int(setting.rng.integers(2**31))
        ratio = measured_over_law(column, steps, v0, paths, seed)
        detail = f"v² and ‖w‖² after {steps[0]} to {steps[-1]} steps, c = {column.c}, η = {column.lr:g}"
        compared = ratio.mean(2) if at_rest else ratio.flatten(1)
        return [agreement(compared, 0.1, setting, f"decay-pumping:{name}", detail)]

    return Scope(name, f"{statement} E[v²] and E‖w‖² follow the law within 10%.", True, measure=measure)


def small_step_law(column: Column) -> float:
    """ρ without decay, or v with decay on W and c = 1, for η → 0: the cube root of R²σ(1 − β2) times a number.

    From κ = η(v + ρ)/(σ(1 − β2)): without decay ρ³ = (c − 1)Rσ(1 − β2)/η, and with decay v³ = 2λR²σ(1 − β2)/η².
    """
    forgetting = column.sigma * (1 - column.beta2)
    if column.decay_W:
        return float((2 * column.decay_W * column.R**2 * forgetting / column.lr**2) ** (1 / 3))
    return float(((column.c - 1) * column.R * forgetting / column.lr) ** (1 / 3))


def measure_small_steps(setting: Setting) -> list[Evidence]:
    """The law's point of rest at η = 1e-6 against its power of η; no simulation."""
    evidence = []
    for column in (Column(1.0, 16, 1e-6, 0.0, 0.0, 1.0), Column(1.0, 1, 1e-6, 0.0, 0.1, 1.0)):
        size = max(column.rest())
        margin = 0.05 - abs(size / small_step_law(column) - 1)
        by_power = f"{size:.4g} at rest, {small_step_law(column):.4g} by the power of η"
        detail = f"c = {column.c}, λ_W = {column.decay_W:g}, η = 1e-6: {by_power}"
        evidence.append(measured("simulation", margin, detail, error=1e-6))
    v, rho = Column(1.0, 16, 1e-6, 0.1, 0.1, 1.0).rest()
    detail = f"decay on both: v² = {v * v:.4g}, ‖w‖² = {rho * rho:.4g} at rest"
    evidence.append(measured("simulation", 0.01 - abs(v / rho - 1), detail, error=1e-6))
    return evidence


def _muon(name: str, column: Column, statement: str, *, holds: bool = True) -> Scope:
    """As `_adamw`; η is so small that what is left out, of order η(a v + ρ)/(σ(1 − μ)), is 0.07 (at c = 64, decay on W
    only, v² was 8% and ‖w‖² 7% below the law).

    The runs were looked at before the scopes were written; the tolerance is that of AdamW's.
    """

    def measure(setting: Setting) -> list[Evidence]:
        steps, paths, seed = (500, 2000), setting.choose(4, 32, 256), int(setting.rng.integers(2**31))
        ratio = measured_over_law(column, steps, 1.0, paths, seed, "muon")
        detail = f"v² and ‖w‖² after {steps[0]} and {steps[1]} steps, c = {column.c}, η = {column.lr:g}"
        return [agreement(ratio.flatten(1), 0.1, setting, f"decay-pumping:{name}", detail)]

    return Scope(name, f"{MUON}{statement} E[v²] and E‖w‖² follow the law within 10%.", holds, measure=measure)


MUON = "Muon on w with AdamW on v, c = 16, η = 0.002, from v = ‖w‖ = 1, 2,000 steps"
NO_DECAY_MUON, DECAY_V_MUON = MuonColumn(1.0, 16, 0.002, 0.0, 0.0, 1.0), MuonColumn(1.0, 16, 0.002, 0.1, 0.0, 1.0)
DECAY_W_MUON, DECAY_MUON = MuonColumn(1.0, 16, 0.002, 0.0, 0.1, 1.0), MuonColumn(1.0, 16, 0.002, 0.1, 0.1, 1.0)

claim = Claim(
    id="decay-pumping",
    title="Decay on W but not on v moves scale into v",
    statement="With weight decay on W only, gradient flow moves scale from W into v without end, v² ~ 2R√(λt); AdamW "
    "on noisy gradients does so up to a point of rest that moves to infinity as the learning rate falls.",
    formula=r"\frac{d}{dt}\left(\frac{v^4}{2} + R^2 \ln\,v^2\right) = 2 \lambda R^2, \qquad v^2 \sim 2 R "
    r"\sqrt{\lambda t}",
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
            "valley-law",
            "On the valley v‖w‖ = R with decay on W only, v⁴/2 + R² ln v² grows by exactly 2λR² per unit time.",
            holds=True,
            proof=prove_valley_law,
        ),
        Scope(
            "flow-rate",
            "From v = 1 and W = 0, where the valley is met up to order λ, it grows by 2λR² per unit time to a "
            "relative 4λ once λt ≥ 4; so v² ~ 2R√(λt).",
            holds=True,
            space=VALLEY,
            margin=w_only_margin,
            accuracy=1e-6,
            cost=16,
        ),
        Scope(
            "flow-rate-v",
            "With decay on v only ‖w‖² grows by the same law.",
            holds=True,
            space=VALLEY,
            margin=v_only_margin,
            accuracy=1e-6,
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
            "Updates g/rms(g) dominated by noise: z = v − ‖w‖ has no noise of its own to first order, and E[dz/dt] = "
            "η(λ_W‖w‖ − λ_v v) − (c−1)η²/(2‖w‖) + κη²(1/v − 1/‖w‖)/2, κ the lag of the rms.",
            holds=True,
            proof=prove_adamw_law,
        ),
        _adamw(
            "adamw-one-output",
            "AdamW, c = 1, decay on W only, from v = ‖w‖ = 1:",
            Column(1.0, 1, 0.005, 0.0, 0.1, 1.0),
            (1000, 2000),
        ),
        _adamw(
            "adamw-many-outputs",
            "AdamW, c = 16, decay on W only, from v = ‖w‖ = 1:",
            Column(1.0, 16, 0.005, 0.0, 0.1, 1.0),
            (1000, 2000),
        ),
        _adamw(
            "adamw-no-decay",
            "AdamW, c = 16, no decay, from v = ‖w‖ = 1:",
            Column(1.0, 16, 0.01, 0.0, 0.0, 1.0),
            (500, 2000),
        ),
        _adamw(
            "adamw-no-decay-rest",
            f"AdamW, c = 16, no decay, η = 0.04, from the law's point of rest, ‖w‖² = {NO_DECAY.rest()[1] ** 2:.3g}:",
            NO_DECAY,
            tuple(range(600, 2001, 50)),
            at_rest=True,
        ),
        _adamw(
            "adamw-one-output-rest",
            f"AdamW, c = 1, decay on W only, η = 0.04, from the law's point of rest, v² = "
            f"{ONE_OUTPUT.rest()[0] ** 2:.3g}:",
            ONE_OUTPUT,
            tuple(range(600, 2001, 50)),
            at_rest=True,
        ),
        Scope(
            "adamw-small-steps",
            "As η → 0 the law's point of rest (computed at η = 1e-6, to 5%) moves to infinity without decay, ‖w‖ like "
            "η^(−1/3), and with decay on W only, c = 1, v like η^(−2/3); with equal decay on both it stays at v = ‖w‖.",
            holds=True,
            measure=measure_small_steps,
        ),
        Scope(
            "muon-model",
            "Muon's update of one column has a fixed size, so that noise and pull move ‖w‖ by a = f/√(cV) times as "
            "much as AdamW moves v: z = a v − ‖w‖ has no noise of its own to first order, and E[dz/dt] = "
            "η(λ_W‖w‖ − a λ_v v) − (c−1)a²η²/(2‖w‖).",
            holds=True,
            proof=prove_muon_law,
        ),
        _muon("muon-no-decay", NO_DECAY_MUON, ", no decay:"),
        _muon("muon-decay-v", DECAY_V_MUON, ", decay 0.1 on v only:"),
        _muon("muon-decay-w", DECAY_W_MUON, ", decay 0.1 on W only:"),
        _muon("muon-decay-both", DECAY_MUON, ", decay 0.1 on both:"),
        _muon(
            "muon-as-adamw",
            Column(1.0, 16, 0.002, 0.1, 0.1, 1.0),
            ", decay 0.1 on both, by the law of AdamW (a = 1):",
            holds=False,
        ),
    ),
)
