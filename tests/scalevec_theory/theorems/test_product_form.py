"""The product form: verdicts, proofs that need each hypothesis, and counts that notice a wrong shape."""

from __future__ import annotations

from dataclasses import replace

import flint
import numpy as np
import pytest

from scalevec_theory.check import check_scope
from scalevec_theory.claim import Setting
from scalevec_theory.decoder_shapes import LLAMA_1B, PUBLISHED, Decoder
from scalevec_theory.theorems import product_form
from scalevec_theory.theorems.product_form import claim, counted

SCOPES = {scope.name: scope for scope in claim.scopes}


@pytest.mark.parametrize("name", SCOPES)
def test_every_scope_gets_its_expected_verdict(name):
    result = check_scope(claim, SCOPES[name])
    assert result.ok and result.verdict == ("proved" if SCOPES[name].holds else "refuted")
    assert all(e.supports is SCOPES[name].holds for e in result.evidence)
    if result.counterexample:
        assert result.counterexample.fields["M"] in ([[0, -1], [1, 0]], [[0, 1], [1, 0]], [[1, 0], [0, 1]])
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


def test_the_paper_s_counts_fix_the_attention_shape():
    """Fewer key-value heads, another FFN, a tied head or q/k-norm would each miss the published numbers."""
    published = (80_640, 1_028_065_024)
    assert (LLAMA_1B.scales, LLAMA_1B.total) == published
    for other in (
        replace(LLAMA_1B, kv_heads=7),
        replace(LLAMA_1B, ffn=4779),
        replace(LLAMA_1B, tied=True),
        replace(LLAMA_1B, layer_scales=LLAMA_1B.layer_scales + 2 * 128),
        replace(LLAMA_1B, layers=21),
    ):
        assert (other.scales, other.total) != published
    assert (replace(LLAMA_1B, heads=28, kv_heads=28, head_dim=64).total, LLAMA_1B.scales) == published[::-1]


def test_designs_counted_one_matrix_at_a_time():
    small = Decoder(width=4, layers=3, ffn=6, vocabulary=9, heads=2, kv_heads=1, head_dim=2, layer_scales=8)
    assert small.heterogeneous() == 3 * (5 * 4 - 2 * 4)
    inputs, outputs = 5 * 4 + 4 + 6, 4 + 2 + 2 + 4 + 6 + 6 + 4
    assert small.dual() == 3 * (inputs + outputs - 8)
    assert small.unified() - small.dual() == 3 * 14
    assert small.total == 3 * (4 * 4 + 2 * 2 * 4 + 4 * 4 + 3 * 4 * 6 + 8) + 2 * 9 * 4 + 4


def test_shares_of_published_models():
    shares = {name: 100 * decoder.scales / decoder.total for name, (decoder, _, _) in PUBLISHED.items()}
    assert shares["Llama-3.2-1B"] == pytest.approx(0.0055, abs=5e-5)
    assert all(share < 0.02 for share in shares.values())


def test_a_wrong_count_is_refuted_with_the_numbers():
    (evidence,) = counted([("apples", 3, 3), ("pears", 4, 5)])(Setting("quick", 0, np.random.default_rng(0)))
    assert evidence.supports is False and evidence.margin == -1
    assert evidence.counterexample.fields == {"what": "pears", "counted": 4, "stated": 5}


def test_a_count_that_is_too_large_is_refuted_too():
    (evidence,) = counted([("pears", 5, 4)])(Setting("quick", 0, np.random.default_rng(0)))
    assert evidence.supports is False and evidence.margin == -1


def test_a_rank_that_is_too_small_is_refuted(monkeypatch):
    """At u = 0 and v = 0 no parameter acts."""
    setting = Setting("quick", 0, np.random.default_rng(0))
    (evidence,) = product_form.rank_of_modulation(setting)
    assert (evidence.supports, evidence.instances) == (True, 25)
    monkeypatch.setattr(product_form, "random_rational", lambda rng: flint.fmpq(0))
    (evidence,) = product_form.rank_of_modulation(setting)
    assert evidence.supports is False and evidence.counterexample.fields["counted"] == 0


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="layers=0: expected an integer >= 1"):
        replace(LLAMA_1B, layers=0)
