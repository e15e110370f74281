"""Predicted sizes against a real model moved by noise, and what gets a prediction."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from scalevec_theory.equilibrium import predict
from scalevec_theory.optimizers import SGD, Adam, AdamW, Muon, Optimizer
from scalevec_theory.schedules import wsd
from simulations.models.attach import attach
from simulations.models.groups import iwd_param_groups, split_for_muon
from simulations.models.invariance import scale_invariant
from simulations.models.prediction import NormPrediction, move_by_noise, predict_norms
from simulations.models.scales import multipliers, plain_name
from simulations.models.toys import build, random_tokens, relative_change
from simulations.models.trace import trace

STEPS, WARMUP = 300, 20
SIGMAS = 4.0
"""A Gaussian lies further out once in 16,000."""


@cache
def toy(family: str) -> nn.Module:
    return build(family, 0)


@cache
def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


AS_TORCH = {
    SGD: (torch.optim.SGD, ("momentum", "nesterov")),
    Adam: (torch.optim.Adam, ("betas", "eps")),
    AdamW: (torch.optim.AdamW, ("betas", "eps")),
    Muon: (torch.optim.Muon, ("momentum", "nesterov", "ns_steps")),
}


def torch_optimizer(rule: Optimizer, groups) -> torch.optim.Optimizer:
    kind, names = AS_TORCH[type(rule)]
    return kind(groups, lr=rule.lr, **{name: getattr(rule, name) for name in names})


ADAMW = AdamW(0.02, 0.5, betas=(0.9, 0.95))
RUNS = {
    "adamw": ADAMW,
    "adam": Adam(0.02, 0.2, betas=(0.9, 0.95)),
    "sgd": SGD(0.02, 0.5, momentum=0.9),
    "muon-and-adamw": (Muon(0.1, 0.1, momentum=0.9), ADAMW),
}


def run(name: str) -> tuple[NormPrediction, np.ndarray, dict[str, np.ndarray]]:
    """The prediction for one of `RUNS`, the steps measured, and the rms of each parameter there."""
    model, rules = copy.deepcopy(_llama()), RUNS[name]
    schedule, record = wsd(STEPS, WARMUP), [20, STEPS // 2, STEPS]
    first = rules[0] if isinstance(rules, tuple) else rules
    groups = iwd_param_groups(model, weight_decay=first.weight_decay)
    prediction = predict_norms(model, rules, STEPS, schedule="wsd", warmup=WARMUP, groups=groups)
    pairs = zip(rules, split_for_muon(groups), strict=True) if isinstance(rules, tuple) else [(rules, groups)]
    optimizers = [torch_optimizer(rule, part) for rule, part in pairs]
    generator = torch.Generator().manual_seed(1)
    return prediction, np.array(record), move_by_noise(model, optimizers, schedule, generator, record)


@pytest.mark.parametrize("name", RUNS)
def test_every_matrix_of_a_model_moved_by_noise_is_where_it_was_predicted(name: str) -> None:
    """‖W‖_F of each within 4 of its standard deviations (the χ law of its n entries), at three steps; and the mean of
    w² over its prediction, all entries together, within 4 of its standard errors √(2/n)."""
    prediction, steps, measured = run(name)
    assert set(prediction.matrices) == {n for n, p in _llama().named_parameters() if p.ndim == 2}
    ratios, sizes = [], []
    for matrix, m in prediction.matrices.items():
        mean, std = (x[steps] for x in m.norm)
        assert (abs(measured[matrix] * math.prod(m.shape) ** 0.5 - mean) < SIGMAS * std).all(), matrix
        ratios.append((measured[matrix] / m.rms[steps]) ** 2)
        sizes.append(math.prod(m.shape))
    error = np.average(ratios, axis=0, weights=sizes) - 1
    assert (abs(error) < SIGMAS * (2 / sum(sizes)) ** 0.5).all(), error


def test_the_band_is_narrow_enough_to_see_another_decay_or_optimizer() -> None:
    """The run of AdamW against curves of half its decay, of another schedule, and of Muon."""
    _, steps, measured = run("adamw")
    groups = iwd_param_groups(_llama(), weight_decay=0.5)
    halved = iwd_param_groups(_llama(), weight_decay=0.25)
    plans = [(ADAMW, "wsd", halved), (ADAMW, "cosine", groups), (Muon(0.02, 0.5), "wsd", groups)]
    for rule, schedule, decays in plans:
        rules = (rule, ADAMW) if isinstance(rule, Muon) else rule
        wrong = predict_norms(_llama(), rules, STEPS, schedule=schedule, warmup=WARMUP, groups=decays)
        m = wrong.matrices["model.layers.0.mlp.up_proj.weight"]
        mean, std = (x[steps] for x in m.norm)
        norms = measured["model.layers.0.mlp.up_proj.weight"] * math.prod(m.shape) ** 0.5
        assert (abs(norms - mean) > 2 * SIGMAS * std).any(), (rule, schedule)


@pytest.mark.parametrize("rules", [ADAMW, RUNS["sgd"], RUNS["muon-and-adamw"]])
def test_each_matrix_starts_from_its_own_size_and_has_its_own_decay(rules) -> None:
    model = copy.deepcopy(_llama())
    groups = iwd_param_groups(model, weight_decay=0.3)
    prediction = predict_norms(model, rules, 50, schedule=wsd(50, 5), groups=groups)
    with torch.no_grad():
        model.lm_head.weight.mul_(100)  # the prediction is what it was
    hidden, other = rules if isinstance(rules, tuple) else (rules, rules)
    for name, rule in (("model.layers.0.mlp.up_proj.weight", hidden), ("model.embed_tokens.weight", other)):
        weight = model.get_parameter(name).detach().double()
        rms, rule = float(weight.square().mean().sqrt()), replace(rule, weight_decay=0.3)
        own = predict(rule, 50, init=rms, shape=tuple(weight.shape), lr_schedule=wsd(50, 5))
        np.testing.assert_allclose(prediction.matrices[name].rms, own.rms, rtol=1e-12)
        assert prediction.matrices[name].optimizer == rule


def test_without_groups_iwd_with_the_optimizer_s_decay() -> None:
    prediction = predict_norms(_llama(), ADAMW, 10)
    assert {m.optimizer for m in prediction.matrices.values()} == {ADAMW}
    both = predict_norms(_llama(), (Muon(0.1, 0.7), ADAMW), 10).matrices
    assert both["model.layers.0.mlp.up_proj.weight"].optimizer == Muon(0.1, 0.7)
    assert both["lm_head.weight"].optimizer == both["model.embed_tokens.weight"].optimizer == ADAMW


# By the ends of their names; matrices on which the model depends only up to their size, as q and k before their norm.
INVARIANT = {"llama": "", "qwen3": "q_proj k_proj", "gemma2": "o_proj down_proj", "deepseek-v3": "q_a_proj"}


@pytest.mark.parametrize("family", INVARIANT)
def test_scale_invariant_matrices_are_those_whose_size_changes_nothing(family: str) -> None:
    """Up to ε = 1e-6 of the norms; the values and up-projections of gemma2 are scale-invariant further up."""
    model = toy(family)
    traced = trace(model)
    found = scale_invariant(model, traced)
    assert {name.split(".")[-2] for name in found} == set(INVARIANT[family].split())
    tokens = random_tokens(model, 1, 8, 0)
    for name, use in traced.uses.items():
        if use.kind == "matrix" and not (family == "gemma2" and name.split(".")[-2] in ("v_proj", "up_proj")):
            doubled = copy.deepcopy(model)
            with torch.no_grad():
                doubled.get_parameter(name).mul_(2)
            change = relative_change(model, doubled, tokens)
            assert change < 1e-5 if name in found else change > 1e-3, (name, change)


def test_a_product_that_something_else_reads_is_not_scale_invariant() -> None:
    class Model(nn.Module):
        def __init__(self, body):
            super().__init__()
            self.norm, self.a, self.b = nn.RMSNorm(4), nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
            self.body = body

        def forward(self, x):
            return self.body(self, x)

    for body, expected in (
        (lambda m, x: m.norm(m.a(x)), {"a.weight"}),
        (lambda m, x: m.norm(m.a(x)[..., None, :].transpose(0, 1)), {"a.weight"}),
        (lambda m, x: x + m.norm(m.a.weight @ m.b.weight)[:3], {"a.weight", "b.weight"}),
        (lambda m, x: m.a(x) + m.norm(m.a(x)), set()),
        (lambda m, x: (y := m.a(x)) + m.norm(y), set()),
        (lambda m, x: m.norm(m.a(x) + x), set()),
        (lambda m, x: m.norm(m.a(m.a(x))), set()),
        (lambda m, x: m.norm(m.b(x)), set()),
        (lambda m, x: m.norm(torch.tanh(m.a(x))), set()),
        (lambda m, x: m.norm(torch.cat([m.a(x)[:, :2], x[:, :2]], 1)), set()),
    ):
        model, x = Model(body), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
        assert scale_invariant(model, trace(model, x), x) == expected


def test_scale_invariant_matrices_follow_their_own_law_or_none() -> None:
    q, o = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.o_proj.weight"
    model, sgd = toy("qwen3"), SGD(0.1, 0.2)
    weight = model.get_parameter(q).detach()
    rms, norm = float(weight.square().mean().sqrt()), float(weight.norm())
    by_sgd = predict_norms(model, sgd, 30, noise=0.3)
    own = predict(sgd, 30, init=rms, noise=0.3 * norm, shape=tuple(weight.shape), scale_invariant=True)
    np.testing.assert_allclose(by_sgd.matrices[q].rms, own.rms, rtol=1e-12)
    assert by_sgd.matrices[q].scale_invariant and not by_sgd.matrices[o].scale_invariant
    assert predict_norms(model, ADAMW, 5).matrices[q].scale_invariant
    assert predict_norms(model, (Muon(0.1, 0.1), ADAMW), 5).matrices[q].scale_invariant
    by_adam = predict_norms(model, Adam(0.1, 0.1), 5)
    assert by_adam.not_predicted[q] == "scale-invariant under Adam" and o in by_adam.matrices


def test_scales_and_vectors_get_no_prediction_and_frozen_parameters_nothing() -> None:
    model = copy.deepcopy(toy("gpt2"))
    model.transformer.wpe.requires_grad_(False)
    prediction = predict_norms(model, ADAMW, 5)
    vectors = {name for name, p in model.named_parameters() if p.ndim == 1}
    assert set(prediction.not_predicted) == vectors
    assert set(prediction.not_predicted.values()) == {"a scale, a multiplier or another vector"}
    assert "transformer.wpe.weight" not in prediction.matrices and "transformer.wte.weight" in prediction.matrices


def test_matrices_with_multipliers_are_predicted_and_the_multipliers_are_not() -> None:
    model = copy.deepcopy(toy("qwen3"))
    attach(model, "scalar")
    prediction, bare = predict_norms(model, ADAMW, 5), predict_norms(toy("qwen3"), ADAMW, 5)
    predicted = {plain_name(name): m for name, m in prediction.matrices.items()}
    assert predicted.keys() == bare.matrices.keys()
    for name, m in bare.matrices.items():
        assert predicted[name].scale_invariant == m.scale_invariant
        np.testing.assert_array_equal(predicted[name].rms, m.rms)
    assert set(multipliers(model)) <= set(prediction.not_predicted)


def test_settings_outside_of_the_tested_limits_are_told() -> None:
    assert "warning" not in predict_norms(_llama(), AdamW(0.01, 0.1, betas=(0.9, 0.95)), 3).table()
    told = predict_norms(_llama(), AdamW(0.01, 0.1, betas=(0.9, 0.9)), 3).table()
    assert "warning: beta2=0.9 is below 0.95" in told and told.count("warning") == 1


def test_table_and_figure(tmp_path: Path) -> None:
    prediction = predict_norms(toy("qwen3"), ADAMW, 20, schedule="cosine", warmup=2)
    lines = prediction.table().splitlines()
    q = next(line for line in lines if "self_attn.q_proj" in line)
    both = [m.rms[-1] for name, m in prediction.matrices.items() if "q_proj" in name]
    assert (
        q.startswith("model.layers.*.self_attn.q_proj.weight * ")
        and "16×16" in q
        and lines[-2].startswith("* scale-invariant")
    )
    assert f"{min(both):.4g}–{max(both):.4g}" in q
    assert lines[-1].startswith(
        "not predicted, a scale, a multiplier or another vector: model.layers.*.self_attn.q_norm"
    )
    files = prediction.draw(tmp_path / "plan.svg")
    assert files == [tmp_path / "plan.svg", tmp_path / "plan.png"] and all(f.stat().st_size > 5_000 for f in files)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"optimizer": Muon(0.1)}, "Muon moves hidden matrices only"),
        ({"optimizer": torch.optim.Muon([torch.zeros(2, 2)])}, r"optimizer is a torch.*Muon: expected AdamW"),
        ({"schedule": "linear"}, "schedule='linear': expected an array or one of constant, cosine, wsd"),
        ({"schedule": np.ones(3)}, r"schedule has shape \(3,\): expected \(10,\)"),
        ({"steps": 0}, "steps=0"),
        ({"warmup": 11}, "warmup=11"),
        ({"noise": 0.0}, "noise=0.0"),
        ({"weight_decay_schedule": -np.ones(10)}, "weight_decay_schedule has values from -1"),
        ({"optimizer": AdamW(10.0, 1.0)}, "unstable"),
    ],
)
def test_bad_input(arguments: dict, told: str) -> None:
    rule, steps = arguments.pop("optimizer", ADAMW), arguments.pop("steps", 10)
    with pytest.raises(ValueError, match=told):
        predict_norms(_llama(), rule, steps, **arguments)


def test_groups_of_another_model_are_refused() -> None:
    with pytest.raises(ValueError, match="is not there"):
        predict_norms(_llama(), ADAMW, 10, groups=iwd_param_groups(toy("gpt2"), weight_decay=0.1))
