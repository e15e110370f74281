"""A scale vector is absorbed into the matrices that consume it: W(v⊙x) = (W diag v) x, and where that stops.

Source: arXiv 2605.26895 (absorption of the norm's scale), arXiv 2601.04890 (merging multipliers at inference).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from sympy import Eq, Ge, Gt, Le, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.problems import Between, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner

w, x, v, folded, factor, new_factor, s, bias, new_bias = symbols("W_ij x_j v_j M_ij w_j w_j' s_j a_i a_i'", real=True)
relu, scaled_relu = symbols("relu(x_j) relu(v_j*x_j)", real=True)
x1, x2, v1, v2, cos, sin = symbols("x_1 x_2 v_1 v_2 cos sin", real=True)

FOLD = {"the scale is folded: M_ij = W_ij v_j": Eq(folded, w * v)}


def prove_linear_consumers() -> Proof:
    """Term j of row i: W_ij (v_j x_j) = M_ij x_j."""
    term = Lemma("term j of output i: W_ij (v_j x_j) = M_ij x_j", Eq(w * (v * x), folded * x), FOLD)
    return Proof(
        (term,),
        "Summed over j, every output of every linear consumer is unchanged, for all numbers of consumers, outputs and "
        "inputs; so is any function of these outputs.",
    )


def prove_layernorm_bias() -> Proof:
    """Row i of W(v⊙x + b) + a, with inner products over the d inputs."""
    row, shifted = Vector.named("W_i"), Vector.named("v*x") + Vector.named("b")
    return Proof(
        (
            Lemma(
                "output i: <W_i, v*x + b> + a_i = <M_i, x> + a_i', every d",
                Eq(row.dot(shifted) + bias, inner("M_i", "x") + new_bias),
                {
                    "the scale is folded: <M_i,x> = <W_i,v*x>": Eq(inner("M_i", "x"), inner("W_i", "v*x")),
                    "the bias is folded: a' = a + W b": Eq(new_bias, bias + inner("W_i", "b")),
                },
            ),
            *prove_linear_consumers().lemmas,
        ),
        "The second lemma, summed over j, is the first hypothesis; the norm's bias goes through W, not W diag(v).",
    )


def prove_one_plus_w() -> Proof:
    """A norm that multiplies by 1 + w: folding the whole factor, or moving a factor s of it."""
    fold_all = {"the factor is folded: M_ij = W_ij (1 + w_j)": Eq(folded, w * (1 + factor))}
    move = {
        "W is multiplied by s: M_ij = W_ij s_j": Eq(folded, w * s),
        "w' = (1 + w)/s - 1, cleared of s": Eq(s * new_factor, 1 + factor - s),
    }
    return Proof(
        (
            Lemma("with w' = 0: W_ij (1 + w_j) x_j = M_ij (1 + 0) x_j", Eq(w * (1 + factor) * x, folded * x), fold_all),
            Lemma(
                "W_ij (1 + w_j) x_j = M_ij (1 + w_j') x_j",
                Eq(w * (1 + factor) * x, folded * (1 + new_factor) * x),
                move,
            ),
        ),
        "Summed over j, the consumer is unchanged for every nonzero s; s = 1 + w gives w' = 0.",
    )


def prove_relu() -> Proof:
    """relu(x) = r is r >= 0, r >= x, r (r − x) = 0."""
    hypotheses = {
        "v_j > 0": Gt(v, 0),
        "relu(x) >= 0": Ge(relu, 0),
        "relu(x) >= x": Ge(relu, x),
        "relu(x) is 0 or x": Eq(relu * (relu - x), 0),
        "relu(v x) >= 0": Ge(scaled_relu, 0),
        "relu(v x) >= v x": Ge(scaled_relu, v * x),
        "relu(v x) is 0 or v x": Eq(scaled_relu * (scaled_relu - v * x), 0),
    }
    goal = (Ge(scaled_relu, v * relu), Le(scaled_relu, v * relu))
    return Proof(
        (Lemma("relu(v_j x_j) = v_j relu(x_j)", goal, hypotheses), *prove_linear_consumers().lemmas),
        "So W relu(v*x) = W (v * relu(x)), and the second lemma applies to relu(x) in place of x.",
    )


def prove_rotary() -> Proof:
    """One rotary pair: rotation and scale commute when both halves have the same scale."""
    goal = (
        Eq(cos * v1 * x1 - sin * v2 * x2, v1 * (cos * x1 - sin * x2)),
        Eq(sin * v1 * x1 + cos * v2 * x2, v2 * (sin * x1 + cos * x2)),
    )
    return Proof(
        (
            Lemma("R(v*x) = v * (R x) on a pair", goal, {"equal scales on the pair": Eq(v1, v2)}),
            *prove_linear_consumers().lemmas,
        ),
        "So W R(v*x) = W (v * (R x)) for every angle, and the second lemma applies to R x in place of x.",
    )


SIZES = {"b": (1, 2, 3), "c": (1, 2, 4), "d": (1, 2, 4)}
CONSUMERS = ProblemSpace(
    "b linear consumers of a scaled input", SIZES, {"W": Real("bcd"), "v": Real("d"), "x": Real("d")}
)
BIASES = ProblemSpace(
    "b linear consumers with biases of a scaled and shifted input",
    SIZES,
    {**CONSUMERS.fields, "shift": Real("d"), "bias": Real("bc")},
)
MOVED = ProblemSpace(
    "b linear consumers of (1 + w)⊙x, each multiplied by diag(s), s > 0",
    SIZES,
    {"W": Real("bcd"), "w": Real("d"), "x": Real("d"), "s": Between("d")},
)
POSITIVE = ProblemSpace("positive scales", SIZES, {**CONSUMERS.fields, "v": Between("d")})
RESIDUAL = ProblemSpace(
    "the scaled input is also added to the output", {"d": (1, 2, 4)}, {**POSITIVE.fields, "W": Real("dd")}
)
EQUAL_PAIRS = ProblemSpace(
    "p rotary pairs, an angle and a scale for each",
    {"c": (1, 2, 4), "p": (1, 2), "e": (2,)},
    {"W": Real("cpe"), "x": Real("pe"), "angle": Real("p", 3.0), "v": Real("p")},
)
ANY_PAIRS = ProblemSpace(
    "p rotary pairs, an angle for each and a scale for each half",
    EQUAL_PAIRS.dims,
    {**EQUAL_PAIRS.fields, "v": Real("pe")},
)

Outputs = tuple[Tensor, Tensor]
"""What the consumers put out before and after the scale is folded into them, ``(B, ...)`` each."""


def unchanged(outputs: Callable[[Problems], Outputs]) -> Callable[[Problems, float], Margin]:
    """Margin of before = after, relative to a bound on every term: the product over the fields of 1 + their norm."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        before, after = outputs(problems)
        size = torch.stack([1 + problems[k].flatten(1).norm(dim=1) for k in problems.fields]).prod(0)
        return Margin.equal(before, after, accuracy, scale=size)

    return margin


def _apply(W: Tensor, y: Tensor) -> Tensor:
    """W y ``(B, ..., c)`` of matrices ``(B, ..., c, d)`` and vectors ``(B, d)``."""
    return torch.einsum("n...cd,nd->n...c", W, y)


def fold(W: Tensor, factor: Tensor) -> Tensor:
    """W diag(factor) of matrices ``(B, ..., c, d)`` and factors ``(B, d)``."""
    return torch.einsum("n...cd,nd->n...cd", W, factor)


def linear_consumers(problems: Problems) -> Outputs:
    W, v, x = problems["W"], problems["v"], problems["x"]
    return _apply(W, v * x), _apply(fold(W, v), x)


def layernorm_bias(problems: Problems) -> Outputs:
    W, v, x, shift, bias = (problems[k] for k in ("W", "v", "x", "shift", "bias"))
    return _apply(W, v * x + shift) + bias, _apply(fold(W, v), x) + (bias + _apply(W, shift))


def one_plus_w(problems: Problems) -> Outputs:
    W, w, x, s = (problems[k] for k in ("W", "w", "x", "s"))
    moved = _apply(fold(W, s), (1 + ((1 + w) / s - 1)) * x)
    folded = _apply(fold(W, 1 + w), (1 + torch.zeros_like(w)) * x)
    return _apply(W, (1 + w) * x)[:, None], torch.stack([moved, folded], 1)


def one_plus_w_divided(problems: Problems) -> Outputs:
    W, w, x, s = (problems[k] for k in ("W", "w", "x", "s"))
    return _apply(W, (1 + w) * x), _apply(fold(W, s), (1 + w / s) * x)


def residual_reuse(problems: Problems) -> Outputs:
    W, v, x = problems["W"], problems["v"], problems["x"]
    return v * x + _apply(W, v * x), x + _apply(fold(W, v), x)


def through(nonlinearity: Callable[[Tensor], Tensor]) -> Callable[[Problems], Outputs]:
    """A consumer that applies an elementwise non-linearity before its matrix."""

    def outputs(problems: Problems) -> Outputs:
        W, v, x = problems["W"], problems["v"], problems["x"]
        return _apply(W, nonlinearity(v * x)), _apply(fold(W, v), nonlinearity(x))

    return outputs


def rotary(problems: Problems) -> Outputs:
    """W R(v⊙x) against (W diag v) R x; R turns pair k by its angle."""
    W, x, angle, v = (problems[k] for k in ("W", "x", "angle", "v"))
    v = v if v.ndim == 3 else v[..., None].expand_as(x)

    def rotate(y: Tensor) -> Tensor:
        a, b = y.unbind(-1)
        return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(1)

    return _apply(W.flatten(2), rotate(v * x)), _apply(fold(W.flatten(2), v.flatten(1)), rotate(x))


claim = Claim(
    id="absorption",
    title="Linear consumers absorb a scale vector exactly",
    statement="A scale v on a normalised activation x folds into its consumers, W(v⊙x) = (W diag v) x, if "
    "every consumer is linear in the scaled activation.",
    formula=r"W_b\,(v \odot x) = (W_b \operatorname{diag} v)\,x \quad \text{for every consumer } b",
    source="arXiv 2605.26895, absorption; arXiv 2601.04890, merging",
    figures=("absorption",),
    scopes=(
        Scope(
            "linear-consumers",
            "If every consumer of v⊙x is a matrix W_b, then W_b(v⊙x) = (W_b diag v) x for all b, v and x.",
            holds=True,
            space=CONSUMERS,
            margin=unchanged(linear_consumers),
            proof=prove_linear_consumers,
        ),
        Scope(
            "layernorm-bias",
            "A norm with bias b, followed by matrices with biases a: W(v⊙x + b) + a = (W diag v) x + (a + W b).",
            holds=True,
            space=BIASES,
            margin=unchanged(layernorm_bias),
            proof=prove_layernorm_bias,
        ),
        Scope(
            "one-plus-w",
            "A norm that multiplies by 1 + w: W((1 + w)⊙x) = (W diag(1 + w)) x, and a factor s > 0 moves into W if w "
            "becomes (1 + w)/s − 1.",
            holds=True,
            space=MOVED,
            margin=unchanged(one_plus_w),
            proof=prove_one_plus_w,
        ),
        Scope(
            "one-plus-w-divided",
            "A norm that multiplies by 1 + w: a factor s > 0 moves into W if w becomes w/s.",
            holds=False,
            space=MOVED,
            margin=unchanged(one_plus_w_divided),
        ),
        Scope(
            "residual-reuse",
            "If y = v⊙x, v > 0, is also added to the output, y + W y = x + (W diag v) x.",
            holds=False,
            space=RESIDUAL,
            margin=unchanged(residual_reuse),
        ),
        Scope(
            "nonlinear-consumer",
            "A consumer W silu(v⊙x) equals (W diag v) silu(x) for all v > 0.",
            holds=False,
            space=POSITIVE,
            margin=unchanged(through(torch.nn.functional.silu)),
        ),
        Scope(
            "relu-positive-scales",
            "A consumer W relu(v⊙x) equals (W diag v) relu(x) for all v > 0, relu being positively homogeneous.",
            holds=True,
            space=POSITIVE,
            margin=unchanged(through(torch.relu)),
            proof=prove_relu,
        ),
        Scope(
            "rotary-equal-pairs",
            "With rotary position embedding R between scale and matrix and one scale for each rotary pair, "
            "W R(v⊙x) = (W diag v) R x at every position.",
            holds=True,
            space=EQUAL_PAIRS,
            margin=unchanged(rotary),
            proof=prove_rotary,
        ),
        Scope(
            "rotary-any-scales",
            "With rotary position embedding R between scale and matrix and any scales, W R(v⊙x) = (W diag v) R x at "
            "every position; no other matrix can do, because at position 0 R is the identity.",
            holds=False,
            space=ANY_PAIRS,
            margin=unchanged(rotary),
        ),
    ),
)
