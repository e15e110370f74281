"""What each decay recipe decays, and optimizer groups, on real families; faults planted in both."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Muon

pytest.importorskip("transformers")

from simulations.models import groups as groups_module
from simulations.models.attach import attach
from simulations.models.decay import all_rule, dim_rule, iwd_rule, trainer_rule
from simulations.models.folding import effective_scale, move_scale
from simulations.models.groups import check_each_once, iwd_param_groups, split_for_muon
from simulations.models.roles import Trace
from simulations.models.scales import multipliers, plain_name
from simulations.models.toys import build, random_tokens, relative_change
from simulations.models.trace import trace


@cache
def toy(family: str) -> nn.Module:
    return build(family, 0)


@cache
def traced(family: str) -> Trace:
    return trace(toy(family))


def endings(decay: Mapping[str, bool], value: bool) -> set[str]:
    """The last two parts of the names of parameters whose decay is ``value``."""
    return {".".join(name.split(".")[-2:]) for name, decays in decay.items() if decays is value}


# Which scales individual weight decay leaves alone, and which it decays.
SCALES = {
    "llama": ("", "input_layernorm post_attention_layernorm norm"),
    "llama-tied": ("", "input_layernorm post_attention_layernorm norm"),
    "qwen3": ("q_norm k_norm", "input_layernorm post_attention_layernorm norm"),
    "gemma2": (
        "post_attention_layernorm post_feedforward_layernorm",
        "input_layernorm pre_feedforward_layernorm norm",
    ),
    "olmo2": ("post_attention_layernorm post_feedforward_layernorm q_norm k_norm", "norm"),
    "opt-postln": ("self_attn_layer_norm final_layer_norm", ""),
    "falcon-h1-rms": ("", "input_layernorm pre_ff_layernorm final_layernorm norm"),
    "deepseek-v3": ("", "input_layernorm post_attention_layernorm q_a_layernorm kv_a_layernorm norm"),
}


@pytest.mark.parametrize("family", SCALES)
def test_iwd_decays_the_scales_of_input_norms_and_no_other(family: str) -> None:
    spared, decayed = (set(f"{name}.weight" for name in names.split()) for names in SCALES[family])
    decay = iwd_rule(traced(family))
    of_norms = {name: decay[name] for name, use in traced(family).uses.items() if use.kind == "scale"}
    in_both = {"final_layer_norm.weight"} if family == "opt-postln" else set()
    assert endings(of_norms, False) == spared and endings(of_norms, True) == decayed | in_both


def test_iwd_spares_decay_rates_skips_sinks_and_biases_of_any_shape() -> None:
    """Reported after a refactor that decayed multipliers and A_log (Fast-LLM #542)."""
    for family, spared in (
        ("mamba2", "A_log D dt_bias conv1d.bias"),
        ("falcon-h1", "A_log D dt_bias"),
        ("gpt-oss", "sinks q_proj.bias router.bias down_proj_bias"),
        ("gpt2", "c_attn.bias ln_1.bias"),
    ):
        decay = iwd_rule(traced(family))
        for ending in spared.split():
            found = [decays for name, decays in decay.items() if name.endswith(ending)]
            assert found and not any(found), (family, ending)
    assert "experts.gate_up_proj" in endings(iwd_rule(traced("gpt-oss")), True)
    # What the dimension rule makes of a bias of stacked experts, which has two axes.
    assert "experts.down_proj_bias" in endings(dim_rule(toy("gpt-oss")), True)


def test_weights_of_every_kind_decay() -> None:
    decayed = endings(iwd_rule(traced("mamba2")), True)
    assert decayed >= {"embeddings.weight", "conv1d.weight", "in_proj.weight", "out_proj.weight", "lm_head.weight"}


def test_a_scale_that_an_input_norm_shares_with_an_output_norm_does_not_decay() -> None:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.linear = nn.RMSNorm(4), nn.RMSNorm(4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x):
            return x + self.b(self.linear(self.a(x)))

    model, x = Model(), torch.randn(3, 4)
    assert iwd_rule(trace(model, x)) == {"a.weight": False, "linear.weight": True, "linear.bias": False}
    assert iwd_param_groups(model, x, weight_decay=0.1).members["a.weight"].group == "mixed scales"


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "mamba2", "qwen3-moe", "opt-postln", "falcon-h1-rms"])
def test_trainer_rule_is_the_library_s(family: str) -> None:
    from transformers import Trainer

    model = toy(family)
    library = Trainer.get_decay_parameter_names(None, model)  # it reads nothing of the trainer
    assert {name for name, decays in trainer_rule(model).items() if decays} == set(library) & set(dim_rule(model))


def test_name_lists_miss_norm_scales_and_attached_multipliers() -> None:
    """transformers #35927, #42754: a name that no pattern foresaw is decayed."""
    missed = {name for name in traced("mamba2").uses if name.endswith("norm_f.weight")}
    assert missed and all(trainer_rule(toy("mamba2"))[name] for name in missed)
    assert trainer_rule(toy("falcon-h1"))["model.layers.0.mamba.A_log"]
    model = nn.Sequential(nn.Linear(3, 3, bias=False))
    nn.utils.parametrize.register_parametrization(model[0], "weight", _Multiplied())
    assert trainer_rule(model)["0.parametrizations.weight.0.factor"]


class _Multiplied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(3))

    def forward(self, weight):
        return weight * self.factor


def test_one_group_for_all_and_the_dimension_rule() -> None:
    assert all(all_rule(toy("llama")).values())
    decay = dim_rule(toy("llama"))
    assert endings(decay, False) == {"input_layernorm.weight", "post_attention_layernorm.weight", "norm.weight"}


@pytest.mark.parametrize(
    ("scales", "expected"), [("iwd", {"input"}), ("none", set()), ("all", {"input", "output"}), ("output", {"output"})]
)
def test_scales_chooses_the_norms_that_decay(scales: str, expected: set[str]) -> None:
    groups = iwd_param_groups(toy("qwen3"), weight_decay=0.1, scales=scales)
    decayed = {g["name"].split()[0] for g in groups if g["name"].endswith("scales") and g["weight_decay"]}
    assert decayed == expected
    assert {g["weight_decay"] for g in groups if g["name"] == "hidden matrices"} == {0.1}


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "qwen3-moe", "mamba2", "gpt-oss", "falcon-h1-rms", "llama-tied"])
def test_every_parameter_stands_once_and_both_optimizers_step(family: str) -> None:
    model = copy.deepcopy(toy(family))
    groups = iwd_param_groups(model, weight_decay=0.1)
    muon, adamw = split_for_muon(groups)
    named = dict(model.named_parameters())
    assert sorted([*muon.members, *adamw.members]) == sorted(named)
    assert all(named[name].ndim == 2 for name in muon.members)
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    assert not any(named[name] is head or named[name] is embedding for name in muon.members)
    with pytest.raises(ValueError, match="2D"):  # Moonlight #37: vectors and stacks are not for Muon
        Muon(list(groups))
    before = {name: p.detach().clone() for name, p in named.items()}
    optimizers = Muon(muon, lr=0.01), AdamW(adamw, lr=0.01)
    for p in named.values():
        p.grad = torch.ones_like(p) if p.ndim < 2 else torch.eye(*p.shape[-2:], dtype=p.dtype).expand_as(p).clone()
    for optimizer in optimizers:
        optimizer.step()
    assert all(not torch.equal(before[name], p) for name, p in named.items())


def test_head_and_embedding_are_found_without_their_names() -> None:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Embedding(11, 4), nn.Linear(4, 4), nn.Linear(4, 7)
            self.router, self.tied = nn.Linear(4, 1, bias=False), nn.Embedding(11, 4)

        def forward(self, x):
            y = self.b(self.a(x) + self.tied(x) @ self.tied.weight[:4])
            return 30 * torch.tanh(self.c(y * self.router(y)) / 30)

    groups = iwd_param_groups(Model(), torch.arange(6)[None], weight_decay=0.1)
    assert split_for_muon(groups)[0].members.keys() == {"b.weight", "router.weight"}
    assert groups.members["c.weight"].group == groups.members["tied.weight"].group == "embeddings and head"
    assert groups.members["a.weight"].group == "embeddings and head"


@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_without_a_gradient_what_decays_goes_to_its_target_and_the_rest_stays(family: str) -> None:
    """OLMo-core #636 asks where decay alone leads: an effective scale to 0, or to 1 where the norm adds 1."""
    model, lr, decay, steps = copy.deepcopy(toy(family)), 0.1, 0.5, 400
    groups = iwd_param_groups(model, weight_decay=decay)
    named = dict(model.named_parameters())
    before = {name: p.detach().clone() for name, p in named.items()}
    optimizer = AdamW(groups, lr=lr)
    for _ in range(steps):
        for p in named.values():
            p.grad = torch.zeros_like(p)
        optimizer.step()
    left = (1 - lr * decay) ** steps
    for norm in traced(family).norms:
        target = groups.members[norm.scale].target
        if not target:
            assert norm.role == "output" and torch.equal(named[norm.scale], before[norm.scale])
            continue
        distance = (effective_scale(norm, named) - float(target.split()[0])).abs().max()
        assert distance <= left * before[norm.scale].abs().max() * (1 + 1e-9) + 1e-15
        assert target == {"qwen3": "0", "gemma2": "1 (w itself to 0)"}[family]


def test_scales_that_iwd_decays_fold_and_a_wrong_role_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each decayed scale can be multiplied by any factors that its consumers are divided by."""
    model = toy("gemma2")
    _assert_decayed_scales_fold(model)
    found = traced("gemma2")
    consumers = next(n for n in found.norms if n.role == "input").consumers
    norms = [replace(n, consumers=consumers, others=()) if n.role == "output" else n for n in found.norms]
    monkeypatch.setattr(groups_module, "trace", lambda *_: replace(found, norms=tuple(norms)))
    with pytest.raises(AssertionError):
        _assert_decayed_scales_fold(model)


def _assert_decayed_scales_fold(model: nn.Module) -> None:
    groups = iwd_param_groups(model, weight_decay=0.1)
    tokens = random_tokens(model, 1, 8, 0)
    decayed = {n for n, m in groups.members.items() if m.kind == "scale" and m.weight_decay}
    assert decayed
    for norm in groups_module.trace(model).norms:
        if norm.scale in decayed and not any(c.also_used_by for c in norm.consumers):
            changed = copy.deepcopy(model)
            move_scale(changed, norm, torch.linspace(0.5, 2, 16, dtype=torch.float64))
            assert relative_change(model, changed, tokens) < 1e-13, norm.module


def test_a_parameter_in_two_groups_or_in_none_is_told() -> None:
    model = toy("llama")
    groups = list(iwd_param_groups(model, weight_decay=0.1))
    check_each_once(groups, model)
    twice = [*groups, {"params": [model.model.norm.weight]}]
    with pytest.raises(ValueError, match=r"in none –; in several model\.norm\.weight; 0 that"):
        check_each_once(twice, model)
    short = [{**g, "params": g["params"][1:]} if g["name"] == "input scales" else g for g in groups]
    with pytest.raises(ValueError, match=r"in none model\.layers\.0\.input_layernorm\.weight; in several –"):
        check_each_once(short, model)
    with pytest.raises(ValueError, match="1 that the model does not train"):
        check_each_once([*groups, {"params": [nn.Parameter(torch.ones(2))]}], model)


def test_the_check_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in how members are found does not get past `iwd_param_groups`."""
    honest = groups_module.members_of

    def one_lost(*arguments):
        members = honest(*arguments)
        del members["model.norm.weight"]
        return members

    monkeypatch.setattr(groups_module, "members_of", one_lost)
    with pytest.raises(ValueError, match=r"in none model\.norm\.weight"):
        iwd_param_groups(toy("llama"), weight_decay=0.1)


def test_tied_weights_stand_once_and_frozen_ones_nowhere() -> None:
    model = copy.deepcopy(toy("llama-tied"))
    model.model.layers[0].requires_grad_(False)
    groups = iwd_param_groups(model, weight_decay=0.1)
    assert sum(p is model.lm_head.weight for g in groups for p in g["params"]) == 1
    frozen = [name for name, _ in model.named_parameters() if ".layers.0." in name]
    assert list(groups.frozen) == frozen and not set(frozen) & set(groups.members)
    assert f"frozen, in no group: {', '.join(frozen)}" in str(groups)


def test_the_table_states_decay_and_target() -> None:
    lines = str(iwd_param_groups(toy("gemma2"), weight_decay=0.1)).splitlines()
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert cells[0] == ["group", "kinds", "parameters", "entries", "decay", "target"]
    assert ["input scales (1 + w)", "scale", "5", "80", "0.1", "1 (w itself to 0)"] in cells
    assert ["output scales (1 + w)", "scale", "4", "64", "0", "–"] in cells
    assert ["embeddings and head", "matrix", "1", "512", "0.1", "0"] in cells


def test_no_optimizer_writes_into_the_groups() -> None:
    groups = iwd_param_groups(toy("llama"), weight_decay=0.1)
    AdamW(groups, lr=0.3)
    assert AdamW(groups, lr=0.7).param_groups[0]["lr"] == 0.7
    assert groups[0]["weight_decay"] == 0.1 and len(groups[:2]) == 2


def test_rebinding_finds_prefixed_names_and_refuses_another_model() -> None:
    model = toy("llama")
    groups = iwd_param_groups(model, weight_decay=0.1)
    copied = copy.deepcopy(model)
    wrapped = nn.ModuleDict({"module": copied})
    bound = groups.rebind(wrapped)
    assert str(bound) == str(groups) and set(bound.members) == {f"module.{name}" for name in groups.members}
    assert {id(p) for g in bound for p in g["params"]} == {id(p) for p in copied.parameters()}
    with pytest.raises(ValueError, match=r"model: model\.\S+ is not there"):
        groups.rebind(toy("gpt2"))
    with pytest.raises(ValueError, match=r"has shape \(16, 16\); expected a parameter of shape \(8, 16\)"):
        groups.rebind(_with_wide_keys(copied))
    copied.lm_head.requires_grad_(False)
    with pytest.raises(ValueError, match="1 that the model does not train"):
        groups.rebind(copied)


def _with_wide_keys(model: nn.Module) -> nn.Module:
    wide = copy.deepcopy(model)
    for layer in wide.model.layers:
        layer.self_attn.k_proj = nn.Linear(16, 16, bias=False, dtype=torch.float64)
    return wide


def test_what_the_example_does_not_reach_is_told_and_not_decayed() -> None:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x)

    with pytest.warns(UserWarning, match=r"does not reach unused\.weight, unused\.bias: they get no weight decay"):
        groups = iwd_param_groups(Model(), torch.randn(2, 4), weight_decay=0.1)
    assert groups.members["unused.weight"].weight_decay == 0 and groups.members["used.weight"].weight_decay == 0.1


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_what_others_have_parametrized_stands_in_groups(name: str) -> None:
    parametrize = getattr(nn.utils.parametrizations, name)
    model = nn.Sequential(nn.RMSNorm(4), parametrize(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2))
    groups = iwd_param_groups(model, torch.randn(5, 4), weight_decay=0.1)
    decay = {name: m.weight_decay for name, m in groups.members.items()}
    assert set(decay) == {name for name, _ in model.named_parameters()}
    (matrix,) = [n for n, p in model.named_parameters() if "parametrizations" in n and p.shape == (4, 4)]
    assert decay[matrix] == decay["3.weight"] == 0.1 and decay["1.bias"] == 0
    assert groups.members[matrix].hidden_matrix


# Family, design, and of the attached parameters: the group, kind, number, decay and target of each kind.
ATTACHED = {
    "HG+DP": ("llama", [("input scales", "column", 10, 0.1, "0"), ("multipliers", "row", 10, 2e-3, "0")]),
    "HG+DP+OR": (
        "llama",
        [
            ("input scales", "magnitude", 11, 0.1, "0"),
            ("multipliers", "magnitude", 10, 2e-3, "0"),
            ("directions", "direction", 21, 0.0, ""),
        ],
    ),
    "ER": (
        "gemma2",
        [
            ("input scales", "magnitude", 5, 0.1, "1 (geometric mean)"),
            ("output scales", "magnitude", 4, 0.0, ""),
            ("directions", "direction", 9, 0.0, ""),
        ],
    ),
    "row+column": ("llama", [("multipliers", "row", 14, 2e-3, "0"), ("multipliers", "column", 4, 2e-3, "0")]),
    "scalar": ("qwen3-moe", [("multipliers", "scalar", 14, 2e-3, "0")]),
    "DNP": ("llama", [("output scales", "row", 10, 0.0, "")]),
}


@cache
def adorned(design: str) -> nn.Module:
    model = copy.deepcopy(toy(ATTACHED[design][0]))
    attach(model, design, changes_function=design == "DNP")
    return model


@pytest.mark.parametrize("design", ATTACHED)
def test_what_is_attached_decays_as_the_scale_or_multiplier_it_is(design: str) -> None:
    model, (family, expected) = adorned(design), ATTACHED[design]
    groups = iwd_param_groups(model, weight_decay=0.1)
    attached = [m for name, m in groups.members.items() if name in multipliers(model)]
    found = Counter((m.group, m.kind, m.weight_decay, m.target) for m in attached)
    assert found == {(group, kind, decay, target): n for group, kind, n, decay, target in expected}
    bare = iwd_param_groups(toy(family), weight_decay=0.1)
    rest = {plain_name(name): m for name, m in groups.members.items() if name not in multipliers(model)}
    assert rest == {name: m for name, m in bare.members.items() if name in rest}
    assert set(bare.members) - set(rest) <= {plain_name(name) for name in groups.frozen}
    muon, adamw = split_for_muon(groups)
    assert not set(multipliers(model)) & set(muon.members)
    Muon(muon), AdamW(adamw)


@pytest.mark.parametrize(("design", "family"), [("OR", "qwen3"), ("ER", "gemma2")])
def test_decay_of_a_magnitude_leads_where_it_says(design: str, family: str) -> None:
    """OR: the scale itself to 0, its direction kept; ER: its geometric mean to 1, the ratios of its entries kept."""
    model, lr, decay, steps = copy.deepcopy(toy(family)), 0.1, 0.5, 40
    if design == "ER":
        with torch.no_grad():
            for norm in traced(family).norms:
                model.get_parameter(norm.scale).abs_()
    attach(model, design)
    optimizer = AdamW(iwd_param_groups(model, weight_decay=decay), lr=lr)
    before = _effective_scales(model, family)
    for _ in range(steps):
        for p in model.parameters():
            p.grad = torch.zeros_like(p) if p.requires_grad else None
        optimizer.step()
    left = (1 - lr * decay) ** steps
    for norm in traced(family).norms:
        v, after = before[norm.module], _effective_scales(model, family)[norm.module]
        if norm.role == "input" and design == "OR":
            v = left * v
        elif norm.role == "input":
            v = v * (v.log().mean() * (left - 1)).exp()
        torch.testing.assert_close(after, v, rtol=1e-12, atol=0)


def _effective_scales(model: nn.Module, family: str) -> dict[str, torch.Tensor]:
    norms = traced(family).norms
    return {n.module: n.offset + model.get_submodule(n.module).weight.detach() for n in norms}


def test_scales_all_and_none_reach_what_is_attached() -> None:
    for scales, decay in (("all", 0.1), ("none", 0.0)):
        groups = iwd_param_groups(adorned("ER"), weight_decay=0.1, scales=scales, multiplier_decay=0.3)
        magnitudes = [m.weight_decay for m in groups.members.values() if m.kind == "magnitude"]
        assert magnitudes == [decay] * 9
    groups = iwd_param_groups(adorned("scalar"), weight_decay=0.1, scales="all", multiplier_decay=0.3)
    assert {m.weight_decay for m in groups.members.values() if m.kind == "scalar"} == {0.3}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"weight_decay": -1.0}, "weight_decay=-1.0: expected a finite number >= 0"),
        ({"weight_decay": math.inf}, "weight_decay=inf"),
        ({"weight_decay": 0.1, "multiplier_decay": math.nan}, "multiplier_decay=nan"),
        ({"weight_decay": 0.1, "scales": "both"}, "scales='both': expected one of iwd, none, all, output"),
        ({"weight_decay": 0.1, "example_input": torch.zeros(2)}, "does not run on it"),
    ],
)
def test_bad_input(arguments: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        iwd_param_groups(toy("llama"), **arguments)
