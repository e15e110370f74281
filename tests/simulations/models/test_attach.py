"""Attaching, training, storing, detaching and merging scale vectors and multipliers on real models."""

from __future__ import annotations

import copy
import importlib
import inspect
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.nn.utils import parametrize

pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file

import simulations.models.rewriting as rewriting
from scalevec_theory.parametrizations import exponential_scale, magnitude_direction_scale
from simulations.models.attach import attach, detach, merge
from simulations.models.audit import audit
from simulations.models.designs import parse
from simulations.models.float64 import outputs, relative_change
from simulations.models.folding import effective_scale, fold
from simulations.models.running import example_input
from simulations.models.scales import Multiplier, multipliers
from simulations.models.toys import build
from simulations.models.trace import trace

attaching = importlib.import_module("simulations.models.attach")  # the package has a function of that name

ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.0.mlp"


@cache
def _toy(family):
    """A toy model whose effective scales are above 0, so that they have logarithms."""
    model = build(family, seed=0)
    traced = trace(model)
    with torch.no_grad():
        for norm in traced.norms:
            if norm.scale:
                w = model.get_parameter(norm.scale)
                w.copy_((norm.offset + w).abs() + 0.1 - norm.offset)
    return model, traced


def toy(family):
    return copy.deepcopy(_toy(family)[0])


def described(model):
    """All that detaching must give back: keys and values in order, parameters, classes, hooks, what is trained."""
    return (
        [(n, p.clone()) for n, p in model.state_dict().items()],
        [(n, id(p), p.requires_grad) for n, p in model.named_parameters()],
        [(type(m), len(m._forward_hooks), "save_pretrained" in vars(m)) for m in model.modules()],
    )


def same(one, other):
    values = [(a[0], torch.equal(a[1], b[1])) == (b[0], True) for a, b in zip(one[0], other[0], strict=True)]
    return all(values) and one[1:] == other[1:]


@pytest.fixture(autouse=True)
def no_search(request, monkeypatch):
    """Looking for redundancies takes a second; only the tests about it do."""
    if "redundan" not in request.node.name:
        monkeypatch.setattr(attaching, "_redundant", lambda *arguments: ())


@pytest.mark.parametrize(
    ("family", "design"),
    [
        *(("gemma2", d) for d in ("HG", "OR", "scalar", "HG+DP+ER")),
        ("stablelm", "HG+OR"),
        ("gpt2", "DP+OR"),
        ("gpt-oss", "HG+DP+OR"),
        ("mixtral", "row+column"),
        ("deepseek-v3", "HG+ER"),
        ("falcon-h1-rms", "HG+DP+OR"),
    ],
)
def test_the_function_stays_and_detaching_gives_everything_back(family, design):
    model = toy(family)
    before, example = described(model), example_input(model, batch=4, seed=9)
    kept = outputs(model, example)
    result = attach(model, design)
    assert result.exact and max(result.error, result.error_float64) < 1e-13
    assert relative_change(kept, outputs(model, example)) < 1e-13
    assert set(result.attached) == {n for n, p in model.named_parameters() if p.requires_grad} - {
        n for n, *_ in before[1]
    } - {n for n, _ in model.named_parameters() if n.endswith("original")}
    assert all(p.ndim == 1 for n, p in model.named_parameters() if n in result.attached)
    with torch.no_grad():  # liveness: the function depends on everything that is attached
        for name in result.attached:
            model.get_parameter(name).mul_(1 + 0.1 * torch.rand(model.get_parameter(name).shape).double())
    assert relative_change(kept, outputs(model, example)) > 1e-3
    moved = outputs(model, example)
    merged = copy.deepcopy(model)
    assert max(merge(merged)) < 1e-13
    assert relative_change(moved, outputs(merged, example)) < 1e-13
    assert relative_change(moved, outputs(model, example)) == 0  # merging the copy left the model alone
    after = described(merged)
    assert [(n, p.shape) for n, p in after[0]] == [(n, p.shape) for n, p in before[0]] and after[2] == before[2]
    assert [(n, trained) for n, _, trained in after[1]] == [(n, trained) for n, _, trained in before[1]]
    detach(model)
    assert same(described(model), before)


def test_what_is_attached_where():
    """By name: kind, what it acts on, shape, and that it can be merged; of a dense and of a mixed layer."""
    model = toy("qwen3-moe")
    found = attach(model, "HG+DP").attached
    shapes = {n: tuple(model.get_parameter(n).shape) for n in found}
    vector = "parametrizations.weight.{}.vector.value"
    q = "model.layers.1.self_attn.q_proj"
    assert found[f"{q}.{vector.format(0)}"] == Multiplier("column", f"{q}.weight", True)
    assert found[f"{q}.{vector.format(1)}"] == Multiplier("row", f"{q}.weight", True)
    experts = "model.layers.1.mlp.experts"
    shared, rows = (f"{experts}.parametrizations.gate_up_proj.{i}.vector.value" for i in (0, 1))
    assert found[shared].parameter == found[rows].parameter == f"{experts}.gate_up_proj"
    assert shapes[shared] == (16,) and shapes[rows] == (4 * 24,)
    assert not any("lm_head" in n or "o_proj" in n or "down_proj" in n or "norm" in n for n in found)
    norm = model.model.layers[1].input_layernorm
    assert torch.equal(norm.weight, torch.ones(16)) and not norm.parametrizations.weight.original.requires_grad
    assert multipliers(model) == found and multipliers(toy("qwen3-moe")) == {}


def test_multipliers_of_experts_are_each_their_own():
    model = toy("mixtral")
    sizes = {}
    for design in ("scalar", "row", "column"):
        found = attach(model, design).attached
        sizes[design] = {m.parameter: model.get_parameter(n).numel() for n, m in found.items()}
        detach(model)
    down, o = "model.layers.0.mlp.experts.down_proj", f"{ATTENTION}.o_proj.weight"
    assert tuple(model.get_parameter(down).shape) == (4, 16, 24)
    assert [sizes[d][down] for d in ("scalar", "row", "column")] == [4, 64, 96]
    assert [sizes[d][o] for d in ("scalar", "row", "column")] == [1, 16, 16]
    before = model.get_parameter(down).detach().clone()
    attach(model, "column")
    with torch.no_grad():
        column = model.model.layers[0].mlp.experts.parametrizations.down_proj[0].vector.value
        column.copy_(torch.arange(96.0))
    assert torch.equal(
        model.get_submodule(down.rpartition(".")[0]).down_proj, before * torch.arange(96.0).view(4, 1, 24)
    )


@pytest.mark.parametrize(("part", "formula"), [("OR", magnitude_direction_scale), ("ER", exponential_scale)])
def test_split_vectors_act_on_the_effective_scale(part, formula):
    model = toy("gemma2")
    norm = next(n for n in _toy("gemma2")[1].norms if n.module.endswith("layers.0.post_attention_layernorm"))
    scale = effective_scale(norm, dict(model.named_parameters())).detach().clone()
    found = attach(model, f"HG+{part}").attached
    (beta, alpha) = (f"{norm.module}.parametrizations.weight.0.vector.{n}" for n in ("beta", "alpha"))
    assert found[beta] == Multiplier("magnitude", norm.scale, False)  # an output norm's scale goes into no weight
    assert found[alpha] == Multiplier("direction", norm.scale, False)
    assert found["model.norm.parametrizations.weight.0.vector.alpha"].foldable is False  # the head is tied
    b, a = model.get_parameter(beta), model.get_parameter(alpha)
    assert b.shape == (1,) and torch.allclose(formula(b[0], a), scale, rtol=1e-13)
    with torch.no_grad():
        b.add_(0.5)
        a.add_(torch.linspace(0, 1, 16).double())
    now = model.get_submodule(norm.module).weight
    assert torch.allclose(now + norm.offset, formula(b[0], a), rtol=1e-13)
    branch = model.get_parameter(f"{ATTENTION}.q_proj.parametrizations.weight.0.vector.alpha")
    assert branch.shape == (16,)


TRAINED = [
    *(("llama", d) for d in ("HG+DP+OR", "ER", "row+column", "scalar")),
    *(("qwen3-moe", d) for d in ("HG+DP+OR", "row+column")),
    *(("falcon-h1", d) for d in ("HG+DP+ER", "scalar")),
]


def trained(model, steps=3):
    """AdamW on the language-model loss; the losses before each step and after the last."""
    example = example_input(model, batch=4)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(**example, labels=example["input_ids"]).loss
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [*losses, float(model(**example, labels=example["input_ids"]).loss.detach())]


@pytest.mark.parametrize(("family", "design"), TRAINED)
def test_training_storing_and_merging(family, design, tmp_path):
    model = toy(family)
    plain = copy.deepcopy(model)
    found = attach(model, design).attached
    start = {n: model.get_parameter(n).detach().clone() for n in found}
    losses = trained(model)
    assert losses[-1] < losses[0]
    assert all((model.get_parameter(n) != p).any() for n, p in start.items())
    example = example_input(model)
    now = outputs(model, example)
    save_file({n: p.contiguous() for n, p in model.state_dict().items()}, tmp_path / "model.safetensors")
    stored = load_file(tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\) in state_dict: .*parametrizations"):
        copy.deepcopy(plain).load_state_dict(stored)
    again = copy.deepcopy(plain)
    attach(again, design)
    again.load_state_dict(stored)
    assert relative_change(now, outputs(again, example)) == 0
    merge(model)
    plain.load_state_dict(model.state_dict())
    assert relative_change(now, outputs(plain, example)) < 1e-12


def test_a_compiled_model_trains_the_same():
    losses = []
    for compiled in (False, True):
        model = toy("llama")
        model.model.layers = model.model.layers[:1]
        attach(model, "HG+DP+OR")
        if compiled:
            model.compile(backend="eager")
        losses.append(trained(model, steps=2))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12) and losses[0][-1] < losses[0][0]


class Ramp(torch.nn.Module):
    def forward(self, x):
        return x + torch.arange(x.shape[-1], device=x.device)


def test_a_model_that_is_compiled_already_takes_a_design_and_gives_it_back():
    torch.manual_seed(0)
    model, x = (
        torch.nn.Sequential(Ramp(), torch.nn.RMSNorm(4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)),
        torch.randn(5, 4),
    )
    compiled, keys = torch.compile(model, backend="eager"), list(model.state_dict())
    with torch.no_grad():
        before = compiled(x)
        attach(compiled, "OR+row", x)
        assert len(multipliers(model)) == 3 and relative_change([before], [compiled(x)]) < 1e-6
        merge(compiled, x)
        assert list(model.state_dict()) == keys and relative_change([before], [compiled(x)]) < 1e-6


def test_a_model_with_no_matrix_but_its_head_is_told_so():
    model = torch.nn.Sequential(torch.nn.RMSNorm(4), torch.nn.Linear(4, 3))
    with pytest.raises(ValueError, match="row: there is nothing to attach it to: no matrix is chosen; without `where`"):
        attach(model, "row", torch.randn(5, 4))
    assert attach(model, "row", torch.randn(5, 4), where=lambda name: True).attached


def test_in_low_precision_it_is_the_same_to_rounding():
    model = toy("gemma2").bfloat16()
    result = attach(model, "HG+OR")
    assert result.error_float64 < 1e-13 and 0 < result.error < 0.1
    assert {model.get_parameter(n).dtype for n in result.attached} == {torch.bfloat16}
    exact = copy.deepcopy(model).double()
    merge(exact)
    assert 0 < merge(model)[1] < 0.1
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(model.parameters(), exact.parameters(), strict=True))


def test_saving_an_attached_model_fails_until_it_is_merged(tmp_path):
    model = toy("llama")
    attach(model, "HG+row", where=lambda n: "o_proj" in n)
    for m in (model, copy.deepcopy(model), model.model):
        for save in (m.save_pretrained, m.push_to_hub):
            with pytest.raises(ValueError, match="another; merge first, or store its state dict and attach the same"):
                save(tmp_path)
    assert list(tmp_path.iterdir()) == []
    merged = copy.deepcopy(model)
    merge(merged)
    merged.save_pretrained(tmp_path)
    again = type(merged).from_pretrained(tmp_path, dtype=torch.float64, attn_implementation="eager").eval()
    example = example_input(model)
    assert relative_change(outputs(model, example), outputs(again, example)) < 1e-13


def test_writing_in_place_to_a_parametrized_weight_is_lost():
    """The trap that `attach` documents."""
    model = toy("llama")
    attach(model, "scalar")
    before = outputs(model, example_input(model))
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.zero_()
    assert relative_change(before, outputs(model, example_input(model))) == 0


def test_where_chooses_the_parameters_the_head_included():
    model = toy("llama")
    assert set(m.parameter for m in attach(model, "row").attached.values()).isdisjoint({"lm_head.weight"})
    detach(model)
    (only,) = attach(model, "row", where=lambda name: name == "lm_head.weight").attached.values()
    assert only == Multiplier("row", "lm_head.weight", True)
    with pytest.raises(ValueError, match=r"design part row: .*lm_head.weight\): untie first"):
        attach(toy("llama-tied"), "row", where=lambda name: name == "lm_head.weight")


def test_dnp_normalises_what_modules_return():
    model = toy("llama")
    with pytest.raises(ValueError, match="design='dnp': DNP changes the function from the start"):
        attach(model, "dnp")
    before, example = described(model), example_input(model)
    q = model.model.layers[0].self_attn.q_proj
    seen = []
    hook = q.register_forward_hook(lambda module, args, out: seen.append(out))
    outputs(model, example)
    result = attach(model, "DNP", changes_function=True)
    assert not result.exact and result.error > 1e-3 and result.error_float64 == 0
    assert len(result.attached) == 10 and result.attached[f"{ATTENTION}.q_proj.output_norm.value"] == Multiplier(
        "row", f"{ATTENTION}.q_proj.weight", False
    )
    outputs(copy.deepcopy(model), example)
    raw, scale = seen[0], q.output_norm.value
    normed = raw / (raw.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    assert torch.allclose(scale, raw.square().mean().sqrt().expand(16), rtol=1e-13)
    with torch.no_grad():
        assert torch.allclose(q(torch.eye(16).double()), q(3 * torch.eye(16).double()), rtol=1e-4)
        outputs(model, example)
    hooks = list(q._forward_hooks.values())
    assert torch.allclose(hooks[1](q, None, raw), normed * scale, rtol=1e-12)
    with pytest.raises(ValueError, match=r"q_proj.output_norm.*cannot be merged into weights; detach takes it off"):
        merge(model)
    hook.remove()
    detach(model)
    assert same(described(model), before)
    moe = toy("mixtral")
    result = attach(moe, "DNP", changes_function=True)
    for name in ("experts.gate_up_proj", "gate.weight"):  # the router returns more than its product
        assert result.refused[f"DNP {MLP}.{name}"] == "its product is no module's output"
    assert len(result.attached) == 6


@pytest.mark.parametrize(
    ("family", "design", "message"),
    [
        ("llama", "HG+colum", r"'HG\+colum': no part 'colum'; did you mean column\?; expected HG, DP, DNP"),
        ("llama", "", "'': no part ''"),
        ("llama", "OR+ER", r"design='OR\+ER': expected each part once, and OR or ER"),
        ("llama", "row+row", r"design='row\+row': expected each part once"),
        ("phi3", "HG", r"design part HG: .*input_layernorm: one parameter consumes it, .*qkv_proj.weight"),
        ("olmo", "OR", "design part OR: there is nothing to attach it to: no norm has a scale"),
        ("olmo2", "DP", "design part DP: .*the head is left out unless `where` names it"),
        ("mamba2", "column", r"column .*in_proj.weight: redundant: the scale of backbone.layers.0.norm multiplies"),
        ("llama", "row+scalar", "scalar .*q_proj.weight: redundant: its rows or columns have multipliers"),
    ],
)
def test_what_cannot_be_attached_is_refused(family, design, message):
    model = toy(family)
    before = described(model)
    with pytest.raises(ValueError, match=message):
        attach(model, design)
    assert same(described(model), before)


def test_scales_without_logarithm_or_direction_are_refused():
    model = toy("llama")
    weight = model.model.layers[0].input_layernorm.weight
    for part, value, message in (
        ("ER", -0.5, r"ER: effective scale -0.5: expected"),
        ("OR", 0.0, "OR: a scale vector"),
    ):
        with torch.no_grad():
            weight.fill_(value)
        before = described(model)
        for design in (part, f"HG+{part}"):
            with pytest.raises(ValueError, match=message):
                attach(model, design)
        assert same(described(model), before)
    model = toy("stablelm")
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight[3] = 0.0
    with pytest.raises(ValueError, match="HG: the norm has a bias and a scale with entries of 0"):
        attach(model, "HG")


def test_redundant_by_the_trace_alone_is_left_out():
    refused = attach(toy("llama"), "DP+row+column").refused
    assert refused[f"column {ATTENTION}.q_proj.weight"].startswith("redundant: the scale of model.layers.0.input_layer")
    assert refused[f"row {ATTENTION}.q_proj.weight"] == "redundant: the scale of DP multiplies the same rows"
    assert f"row {ATTENTION}.o_proj.weight" not in refused and f"column {ATTENTION}.o_proj.weight" not in refused


def test_redundancies_are_named(monkeypatch):
    found = attach(toy("llama"), "row+column").redundant
    for start in (
        f"{ATTENTION}.v_proj.weight (row) ~ {ATTENTION}.o_proj.weight (column): 8 symmetries",
        f"{MLP}.up_proj.weight (row) ~ {MLP}.down_proj.weight (column): 24 symmetries",
        f"{ATTENTION}.q_proj.weight (row) ~ {ATTENTION}.k_proj.weight (row): 4 symmetries",
    ):
        assert any(line.startswith(start) for line in found), found
    # DP's scales together against the norm's, which is 1 + w
    found = attach(toy("gemma2"), "DP").redundant
    assert any("model.layers.0.input_layernorm.weight" in line for line in found), found
    # q_norm against k_norm is a redundancy of the model, not of what is attached
    assert attach(toy("qwen3"), "scalar", where=lambda name: "layers.0.mlp.down_proj" in name).redundant == ()


def test_redundancies_of_wide_models_are_the_same(monkeypatch):
    """But for the choice of those that follow from others: the same numbers of those with few entries."""
    monkeypatch.setattr(attaching, "EXAMINED", 300)
    (line,) = attach(toy("llama"), "row+column").redundant
    assert line == "not examined: 384 entries of vectors, more than 300; thorough=True looks all the same"
    *found, last = attach(toy("llama"), "row+column", thorough=True).redundant
    assert last == "of 384 entries: sought were those of at most 24 of them, and those of whole vectors"
    for layer in (f"model.layers.{i}" for i in range(2)):
        for start in (
            f"{layer}.self_attn.v_proj.weight (row) ~ {layer}.self_attn.o_proj.weight (column): 8 symmetries",
            f"{layer}.mlp.up_proj.weight (row) ~ {layer}.mlp.down_proj.weight (column): 24 symmetries",
            f"{layer}.self_attn.q_proj.weight (row) ~ {layer}.self_attn.k_proj.weight (row): 4 symmetries",
            f"{layer}.mlp.gate_proj.weight (row) ~ ",
        ):
            assert any(line.startswith(start) for line in found), found
    assert len(found) == 14


def test_tables_are_not_examined_for_redundancy(monkeypatch):
    """The learned positions of GPT-2 alone are more entries than are examined."""
    monkeypatch.setattr(attaching, "EXAMINED", 500)
    assert not any("entries" in line for line in attach(toy("gpt2"), "scalar").redundant)


def test_only_verified_redundancies_count(monkeypatch):
    real = attaching.redundancies

    def unverified(*args, **options):
        result = real(*args, **options)
        return replace(result, families=tuple(replace(f, change=1e-4) for f in result.families))

    monkeypatch.setattr(attaching, "redundancies", unverified)
    assert attach(toy("llama"), "scalar").redundant == ()


def test_nothing_is_attached_twice_or_taken_off_when_nothing_is_there():
    model = toy("llama")
    for take_off in (detach, merge):
        with pytest.raises(ValueError, match="LlamaForCausalLM: nothing is attached"):
            take_off(model)
    attach(model, "scalar")
    with pytest.raises(ValueError, match=r"self_attn.q_proj: it is parametrized already; merge or detach first"):
        attach(model, "OR")
    other = toy("llama")
    parametrize.register_parametrization(other.lm_head, "weight", torch.nn.Identity())
    with pytest.raises(ValueError, match="lm_head: it is parametrized already"):
        attach(other, "OR")


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = torch.nn.LayerNorm(4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.norm(x)
        return self.a(y).tanh() * self.b(y)


def test_a_scale_that_two_norms_share_is_left_where_it_is():
    model = torch.nn.Sequential(Small(), Small(), Small())
    model[1].norm.weight = model[0].norm.weight
    attached = attach(model, "OR+scalar", torch.randn(3, 4), where=lambda name: "a.weight" in name)
    assert set(attached.refused) >= {"OR/ER 0.norm", "OR/ER 1.norm"} and "OR/ER 2.norm" not in attached.refused


class Altered(Small):
    """Folding has no place for the norm's bias here; moving a factor from scale and bias to a and b needs none."""

    def forward(self, x):
        y = self.norm(x)
        return self.a(y * x.sigmoid()).tanh() * self.b(y)


def test_branches_need_no_place_for_a_bias():
    model, x = Altered().double(), torch.randn(3, 4, dtype=torch.float64)
    with torch.no_grad():
        model.norm.weight.uniform_(0.5, 1.5)
        model.norm.bias.normal_()
    before = model(x)
    assert "no constant is added there" in fold(model, x).refused["norm"]
    result = attach(model, "HG", x)
    assert {m.parameter: m.kind for m in result.attached.values()} == {"a.weight": "column", "b.weight": "column"}
    torch.testing.assert_close(model(x), before, rtol=1e-13, atol=1e-13)
    merge(model, x)
    torch.testing.assert_close(model(x), before, rtol=1e-13, atol=1e-13)
    assert not fold(model, x).folded and model.norm.weight.eq(1).all()


def test_a_part_that_is_compiled_is_refused():
    model = Small()
    model.a = torch.compile(model.a, backend="eager")
    with pytest.raises(ValueError, match="a: a part that is compiled takes no parameters; attach first, then compile"):
        attach(model, "scalar", torch.randn(3, 4))


@pytest.mark.parametrize("fault", ["consumer left out", "offset ignored", "wrong axis"])
def test_a_planted_fault_is_found_before_the_model_is_touched(monkeypatch, fault):
    model, traced = toy("gemma2"), _toy("gemma2")[1]
    norm = next(n for n in traced.norms if n.module == "model.layers.0.input_layernorm")
    first, *rest = norm.consumers
    wrong = {
        "consumer left out": replace(norm, consumers=tuple(rest)),
        "offset ignored": replace(norm, offset=0.0),
        "wrong axis": replace(norm, consumers=(replace(first, axis=0), *rest)),
    }[fault]
    with torch.no_grad():
        for n in traced.norms:
            model.get_parameter(n.scale).fill_(1 - n.offset)
    planted = replace(traced, norms=tuple(wrong if n is norm else n for n in traced.norms))
    monkeypatch.setattr(rewriting, "traced_on", lambda model, example: (example or example_input(model), planted))
    before = described(model)
    with pytest.raises(ValueError, match="design='HG': the outputs would change by"):
        attach(model, "HG")
    assert same(described(model), before)


def test_a_merge_that_overflows_leaves_the_model_as_it_was():
    model = toy("llama").half()
    attach(model, "row")
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.parametrizations.weight[0].vector.value.fill_(6e4)
        model.model.layers[0].mlp.up_proj.parametrizations.weight.original.fill_(2.0)
    before = described(model)
    with pytest.raises(ValueError, match=r"up_proj.weight: an entry of 1.2e\+05 overflows torch.float16"):
        merge(model)
    assert same(described(model), before)


def test_designs_are_read_in_any_case_and_order():
    assert parse("or + dp+HG") == ("HG", "DP", "OR") and parse("Column+SCALAR") == ("scalar", "column")
    assert all(part in inspect.getdoc(attach) for part in ("HG", "DP", "DNP", "OR", "ER", "scalar", "row", "column"))


@pytest.mark.parametrize("design", ["HG", "OR", "HG+OR"])
def test_audit_and_fold_ask_for_a_plain_model_first(design):
    model = toy("llama")
    attach(model, design)
    for ask in (audit, fold):
        with pytest.raises(ValueError, match="it is parametrized; merge or detach first"):
            ask(model)
