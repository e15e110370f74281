"""Folding and unfolding of norms of real models: exactness, refusals, precision, code paths, planted faults."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file

import simulations.models.rewriting as rewriting
from simulations.models.audit import audit
from simulations.models.float64 import outputs, relative_change
from simulations.models.folding import effective_scale, fold, move_scale, refusal, unfold, untie
from simulations.models.running import example_input
from simulations.models.toys import build
from simulations.models.trace import trace

FAMILIES = ("gpt2", "stablelm", "phi3", "gemma2", "cohere", "falcon-h1-rms", "deepseek-v3", "mamba2", "qwen3-moe")


@cache
def _toy(family):
    model = build(family, seed=0)
    return model, trace(model)


def toy(family):
    return copy.deepcopy(_toy(family)[0])


def state(model):
    return {name: p.detach().clone() for name, p in model.state_dict().items()}


def same(model, before):
    now = model.state_dict()
    return list(now) == list(before) and all(torch.equal(now[n], before[n]) for n in now)


@pytest.mark.parametrize("family", FAMILIES)
def test_fold_leaves_the_function_and_unfold_gives_the_parameters_back(family):
    model, before = toy(family), state(_toy(family)[0])
    traced, example = _toy(family)[1], example_input(model, batch=4, seed=9)
    kept = outputs(model, example)
    result = fold(model)
    assert set(result.folded) == {n.module for n in traced.norms if n.absorbable}
    assert set(result.refused) == {n.module for n in traced.norms} - set(result.folded)
    assert max(result.error_float64, result.error, relative_change(kept, outputs(model, example))) < 1e-13
    dropped = copy.deepcopy(_toy(family)[0])
    named = dict(model.named_parameters())
    for norm in traced.norms:
        if norm.module in result.folded:
            assert torch.equal(effective_scale(norm, named), torch.ones_like(named[norm.scale]))
            assert norm.bias is None or not named[norm.bias].any()
            move_scale(
                dropped, replace(norm, consumers=()), effective_scale(norm, dict(dropped.named_parameters())).clone()
            )
    assert relative_change(kept, outputs(dropped, example)) > 1e-3
    assert max(unfold(model, result)) < 1e-13
    assert list(model.state_dict()) == list(before)
    assert max(float((before[n] - p).abs().max()) for n, p in model.state_dict().items()) < 1e-14


def test_layer_norm_biases_are_moved_created_and_taken_back():
    model = toy("stablelm")
    assert model.model.layers[0].self_attn.q_proj.bias is None
    shift = model.model.layers[0].input_layernorm.bias.detach().clone()
    weight = model.model.layers[0].self_attn.q_proj.weight.detach().clone()
    result = fold(model)
    created = model.model.layers[0].self_attn.q_proj.bias
    assert torch.allclose(created, weight @ shift, rtol=1e-12) and created.requires_grad
    with pytest.raises(ValueError, match="loaded into its own class this model would be another; its folded biases"):
        copy.deepcopy(model).save_pretrained("nowhere")
    unfold(model, result)
    assert model.model.layers[0].self_attn.q_proj.bias is None
    assert "save_pretrained" not in vars(model)


@pytest.mark.parametrize(
    ("family", "norm", "reason"),
    [
        ("qwen3-moe", "model.layers.1.self_attn.q_norm", "no parameter is multiplied with its output (read by: bmm)"),
        (
            "gemma2",
            "model.layers.1.post_attention_layernorm",
            "no parameter is multiplied with its output (read by: add)",
        ),
        (
            "gemma3n",
            "model.layers.1.input_layernorm",
            "not only parameters are multiplied with its output (also read by: add)",
        ),
        ("olmo", "model.norm", "it has no scale"),
        (
            "llama-tied",
            "model.norm",
            "model.embed_tokens.weight is also used by embedding; it is tied "
            "(model.embed_tokens.weight, lm_head.weight): untie first",
        ),
    ],
)
def test_what_cannot_be_folded_is_refused_with_the_reason(family, norm, reason):
    model, before = toy(family), state(_toy(family)[0])
    with pytest.raises(ValueError, match="cannot be folded: ") as error:
        fold(model, norms=[norm])
    assert str(error.value) == f"norms={norm!r}: cannot be folded: {reason}" and same(model, before)


def test_only_the_norms_that_are_named_are_folded():
    model, before = toy("cohere"), state(_toy("cohere")[0])
    name = "model.layers.1.input_layernorm"
    assert fold(model, norms=[name]).folded == (name,)
    now = model.state_dict()
    changed = {n for n in now if not torch.equal(now[n], before[n])}
    assert f"{name}.weight" in changed and all(n.startswith("model.layers.1.") for n in changed) and len(changed) == 6
    with pytest.raises(ValueError, match=r"norms='model.nrm': no such norm; there are model.layers.0.input_layernorm"):
        fold(model, norms=["model.nrm"])


def test_an_untied_head_can_be_folded_and_stays_untied_when_loaded_again(tmp_path):
    model = toy("llama-tied")
    example = example_input(model)
    before = outputs(model, example)
    assert untie(model) == ("lm_head.weight",)
    model.save_pretrained(tmp_path / "untied")
    again = type(model).from_pretrained(tmp_path / "untied")
    assert again.lm_head.weight is not again.model.embed_tokens.weight
    model.tie_weights()
    model.tie_weights(recompute_mapping=False)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    assert relative_change(before, outputs(model, example)) == 0
    assert "model.norm" in fold(model).folded
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, dtype=torch.float64, attn_implementation="eager").eval()
    assert relative_change(before, outputs(again, example)) < 1e-13
    assert untie(model) == ()


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_in_its_own_precision_a_model_is_rounded_once(dtype, limit):
    exact = toy("gemma2").to(dtype).double()
    model = copy.deepcopy(exact).to(dtype).train()
    model.model.layers[0].self_attn.q_proj.weight.requires_grad_(False)
    model.model.layers[1].eval()
    kept = [(id(p), p.requires_grad, p.dtype) for p in model.parameters()]
    result = fold(model)
    assert 0 < result.error < limit and result.error_float64 < 1e-13
    assert kept == [(id(p), p.requires_grad, p.dtype) for p in model.parameters()]
    assert model.training and model.model.norm.training and not model.model.layers[1].mlp.training
    fold(exact)
    assert all(torch.equal(a, b.to(dtype)) for a, b in zip(model.parameters(), exact.parameters(), strict=True))
    unfold(model, result)


@pytest.mark.parametrize(("attention", "experts"), [("eager", "grouped_mm"), ("sdpa", "eager")])
def test_one_fold_serves_every_code_path(attention, experts):
    model = toy("mixtral").float()
    model.set_attn_implementation(attention)
    model.set_experts_implementation(experts)
    folded = copy.deepcopy(model)
    fold(folded)
    reference = copy.deepcopy(model).double()
    reference.set_experts_implementation("eager")
    fold(reference)
    example = example_input(model)
    assert relative_change(outputs(model, example), outputs(folded, example)) < 1e-5
    assert all(torch.equal(a, b.float()) for a, b in zip(folded.parameters(), reference.parameters(), strict=True))


@pytest.mark.parametrize("which", ["model", "compiled"])
def test_a_compiled_model_sees_the_fold(which):
    model = toy("llama").float()
    model.model.layers = model.model.layers[:1]
    example = example_input(model)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        before = compiled(**example).logits
        result = fold({"model": model, "compiled": compiled}[which])
        after = compiled(**example).logits
    assert torch.equal(after, model(**example).logits)
    assert 0 < relative_change([before], [after]) < 1e-5 and len(result.folded) == 3


D = 6


class RMSNorm(nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(D) + 0.5)
        self.bias = nn.Parameter(0.3 * torch.randn(D)) if bias else None

    def forward(self, x):
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight
        return y if self.bias is None else y + self.bias


class Experts(nn.Module):
    """Two norms, a router, and experts, one parameter or modules, each called if a token is sent there."""

    def __init__(self, bias=False, stacked=True):
        super().__init__()
        self.norm, self.last = RMSNorm(bias), RMSNorm()
        self.router, self.out = nn.Linear(D, 3), nn.Linear(D, D, bias=False)
        self.stack = nn.Parameter(torch.randn(3, D, D)) if stacked else None
        self.experts = nn.ModuleList([] if stacked else [nn.Linear(D, D) for _ in range(3)])

    def forward(self, x, first=False):
        y = self.norm(x)
        weight, route = self.router(y).max(-1)
        route = route * 0 if first else route
        out = torch.zeros_like(x)
        for e in range(3):
            here = torch.where(route == e)
            if len(here[0]):
                out[here] = y[here] @ self.stack[e].T if self.stack is not None else self.experts[e](y[here])
        return self.out(self.last(x + out * weight[..., None]))


def made(**settings):
    torch.manual_seed(0)
    return Experts(**settings).eval(), torch.randn(4, 30, D, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("example", ["tensor", "tuple", "mapping"])
def test_any_module_folds_with_any_form_of_example(example):
    model, x = made()
    example = {"tensor": x, "tuple": (x,), "mapping": {"x": x}}[example]
    assert fold(model, example).folded == ("norm", "last")
    assert torch.equal(model.norm.weight, torch.ones(D))


def test_an_expert_that_gets_no_token_is_an_error():
    model, x = made(stacked=False)
    assert fold(copy.deepcopy(model), x).folded == ("norm", "last")
    before = state(model)
    with pytest.raises(ValueError, match=r"example: it does not reach experts.1.weight, experts.2.weight"):
        fold(model, {"x": x, "first": True})
    assert same(model, before)


def test_experts_in_one_parameter_take_no_bias():
    model, x = made(bias=True)
    result = fold(model, x)
    assert result.folded == ("last",)
    assert result.refused == {
        "norm": "its scale alone would fold, its bias not: stack: its module takes no bias to which the norm's could "
        "be moved; it folds if the norm has no bias (norm.bias = None)"
    }
    model.norm.bias = None
    assert fold(model, x).folded == ("norm", "last")


class Beside(nn.Module):
    """One matrix multiplies a norm's output and, with its other columns, the norm's input."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = RMSNorm(bias=True), nn.Linear(2 * D, D)

    def forward(self, x):
        return self.out(torch.cat([x, self.norm(x)], -1))


def test_columns_that_multiply_something_else_stay():
    torch.manual_seed(0)
    model, x = Beside(), torch.randn(5, D)
    before = model.out.weight.detach().clone()
    fold(model, x)
    assert torch.equal(model.out.weight[:, :D], before[:, :D]) and not torch.equal(model.out.weight, before)


class Returning(nn.Module):
    """An encoder that returns its last states beside what a head makes of them, or the latter only."""

    def __init__(self, alone=False):
        super().__init__()
        self.alone, self.norm, self.head = alone, RMSNorm(bias=True), nn.Linear(D, 3)

    def forward(self, x):
        y = self.norm(x)
        return self.head(y) if self.alone else (self.head(y), y)


def test_a_norm_that_is_returned_beside_a_head_folds_for_the_head_alone():
    model, x = Returning(), torch.randn(5, D)
    assert fold(model, x).refused == {
        "norm": "the model also returns its output; for the products with head.weight alone it would fold (inside a "
        "module that returns only these)"
    }
    (row, _) = audit(model, x).rows
    assert (row.role, row.others, row.fold_exact) == ("mixed", ("returned",), False)
    assert any("for the products with head.weight alone" in line for line in audit(model, x).warnings)
    assert fold(Returning(alone=True), x).folded == ("norm",)
    again = nn.Linear(D, D)
    model.head = nn.Sequential(again, nn.Tanh(), again)
    assert fold(model, x).refused["norm"].endswith("alone it would still not fold: head.0.weight is also used by addmm")


class Images(nn.Module):
    """Norms of channels that stand last, read by convolutions, which want them first."""

    def __init__(self, *convolutions, bias):
        super().__init__()
        self.norms = nn.ModuleList([RMSNorm(bias) for _ in convolutions])
        self.convolutions = nn.ModuleList(convolutions)

    def forward(self, x):
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            x = convolution(norm(x).permute(0, 3, 1, 2)).tanh().permute(0, 2, 3, 1)
        return x


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_take_scales_and_unless_they_are_padded_biases(bias):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(D, D, 1, bias=False),
        nn.Conv2d(D, D, 3, groups=D),
        nn.Conv2d(D, D, 2, stride=2),
        nn.Conv2d(D, D, 3, padding=1),
    ]
    model, x = Images(*layers, bias=bias), torch.randn(2, 8, 8, D)
    assert {next(iter(r.input_axes.items())) for r in audit(model, x).rows} == {
        ("convolutions.0.weight", 1),
        ("convolutions.1.weight", 0),
        ("convolutions.2.weight", 1),
        ("convolutions.3.weight", 1),
    }
    before, kept = state(model), outputs(model, x)
    result = fold(model, x)
    assert result.folded == tuple(f"norms.{i}" for i in range(3 if bias else 4))
    if bias:
        assert result.refused["norms.3"] == (
            "its scale alone would fold, its bias not: a consumer reads the output multiplied by something, or with "
            "zeros beside it: no constant is added there; it folds if the norm has no bias (norms.3.bias = None)"
        )
    assert all(torch.equal(model.norms[i].weight, torch.ones(D)) for i in range(3))
    assert relative_change(kept, outputs(model, x)) < 1e-5
    unfold(model, result, x)
    now = model.state_dict()
    assert list(now) == list(before) and all(torch.allclose(now[n], before[n], atol=1e-6) for n in now)


class Fused(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.first, self.second = RMSNorm(bias=True), RMSNorm(bias=True)
        self.attention = nn.MultiheadAttention(D, 2, bias=bias, batch_first=True)
        self.recurrent = nn.GRU(D, D, batch_first=True)

    def forward(self, x):
        y = self.first(x)
        return self.recurrent(self.second(x + self.attention(y, y, y)[0]))[0]


def test_attention_and_recurrent_layers_take_biases_under_their_own_names():
    """But none are made for them: attention without biases does not run with some."""
    torch.manual_seed(0)
    model, x = Fused(bias=True), torch.randn(2, 5, D)
    before = state(model)
    result = fold(model, x)
    assert result.folded == ("first", "second") and bool(model.attention.in_proj_bias.any())
    unfold(model, result, x)
    now = model.state_dict()
    assert list(now) == list(before) and all(torch.allclose(now[n], before[n], atol=1e-6) for n in now)
    result = fold(Fused(bias=False), x)
    assert result.folded == ("second",) and "attention.in_proj_weight: its module takes no" in result.refused["first"]


def test_a_scale_of_two_norms_is_folded_for_both_or_not_at_all():
    model, x = made()
    model.last.weight = model.norm.weight
    assert fold(copy.deepcopy(model), x).folded == ("norm",)
    model.norm.bias = nn.Parameter(torch.randn(D))
    result = fold(model, x)
    assert result.folded == () and result.refused["norm"] == "norm.weight belongs to other modules, too"


def test_a_bias_of_two_modules_takes_none():
    model, x = made(bias=True, stacked=False)
    model.experts[1].bias = model.experts[0].bias
    (reason,) = fold(model, x).refused.values()
    assert reason == (
        "its scale alone would fold, its bias not: experts.0.weight: its module takes no bias to which the norm's "
        "could be moved; it folds if its module is given a bias of its own, or if the norm has no bias "
        "(norm.bias = None)"
    )
    model.experts[1].bias = nn.Parameter(torch.zeros(D))
    assert fold(model, x).folded == ("norm", "last")


def test_a_model_without_a_norm_and_one_that_does_not_run_are_errors():
    with pytest.raises(ValueError, match="Linear: no module of it normalises"):
        fold(nn.Linear(D, D), torch.randn(3, D))
    with pytest.raises(ValueError, match="example: Experts does not run on it: "):
        fold(made()[0], torch.randn(3, D + 1))
    with pytest.raises(ValueError, match="example=None: Experts is no language model"):
        fold(made()[0])


def test_a_scale_of_zero_is_folded_and_cannot_be_unfolded():
    model, x = made()
    with torch.no_grad():
        model.norm.weight[2] = 0.0
    before = outputs(model, x)
    result = fold(model, x)
    assert relative_change(before, outputs(model, x)) < 1e-5 and not model.router.weight[:, 2].any()
    folded = state(model)
    with pytest.raises(ValueError, match=r"folded: norm.weight had entries of 0; what its consumers had there is lost"):
        unfold(model, result, x)
    assert same(model, folded)


def test_a_created_bias_goes_again_in_low_precision_too():
    torch.manual_seed(0)
    model, x = nn.Sequential(RMSNorm(bias=True), nn.Linear(D, 3, bias=False)), torch.randn(5, D)
    unfold(model, fold(model, x), x)
    assert model[1].bias is None


def test_unfolding_after_training_keeps_the_trained_function(tmp_path):
    model = toy("stablelm").float()
    result = fold(model)
    save_file(dict(result.state), tmp_path / "folded.safetensors")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    example = example_input(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(**example, labels=example["input_ids"]).loss.backward()
        optimizer.step()
    before = outputs(model, example)
    errors = unfold(model, load_file(tmp_path / "folded.safetensors"))
    assert max(errors[1], relative_change(before, outputs(model, example))) < 1e-5 and errors[0] < 1e-12
    norm = model.model.layers[0].input_layernorm
    assert torch.allclose(norm.weight, result.state["model.layers.0.input_layernorm.weight"].float(), atol=0.1)
    assert model.model.layers[0].self_attn.q_proj.bias is not None and "save_pretrained" in vars(model)


def test_unfold_refuses_what_does_not_fit():
    model, x = made()
    result, before = fold(model, x), state(model)
    for wrong in ({"nrom.weight": torch.ones(D)}, {"norm.weight": torch.ones(D + 1)}, {"out.weight": torch.ones(D, D)}):
        with pytest.raises(ValueError, match=r"folded: .* is no scale or bias of a norm of this model"):
            unfold(model, wrong, x)
    other = made(bias=True)[0]
    with pytest.raises(ValueError, match=r"norm: cannot be unfolded: .* stack: its module takes no bias"):
        unfold(other, result, x)
    assert same(model, before)


def test_an_overflow_leaves_the_model_as_it_was():
    model, x = made()
    with torch.no_grad():
        model.last.weight.fill_(1e3)
        model.out.weight.fill_(100.0)
    model, before = model.half(), state(model)
    with pytest.raises(ValueError, match=r"out.weight: an entry of 1.0e\+05 overflows torch.float16"):
        fold(model, x.half())
    assert same(model, before)


def faults(norm):
    """What may be planted wrong in what is known of one norm."""
    consumers = norm.consumers
    return {
        "router left out": replace(
            norm, consumers=tuple(c for c in consumers if not c.parameter.endswith("gate.weight"))
        ),
        "consumer left out": replace(norm, consumers=consumers[1:]),
        "wrong axis": replace(norm, consumers=(replace(consumers[0], axis=1 - consumers[0].axis), *consumers[1:])),
        "1 + w as w": replace(norm, offset=0.0),
        "w as 1 + w": replace(norm, offset=1.0),
        "channels reversed": replace(
            norm, consumers=(replace(consumers[0], channels=consumers[0].channels.flip(0)), *consumers[1:])
        ),
        "tied head in place": replace(norm, consumers=tuple(replace(c, also_used_by=()) for c in consumers)),
    }


@pytest.mark.parametrize(
    ("family", "norm", "fault"),
    [
        ("mixtral", "model.layers.1.post_attention_layernorm", "router left out"),
        ("llama", "model.layers.0.input_layernorm", "consumer left out"),
        ("llama", "model.layers.0.input_layernorm", "wrong axis"),
        ("llama", "model.layers.0.input_layernorm", "channels reversed"),
        ("gemma2", "model.layers.1.input_layernorm", "1 + w as w"),
        ("llama", "model.layers.1.input_layernorm", "w as 1 + w"),
        ("llama-tied", "model.norm", "tied head in place"),
        ("gemma2", "model.layers.1.post_attention_layernorm", "output called input"),
    ],
)
def test_a_planted_fault_is_found_before_the_model_is_touched(monkeypatch, family, norm, fault):
    """In a model as it is built, whose effective scales are 1: folding it wrongly would change nothing yet."""
    model, traced = toy(family), _toy(family)[1]
    by_name = {n.module: n for n in traced.norms}
    with torch.no_grad():
        for n in traced.norms:
            model.get_parameter(n.scale).fill_(1 - n.offset)
    before = state(model)
    if fault == "output called input":
        wrong = replace(by_name[norm], consumers=by_name["model.layers.1.input_layernorm"].consumers, others=())
    else:
        wrong = faults(by_name[norm])[fault]
    assert refusal(model, wrong) is None
    planted = replace(traced, norms=tuple(wrong if n.module == norm else n for n in traced.norms))
    monkeypatch.setattr(rewriting, "traced_on", lambda model, example: (example or example_input(model), planted))
    with pytest.raises(ValueError, match=f"folding {norm} changes the outputs by .* nothing has been folded"):
        fold(model)
    assert same(model, before)


def test_unfolding_by_a_wrong_trace_leaves_the_model_as_it_was(monkeypatch):
    model, traced = toy("llama"), _toy("llama")[1]
    result, norm = fold(model), traced.norms[0]
    before = state(model)
    planted = replace(traced, norms=(faults(norm)["consumer left out"], *traced.norms[1:]))
    monkeypatch.setattr(rewriting, "traced_on", lambda model, example: (example or example_input(model), planted))
    with pytest.raises(ValueError, match=r"the outputs would change by .* of their size in float64; expected <= 1e-12"):
        unfold(model, result)
    assert same(model, before)
