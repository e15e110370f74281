"""Merging multipliers into the matrix is exact for the function, and not for training.

Source: arXiv 2601.04890 (multipliers are merged for inference).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from sympy import Eq, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.descent import descend
from scalevec_theory.losses import LeastSquares
from scalevec_theory.multipliers import MULTIPLIERS
from scalevec_theory.parametrizations import PLAIN
from scalevec_theory.problems import Between, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof

s, r, k, w, x, merged, new_w, new_s, eta, decay, g, grad_w = symbols(
    "s r_i k_j W_ij x_j M_ij W_ij' s' eta lambda G_ij ∂L/∂W_ij", real=True
)
MERGE = {"merged: M_ij = s r_i W_ij k_j": Eq(merged, s * r * w * k)}


def prove_function() -> Proof:
    """Term j of output i."""
    return Proof(
        (Lemma("s r_i W_ij (k_j x_j) = M_ij x_j", Eq(s * r * w * (k * x), merged * x), MERGE),),
        "Summed over j, every output is the same, for all numbers of inputs and outputs.",
    )


def prove_decay_on_matrix() -> Proof:
    return Proof(
        (
            Lemma(
                "s r_i W_ij' k_j = (1 - eta lambda) M_ij",
                Eq(s * r * new_w * k, (1 - eta * decay) * merged),
                MERGE | {"W decays, the multipliers do not": Eq(new_w, (1 - eta * decay) * w)},
            ),
        ),
        "Decay of the matrix alone is decay of the merged matrix at the same rate, at every step.",
    )


def prove_gd_frozen() -> Proof:
    """A gradient step in W with the multiplier held: the merged matrix steps with s² η."""
    return Proof(
        (
            Lemma(
                "s W_ij' = M_ij - s^2 eta G_ij",
                Eq(s * new_w, merged - s**2 * eta * g),
                {
                    "merged: M_ij = s W_ij": Eq(merged, s * w),
                    "W steps": Eq(new_w, w - eta * grad_w),
                    "∂L/∂W_ij = s G_ij": Eq(grad_w, s * g),
                },
            ),
        ),
        "With a held multiplier gradient descent in W is gradient descent in the merged matrix with step s² η; by "
        "induction this holds for any number of steps.",
    )


LINEAR = ProblemSpace(
    "a linear layer with multipliers, any input",
    {"c": (1, 3), "d": (1, 3)},
    {"s": Real(""), "r": Real("c"), "k": Real("d"), "W": Real("cd"), "x": Real("d")},
)
DECAYED = ProblemSpace(
    "a matrix with multipliers under n steps of decoupled decay",
    {"c": (1, 3), "d": (1, 3)},
    {"s": Real(""), "r": Real("c"), "k": Real("d"), "W": Real("cd"), "rate": Between("", 1e-3, 0.3)},
)
HELD = ProblemSpace(
    "squared loss, a held scalar multiplier s > 0",
    {"c": (1, 2), "d": (1, 2)},
    {
        "H": PositiveDefinite("dd", high=5.0),
        "T": Real("cd"),
        "s": Between("", 0.2, 5.0),
        "W": Real("cd"),
        "eta": Between("", 1e-4, 5e-3),
    },
)
STEPS = 10


def _blocks(problems: Problems) -> dict[str, Tensor]:
    return {name: problems[name] for name in MULTIPLIERS.axes}


def function_margin(problems: Problems, accuracy: float) -> Margin:
    """Output of the unmerged layer, multiplier by multiplier, against that of the merged matrix."""
    blocks, x = _blocks(problems), problems["x"]
    unmerged = blocks["s"][:, None] * blocks["r"] * (blocks["W"] @ (blocks["k"] * x)[..., None])[..., 0]
    theta = MULTIPLIERS.forward(**blocks)
    size = (theta.abs() @ x.abs()[..., None])[..., 0].amax(1)
    return Margin.equal(unmerged, (theta @ x[..., None])[..., 0], accuracy, scale=size)


def _decay_margin(decayed: str) -> Callable[[Problems, float], Margin]:
    """Decay of the blocks ``decayed``, then merging, against merging, then decay; `STEPS` steps."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        blocks, keep = _blocks(problems), (1 - problems["rate"]) ** STEPS
        after = {
            b: y * (keep.reshape(-1, *[1] * (y.ndim - 1)) if b in decayed else torch.ones_like(y))
            for b, y in blocks.items()
        }
        theta = MULTIPLIERS.forward(**blocks)
        return Margin.equal(
            MULTIPLIERS.forward(**after), keep[:, None, None] * theta, accuracy, scale=theta.abs().flatten(1).amax(1)
        )

    return margin


def _held_margin(optimizer: Literal["gd", "adam"], power: int) -> Callable[[Problems, float], Margin]:
    """`STEPS` steps in W of θ = s W, merged, against as many steps in θ with the step size s^power η; ε = 0.

    θ = s W with s held is squared loss in W with H s² and T/s.
    """

    def margin(problems: Problems, accuracy: float) -> Margin:
        H, T, s, W, eta = (problems[name] for name in ("H", "T", "s", "W", "eta"))
        scale = s[:, None, None]
        inner = descend(
            PLAIN, LeastSquares(H * scale**2, T / scale), {"W": W}, optimizer=optimizer, step=eta, n_steps=STEPS, eps=0
        )
        outer = descend(
            PLAIN, LeastSquares(H, T), {"W": scale * W}, optimizer=optimizer, step=eta * s**power, n_steps=STEPS, eps=0
        )
        theta = outer.blocks["W"]
        moved = (theta - theta[:, :1]).abs().flatten(1).amax(1) + 1e-3 * theta.abs().flatten(1).amax(1)
        return Margin.equal(scale[:, None] * inner.blocks["W"], theta, accuracy, scale=moved)

    return margin


claim = Claim(
    id="multiplier-merging",
    title="Merging multipliers is exact for the function, not for training",
    statement="M = s diag(r) W diag(k) gives the same outputs as the layer with multipliers; a training step of M is "
    "one of (s, r, k, W) only for decay of the matrix alone, and for held multipliers with a rescaled step.",
    formula=r"M x = s\,r \odot \left(W (k \odot x)\right), \qquad M = s \operatorname{diag}(r)\,W "
    r"\operatorname{diag}(k)",
    source="arXiv 2601.04890, merging at inference; the training scopes are ours",
    figures=("multiplier-merging",),
    scopes=(
        Scope(
            "function",
            "The merged matrix gives the same outputs, for any multipliers and inputs.",
            holds=True,
            space=LINEAR,
            margin=function_margin,
            accuracy=1e-12,
            proof=prove_function,
        ),
        Scope(
            "decay-on-matrix",
            "Decoupled weight decay of W alone and merging commute.",
            holds=True,
            space=DECAYED,
            margin=_decay_margin("W"),
            accuracy=1e-12,
            proof=prove_decay_on_matrix,
        ),
        Scope(
            "decay-on-all",
            "Decoupled weight decay of the matrix and of all its multipliers at one rate, and merging, commute.",
            holds=False,
            space=DECAYED,
            margin=_decay_margin("srkW"),
            accuracy=1e-12,
        ),
        Scope(
            "gd-held",
            "With a held scalar multiplier, gradient descent in W is gradient descent in θ = s W with step s² η.",
            holds=True,
            space=HELD,
            margin=_held_margin("gd", 2),
            accuracy=1e-7,
            proof=prove_gd_frozen,
            cost=8,
        ),
        Scope(
            "adam-held",
            "With a held scalar multiplier s > 0, Adam with ε = 0 in W is Adam in θ = s W with step s η.",
            holds=True,
            space=HELD,
            margin=_held_margin("adam", 1),
            accuracy=1e-7,
            cost=8,
        ),
        Scope(
            "adam-held-same-step",
            "With a held scalar multiplier s > 0, Adam with ε = 0 in W is Adam in θ = s W with the same step.",
            holds=False,
            space=HELD,
            margin=_held_margin("adam", 0),
            accuracy=1e-7,
            cost=8,
        ),
    ),
)
