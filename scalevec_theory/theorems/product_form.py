"""Every scale-vector design replaces W by W ⊙ (u vᵀ): what that reaches, and what it costs in parameters.

Source: arXiv 2605.26895 (unified product form; parameter counts of its Llama-1B), published model configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flint
import torch
from sympy import Eq, symbols

from scalevec_theory.claim import Claim, Counterexample, Evidence, Margin, Scope, Setting
from scalevec_theory.decoder_shapes import LLAMA_1B, PUBLISHED, Decoder
from scalevec_theory.parametrizations import DUAL_SCALE
from scalevec_theory.problems import Between, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.rational_points import random_rational


def counted(rows: Sequence[tuple[str, int, int]]) -> Callable[[Setting], list[Evidence]]:
    """Evidence of exact counts: rows of (what, counted, stated)."""

    def measure(setting: Setting) -> list[Evidence]:
        detail = "; ".join(f"{what}: {ours:,}" for what, ours, _ in rows)
        wrong = [(what, ours, stated) for what, ours, stated in rows if ours != stated]
        if not wrong:
            return [Evidence("proof", True, detail, 0.0, instances=len(rows), seed=setting.seed)]
        what, ours, stated = wrong[0]
        code = f"margin = -abs({ours} - {stated})\nassert margin < 0, margin\n"
        example = Counterexample({"what": what, "counted": ours, "stated": stated}, -abs(ours - stated), code)
        return [Evidence("proof", False, detail, example.margin, seed=setting.seed, counterexample=example)]

    return measure


def _rows(name: str, decoder: Decoder, scales: int, total: int) -> list[tuple[str, int, int]]:
    return [(f"scale parameters of {name}", decoder.scales, scales), (f"parameters of {name}", decoder.total, total)]


PAPER = _rows("the paper's Llama-1B", LLAMA_1B, 80_640, 1_028_065_024)
MODELS = [row for name, (decoder, *stated) in PUBLISHED.items() for row in _rows(name, decoder, *stated)]
OVERHEAD = [
    (
        f"HG adds {LLAMA_1B.heterogeneous():,} parameters, with DP or DNP {LLAMA_1B.dual():,}, with OR too "
        f"{LLAMA_1B.unified():,}; rounded, in 10,000",
        round(1e4 * LLAMA_1B.unified() / LLAMA_1B.total),
        7,
    )
]

W, u, v, M = symbols("W_ij u_i v_j M_ij", real=True)
du, dv, u0, du0, v0, dv0, inverse = symbols("du_i dv_j u_0 du_0 v_0 dv_0 1/(u_0*v_0)", real=True)


def prove_identity() -> Proof:
    """Entry (i, j) of W ⊙ (u vᵀ) and of diag(u) W diag(v)."""
    lemma = Lemma("entry (i,j): W_ij M_ij = u_i W_ij v_j", Eq(W * M, u * W * v), {"M = u v^T": Eq(M, u * v)})
    return Proof((lemma,), "Both sides agree entry by entry, for every c and d.")


def prove_freedom() -> Proof:
    """The kernel of d(u vᵀ): directions (du, dv) with du_i v_j + u_i dv_j = 0 for all i, j, at u_0 v_0 ≠ 0."""
    rows = {
        "entry (i,0) is still": Eq(du * v0 + u * dv0, 0),
        "entry (0,0) is still": Eq(du0 * v0 + u0 * dv0, 0),
        "u_0 v_0 != 0": Eq(u0 * v0 * inverse, 1),
    }
    columns = {"entry (0,j) is still": Eq(du0 * v + u0 * dv, 0)}
    moving = {"du = t u": Eq(du, M * u), "dv = -t v": Eq(dv, -M * v)}
    return Proof(
        (
            Lemma("du is a multiple of u: du_i u_0 = du_0 u_i", Eq(du * u0, du0 * u), rows),
            Lemma("dv is minus that multiple of v: dv_j u_0 = -du_0 v_j", Eq(dv * u0, -du0 * v), columns),
            Lemma("and that direction is in the kernel", Eq(du * v + u * dv, 0), moving),
        ),
        "The kernel is the line (u, -v): of the c + d parameters c + d - 1 act on u v^T, for every c and d.",
    )


MODULATED = ProblemSpace(
    "any W, u, v", {"c": (1, 2, 4), "d": (1, 2, 4)}, {"W": Real("cd"), "u": Real("c"), "v": Real("d")}
)
MODULATION = ProblemSpace(
    "any W with nonzero entries, any modulation M",
    {"c": (1, 2, 3), "d": (1, 2, 3)},
    {"W": Between("cd"), "M": Real("cd")},
)


def identity_margin(problems: Problems, accuracy: float) -> Margin:
    W, u, v = problems["W"], problems["u"], problems["v"]
    return Margin.equal(W * (u[:, :, None] * v[:, None, :]), DUAL_SCALE.forward(u=u, v=v, W=W), accuracy)


def any_modulation_margin(problems: Problems, accuracy: float) -> Margin:
    """Distance of M from the nearest u vᵀ, its second singular value: W ⊙ M = W ⊙ (u vᵀ) forces M = u vᵀ."""
    M = problems["M"]
    values = torch.linalg.svdvals(M)
    second = values[:, 1] if values.shape[1] > 1 else torch.zeros_like(values[:, 0])
    return Margin.equal(second, torch.zeros_like(second), accuracy, scale=values[:, 0])


def rank_of_modulation(setting: Setting) -> list[Evidence]:
    """Rank of ∂(u vᵀ)/∂(u, v), exactly over ℚ at a random rational point, against c + d − 1."""
    sizes = [(c, d) for c in range(1, 6) for d in range(1, 6)]
    for c, d in sizes:
        a = [random_rational(setting.rng) for _ in range(c)]
        b = [random_rational(setting.rng) for _ in range(d)]
        zero = flint.fmpq(0)
        rows = [
            [b[j] if k == i else zero for k in range(c)] + [a[i] if k == j else zero for k in range(d)]
            for i in range(c)
            for j in range(d)
        ]
        if (rank := flint.fmpq_mat(rows).rref()[1]) != c + d - 1:
            return counted([(f"rank at c={c}, d={d}", rank, c + d - 1)])(setting)
    detail = "rank c + d - 1, exactly, at a random rational point for each c, d up to 5"
    return [Evidence("proof", True, detail, 0.0, instances=len(sizes), seed=setting.seed)]


claim = Claim(
    id="product-form",
    title="Scale vectors are a rank-one modulation at O(c + d) parameters",
    statement="Every design replaces W by W ⊙ (u vᵀ) = diag(u) W diag(v), at c + d parameters for a c × d matrix.",
    formula=r"W \odot (u v^\top) = \operatorname{diag}(u)\,W \operatorname{diag}(v)",
    source="arXiv 2605.26895, unified product form and parameter counts",
    figures=("product-form",),
    scopes=(
        Scope(
            "identity",
            "W ⊙ (u vᵀ) = diag(u) W diag(v).",
            holds=True,
            space=MODULATED,
            margin=identity_margin,
            proof=prove_identity,
        ),
        Scope(
            "degrees-of-freedom",
            "Of the c + d parameters of u vᵀ exactly c + d − 1 act: (tu, v/t) gives the same modulation.",
            holds=True,
            proof=prove_freedom,
            measure=rank_of_modulation,
        ),
        Scope(
            "any-modulation",
            "Every elementwise modulation of W is W ⊙ (u vᵀ) for some u and v.",
            holds=False,
            space=MODULATION,
            margin=any_modulation_margin,
        ),
        Scope(
            "paper-count",
            "The paper's Llama-1B has 80,640 scale parameters of 1,028,065,024: width 1,792, 22 layers, FFN 4,778, "
            "vocabulary 50,304 untied, q, k, v, o all square (shape inferred from the two numbers).",
            holds=True,
            measure=counted(PAPER),
        ),
        Scope(
            "published-counts",
            "The same count gives the parameters, and those that are scales, of Llama-3.2-1B, Gemma-2-2b, Qwen3-0.6B, "
            "OLMo-2-1B and Falcon-H1-0.5B.",
            holds=True,
            measure=counted(MODELS),
        ),
        Scope(
            "overhead",
            "Scales with magnitudes of their own on both sides of every matrix in the layers of the paper's Llama-1B "
            "(HG, DP or DNP, and OR) add 7 parameters in 10,000, as the paper has it (for which matrices is inferred).",
            holds=True,
            measure=counted(OVERHEAD),
        ),
    ),
)
