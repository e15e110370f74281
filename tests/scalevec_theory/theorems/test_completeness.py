"""The completeness claim: verdicts, counterexample code that runs, and proofs that need each of their hypotheses."""

from __future__ import annotations

import pytest

from scalevec_theory.check import check_scope
from scalevec_theory.claim import Setting
from scalevec_theory.parametrizations import INPUT_SCALE, MAGNITUDE_DIRECTION
from scalevec_theory.theorems import completeness
from scalevec_theory.theorems.completeness import claim, decide

SCOPES = {scope.name: scope for scope in claim.scopes}


@pytest.mark.parametrize("name", SCOPES)
def test_every_scope_gets_its_expected_verdict(name):
    result = check_scope(claim, SCOPES[name], effort="quick")
    assert result.ok and result.verdict == ("proved" if SCOPES[name].holds else "refuted")
    assert all(e.supports is SCOPES[name].holds for e in result.evidence)


@pytest.mark.parametrize("name", [n for n, s in SCOPES.items() if not s.holds])
def test_counterexample_code_runs(name):
    example = check_scope(claim, SCOPES[name]).counterexample
    assert example is not None and example.margin == -1
    exec(example.code, {})
    with pytest.raises(AssertionError):
        exec(example.code.replace("margin = ", "margin = 1 + "), {})


@pytest.mark.parametrize("name", [n for n, s in SCOPES.items() if s.proof])
def test_a_proof_without_one_of_its_hypotheses_fails(name):
    proof = SCOPES[name].proof()
    dropped = [(lemma, h) for lemma in proof.lemmas for h in lemma.hypotheses]
    assert dropped
    for lemma, hypothesis in dropped:
        assert not lemma.without(hypothesis).check().holds, (lemma.statement, hypothesis)


def test_a_wrong_constant_in_the_bracket_fails():
    (bracket,) = [
        x for x in completeness.prove_magnitude_direction().lemmas if "rotation" in x.statement and x.goal[1:]
    ]
    from dataclasses import replace

    from sympy import Eq

    wrong = tuple(Eq(g.lhs, g.rhs * 2, evaluate=False) for g in bracket.goal)
    assert bracket.check().holds and not replace(bracket, goal=wrong).check().holds


def test_decide_refutes_a_list_that_lacks_a_law_and_refuses_a_false_law():
    import numpy as np

    setting = Setting("quick", 0, np.random.default_rng(0))
    (evidence,) = decide(MAGNITUDE_DIRECTION, lambda beta, alpha, W: {"|alpha|^2": (alpha * alpha).sum(-1)})(setting)
    assert evidence.supports is False and evidence.margin == -1
    with pytest.raises(ValueError, match="not conserved"):
        decide(INPUT_SCALE, lambda v, W: {"v^2": v * v})(setting)
