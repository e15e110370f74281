"""The Hessian of the loss in (v, W) of θ = W diag(v): trace, top eigenvalue and Frobenius norm in closed form.

Source: arXiv 2605.26895 (curvature of a scaled model).
"""

from __future__ import annotations

import torch
from sympy import Eq, Ge, Le, symbols

from scalevec_theory import curvature
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.problems import Diagonal, Field, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector
from scalevec_theory.theorems.preconditioner import prove_eigenvalues

p, q, c, h, total, top, fro2 = symbols("p q c h tr top F^2", real=True)
identity, outer, outer2 = symbols("tr(I) tr(ww^T) tr(ww^Tww^T)", real=True)
entry, own = symbols("H(W_ij\\,W_ij) H(v_j\\,v_j)", real=True)

SIZES = {"p = v^2 >= 0": Ge(p, 0), "q = |w|^2 >= 0": Ge(q, 0)}


def prove_trace() -> Proof:
    """The Hessian's diagonal: θ is linear in every single parameter, so that the residual does not enter."""
    v, w = symbols("v_j", real=True), Vector.named("w")
    lemma = Lemma(
        "column j contributes h_jj (c v_j^2 + |w_j|^2), every c",
        Eq(total, h * (c * v**2 + w.dot(w))),
        {
            "c entries W_ij and one v_j": Eq(total, c * entry + own),
            "∂θ_ij/∂W_ij = v_j": Eq(entry, h * v**2),
            "∂θ_j/∂v_j = w_j": Eq(own, h * w.dot(w)),
        },
    )
    return Proof((lemma,), "Summed over j this is the trace at every θ, for correlated inputs, too.")


def prove_top() -> Proof:
    """The Gauss–Newton matrix of a column has the eigenvalues of P = J Jᵀ; at the minimum there is no other part."""
    return Proof(
        prove_eigenvalues().lemmas,
        "J^T h J and h J J^T = h P share their eigenvalues other than 0; the largest is h (v^2 + |w|^2). With "
        "uncorrelated inputs the Hessian is block diagonal, a block for each column.",
    )


def prove_frobenius() -> Proof:
    """tr P² of a column, and that the three figures differ by a factor c at most."""
    square = Lemma(
        "tr(P^2) = (c - 1) v^4 + (v^2 + |w|^2)^2, every c",
        Eq(fro2, (c - 1) * p**2 + (p + q) ** 2),
        {
            "P = v^2 I + w w^T: tr(P^2) = v^4 tr(I) + 2 v^2 tr(w w^T) + tr(w w^T w w^T)": Eq(
                fro2, p**2 * identity + 2 * p * outer + outer2
            ),
            "tr(I) = c": Eq(identity, c),
            "tr(w w^T) = |w|^2": Eq(outer, q),
            "tr(w w^T w w^T) = |w|^4": Eq(outer2, q**2),
        },
    )
    return Proof((square, *prove_order().lemmas), prove_order().conclusion)


def prove_order() -> Proof:
    """A column has the eigenvalues p = v² (c − 1 times) and p + q: the three figures differ by a factor c at most."""
    eigenvalues = {"top = p + q": Eq(top, p + q)}
    squares = {"F^2 = (c - 1) p^2 + (p + q)^2": Eq(fro2, (c - 1) * p**2 + (p + q) ** 2)}
    traces = {"tr = c p + q": Eq(total, c * p + q)}
    more = {"c >= 1": Ge(c, 1)}
    return Proof(
        (
            Lemma("top^2 <= F^2", Le(top**2, fro2), {**eigenvalues, **squares, **more}),
            Lemma("F^2 <= tr^2", Le(fro2, total**2), {**squares, **traces, **more, **SIZES}),
            Lemma("tr <= c top", Le(total, c * top), {**eigenvalues, **traces, **more, "q = |w|^2 >= 0": Ge(q, 0)}),
        ),
        "Top eigenvalue, Frobenius norm and trace of the minimum's Hessian are bounded or unbounded together, and so "
        "are their means; they are bounded where E[v^2] + E|w|^2 is.",
    )


ANYWHERE = ProblemSpace(
    "squared loss, correlated inputs; any v, W and T",
    {"c": (1, 2, 3), "d": (1, 2, 3)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), "v": Real("d"), "W": Real("cd")},
)
MINIMUM: dict[str, Field] = {"H": Diagonal("dd"), "v": Real("d"), "W": Real("cd")}
AT_MINIMUM = ProblemSpace("squared loss, uncorrelated inputs; any v and W, T = W diag(v)", ANYWHERE.dims, MINIMUM)
UNCORRELATED = ProblemSpace(
    "squared loss, uncorrelated inputs; any v, W and T", ANYWHERE.dims, {**MINIMUM, "T": Real("cd")}
)


def _hessian(problems: Problems, T: torch.Tensor) -> torch.Tensor:
    blocks = {"v": problems["v"], "W": problems["W"]}
    return curvature.hessian(INPUT_SCALE, LeastSquares(problems["H"], T), blocks)


def trace_margin(problems: Problems, accuracy: float) -> Margin:
    exact = _hessian(problems, problems["T"]).diagonal(dim1=1, dim2=2).sum(-1)
    return Margin.equal(curvature.trace(problems["v"], problems["W"], problems["H"])[:, None], exact[:, None], accuracy)


def _eigenvalues(problems: Problems, T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """h ``(B, d)`` and the Hessian's eigenvalues in increasing order."""
    return problems["H"].diagonal(dim1=1, dim2=2), torch.linalg.eigvalsh(_hessian(problems, T))


def top_margin(problems: Problems, accuracy: float) -> Margin:
    h, eigenvalues = _eigenvalues(problems, problems["W"] * problems["v"][:, None])
    stated = curvature.top(problems["v"], problems["W"], h)
    return Margin.equal(stated[:, None], eigenvalues[:, -1:], accuracy)


def top_anywhere_margin(problems: Problems, accuracy: float) -> Margin:
    h, eigenvalues = _eigenvalues(problems, problems["T"])
    return Margin.equal(curvature.top(problems["v"], problems["W"], h)[:, None], eigenvalues[:, -1:], accuracy)


def frobenius_margin(problems: Problems, accuracy: float) -> Margin:
    h, eigenvalues = _eigenvalues(problems, problems["W"] * problems["v"][:, None])
    stated = curvature.frobenius(problems["v"], problems["W"], h)
    return Margin.equal(stated[:, None], eigenvalues.square().sum(-1, keepdim=True).sqrt(), accuracy)


claim = Claim(
    id="scale-hessian",
    title="The Hessian of a scaled model in closed form",
    statement="For squared loss the Hessian in (v, W) has the trace Σ_j h_jj(c v_j² + ‖w_j‖²); at the minimum, with "
    "uncorrelated inputs, its top eigenvalue is max_j h_j(v_j² + ‖w_j‖²).",
    formula=r"\operatorname{tr}\,\nabla^2 L = \sum_j h_{jj} \left(c\,v_j^2 + \lVert w_j \rVert^2\right), \qquad "
    r"\lambda_{\max}(\nabla^2 L) = \max_j h_j \left(v_j^2 + \lVert w_j \rVert^2\right) \text{ at the minimum}",
    source="arXiv 2605.26895, curvature of a scaled model",
    figures=("curvature",),
    scopes=(
        Scope(
            "trace",
            "The trace of the Hessian in (v, W) is Σ_j h_jj(c v_j² + ‖w_j‖²) at every θ, for correlated inputs, too.",
            holds=True,
            space=ANYWHERE,
            margin=trace_margin,
            proof=prove_trace,
        ),
        Scope(
            "top-eigenvalue",
            "At the minimum, uncorrelated inputs, the top eigenvalue is max_j h_j(v_j² + ‖w_j‖²).",
            holds=True,
            space=AT_MINIMUM,
            margin=top_margin,
            proof=prove_top,
        ),
        Scope(
            "top-eigenvalue-anywhere",
            "The top eigenvalue is max_j h_j(v_j² + ‖w_j‖²) away from the minimum, too.",
            holds=False,
            space=UNCORRELATED,
            margin=top_anywhere_margin,
        ),
        Scope(
            "frobenius",
            "At the minimum, uncorrelated inputs, the squared Frobenius norm is "
            "Σ_j h_j²((c−1)v_j⁴ + (v_j² + ‖w_j‖²)²); in one column top eigenvalue ≤ Frobenius norm ≤ trace ≤ c × top "
            "eigenvalue.",
            holds=True,
            space=AT_MINIMUM,
            margin=frobenius_margin,
            proof=prove_frobenius,
        ),
    ),
)
