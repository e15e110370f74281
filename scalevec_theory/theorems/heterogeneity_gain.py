"""What can, and what cannot, put one scale vector per branch ahead of a shared one, since gradient flow does not.

Under gradient flow the shared vector grows faster because the branches' pulls on it add up.  An optimiser that moves
every parameter by about the same amount (Adam; in the limit, sign descent) undoes that: v grows at the same speed
however many branches pull, and both models follow the same path.  What is left to separate vectors is conflict.

Source: arXiv 2605.26895 (branch-specific heterogeneity); the explanation is a derivation of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sympy import Eq, Ge, Le, symbols
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting
from scalevec_theory.descent import descend
from scalevec_theory.losses import LeastSquares
from scalevec_theory.paired import best_area, loss_area, paired
from scalevec_theory.parametrizations import SEPARATE_INPUT_SCALE, SHARED_INPUT_SCALE, Parametrization
from scalevec_theory.problems import Diagonal, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof

v, w, dv, dw, t, dtheta = symbols("v w dv dw t dtheta", real=True)
MODELS = (SHARED_INPUT_SCALE, SEPARATE_INPUT_SCALE)


def prove_sign_descent() -> Proof:
    """θ_ij moves as t(1 + t) until it reaches T_ij, and can be held there while v still grows."""
    return Proof(
        (
            Lemma(
                "before its target an entry has |theta| = t (1 + t), because v = 1 + t and |W| = t",
                Eq(v * w, t * (1 + t)),
                {"v grows by 1 per unit of time from 1": Eq(v, 1 + t), "|W| from 0": Eq(w, t)},
            ),
            Lemma(
                "holding theta = T takes |dW| <= 1",
                Ge(dw, -1),
                {
                    "theta is held": Eq(dw * v + w * dv, 0),
                    "v grows by at most 1": Le(dv, 1),
                    "|W| >= 0": Ge(w, 0),
                    "|W| <= t": Le(w, t),
                    "v = 1 + t": Eq(v, 1 + t),
                },
            ),
        ),
        "With uncorrelated inputs the gradient of an entry of theta has the sign of theta_ij - T_ij, so no pull on a "
        "scale changes sign before all entries it serves have arrived, and v = 1 + t until then, shared or not. An "
        "entry that has arrived stays: any speed between -1 and 1 is one of the differential inclusion (Filippov). "
        "After the last arrival all gradients vanish. Hence |theta_ij| = min(t(1 + t), |T_ij|) solves both models.",
    )


UNCORRELATED = ProblemSpace(
    "squared loss, uncorrelated inputs, b branches, W(0) = 0",
    {"b": (2,), "c": (1, 2), "d": (1, 2)},
    {"H": Diagonal("dd"), "T": Real("bcd")},
)


def sign_margin(problems: Problems, accuracy: float) -> Margin:
    """2 − the largest |θ − its limit| in either model, in steps: θ moves by about η (v + |W|) < η (1 + 2t) a step."""
    T = problems["T"].flatten(1, 2)
    last = ((1 + 4 * T.abs().flatten(1).amax(1)).sqrt() - 1) / 2
    step = accuracy * last.clamp_min(1e-9)
    worst = torch.zeros_like(step)
    for p in MODELS:
        start, loss = p.init(torch.zeros_like(problems["T"])), LeastSquares(problems["H"], T)
        n_steps = round(1.25 / accuracy)
        run = descend(p, loss, start, optimizer="adam", step=step, n_steps=n_steps, betas=(0, 0), eps=1e-30)
        time = run.times[..., None, None]
        limit = torch.minimum(time * (1 + time), T[:, None].abs()) * T[:, None].sign()
        worst = torch.maximum(worst, (run.theta - limit).abs().flatten(1).amax(1) / (step * (1 + 2 * last)))
    return Margin.at_least(torch.full_like(worst, 2.0), worst, 0.0)


def with_gains(parametrization: Parametrization, gains: Sequence[float]) -> Parametrization:
    """The same model, the output of each branch multiplied by a fixed number: their gradients differ by its square."""

    def forward(v: Tensor, W: Tensor) -> Tensor:
        return parametrization.forward(v=v, W=W * W.new_tensor(gains)[:, None, None])

    return replace(parametrization, forward=forward)


def start_at(parametrization: Parametrization, theta: Tensor) -> dict[str, Tensor]:
    """Blocks at θ ``(B, b, c, d)`` on the manifold of standard initialisation, on which training leaves them."""
    if parametrization.axes["v"] == "bd":
        v = operators.standard_scale(theta)
        return {"v": v, "W": theta / v[..., None, :]}
    v = operators.standard_scale(theta.flatten(1, 2))
    return {"v": v, "W": theta / v[:, None, None, :]}


Draw = Callable[[np.random.Generator, int], tuple[Tensor, Tensor]]
"""Targets and starting points θ(0), each ``(n, b, c, d)``."""
SHAPE = (2, 4, 4)


def _normal(rng: np.random.Generator, n: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal((n, *SHAPE)))


def from_zero(rng: np.random.Generator, n: int) -> tuple[Tensor, Tensor]:
    T = _normal(rng, n)
    return T, torch.zeros_like(T)


def conflict(rng: np.random.Generator, n: int) -> tuple[Tensor, Tensor]:
    """One branch's weights have to grow by half, the other's to shrink by half."""
    theta = _normal(rng, n)
    return theta * torch.tensor([1.5, 0.5])[:, None, None], theta


def moved(rng: np.random.Generator, n: int) -> tuple[Tensor, Tensor]:
    theta = _normal(rng, n)
    return theta + 0.5 * _normal(rng, n), theta


def separate_lead(
    T: Tensor,
    theta: Tensor,
    *,
    H: Tensor | None = None,
    gains: Sequence[float] = (1.0, 1.0),
    steps: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """`paired.loss_area` of the shared less that of the separate vectors ``(B,)``; whitened inputs unless ``H``.

    With ``steps`` each model takes the best of them on each problem, otherwise both the same ``step``.
    """
    target = (T * T.new_tensor(gains)[:, None, None]).flatten(1, 2)
    H = torch.eye(T.shape[-1], dtype=T.dtype, device=T.device).expand(len(T), -1, -1) if H is None else H
    loss = LeastSquares(H, target)
    areas = []
    for p in MODELS:
        model, start = with_gains(p, gains), start_at(p, theta)
        if steps is None:
            areas.append(loss_area(descend(model, loss, start, **options)))
        else:
            areas.append(best_area(model, loss, start, steps, **options))
    return areas[0] - areas[1]


GD: dict[str, Any] = {"optimizer": "gd", "step": 0.02, "n_steps": 200}
ADAM: dict[str, Any] = {"optimizer": "adam", "step": 0.03, "n_steps": 100, "betas": (0.9, 0.95)}
UNEQUAL: dict[str, Any] = {"gains": (1.0, 0.1)}
DECAY: dict[str, Any] = {"weight_decay": {"v": 0.1, "W": 0.1}}
GRID = 2.0 ** torch.arange(-9, 2.5, 0.5, dtype=torch.float64)
"""The step sizes tried: 2⁻⁹ to 2², a factor √2 apart."""

CLAIM = "heterogeneity-gain"
SETUP = "two branches of 4 outputs and 4 inputs, normal targets"
STATEMENT = (
    f"{{}}: on average over random problems ({SETUP}), separate vectors have the smaller mean L/L(0) of the run."
)


def correlated(rng: np.random.Generator, n: int, d: int) -> Tensor:
    """H with random axes and eigenvalues log-uniform in [0.03, 1], the largest 1."""
    axes, _ = np.linalg.qr(rng.standard_normal((n, d, d)))
    eigenvalues = 0.03 ** rng.uniform(size=(n, d))
    eigenvalues[:, 0] = 1
    H = torch.from_numpy((axes * eigenvalues[:, None]) @ axes.swapaxes(1, 2))
    return 0.5 * (H + H.mT)


def _ahead(name: str, holds: bool, where: str, options: dict[str, Any], draw: Draw = from_zero) -> Scope:
    """The scope "separate vectors have the smaller mean loss", for one optimiser and one kind of problem."""

    def measure(setting: Setting) -> list[Evidence]:
        n = setting.choose(100, 400, 2000)
        T, theta = (x.to(setting.device) for x in draw(setting.rng, n))
        return [paired(separate_lead(T, theta, **options), setting, f"{CLAIM}:{name}", f"{SETUP}; {where}")]

    return Scope(name, STATEMENT.format(where), holds, measure=measure)


def _ahead_at_own_step(name: str, holds: bool, where: str, options: dict[str, Any]) -> Scope:
    """The same with correlated inputs, each model at its own best step on each problem."""

    def measure(setting: Setting) -> list[Evidence]:
        n = setting.choose(150, 500, 2000)
        T, theta = (x.to(setting.device) for x in from_zero(setting.rng, n))
        H = correlated(setting.rng, n, T.shape[-1]).to(T.device)
        lead = separate_lead(T, theta, H=H, steps=GRID.to(T.device), n_steps=60, **options)
        return [paired(lead, setting, f"{CLAIM}:{name}", f"{SETUP}; {where}")]

    return Scope(name, STATEMENT.format(where), holds, measure=measure)


claim = Claim(
    id=CLAIM,
    title="Where one scale vector per branch is ahead of a shared one",
    statement="Sign descent makes shared and separate vectors tie, and Adam with small steps leaves the separate ones "
    "a slight lead. Neither weight decay nor branch gradients of different size turn gradient descent's preference for "
    "the shared vector; branches whose pulls conflict do, under gradient descent and under Adam. Each at its own best "
    "step, the shared vector's larger curvature costs it its lead under gradient descent, but not under Adam.",
    formula=r"\begin{split} \text{sign descent: } & \lvert \theta_{ij}(t) \rvert \to \min\left(t (1 + t), \lvert "
    r"T_{ij} \rvert\right) \text{ as } \eta \to 0, \text{ shared or separate} \\ \text{Adam: } & "
    r"\mathbb{E}\left[\overline{L}_{\text{separate}}\right] < \mathbb{E}\left[\overline{L}_{\text{shared}}\right] "
    r"\end{split}",
    source="arXiv 2605.26895, branch-specific heterogeneity; the explanation is derived here",
    figures=("heterogeneity-gain",),
    scopes=(
        Scope(
            "sign-descent",
            "Sign descent (Adam with β1 = β2 = 0) on squared loss with uncorrelated inputs from W(0) = 0: as the step "
            "tends to 0, |θ_ij(t)| tends to min(t(1 + t), |T_ij|) with a shared vector and with one per branch alike "
            "(searched: it stays within the length of two steps).",
            holds=True,
            space=UNCORRELATED,
            margin=sign_margin,
            accuracy=0.03,
            proof=prove_sign_descent,
            cost=4,
        ),
        _ahead("gd", False, "GD, step 0.02, 200 steps, whitened inputs, W(0) = 0", GD),
        _ahead("adam", True, "Adam (0.9, 0.95), step 0.03, 100 steps, whitened inputs, W(0) = 0", ADAM),
        _ahead("gd-decay", False, "GD as above with weight decay 0.1 on v and W", GD | DECAY),
        _ahead("adam-decay", True, "Adam as above with weight decay 0.1 on v and W", ADAM | DECAY),
        _ahead("gd-gradient-size", False, "GD as above, one branch's gradient 100 times smaller", GD | UNEQUAL),
        _ahead("adam-gradient-size", True, "Adam as above, one branch's gradient 100 times smaller", ADAM | UNEQUAL),
        _ahead("gd-conflict", True, "GD as above from θ(0) ~ N(0, 1), targets 1.5 θ(0) and 0.5 θ(0)", GD, conflict),
        _ahead(
            "adam-conflict", True, "Adam as above from θ(0) ~ N(0, 1), targets 1.5 θ(0) and 0.5 θ(0)", ADAM, conflict
        ),
        _ahead("adam-moved", False, "Adam as above from θ(0) ~ N(0, 1), targets θ(0) + N(0, 1/4)", ADAM, moved),
        _ahead_at_own_step(
            "gd-own-step",
            True,
            "GD, 60 steps, correlated inputs, W(0) = 0, own best of the steps 2⁻⁹ … 2² per problem",
            {"optimizer": "gd"},
        ),
        _ahead_at_own_step(
            "adam-own-step",
            False,
            "Adam (0.9, 0.95), 60 steps, correlated inputs, W(0) = 0, own best of the steps 2⁻⁹ … 2² per problem",
            {"optimizer": "adam", "betas": (0.9, 0.95)},
        ),
    ),
)
