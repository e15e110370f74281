"""Checking a scope: evidence of every kind, counterexamples that run when pasted, expectations both ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sympy import Eq, symbols

from scalevec_theory.check import check_scope, search_budget
from scalevec_theory.claim import Claim, Evidence, Margin, NotRun, Scope, Setting, Verdict, measured
from scalevec_theory.problems import Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof
from scalevec_theory.registry import claims_in_file, find_scopes

SPACE = ProblemSpace("any vector", {"n": (1, 3)}, {"x": Real("n")})
x = symbols("x", real=True)


def positive(problems: Problems, accuracy: float) -> Margin:
    return Margin.at_least(problems["x"].square(), 0 * problems["x"], 0.0)


def negative(problems: Problems, accuracy: float) -> Margin:
    return Margin.at_least(problems["x"], 0 * problems["x"], 0.0)


def check(scope: Scope, **options):  # type: ignore[no-untyped-def]
    return check_scope(Claim("planted", "", "", "", (scope,)), scope, **options)


def proof(right: int) -> Proof:
    return Proof((Lemma("square", Eq((x + 1) ** 2, x**2 + 2 * x + right)),), "expanded")


@pytest.mark.parametrize(
    ("holds", "margin", "verdict", "ok"),
    [
        (True, positive, Verdict.CONFIRMED, True),
        (False, positive, Verdict.CONFIRMED, False),
        (True, negative, Verdict.REFUTED, False),
        (False, negative, Verdict.REFUTED, True),
    ],
)
def test_the_expectation_is_red_both_ways(holds, margin, verdict, ok) -> None:  # type: ignore[no-untyped-def]
    result = check(Scope("s", "", holds, SPACE, margin))
    assert (result.verdict, result.ok) == (verdict, ok)
    assert (result.counterexample is not None) == (verdict == Verdict.REFUTED)


def test_a_proof_proves_and_a_failed_one_does_not_refute() -> None:
    assert check(Scope("s", "", True, proof=lambda: proof(1))).verdict == Verdict.PROVED
    failed = check(Scope("s", "", True, SPACE, positive, proof=lambda: proof(2)))
    assert failed.verdict == Verdict.INCONCLUSIVE and not failed.ok
    assert "residual" in failed.evidence[0].detail


def test_one_lemma_that_fails_leaves_a_proof_open() -> None:
    half = Proof((*proof(1).lemmas, *proof(2).lemmas), "both")
    assert check(Scope("s", "", True, proof=lambda: half)).verdict == Verdict.INCONCLUSIVE


def test_a_counterexample_outranks_a_proof() -> None:
    result = check(Scope("s", "", True, SPACE, negative, proof=lambda: proof(1)))
    assert result.verdict == Verdict.REFUTED and not result.ok


def test_measurements_count_and_get_their_own_generator() -> None:
    seen = []

    def measure(setting: Setting) -> list[Evidence]:
        seen.append(setting.rng.standard_normal())
        return [measured("simulation", 1.0, "far from zero", stderr=0.1, seed=setting.seed)]

    scope = Scope("s", "", True, measure=measure)
    assert check(scope, seed=3).verdict == Verdict.CONFIRMED
    check(scope, seed=3)
    check(scope, seed=4)
    assert seen[0] == seen[1] != seen[2]


def test_what_cannot_run_says_why_and_is_not_ok() -> None:
    def measure(setting: Setting) -> list[Evidence]:
        raise NotRun("the package is missing")

    result = check(Scope("s", "", True, measure=measure))
    assert (result.verdict, result.ok, result.reason) == (Verdict.NOT_RUN, False, "the package is missing")
    proved = check(Scope("s", "", True, proof=lambda: proof(1), measure=measure))
    assert (proved.verdict, proved.ok, proved.reason) == (Verdict.PROVED, False, "the package is missing")


def test_the_counterexample_of_an_installed_claim_runs_when_pasted() -> None:
    ((claim, scope),) = find_scopes("conservation:adam")
    result = check_scope(claim, scope, budget=64)
    assert result.counterexample is not None and result.counterexample.margin < 0
    exec(result.counterexample.code, {})
    broken = result.counterexample.code.replace("margin < 0", "margin > 0")
    with pytest.raises(AssertionError):
        exec(broken, {})


NOT_A_NUMBER, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "error", "detail"),
    [
        (-1.0, NOT_A_NUMBER, "failed to compute"),
        (-1.0, INFINITE, "within their numerical error"),
        (-INFINITE, 0.0, "minus infinity"),
    ],
)
def test_a_negative_margin_that_decides_nothing_confirms_nothing(value: float, error: float, detail: str) -> None:
    def margin(problems: Problems, accuracy: float) -> Margin:
        x = problems["x"].flatten(1)[:, 0]
        return Margin(torch.full_like(x, value), torch.full_like(x, error))

    result = check(Scope("s", "", True, SPACE, margin))
    assert result.verdict == Verdict.INCONCLUSIVE and detail in result.evidence[0].detail


def test_a_space_of_which_nothing_can_be_drawn_confirms_nothing() -> None:
    empty = ProblemSpace("x < x", SPACE.dims, SPACE.fields, where=lambda p: torch.zeros(len(p), dtype=torch.bool))
    result = check(Scope("s", "", True, empty, positive))
    assert result.verdict == Verdict.INCONCLUSIVE and "could be drawn" in result.evidence[0].detail


def test_a_slow_margin_is_computed_less_often() -> None:
    cheap, slow = (Scope("s", "", True, SPACE, positive, cost=cost) for cost in (1, 8))
    assert [search_budget(s, "quick") for s in (cheap, slow)] == [2000, 250]
    assert check(slow).evidence[0].instances <= 250


def test_one_margin_of_minus_infinity_leaves_it_open() -> None:
    def margin(problems: Problems, accuracy: float) -> Margin:
        x = problems["x"].flatten(1)[:, 0]
        return Margin(torch.where(x > 4, -INFINITE, 1.0).double(), torch.zeros_like(x))

    assert check(Scope("s", "", True, SPACE, margin)).verdict == Verdict.INCONCLUSIVE


@pytest.mark.parametrize("share", [1, 0.5])
def test_a_violation_that_cannot_be_verified_leaves_it_open(share: float) -> None:
    def margin(problems: Problems, accuracy: float) -> Margin:
        x = problems["x"].flatten(1)[:, 0]
        fine = torch.where((x * 1e3) % 1 <= share, NOT_A_NUMBER, 1.0).double()
        return Margin(torch.full_like(x, -1.0) if accuracy >= 1e-8 else fine, torch.zeros_like(x))

    result = check(Scope("s", "", True, SPACE, margin))
    assert result.verdict == Verdict.INCONCLUSIVE and "hundredth" in result.evidence[0].detail


def test_a_counterexample_keeps_a_size_that_no_field_has(tmp_path: Path) -> None:
    """A claim about a number n, stated with n as a dimension: false from n = 4 on."""
    file = tmp_path / "sizes.py"
    file.write_text(
        """
import torch
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.problems import ProblemSpace, Real

def margin(problems, accuracy):
    return Margin(torch.full_like(problems["x"], 3.5 - problems.dims["n"]), torch.zeros_like(problems["x"]))

claim = Claim("n", "", "", "", (Scope("s", "", False, ProblemSpace("", {"n": (1, 6)}, {"x": Real("")}), margin),))
"""
    )
    ((claim, scope),) = find_scopes("n", claims_in_file(file))
    found = check_scope(claim, scope, file=str(file)).counterexample
    assert found is not None and found.fields["n"] == 4 and found.margin == -0.5
    exec(found.code, {})
    assert scope.evaluate(x=1) == 2.5
    with pytest.raises(ValueError, match=r"n=2\.5"):
        scope.evaluate(n=2.5, x=1)


@pytest.mark.parametrize(("option", "value"), [("effort", "huge"), ("seed", -1), ("budget", -5)])
def test_bad_options_are_named(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{option}="):
        check(Scope("s", "", True, SPACE, positive), **{option: value})


def test_evaluate_recomputes_one_margin_and_names_what_is_wrong() -> None:
    scope = Scope("s", "", True, SPACE, negative)
    assert scope.evaluate(x=[1, -2]) == -2
    with pytest.raises(ValueError, match="this problem space has"):
        scope.evaluate(y=[1])
    with pytest.raises(ValueError, match="not stated on a problem space"):
        Scope("s", "", True, proof=lambda: proof(1)).evaluate(x=[1])
    assert np.isfinite(scope.evaluate(x=[0.5]))
    told = Scope(
        "s", "", True, SPACE, lambda p, accuracy: Margin.equal(0 * p["x"], 0 * p["x"], accuracy), accuracy=1e-5
    )
    assert told.evaluate(x=[1]) == pytest.approx(1e-7)
