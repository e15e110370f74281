"""Gradient flow conserves v_j² − ‖w_j‖² of an input-side scale vector, and what breaks or bends that law.

Source: arXiv 2605.26895 (the conservation law u² − w² = 1 at standard initialisation).
"""

from __future__ import annotations

import torch
from sympy import Eq, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.descent import descend
from scalevec_theory.flow import Trajectory, gradient_flow
from scalevec_theory.losses import CrossEntropy, LeastSquares, Loss
from scalevec_theory.parametrizations import INPUT_SCALE, SHARED_INPUT_SCALE, Parametrization
from scalevec_theory.problems import Between, PositiveDefinite, Probabilities, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, inner

v, dv, decay_v, decay_W, step, dQ = symbols("v dv lambda_v lambda_W eta dQ", real=True)
new_v2, new_w2 = symbols("v_new^2", real=True), inner("w_new", "w_new")
wg, ww, gg, wdw, dwdw = inner("w", "g"), inner("w", "w"), inner("g", "g"), inner("w", "dw"), inner("dw", "dw")

FLOW_V = Eq(dv, -wg)
FLOW_W = Eq(wdw, -v * wg)


def prove_any_loss() -> Proof:
    """dQ/dt = 2 v v̇ − 2⟨w, ẇ⟩ = 0 for a column w of any length; w may be the stack of a column of many consumers."""
    return Proof(
        (
            Lemma(
                "2 v dv - 2 <w,dw> = 0 along gradient flow, for w and g in R^c, every c",
                Eq(2 * v * dv - 2 * wdw, 0),
                {"v flows: dv = -<w,g>": FLOW_V, "w flows: <w,dw> = -v <w,g>": FLOW_W},
            ),
        ),
        "Q_j = v_j^2 - |w_j|^2 is constant for every differentiable loss; stacking the columns of several consumers "
        "into one w gives v_j^2 - sum_b |w_bj|^2.",
    )


def prove_gd_increment() -> Proof:
    """One step v − η⟨w,g⟩, w − ηvg changes Q by η²(⟨w,g⟩² − v²‖g‖²), with no first-order term."""
    return Proof(
        (
            Lemma(
                "Q(t+1) - Q(t) = eta^2 (<w,g>^2 - v^2 <g,g>), every c",
                Eq((new_v2 - new_w2) - (v**2 - ww), step**2 * (wg**2 - v**2 * gg)),
                {
                    "v steps: v_new = v - eta <w,g>": Eq(new_v2, (v - step * wg) ** 2),
                    "w steps: w_new = w - eta v g": Eq(new_w2, ww - 2 * step * v * wg + step**2 * v**2 * gg),
                },
            ),
        ),
        "The increment is exact for every step size, so the drift per unit time is O(eta).",
    )


def prove_weight_decay() -> Proof:
    """With decay λ_v on v and λ_W on W, dQ/dt = −2λ_v v² + 2λ_W‖w‖²."""
    return Proof(
        (
            Lemma(
                "dQ = -2 lambda_v v^2 + 2 lambda_W <w,w>, every c",
                Eq(dQ, -2 * decay_v * v**2 + 2 * decay_W * ww),
                {
                    "Q = v^2 - <w,w>": Eq(dQ, 2 * v * dv - 2 * wdw),
                    "v flows and decays": Eq(dv, -wg - decay_v * v),
                    "w flows and decays": Eq(wdw, -v * wg - decay_W * ww),
                },
            ),
            Lemma(
                "equal decay lambda: dQ = -2 lambda Q",
                Eq(dQ, -2 * decay_v * (v**2 - ww)),
                {
                    "dQ = -2 lambda_v v^2 + 2 lambda_W <w,w>": Eq(dQ, -2 * decay_v * v**2 + 2 * decay_W * ww),
                    "lambda_W = lambda_v": Eq(decay_W, decay_v),
                },
            ),
        ),
        "With equal decay Q(t) = Q(0) exp(-2 lambda t).",
    )


SQUARES = ProblemSpace(
    "squared loss with correlated inputs, any initial v and W",
    {"c": (1, 2, 4), "d": (1, 2, 4)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), "v0": Real("d"), "W0": Real("cd")},
)
LOGISTIC = ProblemSpace(
    "softmax cross-entropy on n samples, any initial v and W",
    {"c": (3,), "d": (2,), "n": (5,)},
    {"X": Real("nd"), "Y": Probabilities("nc"), "v0": Real("d"), "W0": Real("cd")},
)
BRANCHES = ProblemSpace(
    "squared loss, b linear consumers of the same scaled input",
    {"b": (2, 3), "c": (2,), "d": (2,)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("bcd"), "v0": Real("d"), "W0": Real("bcd")},
)
STEPS = ProblemSpace("squared loss, step eta", SQUARES.dims, {**SQUARES.fields, "eta": Between("", 1e-3, 0.05)})


def _start(problems: Problems) -> dict[str, Tensor]:
    return {"v": problems["v0"], "W": problems["W0"]}


def _squares(problems: Problems) -> LeastSquares:
    return LeastSquares(problems["H"], problems["T"])


def sum_of_squares(run: Trajectory) -> Tensor:
    """The largest squared norm of all blocks over the run, ``(B,)``: the size of what cancels in Q."""
    return torch.stack([x.flatten(2).square().sum(-1) for x in run.blocks.values()]).sum(0).amax(1)


def _constant(run: Trajectory, accuracy: float) -> Margin:
    (Q,) = run.invariants.values()
    return Margin.equal(Q, Q[:, :1], accuracy, scale=sum_of_squares(run))


def _flow(parametrization: Parametrization, loss: Loss, problems: Problems, accuracy: float) -> Margin:
    times = torch.tensor([0.0, 0.3, 1.0, 3.0], dtype=torch.float64, device=problems["v0"].device)
    tolerance = accuracy / 100
    run = gradient_flow(parametrization, loss, _start(problems), times, rtol=tolerance, atol=tolerance)
    return _constant(run, accuracy)


def squares_margin(problems: Problems, accuracy: float) -> Margin:
    return _flow(INPUT_SCALE, _squares(problems), problems, accuracy)


def logistic_margin(problems: Problems, accuracy: float) -> Margin:
    return _flow(INPUT_SCALE, CrossEntropy(problems["X"], problems["Y"]), problems, accuracy)


def branches_margin(problems: Problems, accuracy: float) -> Margin:
    loss = LeastSquares(problems["H"], problems["T"].flatten(1, 2))
    return _flow(SHARED_INPUT_SCALE, loss, problems, accuracy)


def gd_margin(problems: Problems, accuracy: float) -> Margin:
    """The increment of Q in one step of gradient descent against η²(⟨w,g⟩² − v²‖g‖²)."""
    v0, W0, eta = problems["v0"], problems["W0"], problems["eta"]
    run = descend(INPUT_SCALE, _squares(problems), _start(problems), step=eta, n_steps=1)
    (Q,) = run.invariants.values()
    g = _squares(problems).gradient(W0 * v0[:, None, :])
    expected = eta[:, None] ** 2 * ((W0 * g).sum(1) ** 2 - v0**2 * (g * g).sum(1))
    size = (v0**2).sum(-1) + (W0**2).sum((-2, -1)) + expected.abs().amax(-1)
    return Margin.equal(Q[:, 1] - Q[:, 0], expected, accuracy, scale=size)


def decay_margin(problems: Problems, accuracy: float) -> Margin:
    """With equal decay λ, Q(t) = Q(0) e^{−2λt}.  λ = 0.3 loses no generality: scaling H rescales time."""
    times = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64, device=problems["v0"].device)
    run = gradient_flow(
        INPUT_SCALE,
        _squares(problems),
        _start(problems),
        times,
        rtol=accuracy / 100,
        atol=accuracy / 100,
        weight_decay={"v": 0.3, "W": 0.3},
    )
    (Q,) = run.invariants.values()
    size = sum_of_squares(run)
    return Margin.equal(Q, Q[:, :1] * torch.exp(-0.6 * times)[:, None], accuracy, scale=size)


def adam_margin(problems: Problems, accuracy: float) -> Margin:
    """Q over 50 steps of Adam of size 5e-3, allowed to move by 1% of the blocks' squared norm."""
    run = descend(
        INPUT_SCALE, _squares(problems), _start(problems), optimizer="adam", step=5e-3, n_steps=50, save_every=25
    )
    return _constant(run, 0.01)


claim = Claim(
    id="conservation",
    title="Gradient flow conserves v_j² − ‖w_j‖²",
    statement="For θ = W diag(v), gradient flow in (v, W) keeps Q_j = v_j² − ‖w_j‖² constant; Q_j = 1 at v = 1, W = 0.",
    formula=r"Q_j = v_j^2 - \lVert w_j \rVert^2, \qquad \dot Q_j = 0",
    source="arXiv 2605.26895, conservation law",
    figures=("conservation",),
    scopes=(
        Scope(
            "any-loss",
            "Q_j is constant along gradient flow of any differentiable loss (searched on squared loss).",
            holds=True,
            space=SQUARES,
            margin=squares_margin,
            proof=prove_any_loss,
        ),
        Scope(
            "cross-entropy",
            "Q_j is constant along gradient flow of softmax cross-entropy.",
            holds=True,
            space=LOGISTIC,
            margin=logistic_margin,
            accuracy=1e-6,
            proof=prove_any_loss,
            cost=32,
        ),
        Scope(
            "several-consumers",
            "With b linear consumers of the scaled input, v_j² − Σ_b ‖w_bj‖² is constant.",
            holds=True,
            space=BRANCHES,
            margin=branches_margin,
            accuracy=1e-6,
            proof=prove_any_loss,
            cost=64,
        ),
        Scope(
            "gd-increment",
            "One step of gradient descent changes Q_j by exactly η²(⟨w_j,g_j⟩² − v_j²‖g_j‖²).",
            holds=True,
            space=STEPS,
            margin=gd_margin,
            proof=prove_gd_increment,
        ),
        Scope(
            "weight-decay",
            "With decay λ_v on v and λ_W on W, dQ_j/dt = −2λ_v v_j² + 2λ_W‖w_j‖²; if equal, Q_j(t) = Q_j(0) e^{−2λt}.",
            holds=True,
            space=SQUARES,
            margin=decay_margin,
            proof=prove_weight_decay,
        ),
        Scope(
            "adam",
            "50 steps of Adam of size 5e-3 move no Q_j by more than 1% of the blocks' squared norm.",
            holds=False,
            space=SQUARES,
            margin=adam_margin,
            cost=8,
        ),
    ),
)
