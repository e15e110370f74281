"""Falsification finds planted violations, verifies them, shrinks them, and finds none where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalevec_theory.check import check_scope, generator
from scalevec_theory.claim import Claim, Margin, Scope, Verdict
from scalevec_theory.problems import Between, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.search import search, shrink, significant, violation

MATRICES = ProblemSpace("matrices", {"c": (1, 2, 4), "d": (1, 2, 4)}, {"A": Real("cd"), "H": PositiveDefinite("dd")})


def scope_of(margin, holds: bool = True, space: ProblemSpace = MATRICES, **options) -> Scope:  # type: ignore[no-untyped-def]
    return Scope("planted", "planted", holds, space, margin, **options)


def cauchy(problems: Problems, accuracy: float) -> Margin:
    """‖AH‖_F ≤ ‖A‖_F λ_max(H): true."""
    A, H = problems["A"], problems["H"]
    bound = A.flatten(1).norm(dim=1) * torch.linalg.eigvalsh(H)[:, -1]
    size = (A @ H).flatten(1).norm(dim=1)
    return Margin.at_least(bound, size, 1e-12 * bound)


def too_tight(problems: Problems, accuracy: float) -> Margin:
    """The same with half the trace for λ_max: false only where d >= 2 and H is far from a multiple of I."""
    A, H = problems["A"], problems["H"]
    bound = A.flatten(1).norm(dim=1) * H.diagonal(dim1=1, dim2=2).mean(-1)
    size = (A @ H).flatten(1).norm(dim=1)
    return Margin.at_least(bound, size, 1e-12 * bound)


def run(scope: Scope, seed: int = 0, budget: int = 2000):  # type: ignore[no-untyped-def]
    return search(scope, budget, np.random.default_rng(seed))


def test_a_true_inequality_survives() -> None:
    outcome = run(scope_of(cauchy))
    assert outcome.counterexample is None and outcome.invalid == 0 and outcome.instances > 1000


@pytest.mark.parametrize("seed", range(5))
def test_a_false_inequality_is_refuted_by_a_small_counterexample(seed: int) -> None:
    found = run(scope_of(too_tight), seed).counterexample
    assert found is not None
    assert found.dims == {"c": 1, "d": 2}
    assert float(violation(scope_of(too_tight), found)[0]) < 0
    for x in found.fields.values():
        assert all(v == significant(v, 2) for v in x.flatten().tolist())


def test_descent_finds_what_random_draws_miss() -> None:
    """Margin negative only in a ball of radius 0.15 in six dimensions around a far point."""
    target = torch.tensor([[1.7, -1.2, 0.8, 1.5, -0.6, 0.9]], dtype=torch.float64)

    def margin(problems: Problems, accuracy: float) -> Margin:
        distance = (problems["x"] - target).norm(dim=1)
        return Margin(distance - 0.15, torch.zeros_like(distance))

    space = ProblemSpace("vectors", {"d": (6,)}, {"x": Real("d")})
    draws = space.draw(2000, {"d": 6}, np.random.default_rng(0))
    assert (margin(draws, 1e-8).value > 0).all()
    assert run(scope_of(margin, space=space), budget=6000).counterexample is not None


def test_a_violation_within_numerical_error_is_not_a_counterexample() -> None:
    def noisy(problems: Problems, accuracy: float) -> Margin:
        value = -accuracy * problems["A"].flatten(1).abs().amax(1)
        return Margin(value, 10 * value.abs())

    outcome = run(scope_of(noisy))
    assert outcome.counterexample is None and outcome.undecided == outcome.instances


def test_a_violation_that_vanishes_at_higher_accuracy_is_not_a_counterexample() -> None:
    def integration_error(problems: Problems, accuracy: float) -> Margin:
        value = 1e-9 - accuracy * problems["A"].flatten(1).abs().amax(1).clamp(max=5.0)
        return Margin(value, torch.zeros_like(value))

    outcome = run(scope_of(integration_error, accuracy=1e-8))
    assert outcome.margin < 0 and outcome.counterexample is None


def test_failed_problems_are_counted_and_never_averaged_in() -> None:
    def half(problems: Problems, accuracy: float) -> Margin:
        x = problems["A"][:, 0, 0]
        return Margin(torch.where(x > 0, x.abs(), torch.nan), torch.zeros_like(x))

    scope = scope_of(half)
    outcome = run(scope)
    assert 0.2 < outcome.invalid / outcome.instances < 0.8
    result = check_scope(Claim("c", "", "", "", (scope,)), scope)
    assert result.verdict == Verdict.INCONCLUSIVE and not result.ok


def test_shrinking_respects_the_space() -> None:
    """The simplest violating numbers, 0 and 1, lie outside: x must stay between 2 and 9."""
    space = ProblemSpace("range", {"n": (1, 3)}, {"x": Between("n", 2.0, 9.0)})

    def margin(problems: Problems, accuracy: float) -> Margin:
        value = 5.0 - problems["x"].amax(1)
        return Margin(value, torch.zeros_like(value))

    found = run(scope_of(margin, space=space)).counterexample
    assert found is not None and found.dims == {"n": 1} and found["x"].item() in (6.0, 7.0, 8.0, 9.0)


def test_no_more_digits_are_dropped_than_the_violation_bears() -> None:
    """Violated only within 0.01 of 1.33, so not where it is rounded to one digit or two."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        return Margin((problems["x"] - 1.33).abs() - 0.01, torch.zeros_like(problems["x"]))

    space = ProblemSpace("any x", {}, {"x": Real("")})
    found = shrink(scope_of(margin, space=space), space.problem({"x": 1.33333}), np.random.default_rng(0))
    assert found["x"].tolist() == [1.33]


def test_a_true_statement_with_a_hypothesis_of_the_space_holds() -> None:
    """x ≥ 2 is only true because the space says so; without the assumption it is refuted."""

    def margin(problems: Problems, accuracy: float) -> Margin:
        value = problems["x"] - 2.0
        return Margin(value, torch.zeros_like(value))

    inside = ProblemSpace("x >= 2", {}, {"x": Real("", 5.0)}, where=lambda p: p["x"] >= 2)
    anywhere = ProblemSpace("any x", {}, {"x": Real("", 5.0)})
    outcome = run(scope_of(margin, space=inside))
    assert outcome.counterexample is None and outcome.margin >= 0
    assert run(scope_of(margin, space=anywhere)).counterexample is not None


def test_the_same_seed_finds_the_same_counterexample() -> None:
    first, second = (run(scope_of(too_tight), 3).counterexample for _ in range(2))
    assert first is not None and second is not None
    assert all(torch.equal(first[k], second[k]) for k in first.fields)


def test_a_margin_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="returned 1 values"):
        run(scope_of(lambda problems, accuracy: Margin(torch.zeros(1), torch.zeros(1))))


def test_budget_must_be_positive() -> None:
    with pytest.raises(ValueError, match="budget=0"):
        run(scope_of(cauchy), budget=0)


def test_a_scope_has_its_own_random_numbers() -> None:
    a, b, again = (generator(0, name).standard_normal() for name in ("x:a", "x:b", "x:a"))
    assert a == again != b
