"""Real model families: roles and consumers of their norms, absorption, conservation, and the claims made of them."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from scalevec_theory.check import check_scope
from scalevec_theory.claim import NotRun
from scalevec_theory.decoder_shapes import Decoder
from simulations.claims import real_models as claims
from simulations.claims import real_qk_norm
from simulations.models.conserved import conserved, increment
from simulations.models.folding import absorb, effective_scale, move_scale, untie
from simulations.models.toys import (
    FAMILIES,
    Float64,
    build,
    gradient_flow,
    loss_gradient,
    norms_of,
    random_tokens,
    relative_change,
)
from simulations.models.trace import trace

POST = "post_attention_layernorm"
QKV = "self_attn.q_proj self_attn.k_proj self_attn.v_proj"
GATE_UP = "mlp.gate_proj mlp.up_proj"
LLAMA = f"input_layernorm input 0: {QKV}; {POST} input 0: {GATE_UP}; "
QK_NORM = "self_attn.q_norm output 0 / bmm; self_attn.k_norm output 0 / bmm; "
GEMMA = f"input_layernorm input 1: {QKV}; {POST} output 1 / add; pre_feedforward_layernorm input 1: {GATE_UP}; "
FALCON_FF = "pre_ff_layernorm input 0: feed_forward.gate_proj feed_forward.up_proj; "
FALCON = f"input_layernorm input 0: mamba.in_proj {QKV}; {FALCON_FF}"
STABLE = f"input_layernorm input 0 bias: {QKV}; {POST} input 0 bias: {GATE_UP}; "

# The norms of the second layer and those outside the layers: role, offset, "bias" if it has one, consumers after ":"
# (with * where the parameter is also used elsewhere), all else that reads the output after "/".
EXPECTED = {
    "gpt2": "ln_1 input 0 bias: attn.c_attn; ln_2 input 0 bias: mlp.c_fc; ln_f input 0 bias: lm_head*",
    "llama": LLAMA + "norm input 0: lm_head",
    "llama-tied": LLAMA + "norm input 0: lm_head*",
    "mistral": LLAMA + "norm input 0: lm_head",
    "qwen2": LLAMA + "norm input 0: lm_head*",
    "qwen3": LLAMA + QK_NORM + "norm input 0: lm_head*",
    "qwen3-moe": f"input_layernorm input 0: {QKV}; {POST} input 0: mlp.gate mlp.experts.gate_up_proj; "
    + QK_NORM
    + "norm input 0: lm_head",
    "gemma": LLAMA.replace(" 0:", " 1:") + "norm input 1: lm_head*",
    "gemma2": GEMMA + "post_feedforward_layernorm output 1 / add; norm input 1: lm_head*",
    "gemma3": GEMMA
    + QK_NORM.replace(" 0 ", " 1 ")
    + "post_feedforward_layernorm output 1 / add; norm input 1: lm_head*",
    "gemma3n": f"input_layernorm mixed 0: {QKV} laurel.linear_left / add; self_attn.v_norm none 0 / bmm; "
    f"pre_feedforward_layernorm input 0: {GATE_UP}; {POST} output 0 / add; post_feedforward_layernorm output 0 / add; "
    "altup.router_norm input 0: altup.modality_router; laurel.post_laurel_norm output 0 / add; "
    "post_per_layer_input_norm output 0 / add; per_layer_projection_norm output 0 / add; "
    + QK_NORM
    + "norm input 0: lm_head*",
    "olmo": LLAMA.replace("input 0", "none 0") + "norm none 0: lm_head",
    "olmo2": QK_NORM + "post_attention_layernorm output 0 / add; post_feedforward_layernorm output 0 / add; "
    "norm input 0: lm_head",
    "mixtral": f"input_layernorm input 0: {QKV}; {POST} input 0: mlp.gate mlp.experts.gate_up_proj; "
    "norm input 0: lm_head",
    "deepseek-v3": "input_layernorm input 0: self_attn.q_a_proj self_attn.kv_a_proj_with_mqa; "
    "self_attn.q_a_layernorm input 0: self_attn.q_b_proj; self_attn.kv_a_layernorm input 0: self_attn.kv_b_proj; "
    "post_attention_layernorm input 0: mlp.gate mlp.experts.gate_up_proj mlp.shared_experts.gate_proj "
    "mlp.shared_experts.up_proj; norm input 0: lm_head",
    "gpt-oss": f"input_layernorm input 0: {QKV}; {POST} input 0: mlp.router mlp.experts.gate_up_proj; "
    "norm input 0: lm_head",
    "phi3": "input_layernorm input 0: self_attn.qkv_proj; post_attention_layernorm input 0: mlp.gate_up_proj; "
    "norm input 0: lm_head",
    "cohere": f"input_layernorm input 0: {QKV} {GATE_UP}; norm input 0: lm_head*",
    "stablelm": STABLE + "norm input 0 bias: lm_head",
    "falcon-h1": FALCON + "final_layernorm input 0: lm_head",
    "falcon-h1-rms": FALCON + "mamba.norm input 0: mamba.out_proj; final_layernorm input 0: lm_head",
    "mamba2": "1.norm input 0: mixer.in_proj; mixer.norm input 0: mixer.out_proj; norm_f input 0: lm_head",
    "opt-postln": "self_attn_layer_norm mixed 0 bias: fc1 / add; final_layer_norm input 0 bias: lm_head*",
}


def described(norm):
    """A norm in the notation of `EXPECTED`."""
    layer = norm.module.rpartition(".1.")[0]

    def short(name):
        return name.removeprefix(f"{layer}.1.") if layer else name.rpartition(".")[2]

    name = short(norm.module) if norm.module != "backbone.layers.1.norm" else "1.norm"
    consumers = " ".join(
        sorted((short(c.names[-1].removesuffix(".weight"))) + "*" * bool(c.also_used_by) for c in norm.consumers)
    )
    text = f"{name} {norm.role} {norm.offset:g}{' bias' if norm.bias else ''}"
    return text + (f": {consumers}" if consumers else "") + (f" / {' '.join(norm.others)}" if norm.others else "")


def expected(family):
    for row in EXPECTED[family].split(";"):
        left, _, others = row.strip().partition(" / ")
        head, _, consumers = left.partition(": ")
        joined = f": {' '.join(sorted(consumers.split()))}" if consumers else ""
        yield head + joined + (f" / {others}" if others else "")


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_of_a_family(family):
    """Roles and consumers against a table, and each against the numbers: rescaling a norm and its consumers by 1/s."""
    model = build(family, seed=0)
    norms = norms_of(model)
    second_layer_on = [n for n in norms if ".0." not in n.module]
    assert sorted(map(described, second_layer_on)) == sorted(expected(family))
    assert trace(model).unread == []
    tokens = random_tokens(model, 1, 8, seed=3)
    for norm in second_layer_on:
        if norm.scale is None:
            continue
        size = math.prod(dict(model.named_parameters())[norm.scale].shape)
        factor = torch.linspace(1.5, 2.5, size, dtype=torch.float64)
        changes = []
        for consumers in (norm.consumers, ()):
            moved = copy.deepcopy(model)
            move_scale(moved, replace(norm, consumers=consumers), factor)
            changes.append(relative_change(model, moved, tokens))
        together, alone = changes
        assert alone > 1e-6, norm.module
        assert (together < 1e-13) is norm.absorbable, (norm.module, together)


@pytest.mark.parametrize("family", ["mixtral", "qwen3"])
def test_consumers_do_not_depend_on_the_attention_and_experts_code(family):
    model = build(family, seed=0)
    tokens = random_tokens(model, 2, 24, seed=0)
    default = copy.deepcopy(model).float()
    default.set_attn_implementation("sdpa")
    if family == "mixtral":
        default.set_experts_implementation("grouped_mm")
    found = trace(default, {"input_ids": tokens, "use_cache": False}).norms
    for ours, theirs in zip(norms_of(model), found, strict=True):
        assert (ours.module, ours.role) == (theirs.module, theirs.role)
        assert [(c.parameter, c.axis) for c in ours.consumers] == [(c.parameter, c.axis) for c in theirs.consumers]


def test_float64_is_needed_and_granted():
    """Gemma-2 casts to float32 inside its norms; without `Float64` folding is exact to float32 only."""
    model, tokens = build("gemma2", seed=0), None
    tokens = random_tokens(model, 1, 8, seed=0)
    folded = copy.deepcopy(model)
    for norm in norms_of(model):
        if norm.absorbable:
            absorb(folded, norm)
    assert relative_change(model, folded, tokens) < 1e-13
    with torch.no_grad():
        plain = [m(input_ids=tokens, use_cache=False).logits for m in (model, folded)]
    assert 1e-10 < float((plain[0] - plain[1]).abs().max() / plain[0].abs().max()) < 1e-4
    with Float64():
        assert torch.ones(2, dtype=torch.float32).dtype == torch.ones(2).float().dtype == torch.float64
        assert torch.ones(2, dtype=torch.float64).to(torch.float32).dtype == torch.float64


def test_absorbing_sets_scale_to_one_bias_to_zero_and_creates_biases():
    model = build("stablelm", seed=0)
    norm = norms_of(model)[0]
    absorb(model, norm)
    named = dict(model.named_parameters())
    assert torch.allclose(effective_scale(norm, named), torch.ones(16, dtype=torch.float64), atol=1e-15)
    assert not named[norm.bias].any()
    assert all(named[c.parameter.replace("weight", "bias")].abs().max() > 1e-3 for c in norm.consumers)


def test_a_bias_with_nowhere_to_go_is_refused():
    model = build("mixtral", seed=0)
    norm = next(n for n in norms_of(model) if any(len(c.shape) == 3 for c in n.consumers))
    with pytest.raises(ValueError, match="its module takes no bias to which"):
        absorb(model, replace(norm, bias="model.norm.weight"))


def test_untying_leaves_the_function_and_frees_the_norm():
    model = build("llama-tied", seed=0)
    untied = copy.deepcopy(model)
    untie(untied)
    assert relative_change(model, untied, random_tokens(model, 1, 8, seed=0)) == 0
    assert not norms_of(model)[-1].absorbable and norms_of(untied)[-1].absorbable


def test_a_norm_without_scale_has_no_effective_scale():
    model = build("olmo", seed=0)
    with pytest.raises(ValueError, match="this norm has no scale"):
        effective_scale(norms_of(model)[0], dict(model.named_parameters()))


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="family='gpt3': expected one of gpt2, llama"):
        build("gpt3", seed=0)


def test_the_same_seed_gives_the_same_model_and_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected_next = torch.rand(1)
    torch.manual_seed(5)
    one, two, other = build("llama", seed=1), build("llama", seed=1), build("llama", seed=2)
    assert torch.equal(torch.rand(1), expected_next)
    same = [torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True)]
    assert all(same) and not torch.equal(one.lm_head.weight, other.lm_head.weight)


def test_conserved_is_the_naive_sum():
    """(1 + w_j)² − Σ over consumers of the squares of column j, by loops, for a 1 + w norm."""
    model = build("gemma2", seed=0)
    norm = norms_of(model)[0]
    state = {n: p.detach() for n, p in model.named_parameters()}
    naive = [
        float((1 + state[norm.scale][j]) ** 2 - sum((state[c.parameter][:, j] ** 2).sum() for c in norm.consumers))
        for j in range(16)
    ]
    assert conserved(norm, state).tolist() == pytest.approx(naive, rel=1e-13)


def test_the_increment_is_what_effective_gradients_give():
    """With one consumer: η²(⟨w_j, g_j⟩² − v_j²‖g_j‖²), g the gradient in the effective weight W diag(v)."""
    model = build("phi3", seed=0)
    tokens = random_tokens(model, 1, 8, seed=0)
    norm = norms_of(model)[0]
    state = {n: p.detach() for n, p in model.named_parameters()}
    (consumer,) = norm.consumers
    folded = copy.deepcopy(model)
    absorb(folded, norm)
    g = loss_gradient(folded, tokens)[consumer.parameter]
    v, W = state[norm.scale], state[consumer.parameter]
    theory = 0.1**2 * ((W * g).sum(0) ** 2 - v**2 * (g**2).sum(0))
    assert torch.allclose(increment(norm, loss_gradient(model, tokens), 0.1), theory, rtol=1e-10, atol=1e-16)


@pytest.mark.parametrize("family", claims.CONSERVED)
def test_the_increment_of_a_step_is_exact(family):
    error, size = claims.descent_error(family, "as-traced", seed=1)
    assert error < claims.ROUNDING < 1e-7 < size


def test_gradient_flow_descends_along_the_gradient():
    model = build("cohere", seed=0)
    tokens = random_tokens(model, 1, 8, seed=0)
    gradient = loss_gradient(model, tokens)
    start, end = gradient_flow(copy.deepcopy(model), tokens, np.array([0.0, 1e-4]), tolerance=1e-10)
    for name, g in gradient.items():
        assert torch.allclose((start[name] - end[name]) / 1e-4, g, rtol=2e-2, atol=2e-4), name


@pytest.mark.parametrize(
    ("claim", "scope"),
    [
        (claims.conservation, "consumer-left-out"),
        *((claims.absorption, s.name) for s in claims.absorption.scopes if not s.holds or s.name == "llama"),
        *((real_qk_norm.claim, s.name) for s in real_qk_norm.claim.scopes),
    ],
    ids=lambda x: getattr(x, "id", x),
)
def test_verdicts(claim, scope):
    result = check_scope(claim, next(s for s in claim.scopes if s.name == scope))
    assert result.ok, result
    if result.counterexample:
        exec(result.counterexample.code, {})
        with pytest.raises(AssertionError):
            exec(result.counterexample.code.replace("margin = ", "margin = 10 + "), {})


def test_a_mixture_conserves_across_its_router(monkeypatch):
    drift, moved = claims.flow_drift("mixtral", "as-traced", seed=0, horizon=0.01)
    assert drift < claims.DRIFT < 1e-4 < moved
    assert claims.flow_drift("mixtral", "router-left-out", seed=0, horizon=0.01)[0] > 1e-4


def test_nothing_that_cannot_fail_counts(monkeypatch):
    monkeypatch.setattr(claims, "flow_drift", lambda *a: (0.0, 1e-9))
    monkeypatch.setattr(claims, "descent_error", lambda *a: (0.0, 1e-14))
    monkeypatch.setattr(claims, "absorption_error", lambda *a: (0.0, 1e-9))
    assert math.isnan(claims.flow_margin("llama", "as-traced", 0, 0.1))
    assert math.isnan(claims.descent_margin("llama", "as-traced", 0))
    assert math.isnan(claims.absorption_margin("llama", "as-traced", 0))


def test_without_transformers_the_scopes_are_not_run(monkeypatch):
    claims.toy_model.cache_clear()
    monkeypatch.setattr(claims, "find_spec", lambda name: None)
    with pytest.raises(NotRun, match="transformers is not installed"):
        claims.toy_model("llama", 0)
    result = check_scope(claims.absorption, claims.absorption.scopes[0])
    assert result.verdict == "not run" and "transformers is not installed" in result.reason


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "olmo2"])
def test_parameter_counts_of_decoder_shapes(family):
    """The arithmetic of `Decoder` against the parameters a real model of the same sizes has."""
    model = build(family, seed=0)
    layer_scales = {"llama": 2 * 16, "qwen3": 2 * 16 + 2 * 8, "gemma2": 4 * 16, "olmo2": 3 * 16 + 8}[family]
    decoder = Decoder(16, 2, 24, 32, 2, 1, 8, layer_scales, tied=family in ("qwen3", "gemma2"))
    named = dict(model.named_parameters())
    assert decoder.total == sum(p.numel() for p in named.values())
    assert decoder.scales == sum(named[n.scale].numel() for n in norms_of(model))
