"""The gradient of a multiplier is a sum over the entries it scales, and what gradient flow conserves because of it.

Source: arXiv 2601.04890 (gradients of scalar, row and column multipliers).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from sympy import Eq, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.losses import CrossEntropy
from scalevec_theory.multipliers import MULTIPLIERS, gradients
from scalevec_theory.problems import Probabilities, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner

dL, m, dm, grad_m, dm_dt = symbols("dL m dm ∂L/∂m dm/dt", real=True)
A, dA, G = Vector.named("A"), Vector.named("dA"), Vector.named("G")
GdT, AA_dot = inner("G", "dθ"), inner("A", "dA/dt")


def prove_gradients() -> Proof:
    """One lemma for all: the entries a multiplier m scales, each times the other multipliers, are a vector A."""
    return Proof(
        (
            Lemma(
                "dL = <A,G> dm + <m G,dA> for θ = m A, A of any number of entries",
                Eq(dL, A.dot(G) * dm + (m * G).dot(dA)),
                {
                    "chain rule: dL = <G,dθ>": Eq(dL, GdT),
                    "θ = m A: <G,dθ> = <G, dm A + m dA>": Eq(GdT, G.dot(dm * A + m * dA)),
                },
            ),
        ),
        "A is r W k for the scalar (all entries), s W_i k for a row, s r W_j for a column; the coefficient of dm is "
        "the multiplier's gradient, <A,G>, and m G that of the entries.",
    )


def prove_conserved() -> Proof:
    """m ∂L/∂m = ⟨W, ∂L/∂W⟩ over the entries W that m scales, so m² − ‖W‖² is constant."""
    wdw, w_grad = inner("W", "dW/dt"), inner("W", "∂L/∂W")
    return Proof(
        (
            Lemma(
                "2 m dm/dt - 2 <W,dW/dt> = 0, W of any number of entries",
                Eq(2 * m * dm_dt - 2 * wdw, 0),
                {
                    "m ∂L/∂m = <W,∂L/∂W>: both are <θ,G> over these entries": Eq(m * grad_m, w_grad),
                    "m flows": Eq(dm_dt, -grad_m),
                    "W flows": Eq(wdw, -w_grad),
                },
            ),
        ),
        "s² − |W|², r_i² − |row i|² and k_j² − |column j|² are constant for every differentiable loss, whatever the "
        "other multipliers do.",
    )


SPACE = ProblemSpace(
    "softmax cross-entropy on n samples, any multipliers",
    {"c": (2, 3), "d": (1, 3), "n": (4,)},
    {
        "X": Real("nd"),
        "Y": Probabilities("nc"),
        "s": Real(""),
        "r": Real("c"),
        "k": Real("d"),
        "W": Real("cd"),
    },
)
Blocks = dict[str, Tensor]


def _margin(formula: Callable[[Blocks, Tensor], Blocks], names: str) -> Callable[[Problems, float], Margin]:
    """Automatic differentiation through the forward map against ``formula(blocks, G)``, for the blocks ``names``."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        loss = CrossEntropy(problems["X"], problems["Y"])
        blocks = {b: problems[b].clone().requires_grad_() for b in MULTIPLIERS.axes}
        theta = MULTIPLIERS.forward(**blocks)
        exact = torch.autograd.grad(loss.value(theta).sum(), [blocks[b] for b in names])
        plain = {b: x.detach() for b, x in blocks.items()}
        claimed = formula(plain, loss.gradient(theta.detach()))
        size = gradients(loss.gradient(theta.detach()).abs().clamp(min=1e-12), **{b: x.abs() for b, x in plain.items()})
        worst = [
            Margin.equal(e[:, None], claimed[b][:, None], accuracy, scale=size[b].reshape(len(e), -1).amax(1)).value
            for e, b in zip(exact, names, strict=True)
        ]
        value = torch.stack(worst).amin(0)
        return Margin(value, torch.zeros_like(value))

    return margin


def _right(blocks: Blocks, G: Tensor) -> Blocks:
    return gradients(G, **blocks)


def _sum_of_theta(blocks: Blocks, G: Tensor) -> Blocks:
    """⟨θ, G⟩ over the entries: right only where the multiplier is 1."""
    theta = MULTIPLIERS.forward(**blocks)
    return {"s": (theta * G).sum((-2, -1)), "r": (theta * G).sum(-1), "k": (theta * G).sum(-2)}


def conserved_margin(problems: Problems, accuracy: float) -> Margin:
    """−⟨∇Q, ∇L⟩, the velocity of each law Q along gradient flow, by automatic differentiation of both."""
    loss = CrossEntropy(problems["X"], problems["Y"])
    blocks = {b: problems[b].clone().requires_grad_() for b in MULTIPLIERS.axes}
    inputs = list(blocks.values())
    descent = torch.autograd.grad(loss.value(MULTIPLIERS.forward(**blocks)).sum(), inputs)
    speeds, sizes = [], []
    for law in MULTIPLIERS.invariants(**blocks).values():
        for Q in law.reshape(len(law), -1).unbind(1):
            slopes = torch.autograd.grad(Q.sum(), inputs, retain_graph=True, allow_unused=True)
            terms = [(q * g).reshape(len(g), -1) for q, g in zip(slopes, descent, strict=True) if q is not None]
            speeds.append(torch.cat(terms, 1).sum(1))
            sizes.append(torch.cat(terms, 1).abs().sum(1))
    speed, size = torch.stack(speeds, 1), torch.stack(sizes, 1).amax(1)
    return Margin.equal(speed, torch.zeros_like(speed), accuracy, scale=size)


claim = Claim(
    id="multiplier-gradient",
    title="A multiplier's gradient sums what its entries see",
    statement="For θ = s diag(r) W diag(k), G = ∂L/∂θ: ∂L/∂s = Σ_ij r_i W_ij k_j G_ij, ∂L/∂r_i = s Σ_j W_ij k_j G_ij, "
    "∂L/∂k_j = s Σ_i r_i W_ij G_ij, ∂L/∂W_ij = s r_i k_j G_ij.",
    formula=r"\frac{\partial L}{\partial s} = \sum_{i, j} r_i W_{ij} k_j G_{ij}, \quad \frac{\partial L}{\partial "
    r"r_i} = s \sum_j W_{ij} k_j G_{ij}, \quad \frac{\partial L}{\partial k_j} = s \sum_i r_i W_{ij} G_{ij}",
    source="arXiv 2601.04890, gradients of multipliers",
    figures=("multiplier-merging",),
    scopes=(
        Scope(
            "formulas",
            "The four formulas hold for every differentiable loss (searched on softmax cross-entropy).",
            holds=True,
            space=SPACE,
            margin=_margin(_right, "srkW"),
            accuracy=1e-10,
            proof=prove_gradients,
            cost=4,
        ),
        Scope(
            "sum-of-theta",
            "The multipliers' gradients are the sums of θ_ij G_ij over their entries.",
            holds=False,
            space=SPACE,
            margin=_margin(_sum_of_theta, "srk"),
            accuracy=1e-10,
            cost=4,
        ),
        Scope(
            "conserved",
            "Gradient flow in s, r, k and W of every differentiable loss conserves s² − ‖W‖², every r_i² − ‖row i of "
            "W‖² and every k_j² − ‖column j of W‖² (searched on softmax cross-entropy).",
            holds=True,
            space=SPACE,
            margin=conserved_margin,
            accuracy=1e-10,
            proof=prove_conserved,
            cost=4,
        ),
    ),
)
