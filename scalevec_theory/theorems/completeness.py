"""The known conservation laws of each parametrisation are all of them.

The number of independent laws is the number of parameters minus the rank of the Lie algebra of the gradient fields
(Marcotte, Gribonval and Peyré, "Abide by the law and follow the flow", 2023).  Independent laws + rank never exceeds
the number of parameters, so a list that reaches it is complete.

Source: arXiv 2605.26895, conservation law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
from sympy import Eq, Expr, diff, symbols

from scalevec_theory.claim import Claim, Counterexample, Evidence, Scope, Setting
from scalevec_theory.laws import certify_laws, find_laws
from scalevec_theory.parametrizations import (
    DUAL_SCALE,
    EXPONENTIAL,
    INPUT_SCALE,
    MAGNITUDE_DIRECTION,
    SHARED_INPUT_SCALE,
    Array,
    Parametrization,
)
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.symbolic import invariants_of

u, v, w, w2, dw, dQ = symbols("u_i v_j W_ij W_kl dW dQ", real=True)
beta, a, b, m, r, S, dbeta, da, mean = symbols("beta alpha_j alpha_l alpha_m r S dbeta dalpha mean", real=True)
d, delta, factor, other, inverse = symbols("d delta_jk lambda mu inverse", real=True)


def _constant(law: str, rate: Expr, moves: dict[Expr, Expr], more: dict[str, Eq] | None = None) -> Lemma:
    """A law whose rate of change, in the rates of its variables along one ∇θ_ij, is zero."""
    flows = {f"along grad theta_ij {rate} = {value}": Eq(rate, value) for rate, value in moves.items()}
    return Lemma(
        f"{law} is constant along every grad theta_ij", Eq(dQ, 0), {"dQ": Eq(dQ, rate), **flows, **(more or {})}
    )


def _independent(what: str, components: dict[Expr, Expr], nonzero: Expr) -> Lemma:
    """Σ λ · gradient = 0 implies λ = 0, if each λ meets an axis along which only its own gradient has a component."""
    factors = {axis: sympy.Symbol(f"lambda_{axis}", real=True) for axis in components}
    vanish = {f"component along {axis} is 0": Eq(factors[axis] * x, 0) for axis, x in components.items()}
    return Lemma(
        f"{what} are independent",
        tuple(Eq(factor, 0) for factor in factors.values()),
        {**vanish, f"{nonzero} is not 0": Eq(nonzero * inverse, 1)},
    )


def prove_scales(*scales: Expr) -> Proof:
    """θ_ij = W_ij · Π scales: each ∇θ_ij moves its own entry of W, and each law contains its own scale."""
    theta = w * sympy.prod(scales)
    rates = {s: sympy.Symbol(f"d{s}", real=True) for s in scales}
    return Proof(
        (
            *(
                _constant(
                    f"{s}^2 - |row or column of W|^2",
                    2 * s * ds - 2 * w * dw,
                    {ds: diff(theta, s), dw: diff(theta, w)},
                )
                for s, ds in rates.items()
            ),
            _independent("the grad theta_ij", {w: diff(theta, w)}, sympy.prod(scales)),
            _independent("the laws' gradients", {s: 2 * s for s in scales}, sympy.prod(scales)),
        ),
        "For every c, d and number of consumers the rank is at least the number of entries of W, "
        "and there is an independent law for each scale: together the number of parameters.",
    )


def prove_magnitude_direction() -> Proof:
    """θ_ij = W_ij v_j with v_j = β α_j/r, r = ‖α‖ (the constant √d is dropped: it changes no rank).

    A bracket involves two columns j ≠ l; α_m is any further coordinate, S = Σ_k α_k², and i = k is allowed.
    """
    axes = (w, w2, beta, a, b, m)
    norm, nonzero = {"S = r^2": Eq(S, r**2)}, {"r is not 0": Eq(r * inverse, 1)}

    def field(entry: Expr, alpha: Expr) -> dict[Expr, Expr]:
        own = {x: beta * alpha / r * int(x == entry) for x in (w, w2)}
        along_alpha = {x: entry * beta / r * (int(x == alpha) - alpha * x / r**2) for x in (a, b, m)}
        return {**own, beta: entry * alpha / r, **along_alpha, r: entry * beta * alpha / r**2 * (1 - S / r**2)}

    def derivative(f: Expr, X: dict[Expr, Expr]) -> Expr:
        return sum((diff(f, x) * X[x] for x in (*axes, r)), sympy.Integer(0))

    X, Z = field(w, a), field(w2, b)
    bracket = {x: derivative(Z[x], X) - derivative(X[x], Z) for x in axes}
    inner = a * b / r**2 - beta**2 * a * b / r**4
    fields = {x: w * inner * r / (beta * b) * Z[x] - w2 * inner * r / (beta * a) * X[x] for x in axes}
    turn = -2 * beta**2 * w * w2 / r**4
    return Proof(
        (
            _constant("|alpha|^2", 2 * w * beta / r * (a - a * S / r**2), {}, norm | nonzero),
            _constant("beta^2 - |W|^2", 2 * beta * dbeta - 2 * w * dw, {dbeta: X[beta], dw: X[w]}, nonzero),
            Lemma(
                "[grad theta_ij, grad theta_kl] is a combination of the two plus -2 beta^2 W_ij W_kl/|alpha|^4 times "
                "the rotation alpha_l e_j - alpha_j e_l",
                tuple(Eq(bracket[x], fields[x] + turn * {a: b, b: -a}.get(x, 0), evaluate=False) for x in axes),
                norm,
            ),
            _independent("the grad theta_ij", {w: beta * a / r}, beta * a),
            _independent("the rotations of each alpha_j against one alpha_l", {a: b}, b),
            _independent("the laws' gradients", {beta: 2 * beta, a: 2 * a}, beta * a),
        ),
        "Where no entry of beta, alpha, W is zero the Lie algebra has rank at least cd + (d - 1), for every c and d; "
        "|alpha|^2 and beta^2 - |W|^2 are two independent laws: together 1 + d + cd, the number of parameters.",
    )


def prove_exponential() -> Proof:
    """θ_ij = W_ij v_j with v_j = exp(β + α_j − mean α); δ_jk is 1 for the law of the column that moves, else 0."""
    nonzero = {"d is not 0": Eq(d * inverse, 1)}
    return Proof(
        (
            _constant(
                "|w_k|^2 - 2 alpha_k - 2 beta/d",
                2 * w * dw - 2 * da - 2 / d * dbeta,
                {dw: delta * v, da: w * v * (delta - 1 / d), dbeta: w * v},
                nonzero,
            ),
            _constant("sum alpha", da - d * mean, {da: w * v, mean: w * v / d}),
            _independent("the grad theta_ij", {w: v}, v),
            Lemma(
                "the laws' gradients are independent: coefficients lambda of a column law and mu of sum alpha vanish",
                (Eq(factor, 0), Eq(other, 0)),
                {"along alpha_k": Eq(other, 2 * factor), "along beta": Eq(d * factor, 0), **nonzero},
            ),
        ),
        "For every c and d: rank at least cd, and d + 1 independent laws; together the number of parameters.",
    )


def decide(
    parametrization: Parametrization, laws: Callable[..., Mapping[str, Array]]
) -> Callable[[Setting], list[Evidence]]:
    """Whether the named laws are all, exactly, for small c, d (and b = 2): margin known − all laws."""

    def measure(setting: Setting) -> list[Evidence]:
        largest = setting.choose(quick=3, standard=4, full=5)
        sizes = [(c, d) for c in range(1, largest) for d in range(1, largest + 1)]
        for c, d in sizes:
            dims = {"b": 2, "c": c, "d": d}
            known = certify_laws(
                parametrization, invariants_of(laws, parametrization.shapes(**dims)), dims=dims, seed=setting.seed
            )
            if known.complete:
                continue
            found = find_laws(parametrization, dims=dims, seed=setting.seed)
            gap = known.independent - found.independent
            return [_gap(parametrization, dims, known.independent, gap, str(found), setting.seed)]
        detail = f"independent laws + rank = parameters for all (c, d) up to {sizes[-1]}, at two rational points each"
        return [Evidence("proof", True, detail, margin=0.0, instances=len(sizes), seed=setting.seed)]

    return measure


def _gap(
    parametrization: Parametrization, dims: dict[str, int], known: int, gap: int, found: str, seed: int
) -> Evidence:
    dims = {k: dims[k] for k in dims if k in "".join(parametrization.axes.values())}
    detail = f"{known} independent laws given at {dims}. {'; '.join(found.splitlines())}"
    code = (
        "from scalevec_theory.laws import find_laws\nfrom scalevec_theory.parametrizations import BUILT_IN\n\n"
        f"laws = find_laws(BUILT_IN[{parametrization.name!r}], dims={dims})\n"
        f"margin = {known} - laws.independent\nassert margin < 0, margin\n"
    )
    example = Counterexample(dims, float(gap), code) if gap < 0 else None
    return Evidence("proof", False if gap < 0 else None, detail, float(gap), seed=seed, counterexample=example)


def column_laws(u: Array, v: Array, W: Array) -> dict[str, Array]:
    return {"v^2-|w_j|^2": v * v - (W * W).sum(-2)}


def two_exponential_laws(beta: Array, alpha: Array, W: Array) -> dict[str, Array]:
    return {"sum(alpha)": alpha.sum(-1), "2beta-|W|^2": 2 * beta - (W * W).sum(-2).sum(-1)}


def _scope(name: str, statement: str, parametrization: Parametrization, laws: Any, proof: Any = None) -> Scope:
    return Scope(name, statement, holds=proof is not None, proof=proof, measure=decide(parametrization, laws))


claim = Claim(
    id="completeness",
    title="The known conservation laws are all of them",
    statement="At a generic point, whatever gradient flow conserves for all losses is a function of the known laws.",
    formula=r"\operatorname{rank}(\nabla Q_1, \dots, \nabla Q_k)(\varphi) = \dim\,\varphi - "
    r"\dim\,\operatorname{Lie}\{J^\top g : g \in \mathbb{R}^{c \times d}\}(\varphi)",
    source="arXiv 2605.26895, conservation law",
    figures=("completeness",),
    scopes=(
        _scope(
            "input-side",
            "θ = W diag(v): the d laws v_j² − ‖w_j‖² are all, for every c and d.",
            INPUT_SCALE,
            INPUT_SCALE.invariants,
            lambda: prove_scales(v),
        ),
        _scope(
            "dual",
            "θ = diag(u) W diag(v): the c + d laws u_i² − ‖ŵ_i‖² and v_j² − ‖w_j‖² are independent and all.",
            DUAL_SCALE,
            DUAL_SCALE.invariants,
            lambda: prove_scales(u, v),
        ),
        _scope(
            "shared",
            "b consumers of one scaled input: the d laws v_j² − Σ_b ‖w_bj‖² are all.",
            SHARED_INPUT_SCALE,
            SHARED_INPUT_SCALE.invariants,
            lambda: prove_scales(v),
        ),
        _scope(
            "magnitude-direction",
            "v = β α/rms(α): ‖α‖² and β² − ‖W‖² are all; no column has a law of its own once d ≥ 2.",
            MAGNITUDE_DIRECTION,
            MAGNITUDE_DIRECTION.invariants,
            prove_magnitude_direction,
        ),
        _scope(
            "exponential",
            "v = exp(β + α − mean α): Σα and the d laws ‖w_j‖² − 2α_j − 2β/d are all.",
            EXPONENTIAL,
            EXPONENTIAL.invariants,
            prove_exponential,
        ),
        _scope(
            "dual-columns-only",
            "θ = diag(u) W diag(v): the d column laws v_j² − ‖w_j‖² are all.",
            DUAL_SCALE,
            column_laws,
        ),
        _scope(
            "exponential-two",
            "v = exp(β + α − mean α): Σα and 2β − ‖W‖² are all.",
            EXPONENTIAL,
            two_exponential_laws,
        ),
    ),
)
