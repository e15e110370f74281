"""The redundancy finder on real models that no claim is about, and up to a norm's ε."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from simulations.claims.real_redundancy import ATTENTION, HEAD, MLP, QUERY_KEY, _sorted, counts, found


def test_mistral_is_as_llama() -> None:
    result = found("mistral", seed=1)
    expected = dict(_sorted(ATTENTION | MLP | QUERY_KEY | HEAD))
    assert dict(counts(result)) in (expected, {k: n for k, n in expected.items() if "lm_head" not in k})
    assert result.unexplained == 0
    assert max(f.change for f in result.families) < 1e-12


def test_qk_norm_makes_the_size_of_each_head_redundant_up_to_epsilon() -> None:
    """Two q heads and one k head: their rows' sizes are null only where singular values of ε count as zero."""
    exact, loose = found("qwen3", seed=0), found("qwen3", seed=0, null=1e-6)
    assert loose.nullity - exact.nullity == 3
    kinds = counts(loose)
    assert kinds["q_proj rows"] == 2 and kinds["k_proj rows"] == 1
    assert 1e-9 < max(f.change for f in loose.families if len(f.sites) == 1) < 1e-4
