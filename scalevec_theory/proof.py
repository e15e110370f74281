"""Exact proofs: identities over ℚ, sums of squares, and decisions in real arithmetic, each with its residual.

A lemma is a goal and named hypotheses, all of them polynomial (or rational) relations.  Statements "for every number
of outputs" are made of inner products: `Vector` is a formal vector of unspecified dimension whose inner products are
symbols, so an identity between them holds in R^c for every c.  Dropping a hypothesis re-checks the lemma without it,
which is how the tests see that every hypothesis is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
from sympy import Expr
from sympy.core.relational import Eq, Ge, Gt, Le, Lt, Ne, Relational

Z3_RESOURCE_LIMIT = 30_000_000
"""Deterministic effort of the decision procedure (z3 resource units); beyond it a lemma is undecided, not true."""

CONTRADICTION = "the hypotheses contradict each other, so anything follows from them"


class Vector:
    """A formal linear combination of named vectors in R^n, n unspecified; `dot` expands into inner-product symbols.

    >>> w, g = Vector.named("w"), Vector.named("g")
    >>> (2 * w + g).dot(w)
    <g,w> + 2*<w,w>
    """

    def __init__(self, coefficients: Mapping[str, Any]) -> None:
        self.coefficients = {k: sympy.expand(sympy.sympify(v)) for k, v in coefficients.items()}

    @staticmethod
    def named(name: str) -> Vector:
        return Vector({name: 1})

    def __add__(self, other: Vector) -> Vector:
        names = self.coefficients | other.coefficients
        return Vector({k: self.coefficients.get(k, 0) + other.coefficients.get(k, 0) for k in names})

    def __mul__(self, scalar: Any) -> Vector:
        return Vector({k: v * scalar for k, v in self.coefficients.items()})

    __rmul__ = __mul__

    def __neg__(self) -> Vector:
        return self * -1

    def __sub__(self, other: Vector) -> Vector:
        return self + -other

    def dot(self, other: Vector) -> Expr:
        """The inner product, a polynomial in symbols ``<a,b>``."""
        terms = (x * y * inner(a, b) for a, x in self.coefficients.items() for b, y in other.coefficients.items())
        return sympy.expand(sum(terms, sympy.Integer(0)))


def inner(a: str, b: str) -> Expr:
    """The symbol of the inner product of two named vectors; of a vector with itself it is non-negative by name only."""
    return sympy.Symbol("<{},{}>".format(*sorted((a, b))), real=True)


@dataclass(frozen=True)
class Certificate:
    """The outcome of checking a lemma: ``holds`` is False also where the method could not decide (see ``residual``)."""

    holds: bool
    method: str
    residual: str


@dataclass(frozen=True)
class Lemma:
    """``goal`` follows from ``hypotheses``.

    Parameters
    ----------
    statement : in words.
    goal : a relation, or a tuple of relations that all follow (the components of a vector identity).
    hypotheses : name to relation.  Equalities and polynomial inequalities; a square root s of x enters as the two
        hypotheses s² = x and s >= 0.
    squares : an optional certificate for a goal a >= b: pairs (k, p) with k >= 0 a rational and a − b = Σ k p².
    """

    statement: str
    goal: Relational | tuple[Relational, ...]
    hypotheses: Mapping[str, Relational] = field(default_factory=dict)
    squares: tuple[tuple[Any, Expr], ...] = ()

    def __post_init__(self) -> None:
        if self.goal == ():
            raise ValueError(f"lemma {self.statement!r}: goal=(), expected at least one relation")
        for relation in self.goal if isinstance(self.goal, tuple) else (self.goal,):
            if not isinstance(relation, Relational):
                shown = "which sympy has evaluated" if relation in (sympy.true, sympy.false) else "which is none"
                raise ValueError(f"lemma {self.statement!r}: goal={relation}, {shown}; expected a relation")

    def without(self, hypothesis: str) -> Lemma:
        """The same lemma with one hypothesis dropped."""
        if hypothesis not in self.hypotheses:
            raise ValueError(f"hypothesis={hypothesis!r}: this lemma has {', '.join(self.hypotheses) or 'none'}")
        return replace(self, hypotheses={k: h for k, h in self.hypotheses.items() if k != hypothesis})

    def check(self) -> Certificate:
        """Decide the lemma exactly."""
        goals = self.goal if isinstance(self.goal, tuple) else (self.goal,)
        outcomes = [self._check_one(g) for g in goals]
        failed = [o for o in outcomes if not o.holds]
        return failed[0] if failed else outcomes[0]

    def _check_one(self, goal: Relational) -> Certificate:
        if isinstance(goal, Eq):
            return _vanishes(goal.lhs - goal.rhs, self.hypotheses, "zero polynomial over Q")
        if self.squares:
            gap = goal.lhs - goal.rhs if isinstance(goal, Ge) else goal.rhs - goal.lhs
            if not isinstance(goal, Ge | Le) or any(sympy.Rational(k) < 0 for k, _ in self.squares):
                return Certificate(False, "sum of squares", "the certificate is not one of a weak inequality")
            if not all(_real_rational(sympy.sympify(p)) for _, p in self.squares):
                return Certificate(False, "sum of squares", "what is squared is not a real rational expression")
            rest = gap - sum(sympy.Rational(k) * p**2 for k, p in self.squares)
            return _vanishes(rest, self.hypotheses, "sum of squares over Q")
        return _decide(goal, self.hypotheses)


@dataclass(frozen=True)
class Proof:
    """Lemmas, and the step from them to the theorem in words (``conclusion``), naming any textbook theorem it uses.

    Raises
    ------
    ValueError : no lemma.
    """

    lemmas: tuple[Lemma, ...]
    conclusion: str

    def __post_init__(self) -> None:
        if not self.lemmas:
            raise ValueError("lemmas=(): expected at least one; a conclusion in words proves nothing")

    def check(self) -> tuple[Certificate, ...]:
        return tuple(lemma.check() for lemma in self.lemmas)


def _real_rational(expression: Expr) -> bool:
    """Whether an expression is a quotient of polynomials with real coefficients: its square is not negative."""
    if not expression.is_rational_function(*expression.free_symbols):
        return False
    real = {s: sympy.Dummy(positive=True) for s in expression.free_symbols}
    return all(part.xreplace(real).is_real for part in sympy.fraction(sympy.together(expression)))


def _polynomial(expression: Expr) -> Expr:
    """The numerator of a rational expression: it vanishes where the expression does and its denominator does not."""
    return sympy.expand(sympy.fraction(sympy.together(expression))[0])


def _vanishes(expression: Expr, hypotheses: Mapping[str, Relational], method: str) -> Certificate:
    """Whether an expression is zero modulo the equalities among the hypotheses, by exact division over ℚ."""
    goal = _polynomial(expression)
    equations = [_polynomial(h.lhs - h.rhs) for h in hypotheses.values() if isinstance(h, Eq)]
    equations = [e for e in equations if e != 0]
    if goal == 0:
        return Certificate(True, method, "0")
    if not equations:
        return Certificate(False, method, str(goal))
    symbols = sorted(set().union(goal.free_symbols, *(e.free_symbols for e in equations)), key=str)
    basis = sympy.groebner(equations, *symbols, order="grevlex").exprs
    if basis == [1]:
        return Certificate(False, method, CONTRADICTION)
    quotients, remainder = sympy.reduced(goal, basis, *symbols, order="grevlex")
    if remainder == 0 and not _zero_at_random_points(goal, quotients, basis, symbols):
        return Certificate(False, method, "the division did not survive evaluation at rational points")
    return Certificate(remainder == 0, method, str(remainder))


def _zero_at_random_points(goal: Expr, quotients: list[Expr], basis: list[Expr], symbols: list[Expr]) -> bool:
    """Re-check goal = Σ quotient · basis by plain rational arithmetic at three points, apart from the division."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        point = {s: Fraction(int(rng.integers(-50, 51)), int(rng.integers(1, 20))) for s in symbols}
        total = _evaluate(goal, point) - sum(
            (_evaluate(q, point) * _evaluate(b, point) for q, b in zip(quotients, basis, strict=True)), Fraction(0)
        )
        if total != 0:
            return False
    return True


def _evaluate(expression: Expr, point: Mapping[Expr, Fraction]) -> Fraction:
    """A polynomial with rational coefficients at a rational point, in Python's own fractions."""
    symbols = sorted(point, key=str)
    value = Fraction(0)
    for powers, coefficient in sympy.Poly(expression, *symbols).terms():
        term = Fraction(int(coefficient.p), int(coefficient.q))
        for symbol, power in zip(symbols, powers, strict=True):
            term *= point[symbol] ** power
        value += term
    return value


def _decide(goal: Relational, hypotheses: Mapping[str, Relational]) -> Certificate:
    """Decide a polynomial implication over the reals with z3: proved if hypotheses and not goal is unsatisfiable."""
    import z3

    given = [_to_z3(relation) for relation in hypotheses.values()]
    solver, answer = _decided([*given, z3.Not(_to_z3(goal))])
    method = "real arithmetic (nlsat)"
    if answer == z3.unsat:
        if _decided(given)[1] == z3.unsat:
            return Certificate(False, method, CONTRADICTION)
        return Certificate(True, method, "negation unsatisfiable")
    if answer == z3.sat:
        model = solver.model()
        found = ", ".join(f"{d.name()} = {model[d]}" for d in sorted(model.decls(), key=lambda d: d.name()))
        return Certificate(False, method, f"fails at {found}")
    return Certificate(False, method, "undecided within the resource limit")


def _decided(relations: Sequence[Any]) -> tuple[Any, Any]:
    """A solver of its own for the relations, for one that has been pushed gives up nlsat; and its answer."""
    import z3

    solver = z3.SolverFor("QF_NRA")
    solver.set("rlimit", Z3_RESOURCE_LIMIT)
    solver.add(*relations)
    return solver, solver.check()


def _to_z3(expression: Any) -> Any:
    """Translate a polynomial relation into z3's real arithmetic, exactly."""
    import z3

    relations = {Eq: "__eq__", Ne: "__ne__", Ge: "__ge__", Gt: "__gt__", Le: "__le__", Lt: "__lt__"}
    for kind, operator in relations.items():
        if isinstance(expression, kind):
            return getattr(_to_z3(expression.lhs), operator)(_to_z3(expression.rhs))
    if expression.is_Symbol:
        return z3.Real(expression.name)
    if expression.is_Rational:
        return z3.RatVal(int(expression.p), int(expression.q))
    if expression.is_Add:
        return z3.Sum([_to_z3(a) for a in expression.args])
    if expression.is_Mul:
        return z3.Product([_to_z3(a) for a in expression.args])
    if expression.is_Pow and expression.exp.is_Integer:
        base = _to_z3(expression.base)
        power = z3.Product([base] * abs(int(expression.exp)))
        return power if expression.exp > 0 else z3.RealVal(1) / power
    raise ValueError(f"{expression}: real arithmetic decides polynomial relations only")
