"""Reading a user's function exactly: radicals, exponentials, and everything that must be refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from flint import fmpq

from scalevec_theory.gradient_fields import gradient_fields, polynomial_fields
from scalevec_theory.laws import find_laws
from scalevec_theory.parametrizations import INPUT_SCALE, MAGNITUDE_DIRECTION, elementwise


def magnitude_direction(beta=(), alpha=(3,), W=(2, 3)):
    return W * (beta * alpha / np.sqrt(np.mean(alpha**2)))


def test_a_numpy_function_reads_like_the_built_in():
    mine, ours = find_laws(magnitude_direction), find_laws(MAGNITUDE_DIRECTION, dims={"c": 2, "d": 3})
    assert mine == ours and mine.complete and mine.total == 2


def test_root_of_a_sum_of_squares_has_the_same_laws_as_of_the_mean():
    def unnormalised(beta=(), alpha=(3,), W=(2, 3)):
        return W * beta * alpha / (alpha @ alpha) ** 0.5

    assert find_laws(unnormalised).polynomial == find_laws(magnitude_direction).polynomial


def test_two_radicals():
    def both(beta=(), alpha=(2,), gamma=(2,), W=(2, 2)):
        rows = gamma / np.sqrt(gamma @ gamma)
        return rows[:, None] * W * beta * alpha / np.sqrt(np.mean(alpha**2))

    laws = find_laws(both)
    assert laws.complete and laws.total == 3


@pytest.mark.parametrize(
    "power, law",
    [(sympy.Rational(1, 2), "2*a**2 - w**2"), (sympy.Rational(1, 3), "3*a**2 - w**2"), (-0.5, "2*a**2 + w**2")],
)
def test_fractional_powers(power, law):
    """θ = w a^p: a ȧ = p w ẇ, so a² − p w² is constant."""

    def scaled(a=(), w=()):
        return w * a**power

    laws = find_laws(scaled)
    a, w = laws.parameters
    assert laws.polynomial == (sympy.sympify(law, {"a": a, "w": w}),) and laws.complete


def test_root_of_a_fraction():
    """θ = w s with s² = 1 + 1/x: w ẇ = w s and ẋ = −w/(2x² s), so w²/2 + (2/3)x³ + x² is constant."""

    def scaled(x=(), w=()):
        return w * np.sqrt(1 + 1 / x)

    laws = find_laws(scaled, degree=3)
    x, w = laws.parameters
    assert laws.polynomial == (4 * x**3 + 6 * x**2 + 3 * w**2,) and laws.complete


def test_square_and_cube_root_of_one_radicand():
    def mixed(a=(), w=2):
        return np.stack([w[0] * np.sqrt(a), w[1] * np.cbrt(a)])

    laws = find_laws(mixed)  # a ȧ = w_0 ẇ_0/2 + w_1 ẇ_1/3
    a, p, q = laws.parameters
    assert laws.polynomial == (6 * a**2 - 3 * p**2 - 2 * q**2,) and laws.complete


def test_softmax_weights_conserve_the_sum_of_logits():
    def softmax(a=2, w=2):
        return w * np.exp(a) / np.exp(a).sum()

    laws = find_laws(softmax)
    assert laws.polynomial == (laws.parameters[0] + laws.parameters[1],) and laws.complete


def test_exponents_that_depend_on_each_other():
    """exp(a), exp(b), exp(a/2 + b): one relation, which independent rational values would break."""

    def related(a=(), b=()):
        return np.stack([np.exp(a), np.exp(b), np.exp(a / 2 + b)])

    fields = gradient_fields(related)
    assert len(fields.generators) == 4
    assert find_laws(related).rank == 2

    def alone(a=(), w=2):
        return np.stack([w[0] * np.exp(a), w[1] * np.exp(2 * a)])

    laws = find_laws(alone)  # 2ȧ = w_0 ẇ_0 · 2 + 2 · w_1 ẇ_1 · 2
    a, p, q = laws.parameters
    assert laws.polynomial == (2 * a - p**2 - 2 * q**2,) or laws.polynomial == (p**2 + 2 * q**2 - 2 * a,)
    assert laws.complete


def test_floats_are_the_nearest_simple_rational():
    def halved(a=(), w=()):
        return 0.1 * w * a + 1 / 3 * w**2

    exact = gradient_fields(halved).fields

    def rational(a=(), w=()):
        return w * a / 10 + w**2 / 3

    assert exact == gradient_fields(rational).fields


def test_single_entries_lists_and_in_place_operations():
    def picky(x=(2, 2)):
        y = x * 1
        y += x
        return np.array([[np.sqrt(x[0, 0]) * y[0, 1], y[1, 1] ** 2 * x[1, 0]]])

    assert find_laws(picky).complete


def test_a_function_may_work_in_its_blocks():
    def scaled(v=(2,), w=(2,)):
        v *= w
        return v

    assert [str(law) for law in find_laws(scaled).polynomial] == ["v[0]**2 - w[0]**2", "v[1]**2 - w[1]**2"]


def test_sampled_points_lie_on_the_radicals():
    fields = gradient_fields(magnitude_direction)
    rng = np.random.default_rng(0)
    for _ in range(5):
        point = fields.sample(rng)
        assert all(relation(*point) == 0 for relation in fields.relations)
        assert len(set(point)) == len(point)


def test_bracket_is_the_commutator_of_derivations():
    x, y = sympy.symbols("x y")
    fields = polynomial_fields([[x**2 * y + 1, y**3], [x - y, x * y**2]], (x, y))
    X, Y = fields.fields
    f = fields.polynomial(x**3 * y + 2 * x * y**2)
    commutator = fields.derivative(fields.derivative(f, Y), X) - fields.derivative(fields.derivative(f, X), Y)
    assert fields.derivative(f, fields.bracket(X, Y)) == commutator and commutator != 0


def test_a_lifted_field_is_tangent_to_its_radicals_and_matches_a_float_difference():
    fields = gradient_fields(magnitude_direction)
    assert all(not fields.derivative(relation, X) for relation in fields.relations for X in fields.fields)
    point = fields.sample(np.random.default_rng(1))
    values = np.array([float(sympy.Rational(int(x.p), int(x.q))) for x in point[1:]])

    def theta(v):
        beta, alpha, W = v[0], v[1:4], v[4:].reshape(2, 3)
        return (W * beta * alpha / elementwise("sqrt", (alpha**2).mean())).ravel()

    sign = 1 if point[0] > 0 else -1
    eps = 1e-6
    jacobian = sign * np.array([(theta(values + eps * e) - theta(values - eps * e)) / (2 * eps) for e in np.eye(10)]).T
    for X, row in zip(fields.fields, jacobian, strict=True):
        exact = np.array([float(sympy.Rational(int(c.p), int(c.q))) for c in (x(*point) for x in X[1:])])
        cosine = exact @ row / np.linalg.norm(exact) / np.linalg.norm(row)
        assert abs(abs(cosine) - 1) < 1e-8


def sine(x=2):
    return np.sin(x)


def branching(x=2):
    return np.maximum(x[0] - x[1], 0)


def absolute(x=2):
    return abs(x[0] - x[1])


def irrational(x=2):
    return np.pi * x


def root_of_two(x=2):
    return sympy.sqrt(2) * x


def constant_exponent(x=2):
    return np.exp(x + 1)


def rational_exponent(x=2):
    return np.exp(1 / x)


def symbolic_power(x=2):
    return x[0] ** x[1]


def a_list(x=2):
    return [x]


def nothing(x=2):
    return None


def raising(x=2):
    raise RuntimeError("two\nlines")


def words(x=2):
    return np.array(["x", "y"], dtype=object)


def no_shape(x):
    return x


def zero_size(x=0):
    return x


def empty_handed():
    return np.zeros(2)


def divides_by_zero(x=2):
    return x / (x - x)


def square_in_disguise(x=2):
    return np.sqrt(x[0] ** 2 + 2 * x[0] + 1)


def shared_factor(x=2):
    return np.stack([np.sqrt(x[0] ** 2 + x[0] * x[1]), np.sqrt(x[0] + x[1])])


def nested(x=2):
    return np.sqrt(1 + np.sqrt(x))


def no_rational_point(x=2):
    return np.sqrt(3 * x[0] ** 2 + 3 * x[1] ** 2)


@pytest.mark.parametrize(
    "function, message",
    [
        (sine, r"sin\(x\[0\]\) is neither algebraic"),
        (branching, "branching raised TypeError"),
        (absolute, r"Abs\(x\[0\] - x\[1\]\) is neither"),
        (irrational, r"3\.14159.*rational"),
        (root_of_two, "constant root is not rational"),
        (constant_exponent, r"exp\(x\[0\] \+ 1\): the constant"),
        (rational_exponent, r"exp\(1/x\[0\]\): the exponent must be a polynomial"),
        (symbolic_power, r"x\[0\]\*\*x\[1\] is neither"),
        (a_list, "returned list; expected an array"),
        (nothing, "returned NoneType"),
        (raising, "raising raised RuntimeError: two lines"),
        (words, "'x': expected an algebraic expression"),
        (no_shape, "block x has no default; expected its shape"),
        (zero_size, "block x has default 0"),
        (empty_handed, "has no arguments"),
        (divides_by_zero, "zoo"),
        (square_in_disguise, "repeated factor"),
        (shared_factor, "shares none"),
        (nested, "not in Q"),
        (3, "3: expected a Parametrization or a function"),
    ],
)
def test_what_cannot_be_read_exactly_is_refused_in_one_line(function, message):
    with pytest.raises(ValueError, match=message) as error:
        find_laws(function)
    assert "\n" not in str(error.value)


def test_no_rational_point_is_an_error_not_a_guess():
    with pytest.raises(ValueError, match="no rational point"):
        find_laws(no_rational_point)


def test_dimensions_at_the_door():
    with pytest.raises(ValueError, match="d is missing"):
        gradient_fields(INPUT_SCALE, {"c": 2})
    with pytest.raises(ValueError, match="takes no dims"):
        gradient_fields(magnitude_direction, {"c": 2})
    with pytest.raises(ValueError, match="2 components; expected 3"):
        polynomial_fields([[1, 2]], sympy.symbols("x y z"))
    with pytest.raises(ValueError, match="expected a polynomial"):
        gradient_fields(INPUT_SCALE, {"c": 1, "d": 1}).conserves(1 / sympy.Symbol("v[0]"))
    assert (
        fmpq(1, 2)
        == gradient_fields(INPUT_SCALE, {"c": 1, "d": 1}).polynomial(sympy.Rational(1, 2)).leading_coefficient()
    )


def cube_root(a=2, w=2):
    return w * np.cbrt(a + 1)


def shifted_norm(a=2, w=()):
    return w * np.sqrt(a @ a + 2)


def chained(a=(), b=(), c=(), w=2):
    return np.stack([w[0] * np.sqrt(a + b), w[1] * np.cbrt(a * 2 + c)])


@pytest.mark.parametrize("function", [cube_root, shifted_norm, chained])
def test_fields_are_tangent_to_their_radicals_and_points_generic(function):
    fields = gradient_fields(function)
    assert all(not fields.derivative(relation, X) for relation in fields.relations for X in fields.fields)
    assert any(X[0] for X in fields.fields)
    rng = np.random.default_rng(2)
    points = [fields.sample(rng) for _ in range(4)]
    assert all(relation(*p) == 0 for p in points for relation in fields.relations)
    assert all(len({p[g] for p in points}) == 4 for g in range(len(fields.generators)))
    assert all(all(p) for p in points)
