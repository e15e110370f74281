"""Known conservation laws, known counts, planted errors, and what must not be called complete."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
import torch
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from scalevec_theory.gradient_fields import PolynomialFields, gradient_fields
from scalevec_theory.laws import certify_laws, find_laws, laws_of_fields, lie_rank
from scalevec_theory.parametrizations import BUILT_IN, DUAL_SCALE, EXPONENTIAL, INPUT_SCALE, MAGNITUDE_DIRECTION
from scalevec_theory.symbolic import invariants_of, symbols_of

x, y, z = sympy.symbols("x y z")


def two_layer(n, r, m):
    def product(U=(n, r), V=(r, m)):
        return U @ V

    return product


@pytest.mark.parametrize("n, r, m", [(2, 1, 2), (2, 2, 2), (3, 2, 3), (2, 3, 2), (1, 2, 1), (1, 3, 1), (1, 4, 2)])
def test_two_layer_linear_has_the_published_number_of_laws(n, r, m):
    """Marcotte et al. 2023: r(r+1)/2 laws if r <= n + m, else (n+m)r − (n+m)(n+m−1)/2."""
    laws = find_laws(two_layer(n, r, m))
    width = n + m
    expected = r * (r + 1) // 2 if r <= width else width * r - width * (width - 1) // 2
    assert laws.complete and laws.total == laws.independent == expected
    assert laws.dimension == width * r


def test_two_layer_linear_lists_the_entries_of_UtU_minus_VVt():
    laws = find_laws(two_layer(3, 2, 3))
    blocks = symbols_of({"U": (3, 2), "V": (2, 3)})
    U, V = (sympy.Matrix(*a.shape, a.ravel().tolist()) for a in blocks.values())
    balance = U.T * U - V * V.T
    assert set(laws.polynomial) == {sympy.expand(balance[i]) for i in (0, 1, 3)}


@pytest.mark.parametrize("hidden, inputs", [(1, 1), (2, 3), (3, 2)])
def test_relu_like_homogeneous_network(hidden, inputs):
    """On a fixed activation pattern θ = (a_k w_k): one law a_k² − ‖w_k‖² per neuron."""

    def neurons(a=(hidden,), w=(hidden, inputs)):
        return a[:, None] * w

    laws = find_laws(neurons)
    assert laws.complete and laws.total == hidden
    blocks = symbols_of({"a": (hidden,), "w": (hidden, inputs)})
    a, w = np.asarray(blocks["a"]), np.asarray(blocks["w"])
    assert set(laws.polynomial) == set(a**2 - (w**2).sum(-1))


@pytest.mark.parametrize("D, degree", [(2, 2), (4, 2), (6, 4)])
def test_product_of_all_parameters_has_D_minus_1_laws(D, degree):
    def product(x=(D,)):
        return np.prod(x)

    laws = find_laws(product, degree=degree)
    assert laws.complete and laws.total == D - 1
    assert len(laws.polynomial) == D - 1, "products of laws are not listed"
    assert all(sympy.Poly(law).total_degree() == 2 for law in laws.polynomial)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_a_monomial_conserves_the_weighted_differences(powers):
    """θ = Π x_i^{a_i}: x_i ẋ_i is proportional to a_i, so a_j x_i² − a_i x_j² is constant."""

    D = len(powers)

    def monomial(x=D):
        return np.prod(x ** np.array(powers))

    laws = find_laws(monomial)
    assert laws.complete and laws.total == len(powers) - 1
    p = symbols_of({"x": (len(powers),)})["x"].tolist()
    fields = gradient_fields(monomial)
    assert all(fields.conserves(powers[0] * p[i] ** 2 - powers[i] * p[0] ** 2) for i in range(1, len(p)))


@pytest.mark.parametrize("seed", range(3))
def test_random_fields_have_no_law(seed):
    rng = np.random.default_rng(seed)
    variables = sympy.symbols("x:4")
    monomials = [a * b for a in (1, *variables) for b in variables]
    fields = [[sum(int(rng.integers(-9, 10)) * m for m in monomials) for _ in variables] for _ in range(2)]
    laws = laws_of_fields(fields, variables, degree=3)
    assert laws.polynomial == () and laws.rank == 4 and laws.complete and laws.brackets >= 2


def test_rotations_conserve_the_norm_and_the_heisenberg_fields_nothing():
    rotations = laws_of_fields([[0, -z, y], [z, 0, -x], [-y, x, 0]], (x, y, z))
    assert rotations.polynomial == (x**2 + y**2 + z**2,) and rotations.complete
    heisenberg = laws_of_fields([[1, 0, -y], [0, 1, x]], (x, y, z))
    assert heisenberg.rank == 3 and heisenberg.brackets > 0 and heisenberg.complete


COUNTS = {
    "plain": lambda b, c, d: 0,
    "input-scale": lambda b, c, d: d,
    "output-scale": lambda b, c, d: c,
    "dual-scale": lambda b, c, d: c + d,
    "shared-input-scale": lambda b, c, d: d,
    "separate-input-scale": lambda b, c, d: b * d,
    "magnitude-direction": lambda b, c, d: 2,
    "exponential": lambda b, c, d: d + 1,
    "scalar-multiplier": lambda b, c, d: 1,
}


@pytest.mark.parametrize("c, d", [(1, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_built_in_parametrisations(name, c, d):
    dims = {"b": 2, "c": c, "d": d}
    laws = find_laws(BUILT_IN[name], dims=dims)
    assert laws.complete and laws.total == COUNTS[name](**dims)
    assert len(laws.polynomial) == laws.total
    shapes = BUILT_IN[name].shapes(**dims)
    named = certify_laws(BUILT_IN[name], invariants_of(BUILT_IN[name].invariants, shapes), dims=dims)
    assert named.complete


@pytest.mark.parametrize(
    "name", ["input-scale", "dual-scale", "magnitude-direction", "exponential", "shared-input-scale"]
)
def test_laws_are_constant_along_the_float_gradient_of_a_random_loss(name):
    """The numerical twin: torch's autograd through the forward map knows nothing of the exact fields."""
    dims = {"b": 2, "c": 2, "d": 3}
    laws = find_laws(BUILT_IN[name], dims=dims)
    generator = torch.Generator().manual_seed(1)
    blocks = {
        k: torch.rand(1, *s, generator=generator, dtype=torch.float64).add(0.5).requires_grad_()
        for k, s in BUILT_IN[name].shapes(**dims).items()
    }
    theta = BUILT_IN[name].forward(**blocks)
    target = torch.randn(theta.shape, generator=generator, dtype=torch.float64)
    loss = ((theta - target) ** 4).sum() + (theta * target).sin().sum()
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(blocks.values()))]).numpy()
    point = torch.cat([b.detach().flatten() for b in blocks.values()]).tolist()
    values = dict(zip(laws.parameters, point, strict=True))
    for law in laws.polynomial:
        slope = np.array([float(law.diff(p).subs(values)) for p in laws.parameters])
        assert abs(slope @ gradient) < 1e-12 * np.linalg.norm(slope) * np.linalg.norm(gradient)
        assert np.linalg.norm(slope) > 0.1


def test_a_planted_wrong_law_is_refused():
    v, W = (np.asarray(a) for a in symbols_of(INPUT_SCALE.shapes(c=2, d=2)).values())
    good, wrong = v**2 - (W**2).sum(0), v**2 - 2 * (W**2).sum(0)
    assert certify_laws(INPUT_SCALE, good.tolist(), dims={"c": 2, "d": 2}).complete
    with pytest.raises(ValueError, match="not conserved"):
        certify_laws(INPUT_SCALE, [good[0], wrong[1]], dims={"c": 2, "d": 2})
    assert not gradient_fields(DUAL_SCALE, {"c": 2, "d": 2}).conserves(sympy.Symbol("v[0]") ** 2)


def test_no_column_of_the_magnitude_direction_model_has_a_law_of_its_own():
    fields = gradient_fields(MAGNITUDE_DIRECTION, {"c": 2, "d": 2})
    columns = sympy.sympify("A**2 - W - w", {"A": sympy.Symbol("alpha[0]")})
    columns = columns.subs({"W": sympy.Symbol("W[0,0]") ** 2, "w": sympy.Symbol("W[1,0]") ** 2})
    assert not fields.conserves(columns)
    assert len(find_laws(MAGNITUDE_DIRECTION, dims={"c": 1, "d": 2}, degree=4).polynomial) == 2


def test_a_missing_law_makes_the_list_incomplete():
    rest = find_laws(DUAL_SCALE, dims={"c": 2, "d": 2}).polynomial[1:]
    partial = certify_laws(DUAL_SCALE, rest, dims={"c": 2, "d": 2})
    assert not partial.complete and partial.closed and partial.total == partial.independent + 1
    assert "incomplete: 3 of at most 4" in str(partial)
    repeated = certify_laws(DUAL_SCALE, [*rest, rest[0] * rest[1]], dims={"c": 2, "d": 2})
    assert not repeated.complete, "a function of the other laws is not a new law"


def test_laws_above_the_degree_or_not_polynomial_are_counted_but_not_listed():
    limited = find_laws(DUAL_SCALE, dims={"c": 1, "d": 1}, degree=1)
    assert limited.polynomial == () and limited.total == 2 and not limited.complete

    def logarithmic(x=1, y=1):
        return x + y**2

    laws = find_laws(logarithmic, degree=6)  # x − log(y)/2
    assert laws.polynomial == () and laws.total == 1 and laws.closed and not laws.complete


def test_a_search_cut_short_is_undecided():
    laws = find_laws(MAGNITUDE_DIRECTION, dims={"c": 2, "d": 3}, max_brackets=1)
    assert not laws.complete and not laws.closed and "undecided: between 2 and 3" in str(laws)


def test_points_that_disagree_are_an_error():
    fields = gradient_fields(DUAL_SCALE, {"c": 1, "d": 1})
    generic, special = tuple(map(fmpq, (2, 3, 5))), tuple(map(fmpq, (0, 0, 5)))
    assert lie_rank(fields, (generic, generic), 3, 100)[0] == 1
    with pytest.raises(ArithmeticError, match="two rational points"):
        lie_rank(fields, (generic, special), 3, 100)


def test_same_seed_same_points_other_seed_same_count():
    runs = [find_laws(MAGNITUDE_DIRECTION, dims={"c": 1, "d": 3}, seed=s) for s in (3, 3, 4)]
    assert runs[0] == runs[1] and runs[0].points != runs[2].points and runs[0].points[0] != runs[0].points[1]
    assert [r.total for r in runs] == [2, 2, 2] and runs[0].polynomial == runs[2].polynomial


def test_printed_result():
    assert str(find_laws(INPUT_SCALE, dims={"c": 1, "d": 1})).splitlines() == [
        "parameters 2, rank of the Lie algebra 1 at two rational points (0 brackets)",
        "polynomial laws up to degree 2: 1, independent 1",
        "  v[0]**2 - W[0,0]**2",
        "complete: 1 independent laws + rank 1 = 2 parameters",
    ]


@pytest.mark.parametrize(
    "arguments, message", [({"degree": 0}, "degree=0"), ({"degree": 40}, "monomials"), ({"seed": -1}, "seed=-1")]
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_laws(INPUT_SCALE, dims={"c": 2, "d": 3}, **arguments)


def test_laws_of_lower_degree_are_used_to_shorten_the_others():
    laws = find_laws(EXPONENTIAL, dims={"c": 2, "d": 3})
    assert [len(law.args) for law in laws.polynomial] == [3, 4, 4, 4]  # Σα, then ‖w_j‖² − 2α_j − 2β/d times d


def test_gradients_of_laws_that_disagree_are_an_error(monkeypatch):
    points = iter([tuple(map(fmpq, (2, 3, 5))), tuple(map(fmpq, (0, 0, 0)))])
    monkeypatch.setattr(PolynomialFields, "sample", lambda self, rng: next(points))
    with pytest.raises(ArithmeticError, match="2 and 0 independent gradients"):
        find_laws(DUAL_SCALE, dims={"c": 1, "d": 1})
