"""Exact stationary second moments of optimizers under noise, as lemmas about their recursions."""

from __future__ import annotations

from sympy import Eq, symbols

from scalevec_theory.proof import Lemma, Proof

P, B, C, D, eta, lam, mu, beta, a, noise2 = symbols("E[w^2] E[b^2] E[w*b] E[w*b'] η λ μ β a σ^2", real=True)


def prove_sign() -> Proof:
    """u² = 1 and E[w u] = 0."""
    stationary = {"the second moment is stationary": Eq(P, (1 - eta * lam) ** 2 * P + eta**2)}
    return Proof(
        (Lemma("η(λ(2 - ηλ) E[w^2] - η) = 0", Eq(eta * (lam * (2 - eta * lam) * P - eta), 0), stationary),),
        "η > 0 cancels; the map contracts for 0 < ηλ < 2, so that its fixed point is the limit from any start.",
    )


def prove_momentum() -> Proof:
    """b' = μb + g + λw, w' = w − ηb', g independent of the past."""
    moments = {
        "E[b^2] is stationary": Eq(B, mu**2 * B + noise2 + lam**2 * P + 2 * mu * lam * C),
        "E[w b'] = μ E[w b] + λ E[w^2]": Eq(D, mu * C + lam * P),
        "E[w^2] is stationary": Eq(P, P - 2 * eta * D + eta**2 * B),
        "E[w b] is stationary": Eq(C, D - eta * B),
    }
    law = Eq(eta * lam * P * (1 - mu) * (2 * (1 + mu) - eta * lam), eta**2 * noise2 * (1 + mu))
    return Proof(
        (Lemma("ηλ(1 - μ)(2(1 + μ) - ηλ) E[w^2] = η^2 (1 + μ) σ^2", law, moments),),
        "The recursion of (w, b) contracts for 0 < ηλ < 2(1 + μ) (Jury), so one stationary law exists.",
    )


def prove_nesterov() -> Proof:
    """d = g + λw, b' = μb + d, w' = w − η(d + μb')."""
    dd = noise2 + lam**2 * P
    db = mu * lam * C + dd
    moments = {
        "E[b^2] is stationary": Eq(B, mu**2 * B + dd + 2 * mu * lam * C),
        "E[w b'] = μ E[w b] + λ E[w^2]": Eq(D, mu * C + lam * P),
        "E[w^2] is stationary": Eq(P, P - 2 * eta * (lam * P + mu * D) + eta**2 * (dd + 2 * mu * db + mu**2 * B)),
        "E[w b] is stationary": Eq(C, D - eta * (db + mu * B)),
    }
    x = eta * lam
    law = Eq(
        eta * lam * P * (1 - mu + x * mu) * (2 * (1 + mu) - x * (1 + 2 * mu)) * (1 - mu),
        eta**2 * noise2 * (1 + mu + x * mu + 2 * x * mu**2) * (1 - mu),
    )
    return Proof(
        (Lemma("the law times η(1 - μ)", law, moments),),
        "1 - μ > 0 cancels: E[w^2] = ησ^2 (1 + μ + xμ + 2xμ^2) / (λ (1 - μ + xμ)(2 + 2μ - x(1 + 2μ))), x = ηλ.",
    )


def prove_unit_denominator() -> Proof:
    """m' = βm + (1 − β)g, w' = aw − ηm', a = 1 − ηλ."""
    moments = {
        "E[m^2] is stationary": Eq(B, beta**2 * B + (1 - beta) ** 2),
        "E[w m] is stationary": Eq(C, a * beta * C - eta * B),
        "E[w^2] is stationary": Eq(P, a**2 * P - 2 * a * eta * beta * C + eta**2 * B),
    }
    law = Eq(P * (1 - a**2) * (1 - beta**2) * (1 - a * beta), eta**2 * (1 - beta) ** 2 * (1 + a * beta))
    return Proof(
        (Lemma("(1 - a^2)(1 - β^2)(1 - aβ) E[w^2] = η^2 (1 - β)^2 (1 + aβ)", law, moments),),
        "At fixed η/λ, as ηλ -> 0 this tends to η/(2λ) for every β: the sum over all lags of the autocovariance of m "
        "is (Σ_k (1 - β) β^k)^2 = 1.",
    )


def prove_matched_betas() -> Proof:
    """Both averages are multiples of S = Σ_k β₁^(2k) g²_{t−k} where β₂ = β₁²."""
    S, N, V, n1, n2 = symbols("S N V 1-β^t 1-β^(2t)", real=True)
    terms = {
        "mean of m^2 over signs": Eq(N * n1**2, (1 - beta) ** 2 * S),
        "v-hat": Eq(V * n2, (1 - beta**2) * S),
        "bias corrections: 1 - β^(2t) = (1 - β^t)(1 + β^t)": Eq(n2, n1 * (2 - n1)),
    }
    law = Eq(n1**2 * N * (1 + beta), n1 * (2 - n1) * V * (1 - beta))
    return Proof(
        (Lemma("N (1 + β)(1 - β^t) = V (1 - β)(1 + β^t), times 1 - β^t", law, terms),),
        "Signs of symmetric gradients are independent of their squares and of each other, so cross terms of m^2 "
        "vanish; the mean of u^2 = N/V is the stated number given any squares, hence without conditions.",
    )
