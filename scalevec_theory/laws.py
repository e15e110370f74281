"""The conservation laws of gradient flow under any parametrisation θ = F(φ), exact over the rationals.

A function of φ is conserved for every loss of θ if and only if it is constant along each field ∇θ_k.  The
number of independent ones near a generic point is the number of parameters minus the rank of the Lie algebra the fields
generate (Marcotte, Gribonval and Peyré, "Abide by the law and follow the flow", 2023).

Both sides bound each other: independent laws + rank ≤ number of parameters, always.  A law found here is one exactly,
and a rank found at one rational point is a lower bound on the generic rank, so equality proves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb, gcd, lcm
from typing import Any

import numpy as np
import sympy
from flint import fmpq, fmpq_mat, fmpq_mpoly
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from scalevec_theory.counts import check_count
from scalevec_theory.gradient_fields import Field, Point, PolynomialFields, gradient_fields, polynomial_fields
from scalevec_theory.parametrizations import Parametrization

MAX_MONOMIALS = 20_000


@dataclass(frozen=True)
class Laws:
    """What gradient flow conserves for every loss.

    ``polynomial`` generates every polynomial law up to ``degree`` by products and linear combinations; ``independent``
    of them are functionally independent.  ``rank`` is the rank of the Lie algebra at both ``points``, a lower bound on
    its generic rank, so there are at most ``total`` independent laws.  ``closed``: no further bracket raised the rank
    at either point; otherwise the search stopped early (because the count was settled, or at ``max_brackets``).
    """

    parameters: tuple[sympy.Symbol, ...]
    degree: int
    polynomial: tuple[sympy.Expr, ...]
    independent: int
    rank: int
    brackets: int
    closed: bool
    points: tuple[Mapping[sympy.Symbol, sympy.Rational], ...]

    @property
    def dimension(self) -> int:
        return len(self.parameters)

    @property
    def total(self) -> int:
        return self.dimension - self.rank

    @property
    def complete(self) -> bool:
        """Whether the listed laws are proved to be all: independent laws + rank = number of parameters."""
        return self.independent == self.total

    def __str__(self) -> str:
        lines = [
            f"parameters {self.dimension}, rank of the Lie algebra {self.rank} at two rational points "
            f"({self.brackets} brackets)",
            f"polynomial laws up to degree {self.degree}: {len(self.polynomial)}, independent {self.independent}",
            *(f"  {_written(law, self.parameters)}" for law in self.polynomial),
        ]
        if self.complete:
            lines.append(
                f"complete: {self.independent} independent laws + rank {self.rank} = {self.dimension} parameters"
            )
        elif self.closed:
            lines.append(
                f"incomplete: {self.independent} of at most {self.total} independent laws; no further bracket "
                "raised the rank at either point, so the others are missing from this list (try a higher degree)"
            )
        else:
            lines.append(
                f"undecided: between {self.independent} and {self.total} independent laws; "
                f"stopped at {self.brackets} brackets"
            )
        return "\n".join(lines)


def find_laws(
    parametrization: Parametrization | Callable[..., Any],
    *,
    degree: int = 2,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    max_brackets: int = 10_000,
) -> Laws:
    """Find the polynomial conservation laws up to ``degree``, count all laws, and say whether the list is complete.

    Parameters
    ----------
    parametrization, dims : as in ``gradient_fields``: a ``Parametrization`` with its dimensions, or a function whose
        arguments are parameter blocks with their shapes as default values.
    degree : largest total degree of the laws looked for, in the parameters.
    seed : of the two rational points.
    max_brackets : Lie brackets evaluated before giving up.

    Raises
    ------
    ValueError : ``degree`` < 1, more than ``MAX_MONOMIALS`` monomials, a parametrisation that cannot be read exactly.
    ArithmeticError : a rank differs between the two points, so one of them is special; another seed settles it.
    """
    fields = gradient_fields(parametrization, dims)
    return _count(fields, polynomial_laws(fields, degree), degree, seed, max_brackets)


def laws_of_fields(
    fields: Sequence[Sequence[sympy.Expr]],
    variables: Sequence[sympy.Symbol],
    *,
    degree: int = 2,
    seed: int = 0,
    max_brackets: int = 10_000,
) -> Laws:
    """As ``find_laws``, for flows along any combination of the given polynomial vector fields."""
    read = polynomial_fields(fields, variables)
    return _count(read, polynomial_laws(read, degree), degree, seed, max_brackets)


def certify_laws(
    parametrization: Parametrization | Callable[..., Any],
    laws: Sequence[sympy.Expr],
    *,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    max_brackets: int = 10_000,
) -> Laws:
    """Whether the given polynomial laws are all the laws of a parametrisation; the result lists them as given.

    Raises
    ------
    ValueError : one of ``laws`` is not a polynomial in the parameters, or gradient flow does not conserve it.
    """
    fields = gradient_fields(parametrization, dims)
    for law in laws:
        if not fields.conserves(law):
            raise ValueError(f"{law} is not conserved by gradient flow of every loss")
    polynomials = [fields.polynomial(law) for law in laws]
    degree = max((p.total_degree() for p in polynomials), default=0)
    return _count(fields, polynomials, degree, seed, max_brackets)


def _count(fields: PolynomialFields, laws: list[fmpq_mpoly], degree: int, seed: int, max_brackets: int) -> Laws:
    if seed < 0 or max_brackets < 0:
        raise ValueError(f"seed={seed}, max_brackets={max_brackets}: expected integers >= 0")
    rng = np.random.default_rng(seed)
    points = (fields.sample(rng), fields.sample(rng))
    parameters = range(len(fields.generators))[fields.parameters]
    gradients = [[law.derivative(g) for g in parameters] for law in laws]
    ranks = [_rank([[d(*p) for d in row] for row in gradients]) for p in points]
    if ranks[0] != ranks[1]:
        raise ArithmeticError(
            f"the laws have {ranks[0]} and {ranks[1]} independent gradients at two points: use another seed"
        )
    rank, brackets, closed = lie_rank(fields, points, len(parameters) - ranks[0], max_brackets)
    return Laws(
        parameters=fields.symbols,
        degree=degree,
        polynomial=tuple(_to_sympy(law, fields) for law in laws),
        independent=ranks[0],
        rank=rank,
        brackets=brackets,
        closed=closed,
        points=tuple(
            {s: sympy.Rational(int(x.p), int(x.q)) for s, x in zip(fields.symbols, p[fields.parameters], strict=True)}
            for p in points
        ),
    )


def lie_rank(fields: PolynomialFields, points: Sequence[Point], bound: int, max_brackets: int) -> tuple[int, int, bool]:
    """Rank of the Lie algebra of ``fields`` at ``points``, brackets evaluated, and whether it closed.

    Each generation brackets the original fields with the fields that raised the rank in the one before.  The others
    are combinations of those with functions as coefficients, and [X, fZ] = f[X, Z] + X(f)Z adds nothing.  Stops when
    the rank reaches ``bound``.
    """
    rows: list[list[list[fmpq]]] = [[] for _ in points]
    brackets = 0

    def raises(values: Sequence[list[fmpq]]) -> bool:
        outcomes = {_rank([*found, value]) > len(found) for found, value in zip(rows, values, strict=True)}
        if len(outcomes) > 1:
            raise ArithmeticError(f"the ranks at two rational points differ at {len(rows[0])}: use another seed")
        if outcomes == {True}:
            for found, value in zip(rows, values, strict=True):
                found.append(value)
        return outcomes == {True}

    original = [(X, [_jet(X, p) for p in points]) for X in fields.fields]
    generation = [(X, jets) for X, jets in original if raises([value for value, _ in jets])]
    while generation:
        added: list[tuple[Field, list[tuple[list[fmpq], fmpq_mat]]]] = []
        for Z, Z_jets in generation:
            for X, X_jets in original:
                if X is Z:
                    continue
                if len(rows[0]) == bound:
                    return bound, brackets, False
                if brackets == max_brackets:
                    return len(rows[0]), brackets, False
                brackets += 1
                if raises([_bracket_value(x, z) for x, z in zip(X_jets, Z_jets, strict=True)]):
                    bracket = fields.bracket(X, Z)
                    added.append((bracket, [_jet(bracket, p) for p in points]))
        generation = added
    return len(rows[0]), brackets, True


def _rank(rows: list[list[fmpq]]) -> int:
    return fmpq_mat(rows).rank() if rows else 0


def _jet(X: Field, point: Point) -> tuple[list[fmpq], fmpq_mat]:
    """The value of a field at a point and its Jacobian there."""
    n = len(X)
    return [x(*point) for x in X], fmpq_mat(n, n, [x.derivative(g)(*point) for x in X for g in range(n)])


def _bracket_value(X: tuple[list[fmpq], fmpq_mat], Z: tuple[list[fmpq], fmpq_mat]) -> list[fmpq]:
    (x, JX), (z, JZ) = X, Z
    n = len(x)
    return (JZ * fmpq_mat(n, 1, x) - JX * fmpq_mat(n, 1, z)).entries()


def polynomial_laws(fields: PolynomialFields, degree: int) -> list[fmpq_mpoly]:
    """Generators of the polynomial laws up to ``degree``, lowest degree first, in reduced row echelon form.

    The laws are the kernel of Q ↦ (⟨∇Q, X_k⟩)_k on monomials.  Its sparse matrix falls into blocks, one for each set
    of monomials that share an equation.  A law that is a polynomial in laws of lower degree is left out.
    """
    D = len(fields.symbols)
    check_count("degree", degree)
    if comb(D + degree, degree) > MAX_MONOMIALS:
        raise ValueError(f"degree={degree}: {D} parameters have more than {MAX_MONOMIALS} monomials up to this degree")
    parameters = range(len(fields.generators))[fields.parameters]
    one = fields.generators[0] ** 0
    monomials = [
        _product([fields.generators[g] for g in chosen], one)
        for e in range(degree, 0, -1)
        for chosen in combinations_with_replacement(parameters, e)
    ]
    columns = {m.monoms()[0]: j for j, m in enumerate(monomials)}
    equations: dict[tuple[int, tuple[int, ...]], dict[int, fmpq]] = {}
    for j, monomial in enumerate(monomials):
        for k, X in enumerate(fields.fields):
            for term, coefficient in fields.derivative(monomial, X).to_dict().items():
                equations.setdefault((k, term), {})[j] = coefficient

    rows = [law for block in _blocks(list(equations.values()), len(monomials)) for law in _kernel(*block)]
    basis = [_product_sum(row, monomials) for row in sorted(rows, key=min)]
    generators: list[fmpq_mpoly] = []
    for e in range(1, degree + 1):
        candidates = [law for law in basis if law.total_degree() == e]
        known = list(_products(generators, e, one)) if candidates else []
        vectors = [{columns[m]: c for m, c in p.to_dict().items()} for p in known + candidates]
        generators += [candidates[i - len(known)] for i in _pivots(vectors) if i >= len(known)]
    return [_integral(law) for law in _sparser(generators)]


def _product(factors: Sequence[fmpq_mpoly], one: fmpq_mpoly) -> fmpq_mpoly:
    for factor in factors:
        one = one * factor
    return one


def _product_sum(row: dict[int, fmpq], monomials: list[fmpq_mpoly]) -> fmpq_mpoly:
    return sum((monomials[j] * c for j, c in row.items()), monomials[0] * 0)


def _products(generators: list[fmpq_mpoly], degree: int, one: fmpq_mpoly, start: int = 0) -> Iterator[fmpq_mpoly]:
    """Products of generators with total degree at most ``degree``."""
    for i in range(start, len(generators)):
        product = one * generators[i]
        if product.total_degree() <= degree:
            yield product
            yield from _products(generators, degree, product, i)


def _blocks(equations: list[dict[int, fmpq]], n: int) -> Iterator[tuple[list[int], list[dict[int, fmpq]]]]:
    """The unknowns that share equations, with those equations."""
    pairs = np.array([(i, j) for i, row in enumerate(equations) for j in row], dtype=int).reshape(-1, 2)
    m = len(equations)
    graph = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], m + pairs[:, 1])), shape=(m + n, m + n))
    count, label = connected_components(graph, directed=False)
    unknowns: list[list[int]] = [[] for _ in range(count)]
    grouped: list[list[dict[int, fmpq]]] = [[] for _ in range(count)]
    for j in range(n):
        unknowns[label[m + j]].append(j)
    for i, row in enumerate(equations):
        grouped[label[i]].append(row)
    return zip(unknowns, grouped, strict=True)


def _kernel(unknowns: list[int], equations: list[dict[int, fmpq]]) -> list[dict[int, fmpq]]:
    """The solutions of homogeneous equations, in reduced row echelon form."""
    n = len(unknowns)
    if not equations:
        return [{j: fmpq(1)} for j in unknowns]
    dense = fmpq_mat([[row.get(j, fmpq(0)) for j in reversed(unknowns)] for row in equations])
    reduced, rank = dense.rref()
    table = reduced.table()[:rank]
    pivots = [next(i for i, x in enumerate(row) if x) for row in table]
    free = [i for i in range(n) if i not in set(pivots)]
    solutions = []
    for f in free:
        solution = {unknowns[n - 1 - f]: fmpq(1)}
        solution |= {unknowns[n - 1 - p]: -row[f] for p, row in zip(pivots, table, strict=True) if row[f]}
        solutions.append(solution)
    return solutions


def _pivots(vectors: list[dict[int, fmpq]]) -> list[int]:
    """Indices of the vectors that are not combinations of those before them."""
    used = sorted({j for v in vectors for j in v})
    if not used:
        return []
    reduced, rank = fmpq_mat([[v.get(j, fmpq(0)) for v in vectors] for j in used]).rref()
    return [next(i for i, x in enumerate(row) if x) for row in reduced.table()[:rank]]


def _sparser(laws: list[fmpq_mpoly]) -> list[fmpq_mpoly]:
    """The same laws with terms cancelled by multiples of laws of lower degree."""
    laws = list(laws)
    for i, law in enumerate(laws):
        for lower in (other for other in laws if other.total_degree() < law.total_degree()):
            shared = {m: lower.to_dict()[m] for m in set(lower.monoms()) & set(laws[i].monoms())}
            options = [laws[i] - lower * (laws[i].to_dict()[m] / c) for m, c in sorted(shared.items())]
            laws[i] = min([laws[i], *options], key=lambda p: len(p.monoms()))
    return laws


def _integral(law: fmpq_mpoly) -> fmpq_mpoly:
    """The multiple with coprime integer coefficients."""
    coefficients = law.coeffs()
    denominator = lcm(*(int(c.q) for c in coefficients))
    return law * denominator / gcd(*(int(c.p * denominator / c.q) for c in coefficients))


def _to_sympy(law: fmpq_mpoly, fields: PolynomialFields) -> sympy.Expr:
    return sympy.Add(
        *(
            sympy.Mul(
                sympy.Rational(int(c.p), int(c.q)),
                *(s**e for s, e in zip(fields.symbols, m[fields.parameters], strict=True)),
            )
            for m, c in law.to_dict().items()
        )
    )


def _written(law: sympy.Expr, parameters: Sequence[sympy.Symbol]) -> str:
    """The law with its terms in the order of the parameters."""
    terms = sympy.Poly(law, *parameters).terms(order="grlex")
    written = (str(c * sympy.prod(s**e for s, e in zip(parameters, m, strict=True))) for m, c in terms)
    return " + ".join(written).replace("+ -", "- ")
