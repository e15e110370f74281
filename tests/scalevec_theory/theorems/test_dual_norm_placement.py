"""Dual-norm placement: verdicts, counterexample code that runs, proofs that need each hypothesis, and the formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scalevec_theory.check import check_scope
from scalevec_theory.theorems import dual_norm_placement as module
from scalevec_theory.theorems.dual_norm_placement import claim, dual_norm, orthogonality_margin, size_margin

SCOPES = {scope.name: scope for scope in claim.scopes}


@pytest.mark.parametrize("name", SCOPES)
def test_every_scope_gets_its_expected_verdict(name):
    result = check_scope(claim, SCOPES[name])
    assert result.ok and result.verdict == ("proved" if SCOPES[name].holds else "refuted")
    assert all(e.supports is SCOPES[name].holds for e in result.evidence)
    if result.counterexample:
        exec(result.counterexample.code, {})
        with pytest.raises(AssertionError):
            exec(result.counterexample.code.replace("margin = ", "margin = 10 + "), {})


@pytest.mark.parametrize("name", [n for n, s in SCOPES.items() if s.proof])
def test_a_proof_without_one_of_its_hypotheses_fails(name):
    proof = SCOPES[name].proof()
    dropped = [(lemma, h) for lemma in proof.lemmas for h in lemma.hypotheses]
    assert dropped
    for lemma, hypothesis in dropped:
        assert not lemma.without(hypothesis).check().holds, (lemma.statement, hypothesis)


def test_dual_norm_by_loops():
    rng = np.random.default_rng(0)
    g, W, v, x = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((3,), (2, 3, 4), (4,), (4,)))
    out = dual_norm(g, W, v, x, epsilon=0.1)
    for h in range(2):
        y = [sum(W[h, i, j] * v[j] * x[j] for j in range(4)) for i in range(3)]
        rms = (sum(t * t for t in y) / 3 + 0.1) ** 0.5
        assert out[h].tolist() == pytest.approx([float(g[i] * y[i] / rms) for i in range(3)], rel=1e-12)


def test_margins_reject_a_wrong_norm(monkeypatch):
    """Without the division by the rms, neither orthogonality nor the bound on the size holds."""
    sizes, rng = {"h": 2, "c": 2, "d": 2}, np.random.default_rng(0)
    problems, with_loss = module.WIDE.draw(50, sizes, rng), module.WITH_LOSS.draw(50, sizes, rng)

    def unnormalised(v_out, W, v_in, x, epsilon=0.0):
        return v_out * (W @ (v_in * x)[..., None])[..., 0]

    assert orthogonality_margin(with_loss, 1e-8).value.min() > 0 and size_margin(problems, 1e-8).value.min() > 0
    monkeypatch.setattr(module, "dual_norm", unnormalised)
    assert orthogonality_margin(with_loss, 1e-8).value.min() < 0 and size_margin(problems, 1e-8).value.min() < 0
