"""Proof objects: true lemmas are proved, false ones and ones short of a hypothesis are not."""

from __future__ import annotations

from fractions import Fraction

import pytest
import sympy
from sympy import Eq, Ge, Gt, Le, Lt, Ne, Rational, symbols

from scalevec_theory import proof
from scalevec_theory.proof import Lemma, Proof, Vector, inner
from scalevec_theory.registry import installed_claims

x, y, s = symbols("x y s", real=True)


def test_inner_products_expand_bilinearly_and_symmetrically() -> None:
    w, g = Vector.named("w"), Vector.named("g")
    assert (x * w + g).dot(w - 2 * g) == sympy.expand(
        x * inner("w", "w") + (1 - 2 * x) * inner("g", "w") - 2 * inner("g", "g")
    )


def test_inner_products_agree_with_numbers() -> None:
    a, b = [Fraction(1), Fraction(-2), Fraction(3)], [Fraction(1, 2), Fraction(5), Fraction(-1)]
    value = (2 * Vector.named("a") - Vector.named("b")).dot(Vector.named("a"))
    aa, ab = sum(p * p for p in a), sum(p * q for p, q in zip(a, b, strict=True))
    assert value.subs({inner("a", "a"): Rational(aa), inner("a", "b"): Rational(ab)}) == 2 * aa - ab


TRUE = {
    "identity": Lemma("", Eq((x + y) ** 2, x**2 + 2 * x * y + y**2)),
    "rational identity": Lemma("", Eq(1 / (x - y) - 1 / (x + y), 2 * y / (x**2 - y**2))),
    "identity modulo hypotheses": Lemma("", Eq(x**3, x), {"x² = 1": Eq(x**2, 1)}),
    "two hypotheses": Lemma("", Eq(x**2 + y**2, 5), {"sum": Eq(x + y, 3), "product": Eq(x * y, 2)}),
    "sum of squares": Lemma("", Ge(2 * x**2 + 2 * y**2, (x + y) ** 2), squares=((1, x - y),)),
    "decided": Lemma("", Ge(s, 1), {"s² = 1 + x²": Eq(s**2, 1 + x**2), "s >= 0": Ge(s, 0)}),
    "not zero": Lemma("", Gt(x**2, 0), {"x != 0": Ne(x, 0)}),
    "a negative power": Lemma("", Ge(1 / x, 1), {"x > 0": Gt(x, 0), "x <= 1": Le(x, 1)}),
    "several goals": Lemma("", (Eq(x * y, 1), Eq(x, 1)), {"y = 1": Eq(y, 1), "x = y": Eq(x, y)}),
}
FALSE = {
    "identity": Lemma("", Eq((x + y) ** 2, x**2 + x * y + y**2)),
    "constant off": Lemma("", Eq(x**3, 2 * x), {"x² = 1": Eq(x**2, 1)}),
    "not squares": Lemma("", Ge(2 * x**2 + 2 * y**2, (x + y) ** 2), squares=((2, x - y),)),
    "negative weight": Lemma("", Ge(-(x**2), 0), squares=((-1, x),)),
    "squares for a strict goal": Lemma("", Lt(0, x**2, evaluate=False), squares=((1, x),)),
    "squares for the other direction": Lemma("", Le(x**2, 0), squares=((1, x),)),
    "decided": Lemma("", Gt(s, 1), {"s² = 1 + x²": Eq(s**2, 1 + x**2), "s >= 0": Ge(s, 0)}),
    "a bound that may be attained": Lemma("", Lt(x, 1), {"x <= 1": Le(x, 1)}),
    "an inequality is no equation": Lemma("", Eq(x, 0), {"x >= 0": Ge(x, 0)}),
    "one of several goals": Lemma("", (Eq(x, 1), Eq(y, 2)), {"x = 1": Eq(x, 1)}),
    "equations without a solution": Lemma("", Eq(x, 3), {"x = 1": Eq(x, 1), "x = 2": Eq(x, 2)}),
    "inequalities without a solution": Lemma("", Gt(x, 7), {"x > 1": Gt(x, 1), "x < 0": Gt(0, x)}),
    "square of an imaginary number": Lemma("", Ge(-(x**2), y**2), squares=((1, sympy.I * x), (1, sympy.I * y))),
    "square of a real root": Lemma("", Ge(x, 0), squares=((1, sympy.sqrt(x)),)),
    "square of a complex root": Lemma("", Ge(-x, 0), squares=((1, sympy.sqrt(-x)),)),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_lemmas_are_proved_and_need_every_hypothesis(name: str) -> None:
    lemma = TRUE[name]
    assert lemma.check().holds
    for hypothesis in lemma.hypotheses:
        assert not lemma.without(hypothesis).check().holds


@pytest.mark.parametrize("name", FALSE)
def test_false_lemmas_are_not_proved(name: str) -> None:
    certificate = FALSE[name].check()
    assert not certificate.holds and certificate.residual != "0"


def test_a_wrong_division_is_caught_by_the_rational_points() -> None:
    assert proof._zero_at_random_points(x**2 - 1, [sympy.Integer(1)], [x**2 - 1], [x])
    assert not proof._zero_at_random_points(x**2 - 1, [sympy.Integer(1)], [x**2 - x], [x])


def test_a_division_that_is_wrong_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sympy, "reduced", lambda *arguments, **options: ([sympy.Integer(1)], sympy.Integer(0)))
    certificate = FALSE["constant off"].check()
    assert not certificate.holds and "rational points" in certificate.residual


def test_what_is_undecided_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "Z3_RESOURCE_LIMIT", 1)
    certificate = TRUE["decided"].check()
    assert not certificate.holds and "undecided" in certificate.residual


def test_a_proof_has_lemmas_and_a_lemma_has_goals() -> None:
    with pytest.raises(ValueError, match="lemmas="):
        Proof((), "and so it is")
    with pytest.raises(ValueError, match="goal="):
        Lemma("nothing", ())
    with pytest.raises(ValueError, match="goal=True, which sympy has evaluated; expected a relation"):
        Lemma("itself", Eq(x, x))
    with pytest.raises(ValueError, match="goal=x, which is none; expected a relation"):
        Lemma("no relation", x)


def test_dropping_an_unknown_hypothesis_is_refused() -> None:
    with pytest.raises(ValueError, match="this lemma has"):
        TRUE["decided"].without("nothing")


PROOFS = [
    (f"{claim.id}:{scope.name}", scope)
    for claim in installed_claims().values()
    for scope in claim.scopes
    if scope.proof
]


@pytest.mark.parametrize(("name", "scope"), PROOFS, ids=[n for n, _ in PROOFS])
def test_every_hypothesis_of_every_proof_is_needed(name: str, scope) -> None:  # type: ignore[no-untyped-def]
    for lemma in scope.proof().lemmas:
        for hypothesis in lemma.hypotheses:
            assert not lemma.without(hypothesis).check().holds, f"{lemma.statement}: {hypothesis!r} is superfluous"
