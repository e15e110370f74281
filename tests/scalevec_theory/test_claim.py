"""The vocabulary: margins, and the verdict that evidence amounts to."""

from __future__ import annotations

import math

import pytest
import torch

from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting, Verdict, judge, measured
from scalevec_theory.problems import ProblemSpace, Real

SPACE = ProblemSpace("any", {}, {"x": Real("")})


def margin(problems, accuracy):  # type: ignore[no-untyped-def]
    return Margin.equal(problems["x"], problems["x"], accuracy)


def test_margin_of_an_inequality_is_its_worst_component_with_its_own_error() -> None:
    larger = torch.tensor([[3.0, 1.0], [2.0, 2.0]])
    smaller = torch.tensor([[1.0, 1.5], [1.0, 1.9]])
    error = torch.tensor([[0.6, 0.2], [0.0, 0.3]])
    m = Margin.at_least(larger, smaller, error)
    assert m.value.tolist() == pytest.approx([-0.5, 0.1]) and m.error.tolist() == pytest.approx([0.2, 0.3])
    m = Margin.at_least(larger, smaller, torch.tensor([0.1, 0.4]))  # one error for each problem, not for each component
    assert m.value.tolist() == pytest.approx([-0.5, 0.1]) and m.error.tolist() == pytest.approx([0.1, 0.4])


def test_a_clear_violation_outweighs_a_larger_one_within_error() -> None:
    m = Margin.at_least(torch.zeros(1, 2), torch.tensor([[0.5, 0.2]]), torch.tensor([[1.0, 0.01]]))
    assert m.value.item() == pytest.approx(-0.2)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_failed_computation_has_a_nan_margin(bad: float) -> None:
    assert Margin.at_least(torch.tensor([[1.0, bad]]), torch.tensor([[0.0, bad]]), 0.0).value.isnan().all()
    assert Margin.equal(torch.tensor([[1.0, bad]]), torch.tensor([[1.0, bad]]), 1e-8).value.isnan().all()
    assert Margin.at_least(torch.tensor([[bad]]), torch.zeros(1, 1), 0.0).value.isnan().all()


def test_margin_of_an_identity_is_relative_to_the_size_of_what_cancels() -> None:
    left, right = torch.tensor([[1e-9]]), torch.zeros(1, 1)
    assert Margin.equal(left, right, 1e-8, scale=torch.ones(1)).value.item() == pytest.approx(9e-9)
    assert Margin.equal(left, right, 1e-8).value.item() < -0.9
    assert Margin.equal(right, right, 1e-8).value.item() == pytest.approx(1e-8)


def test_margins_refuse_wrong_shapes_and_negative_errors() -> None:
    with pytest.raises(ValueError, match="shape"):
        Margin(torch.zeros(2, 1), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="error=-1"):
        Margin(torch.zeros(1), -torch.ones(1))


PROOF = Evidence("proof", True, "")
FAILED_PROOF = Evidence("proof", None, "")
FOR, AGAINST, NEITHER = (Evidence("search", s, "") for s in (True, False, None))


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        ([], Verdict.NOT_RUN),
        ([PROOF], Verdict.PROVED),
        ([PROOF, FOR], Verdict.PROVED),
        ([PROOF, NEITHER], Verdict.PROVED),
        ([PROOF, AGAINST], Verdict.REFUTED),
        ([FOR], Verdict.CONFIRMED),
        ([FOR, NEITHER], Verdict.INCONCLUSIVE),
        ([FAILED_PROOF, FOR], Verdict.INCONCLUSIVE),
        ([FOR, AGAINST], Verdict.REFUTED),
        ([NEITHER], Verdict.INCONCLUSIVE),
    ],
)
def test_the_verdict_follows_the_evidence(evidence: list[Evidence], verdict: Verdict) -> None:
    assert judge(evidence) == verdict


@pytest.mark.parametrize(
    ("value", "stderr", "error", "supports"),
    [
        (1.0, 0.1, 0.0, True),
        (0.31, 0.1, 0.0, True),
        (0.29, 0.1, 0.0, None),
        (-0.29, 0.1, 0.0, None),
        (-0.31, 0.1, 0.0, False),
        (math.inf, 0.1, 0.0, None),
        (0.2, 0.1, 0.0, None),
        (-0.2, 0.1, 0.0, None),
        (-1.0, 0.1, 0.0, False),
        (0.5, 0.1, 0.3, None),
        (math.nan, 0.1, 0.0, None),
        (1.0, math.nan, 0.0, None),
        (0.0, 0.0, 0.0, True),
    ],
)
def test_a_measurement_decides_only_beyond_three_standard_errors(
    value: float, stderr: float, error: float, supports: bool | None
) -> None:
    assert measured("simulation", value, "", stderr=stderr, error=error).supports is supports


@pytest.mark.parametrize("wrong", [{"stderr": -0.1}, {"error": -0.1}])
def test_a_measurement_has_no_negative_uncertainty(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected both >= 0"):
        measured("simulation", -0.1, "", **wrong)


def test_what_is_measured_is_a_simulation_or_training() -> None:
    with pytest.raises(ValueError, match="kind='proof': expected"):
        measured("proof", 1.0, "")


def test_a_scope_needs_evidence_and_a_proper_name() -> None:
    with pytest.raises(ValueError, match="no evidence"):
        Scope("empty", "", True)
    for name in ("Not Good", "not good"):
        with pytest.raises(ValueError, match="scope name"):
            Scope(name, "", True, SPACE, margin)
    with pytest.raises(ValueError, match="together"):
        Scope("half", "", True, SPACE)
    with pytest.raises(ValueError, match="accuracy=0"):
        Scope("exact", "", True, SPACE, margin, accuracy=0)
    with pytest.raises(ValueError, match="cost=0"):
        Scope("free", "", True, SPACE, margin, cost=0)
    scope = Scope("fine", "", True, SPACE, margin)
    with pytest.raises(ValueError, match="different names"):
        Claim("twice", "", "", "", (scope, scope))
    with pytest.raises(ValueError, match="scopes is a Scope, expected a tuple"):
        Claim("bare", "", "", "", scope)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="holds='no', expected True or False"):
        Scope("word", "", "no", SPACE, margin)  # type: ignore[arg-type]


def test_a_setting_chooses_the_size_of_its_effort() -> None:
    assert Setting("standard", 0, torch.nn.Module).choose(1, 2, 3) == 2  # type: ignore[arg-type]
