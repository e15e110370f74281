"""Dual-norm placement v_out ⊙ Norm(W(v_in ⊙ x)): q/k-norm is its per-head case, and its size comes from v_out alone.

Norm is RMSNorm over the outputs of one head.  Source: arXiv 2605.26895 (dual-norm placement, DNP).  Equality with the
q/k-norm of a published model is the claim ``real-qk-norm`` of ``simulations.claims.real_models``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from sympy import Eq, Ge, Gt, Le, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.problems import Between, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, inner


def dual_norm(v_out: Tensor, W: Tensor, v_in: Tensor, x: Tensor, epsilon: float = 0.0) -> Tensor:
    """v_out ⊙ y / √(mean y² + ε) with y = W(v_in ⊙ x), ``(..., c)``.

    ``v_out`` ``(..., c)``, ``W`` ``(..., c, d)``, ``v_in`` and ``x`` ``(..., d)``; leading dimensions (batch, tokens,
    heads) broadcast, and each matrix is normalised by itself.
    """
    y = (W @ (v_in * x)[..., None])[..., 0]
    return v_out * y * torch.rsqrt(y.square().mean(-1, keepdim=True) + epsilon)


q, other_q, gain, y, r, other_r, square, s, c, top = symbols("q q' v_out y r r' mean(y^2) s c max|v_out|", real=True)
dy, dr, inverse, n = symbols("dy dr 1/r n", real=True)
yy, ydy = inner("y", "y"), inner("y", "dy")
SIZE = {"r is the rms of y": Eq(r**2, square), "r > 0": Gt(r, 0)}


def _equal(a: object, b: object) -> tuple[Ge, Le]:
    return Ge(a, b), Le(a, b)


def prove_qk_norm() -> Proof:
    """An output of q-norm, with its own rms, against the same output of DNP on that head's rows."""
    lemma = Lemma(
        "output i of a head: q_i' = q_i",
        _equal(other_q, q),
        {
            **SIZE,
            "DNP of this head: q r = v_out y": Eq(q * r, gain * y),
            "the norm's r' is the rms of the head's slice of the projection, which is y": Eq(other_r**2, square),
            "r' > 0": Gt(other_r, 0),
            "q-norm: q' r' = v_out y": Eq(other_q * other_r, gain * y),
        },
    )
    return Proof(
        (lemma,), "Equal queries and equal keys give equal attention scores, for any position embedding after."
    )


def prove_scale_invariance() -> Proof:
    """W → sW turns y into sy and r into r', the rms of sy."""
    grown = {"s > 0": Gt(s, 0), "r' is the rms of s y": Eq(other_r**2, s**2 * square), "r' > 0": Gt(other_r, 0)}
    return Proof(
        (
            Lemma("r' = s r", _equal(other_r, s * r), {**SIZE, **grown}),
            Lemma("(s y_i) r = y_i r'", Eq(s * y * r, y * other_r), {"r' = s r": Eq(other_r, s * r)}),
        ),
        "So s y_i / r' = y_i / r: every output is unchanged.",
    )


def prove_orthogonal_gradient() -> Proof:
    """Along the direction W of parameter space, dy = y; then the normalised output does not move."""
    lemma = Lemma(
        "d(y_i/r) = (dy_i r - y_i dr)/r^2 = 0, every c",
        Eq(dy * r - y * dr, 0),
        {
            "the direction is W: dy_i = y_i": Eq(dy, y),
            "and <y,dy> = <y,y>": Eq(ydy, yy),
            "r is the rms: c r^2 = <y,y>": Eq(c * r**2, yy),
            "differentiated: c r dr = <y,dy>": Eq(c * r * dr, ydy),
            "c r != 0": Eq(c * r * inverse, 1),
        },
    )
    return Proof((lemma,), "So <W, dL/dW> = 0 for every loss, and gradient flow keeps |W|_F^2.")


def prove_output_size() -> Proof:
    """Term i of the mean square, with n_i = y_i / r."""
    lemma = Lemma(
        "(v_out_i n_i)^2 <= max|v_out|^2 n_i^2",
        Le((gain * n) ** 2, top**2 * n**2),
        {"v_out_i <= max|v_out|": Le(gain, top), "-v_out_i <= max|v_out|": Le(-gain, top)},
    )
    return Proof((lemma,), "Averaged over i, with mean n_i^2 = 1: rms(DNP) <= max|v_out|, whatever W, v_in and x are.")


def _rms_is_positive(problems: Problems) -> Tensor:
    y = torch.einsum("n...cd,nd->n...c", problems["W"], problems["v"] * problems["x"])
    return (y.square().mean(-1).flatten(1) > 1e-6).all(-1)


HEADS = ProblemSpace(
    "h heads of c outputs, input scale v, output scale g shared by the heads, no head's output zero",
    {"h": (1, 2, 3), "c": (1, 2, 4), "d": (1, 2, 4)},
    {"W": Real("hcd"), "v": Real("d"), "g": Real("c"), "x": Real("d")},
    where=_rms_is_positive,
)
WIDE = ProblemSpace(
    "as for q/k-norm, c >= 2 (for c = 1 both sides are equal)", {**HEADS.dims, "c": (2, 4)}, HEADS.fields, HEADS.where
)
SCALED = ProblemSpace(
    "as for q/k-norm, each head's matrix multiplied by s > 0",
    HEADS.dims,
    {**HEADS.fields, "s": Between("h")},
    HEADS.where,
)
WITH_LOSS = ProblemSpace(
    "as for q/k-norm, any gradient G of the loss in the output",
    HEADS.dims,
    {**HEADS.fields, "G": Real("hc")},
    HEADS.where,
)


def per_head(problems: Problems, W: Tensor | None = None, epsilon: float = 0.0) -> Tensor:
    """DNP of each head, ``(B, h, c)``."""
    W = problems["W"] if W is None else W
    return dual_norm(problems["g"][:, None], W, problems["v"][:, None], problems["x"][:, None], epsilon)


def norm_after_projection(problems: Problems, over_all_heads: bool = False) -> Tensor:
    """q-norm as models compute it, ``(B, h, c)``: one projection, cut into heads, torch's RMSNorm, the scale."""
    W, scaled = problems["W"], problems["v"] * problems["x"]
    projection = (W.flatten(1, 2) @ scaled[..., None])[..., 0]
    shape = projection.shape[1:] if over_all_heads else W.shape[2:3]
    heads = projection.unflatten(1, W.shape[1:3]) if not over_all_heads else projection
    normed = torch.nn.functional.rms_norm(heads, list(shape), eps=0.0)
    return problems["g"][:, None] * normed.reshape(W.shape[:3])


def _same(pair: Callable[[Problems], tuple[Tensor, Tensor]]) -> Callable[[Problems, float], Margin]:
    """Margin of equal outputs, relative to the output scale."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        left, right = pair(problems)
        return Margin.equal(left, right, accuracy, scale=problems["g"].abs().amax(-1))

    return margin


def orthogonality_margin(problems: Problems, accuracy: float) -> Margin:
    """⟨W, ∂L/∂W⟩ per head by autograd, relative to ‖W‖‖∂L/∂W‖ with the size of its terms as a floor."""
    W = problems["W"].detach().requires_grad_()
    (gradient,) = torch.autograd.grad((problems["G"] * per_head(problems, W)).sum(), W)
    y = torch.einsum("nhcd,nd->nhc", problems["W"], problems["v"] * problems["x"])
    terms = (problems["G"] * problems["g"][:, None]).norm(dim=-1) * (y.shape[-1] ** 0.5)
    size = (problems["W"].flatten(2).norm(dim=-1) * gradient.flatten(2).norm(dim=-1) + terms).amax(-1)
    product = (problems["W"] * gradient).flatten(2).sum(-1)
    return Margin.equal(product, torch.zeros_like(product), accuracy, scale=size)


def size_margin(problems: Problems, accuracy: float) -> Margin:
    """max|v_out| − rms of each head's output."""
    top = problems["g"].abs().amax(-1, keepdim=True)
    rms = per_head(problems).square().mean(-1).sqrt()
    return Margin.at_least(top.expand_as(rms), rms, 1e-14 * top)


claim = Claim(
    id="dual-norm-placement",
    title="Dual-norm placement on q and k is q/k-norm",
    statement="DNP = v_out ⊙ Norm(W(v_in ⊙ x)), applied to each head of q and k, is q/k-norm; its output does not "
    "depend on the size of W.",
    formula=r"v_{\text{out}} \odot \operatorname{Norm}\left(s W_h (v_{\text{in}} \odot x)\right) = v_{\text{out}} "
    r"\odot \operatorname{Norm}\left(W_h (v_{\text{in}} \odot x)\right), \qquad s > 0",
    source="arXiv 2605.26895, dual-norm placement",
    figures=("dual-norm-placement",),
    scopes=(
        Scope(
            "equals-qk-norm",
            "DNP of each head equals q/k-norm: one projection, cut into heads, RMSNorm over each head, times v_out.",
            holds=True,
            space=HEADS,
            margin=_same(lambda p: (per_head(p), norm_after_projection(p))),
            proof=prove_qk_norm,
        ),
        Scope(
            "scale-invariance",
            "Multiplying each head's W by s > 0 leaves DNP unchanged (ε = 0).",
            holds=True,
            space=SCALED,
            margin=_same(lambda p: (per_head(p), per_head(p, p["W"] * p["s"][..., None, None]))),
            proof=prove_scale_invariance,
        ),
        Scope(
            "orthogonal-gradient",
            "⟨W, ∂L/∂W⟩ = 0 for each head and every loss (ε = 0): gradient flow keeps ‖W‖_F.",
            holds=True,
            space=WITH_LOSS,
            margin=orthogonality_margin,
            proof=prove_orthogonal_gradient,
        ),
        Scope(
            "output-size",
            "The rms of each head's output is at most max|v_out|, whatever W, v_in and x are.",
            holds=True,
            space=WIDE,
            margin=size_margin,
            proof=prove_output_size,
        ),
        Scope(
            "epsilon",
            "With ε = 1e-6 inside the norm, multiplying each head's W by s > 0 still leaves DNP unchanged.",
            holds=False,
            space=SCALED,
            margin=_same(lambda p: (per_head(p, None, 1e-6), per_head(p, p["W"] * p["s"][..., None, None], 1e-6))),
        ),
        Scope(
            "all-heads-at-once",
            "DNP of each head equals a norm over all heads together (as in OLMo-2).",
            holds=False,
            space=HEADS,
            margin=_same(lambda p: (per_head(p), norm_after_projection(p, over_all_heads=True))),
        ),
    ),
)
