"""A scale γ on the output of a norm sets that output's size; weight decay shrinks it: to 0, or to 1 for a 1 + w norm.

The sub-module is γ ⊙ Norm(y) with y = Wx.  Norm is the RMSNorm n = y/√(mean y² + ε), or the LayerNorm, which subtracts
the mean first; its place is after attention or feed-forward, or on q and k.  Its share of the residual stream
h + γ ⊙ n is ‖γ ⊙ n‖²/(‖h‖² + ‖γ ⊙ n‖²).

Source: arXiv 2605.26895 (output-norm scales and individual weight decay).
"""

from __future__ import annotations

import torch
from sympy import Eq, Ge, Gt, Le, symbols
from torch import Tensor

from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.problems import Between, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.theorems.dual_norm_placement import dual_norm, prove_output_size, prove_scale_invariance

gain, n, low, top, eta_lambda = symbols("γ n min|γ| max|γ| ηλ", real=True)
w, w_new, scale, scale_new, square, share, share_new = symbols("w w' γ_t γ_t+1 |h|^2 share share'", real=True)
out, out_new, factor, xx, yy = symbols("|γn|^2 |γ'n|^2 a x y", real=True)


def prove_lower_size() -> Proof:
    lemma = Lemma(
        "γ_i^2 n_i^2 >= min|γ|^2 n_i^2",
        Ge(gain**2 * n**2, low**2 * n**2),
        {"γ_i^2 >= min|γ|^2": Ge(gain**2, low**2)},
    )
    return Proof((lemma,), "Averaged over i, with mean n_i^2 = 1: rms >= min|γ|, whatever W and x are.")


def prove_decay_to_zero() -> Proof:
    lemma = Lemma(
        "γ_t+1 = (1 - ηλ) γ_t where the gradient is 0",
        Eq(scale_new, (1 - eta_lambda) * scale),
        {
            "the scale is the parameter": Eq(scale, w),
            "and after the step, too": Eq(scale_new, w_new),
            "decoupled decay": Eq(w_new, w - eta_lambda * w),
        },
    )
    return Proof((lemma,), "So γ_t = (1 - ηλ)^t γ_0: to 0 for 0 < ηλ < 2, like exp(-ηλ t) for small ηλ.")


def prove_decay_to_one() -> Proof:
    lemma = Lemma(
        "γ_t+1 - 1 = (1 - ηλ)(γ_t - 1) where the gradient is 0",
        Eq(scale_new - 1, (1 - eta_lambda) * (scale - 1)),
        {
            "the scale is 1 + w": Eq(scale, 1 + w),
            "and after the step, too": Eq(scale_new, 1 + w_new),
            "decoupled decay": Eq(w_new, w - eta_lambda * w),
        },
    )
    return Proof((lemma,), "So γ_t - 1 = (1 - ηλ)^t (γ_0 - 1): the scale decays to 1.")


def prove_share() -> Proof:
    """share = out/(h + out) grows with out, and out is multiplied by a² when γ is by a ≤ 1."""
    lemma = Lemma(
        "share' <= share",
        Le(share_new, share),
        {
            "share (|h|^2 + |γn|^2) = |γn|^2": Eq(share * (square + out), out),
            "share' (|h|^2 + |γ'n|^2) = |γ'n|^2": Eq(share_new * (square + out_new), out_new),
            "γ' = a γ: |γ'n|^2 = a^2 |γn|^2": Eq(out_new, factor**2 * out),
            "a >= 0": Ge(factor, 0),
            "a <= 1": Le(factor, 1),
            "|h|^2 > 0": Gt(square, 0),
            "|γn|^2 >= 0": Ge(out, 0),
        },
    )
    return Proof(
        (lemma,), "For a = (1 - ηλ)^t the share is a^2 |γn|^2/(|h|^2 + a^2 |γn|^2) <= a^2 |γn|^2/|h|^2: it goes to 0."
    )


def prove_input_norm() -> Proof:
    lemma = Lemma(
        "(W_ij/a)(a v_j n_j) = W_ij v_j n_j",
        Eq(xx * yy * gain * n, w * gain * n),
        {"W' = W/a": Eq(xx * factor, w), "v' = a v": Eq(yy, factor)},
    )
    return Proof((lemma,), "Summed over j: the consumer of an input norm undoes a decay a of its scale by W/a.")


def norm_output(gain: Tensor, W: Tensor, x: Tensor, epsilon: float = 0.0, centred: bool = False) -> Tensor:
    """γ ⊙ Norm(Wx) ``(B, c)`` from ``(B, c)``, ``(B, c, d)``, ``(B, d)``; ``centred`` for LayerNorm."""
    if centred:
        W = W - W.mean(-2, keepdim=True)
    return dual_norm(gain, W, torch.ones_like(x), x, epsilon)


def _rms(x: Tensor) -> Tensor:
    return x.square().mean(-1).sqrt()


def _not_flat(problems: Problems) -> Tensor:
    """Outputs whose rms, with and without their mean, is well above 0."""
    y = torch.einsum("ncd,nd->nc", problems["W"], problems["x"])
    return _rms(y - y.mean(-1, keepdim=True)) > 1e-3 * (1 + _rms(y))


SIZES = {"c": (2, 3, 4), "d": (1, 2, 3)}
FIELDS = {"gain": Real("c"), "W": Real("cd"), "x": Real("d")}
OUTPUTS = ProblemSpace("outputs y = Wx that are not all equal, any scale γ; ε = 0", SIZES, FIELDS, _not_flat)
RESCALED = ProblemSpace("as before, W multiplied by a > 0", SIZES, {**FIELDS, "a": Between("")}, _not_flat)
TINY = ProblemSpace(
    "as before, ε = 1e-6, W multiplied by a between 1e-4 and 1", SIZES, {**FIELDS, "a": Between("", 1e-4, 1)}, _not_flat
)
DECAYED = ProblemSpace(
    "residual h, decay a = (1 − ηλ)^t of every γ_i",
    SIZES,
    {**FIELDS, "h": Real("c"), "a": Between("", 0.01, 1)},
    _not_flat,
)


def _both(problems: Problems, **changes: Tensor) -> Tensor:
    """RMSNorm's and LayerNorm's output side by side, ``(B, 2, c)``."""
    gain, W, x = (changes.get(name, problems[name]) for name in ("gain", "W", "x"))
    return torch.stack([norm_output(gain, W, x), norm_output(gain, W, x, centred=True)], 1)


def invariance_margin(problems: Problems, accuracy: float) -> Margin:
    grown = _both(problems, W=problems["a"][:, None, None] * problems["W"])
    return Margin.equal(grown, _both(problems), accuracy, scale=problems["gain"].abs().amax(1))


def epsilon_margin(problems: Problems, accuracy: float) -> Margin:
    """The size of γ ⊙ Norm(aWx) against that of γ ⊙ Norm(Wx), with ε = 1e-6."""
    gain, W, x, a = (problems[name] for name in ("gain", "W", "x", "a"))
    before, after = norm_output(gain, W, x, 1e-6), norm_output(gain, a[:, None, None] * W, x, 1e-6)
    return Margin.equal(after, before, accuracy, scale=gain.abs().amax(1))


def upper_margin(problems: Problems, accuracy: float) -> Margin:
    top = problems["gain"].abs().amax(1)
    return Margin.at_least(torch.ones_like(top)[:, None], _rms(_both(problems)) / top[:, None], accuracy)


def lower_margin(problems: Problems, accuracy: float) -> Margin:
    low, top = problems["gain"].abs().amin(1), problems["gain"].abs().amax(1)
    return Margin.at_least(_rms(_both(problems)) / top[:, None], (low / top)[:, None], accuracy)


def compensation_margin(problems: Problems, accuracy: float) -> Margin:
    """Can a larger W make up for γ decayed by a?  Size of the output with (aγ, W/a) against that with (γ, W)."""
    a = problems["a"][:, None]
    before, after = _both(problems), _both(problems, gain=a * problems["gain"], W=problems["W"] / a[..., None])
    return Margin.equal(_rms(after), _rms(before), accuracy)


def share_margin(problems: Problems, accuracy: float) -> Margin:
    """Share of the residual stream before and after the decay."""
    h = problems["h"].square().sum(-1)[:, None]
    before = _both(problems).square().sum(-1)
    after = _both(problems, gain=problems["a"][:, None] * problems["gain"]).square().sum(-1)
    return Margin.at_least(before / (h + before), after / (h + after), accuracy)


def input_norm_margin(problems: Problems, accuracy: float) -> Margin:
    """W(γ ⊙ x) against (W/a)(aγ ⊙ x) with a scale on the input side: here ``gain`` scales the rows of Wᵀ."""
    a, consumer = problems["a"][:, None], problems["W"].mT
    n = norm_output(torch.ones_like(problems["gain"]), problems["W"], problems["x"])
    before = (consumer @ (problems["gain"] * n)[..., None])[..., 0]
    after = (consumer / a[..., None] @ (a * problems["gain"] * n)[..., None])[..., 0]
    size = (consumer.abs() @ (problems["gain"] * n).abs()[..., None])[..., 0].amax(1)
    return Margin.equal(after, before, accuracy, scale=size)


STEPS = ProblemSpace(
    "a parameter of zero gradient under AdamW or SGD with decoupled decay, 10 steps",
    {},
    {"w": Real(""), "eta_lambda": Between("", 1e-4, 0.5)},
)


def _after_ten_steps(problems: Problems, start: Tensor) -> Tensor:
    value = start
    for _ in range(10):
        value = value - problems["eta_lambda"] * value
    return value


def zero_margin(problems: Problems, accuracy: float) -> Margin:
    expected = problems["w"] * (1 - problems["eta_lambda"]) ** 10
    return Margin.equal(_after_ten_steps(problems, problems["w"])[:, None], expected[:, None], accuracy)


def one_margin(problems: Problems, accuracy: float) -> Margin:
    effective = 1 + _after_ten_steps(problems, problems["w"])
    expected = 1 + problems["w"] * (1 - problems["eta_lambda"]) ** 10
    return Margin.equal(effective[:, None], expected[:, None], accuracy)


def one_to_zero_margin(problems: Problems, accuracy: float) -> Margin:
    """Is |γ_10| ≤ |γ_0| for a 1 + w norm, as it is for a plain one?"""
    return Margin.at_least((1 + problems["w"]).abs(), (1 + _after_ten_steps(problems, problems["w"])).abs(), accuracy)


claim = Claim(
    id="output-norm-decay",
    title="Decay of an output norm's scale shrinks its sub-module; weights before the norm cannot compensate",
    statement="rms(γ ⊙ Norm(Wx)) lies between min|γ| and max|γ| whatever W is, so weight decay on γ shrinks the "
    "sub-module's share of the residual stream; a 1 + w norm decays to 1 instead of 0.",
    formula=r"\min_i \lvert \gamma_i \rvert \le \operatorname{rms}\left(\gamma \odot \operatorname{Norm}(W x)\right) "
    r"\le \max_i \lvert \gamma_i \rvert",
    source="arXiv 2605.26895, output-norm scales and individual weight decay",
    figures=("output-norm-decay",),
    scopes=(
        Scope(
            "scale-invariance",
            "W → aW, a > 0, leaves γ ⊙ Norm(Wx) as it is, for RMSNorm and LayerNorm with ε = 0.",
            holds=True,
            space=RESCALED,
            margin=invariance_margin,
            proof=prove_scale_invariance,
        ),
        Scope(
            "epsilon",
            "W → aW leaves γ ⊙ RMSNorm(Wx) as it is with ε = 1e-6, for outputs of any size.",
            holds=False,
            space=TINY,
            margin=epsilon_margin,
        ),
        Scope(
            "upper-bound",
            "rms(γ ⊙ Norm(Wx)) ≤ max|γ| for every W and x.",
            holds=True,
            space=OUTPUTS,
            margin=upper_margin,
            proof=prove_output_size,
        ),
        Scope(
            "lower-bound",
            "rms(γ ⊙ Norm(Wx)) ≥ min|γ| for every W and x, with ε = 0.",
            holds=True,
            space=OUTPUTS,
            margin=lower_margin,
            proof=prove_lower_size,
        ),
        Scope(
            "compensation",
            "The weights before the norm compensate a decay of γ: (aγ, W/a) gives an output of the size of (γ, W).",
            holds=False,
            space=DECAYED,
            margin=compensation_margin,
        ),
        Scope(
            "input-norm",
            "The weights after an input norm do compensate it: (aγ, W/a) is the same function as (γ, W).",
            holds=True,
            space=RESCALED,
            margin=input_norm_margin,
            proof=prove_input_norm,
        ),
        Scope(
            "share",
            "Decay of γ by a factor never raises the sub-module's share of the residual stream.",
            holds=True,
            space=DECAYED,
            margin=share_margin,
            proof=prove_share,
        ),
        Scope(
            "decay-to-zero",
            "Where the gradient is 0, decoupled decay gives γ_t = (1 − ηλ)^t γ_0.",
            holds=True,
            space=STEPS,
            margin=zero_margin,
            proof=prove_decay_to_zero,
        ),
        Scope(
            "decay-to-one",
            "Where the gradient is 0, a 1 + w norm has γ_t − 1 = (1 − ηλ)^t (γ_0 − 1).",
            holds=True,
            space=STEPS,
            margin=one_margin,
            proof=prove_decay_to_one,
        ),
        Scope(
            "one-plus-shrinks",
            "Decay never raises |γ| of a 1 + w norm.",
            holds=False,
            space=STEPS,
            margin=one_to_zero_margin,
        ),
    ),
)
