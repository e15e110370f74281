"""The gradient fields ∇θ_k of a parametrisation θ = F(φ), as exact polynomial vector fields.

For a loss of θ alone, gradient flow moves along −Σ_k (∂L/∂θ_k) ∇θ_k(φ), and the coefficients may be any numbers.  So
what is conserved for every loss is decided by the fields ∇θ_k.  Multiplying a field by a non-zero function
changes neither its conserved functions nor the rank of the Lie algebra at a generic point; that freedom is
used to clear every denominator.

Square roots and exponentials become new variables: y with y^q = R, and E with ∇E = E ∇L.  A field then has a component
along each new variable as well, and stays polynomial under Lie brackets.  Radicands must be squarefree and coprime,
and exponents independent over Q, so the new variables satisfy no other relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import lcm
from typing import Any

import numpy as np
import sympy
from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx, fmpz_mat

from scalevec_theory.parametrizations import Parametrization
from scalevec_theory.rational_points import make_power, random_rational
from scalevec_theory.symbolic import evaluate, exact

Point = tuple[fmpq, ...]
Field = tuple[fmpq_mpoly, ...]
Fraction = tuple[fmpq_mpoly, fmpq_mpoly]


@dataclass(frozen=True)
class PolynomialFields:
    """Polynomial vector fields on D parameters and the radicals and exponentials adjoined to them.

    Generators are ordered radicals, parameters, exponentials.  ``relations`` are the y^q − R, ``radicals`` the (q, R).
    """

    symbols: tuple[sympy.Symbol, ...]
    generators: tuple[fmpq_mpoly, ...]
    fields: tuple[Field, ...]
    radicals: tuple[tuple[int, fmpq_mpoly], ...] = ()

    @property
    def relations(self) -> tuple[fmpq_mpoly, ...]:
        return tuple(y**q - R for y, (q, R) in zip(self.generators, self.radicals, strict=False))

    @property
    def parameters(self) -> slice:
        return slice(len(self.radicals), len(self.radicals) + len(self.symbols))

    def derivative(self, f: fmpq_mpoly, field: Field) -> fmpq_mpoly:
        """X(f) = Σ_g X^g ∂f/∂g, reduced by the relations."""
        terms = [f.derivative(g) * x for g, x in enumerate(field) if x]
        return _reduce(sum(terms, start=f * 0), self.relations)

    def bracket(self, X: Field, Y: Field) -> Field:
        """The Lie bracket [X, Y], up to a non-zero function."""
        return _primitive([self.derivative(y, X) - self.derivative(x, Y) for x, y in zip(X, Y, strict=True)])

    def polynomial(self, expression: sympy.Expr) -> fmpq_mpoly:
        """A polynomial in the parameters, symbols with their names, as an element of this ring.

        Raises
        ------
        ValueError : the expression is not a polynomial in the parameters with rational coefficients.
        """
        variables = dict(zip(self.symbols, self.generators[self.parameters], strict=True))
        named = {s.name: s for s in self.symbols}
        expression = exact(expression)
        expression = expression.xreplace({s: named.get(s.name, s) for s in expression.free_symbols})
        numerator, denominator = _Reader(variables, {}, {}).fraction(expression)
        if not denominator.is_constant():
            raise ValueError(f"{expression}: expected a polynomial in {', '.join(map(str, self.symbols))}")
        return numerator / denominator.leading_coefficient()

    def conserves(self, law: sympy.Expr) -> bool:
        """Whether a polynomial in the parameters is constant along every field, exactly."""
        polynomial = self.polynomial(law)
        return not any(self.derivative(polynomial, X) for X in self.fields)

    def sample(self, rng: np.random.Generator) -> Point:
        """A random rational point at which every radical is rational too.

        Raises
        ------
        ValueError : no such point was found.
        """
        for _ in range(10):
            point = [random_rational(rng) for _ in self.generators]
            taken: set[int] = set()
            for m, (q, R) in enumerate(self.radicals):
                used = {g for g, degree in enumerate(R.degrees()) if degree}
                if not make_power(point, m, q, R, sorted(used - taken), rng):
                    break
                taken |= used
            else:
                return tuple(point)
        roots = ", ".join(f"({R})^(1/{q})" for q, R in self.radicals)
        raise ValueError(f"found no rational point at which {roots} is rational: the laws cannot be counted exactly")


def gradient_fields(
    parametrization: Parametrization | Callable[..., Any], dims: Mapping[str, int] | None = None
) -> PolynomialFields:
    """The fields ∇θ_k of a parametrisation, cleared of denominators.

    Parameters
    ----------
    parametrization : a ``Parametrization``, or a function whose arguments are named blocks with their shapes as
        default values, ``def two_layer(U=(2, 3), V=(3, 2)): return U @ V``.  It receives object arrays of positive
        symbols and returns an array of expressions built from + − × ÷, rational powers and exponentials; a test on
        the sign of a parameter takes the positive branch.
    dims : the dimensions of a ``Parametrization``, e.g. ``{"c": 2, "d": 3}``.

    Raises
    ------
    ValueError : the function raises, returns no array, or an entry is not algebraic or exponential over Q.
    """
    symbols, theta = evaluate(parametrization, dims)
    return _fields_of(symbols, theta)


def polynomial_fields(fields: Sequence[Sequence[sympy.Expr]], variables: Sequence[sympy.Symbol]) -> PolynomialFields:
    """Vector fields given by their components, polynomials in ``variables`` with rational coefficients.

    Raises
    ------
    ValueError : a field has another number of components, or a component is not such a polynomial.
    """
    gens = _ring(len(variables))
    ring = PolynomialFields(tuple(variables), gens, ())
    for field in fields:
        if len(field) != len(variables):
            raise ValueError(f"field {tuple(field)} has {len(field)} components; expected {len(variables)}")
    components = [_primitive([ring.polynomial(x) for x in field]) for field in fields]
    return PolynomialFields(ring.symbols, gens, tuple(f for f in components if any(f)))


def _ring(n: int) -> tuple[fmpq_mpoly, ...]:
    return tuple(fmpq_mpoly_ctx.get([f"g{i}" for i in range(n)], Ordering.lex).gens())


def _reduce(p: fmpq_mpoly, relations: Sequence[fmpq_mpoly]) -> fmpq_mpoly:
    for relation in relations:
        p = p % relation
    return p


def _primitive(components: Sequence[fmpq_mpoly]) -> Field:
    common = reduce(lambda a, b: a.gcd(b), components)
    return tuple(components) if common.is_constant() else tuple(x // common for x in components)


@dataclass
class _Reader:
    """Sympy expressions to fractions of polynomials; ``roots`` maps a radicand to (y, q, d) with y/d its q-th root."""

    variables: Mapping[sympy.Symbol, fmpq_mpoly]
    exponentials: Mapping[sympy.Expr, Fraction]
    roots: Mapping[sympy.Expr, tuple[fmpq_mpoly, int, fmpq_mpoly]]

    def fraction(self, e: sympy.Expr) -> Fraction:
        one = next(iter(self.variables.values())) ** 0
        if isinstance(e, sympy.Rational):
            return one * fmpq(e.p, e.q), one
        if e in self.variables:
            return self.variables[e], one
        if e in self.exponentials:
            return self.exponentials[e]
        if isinstance(e, sympy.Add):
            numerator, denominator = one * 0, one
            for n, d in map(self.fraction, e.args):
                numerator, denominator = numerator * d + n * denominator, denominator * d
                common = numerator.gcd(denominator)
                numerator, denominator = numerator // common, denominator // common
            return numerator, denominator
        if isinstance(e, sympy.Mul):
            parts = [self.fraction(x) for x in e.args]
            return reduce(lambda a, b: (a[0] * b[0], a[1] * b[1]), parts)
        if isinstance(e, sympy.Pow) and isinstance(e.exp, sympy.Rational):
            if e.exp.q == 1:
                n, d = self.fraction(e.base)
                power = e.exp.p
            elif e.base in self.roots:
                y, q, d = self.roots[e.base]
                n, power = y, e.exp.p * (q // e.exp.q)
            else:
                raise ValueError(f"{e} is not in Q(parameters)")
            if power < 0:
                n, d, power = d, n, -power
            return n**power, d**power
        raise ValueError(f"{e} is neither algebraic nor an exponential with rational coefficients in the parameters")


def _exponential_basis(
    arguments: list[sympy.Expr], symbols: list[sympy.Symbol]
) -> tuple[list[sympy.Expr], list[list[int]]]:
    """Exponents ℓ_b independent over Q, and integers n with L_m = Σ_b n_mb ℓ_b for each argument L_m."""
    polynomials = []
    for argument in arguments:
        try:
            polynomial = sympy.Poly(argument, *symbols, domain="QQ")
        except sympy.PolynomialError as error:
            raise ValueError(f"exp({argument}): the exponent must be a polynomial over Q in the parameters") from error
        if polynomial.coeff_monomial(1) != 0:
            raise ValueError(f"exp({argument}): the constant in the exponent makes an irrational factor; drop it")
        polynomials.append(polynomial)
    identity = [[int(i == j) for j in range(len(arguments))] for i in range(len(arguments))]
    monomials = sorted({m for p in polynomials for m in p.monoms()})
    rows = [[p.coeff_monomial(m) for m in monomials] for p in polynomials]
    scale = lcm(*(int(x.q) for row in rows for x in row)) if rows else 1
    lattice = fmpz_mat([[int(x * scale) for x in row] for row in rows]) if rows else fmpz_mat(0, 0)
    if lattice.rank() == len(rows):
        return arguments, identity
    basis = fmpz_mat([row for row in lattice.hnf().tolist() if any(row)])
    pivots = [next(j for j, x in enumerate(row) if x) for row in basis.tolist()]
    square = fmpz_mat([[row[j] for row in basis.tolist()] for j in pivots])
    chosen = fmpz_mat([[row[j] for row in lattice.tolist()] for j in pivots])
    integers = [[int(x) for x in row] for row in square.solve(chosen).transpose().tolist()]
    terms = [sympy.prod([s**k for s, k in zip(symbols, m, strict=True)]) for m in monomials]
    exponents = [sum(int(x) * t for x, t in zip(row, terms, strict=True)) / scale for row in basis.tolist()]
    return exponents, integers


def _fields_of(symbols: list[sympy.Symbol], theta: list[sympy.Expr]) -> PolynomialFields:
    powers = sorted({p for e in theta for p in e.atoms(sympy.Pow) if not p.exp.is_integer}, key=str)
    orders: dict[sympy.Expr, int] = {}
    for p in powers:
        if isinstance(p.exp, sympy.Rational):
            orders[p.base] = lcm(orders.get(p.base, 1), p.exp.q)
    arguments = sorted({x.args[0] for e in theta for x in e.atoms(sympy.exp)}, key=str)
    exponents, integers = _exponential_basis(arguments, symbols)

    r, D, n = len(orders), len(symbols), len(exponents)
    gens = _ring(r + D + n)
    one = gens[0] ** 0
    variables = dict(zip(symbols, gens[r : r + D], strict=True))
    base = _Reader(variables, {}, {})
    logarithms = [base.fraction(sympy.expand(x))[0] for x in exponents]
    exponentials = {}
    for argument, row in zip(arguments, integers, strict=True):
        up, down = (
            reduce(lambda a, b: a * b, (E ** max(s * k, 0) for E, k in zip(gens[r + D :], row, strict=True)), one)
            for s in (1, -1)
        )
        exponentials[sympy.exp(argument)] = (up, down)
    base = _Reader(variables, exponentials, {})
    roots, radicals, seen = {}, [], one
    for y, (radicand, q) in zip(gens, orders.items(), strict=False):
        numerator, denominator = base.fraction(radicand)
        core = numerator * denominator
        squarefree = all(multiplicity == 1 for _, multiplicity in core.factor()[1])
        if core.is_constant() or not squarefree or not core.gcd(seen).is_constant():
            raise ValueError(
                f"({radicand})^(1/{q}): expected a radicand that depends on the parameters, has no repeated factor and "
                "shares none with another radicand; a constant root is not rational"
            )
        seen = seen * core
        roots[radicand] = (y, q, denominator)
        radicals.append((q, numerator * denominator ** (q - 1)))

    ring = PolynomialFields(tuple(symbols), gens, (), tuple(radicals))
    clear = reduce(lambda a, b: a * b, (R for _, R in radicals), one)
    directions = []
    for k in range(D):
        along = (*[one * 0] * r, *[one * int(i == k) for i in range(D)])
        along += tuple(E * L.derivative(r + k) for E, L in zip(gens[r + D :], logarithms, strict=True))
        of_roots = (y * ring.derivative(R, along) * (clear // R) / q for y, (q, R) in zip(gens, radicals, strict=False))
        directions.append((*of_roots, *(clear * x for x in along[r:])))

    reader = _Reader(variables, exponentials, roots)
    fields = []
    for entry in theta:
        numerator, denominator = (_reduce(x, ring.relations) for x in reader.fraction(entry))
        if not denominator:
            raise ValueError(f"{entry}: the denominator is zero")
        gradient = [
            ring.derivative(numerator, along) * denominator - numerator * ring.derivative(denominator, along)
            for along in directions
        ]
        lifted = [sum((x * along[g] for x, along in zip(gradient, directions, strict=True)), one * 0) for g in range(r)]
        lifted += [clear * x for x in gradient]
        lifted += [
            sum((x * along[g] for x, along in zip(gradient, directions, strict=True)), one * 0)
            for g in range(r + D, r + D + n)
        ]
        field = _primitive([_reduce(x, ring.relations) for x in lifted])
        if any(field):
            fields.append(field)
    return PolynomialFields(ring.symbols, gens, tuple(fields), ring.radicals)
