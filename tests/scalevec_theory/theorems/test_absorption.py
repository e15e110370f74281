"""Folding against torch's own norms and linear layers, and wrong folds told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from scalevec_theory.problems import Problems
from scalevec_theory.registry import scope
from scalevec_theory.search import search
from scalevec_theory.theorems.absorption import Outputs, _apply, fold, unchanged

D = torch.float64


def test_layer_norm_and_linear_of_torch_are_unchanged_by_the_fold() -> None:
    torch.manual_seed(0)
    norm, linear, x = nn.LayerNorm(6, dtype=D), nn.Linear(6, 4, dtype=D), torch.randn(5, 6, dtype=D)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    before = linear(norm(x))
    with torch.no_grad():
        linear.bias += linear.weight @ norm.bias
        linear.weight.copy_(fold(linear.weight[None], norm.weight[None])[0])
        norm.weight.fill_(1)
        norm.bias.zero_()
    torch.testing.assert_close(linear(norm(x)), before, rtol=0, atol=1e-13)


def test_gated_mlp_behind_an_rms_norm_is_unchanged_by_the_fold() -> None:
    """Any function of linear consumers will do: here silu(W_gate y) ⊙ (W_up y)."""
    torch.manual_seed(1)
    norm, x = nn.RMSNorm(6, dtype=D), torch.randn(5, 6, dtype=D)
    nn.init.normal_(norm.weight)
    W = torch.randn(2, 4, 6, dtype=D)

    def mlp(W: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(norm(x) @ W[0].T) * (norm(x) @ W[1].T)

    before = mlp(W)
    W = fold(W[None], norm.weight.detach()[None])[0]
    nn.init.ones_(norm.weight)
    torch.testing.assert_close(mlp(W), before, rtol=0, atol=1e-13)


def bias_through_the_folded_matrix(problems: Problems) -> Outputs:
    W, v, x, shift, bias = (problems[k] for k in ("W", "v", "x", "shift", "bias"))
    return _apply(W, v * x + shift) + bias, _apply(fold(W, v), x + shift) + bias


def one_forgotten(problems: Problems) -> Outputs:
    W, w, x, s = (problems[k] for k in ("W", "w", "x", "s"))
    return _apply(W, (1 + w) * x), _apply(fold(W, s), (1 + (1 + w) / s) * x)


@pytest.mark.parametrize(
    ("name", "wrong"), [("layernorm-bias", bias_through_the_folded_matrix), ("one-plus-w", one_forgotten)]
)
def test_wrong_folds_are_refuted(name: str, wrong: object) -> None:
    false = replace(scope(f"absorption:{name}"), margin=unchanged(wrong), proof=None)  # type: ignore[arg-type]
    found = search(false, 300, np.random.default_rng(0)).counterexample
    assert found is not None
    assert found.dims == {"b": 1, "c": 1, "d": 1}


def test_a_fold_leaves_the_consumer_changed_where_the_scales_of_a_rotary_pair_differ() -> None:
    """A quarter turn exchanges the halves: W R(v⊙x) = v_1 x_1 in the second half, the fold gives v_2 x_1."""
    margin = scope("absorption:rotary-any-scales").evaluate
    quarter = {"W": [[[0.0, 1.0]]], "x": [[1.0, 0.0]], "angle": [np.pi / 2]}
    size = 2 * 2 * (1 + np.pi / 2) * (1 + np.sqrt(13))
    assert margin(v=[[2, 3]], **quarter) == pytest.approx(-1 / size, rel=1e-6)
    assert margin(v=[[2, 2]], **quarter) > 0
