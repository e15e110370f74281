"""What an audit says of real models, against a table made by hand, published counts and an independent oracle."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from collections import Counter
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

pytest.importorskip("transformers")

from simulations import cli
from simulations.audit import _read_by, summary, table
from simulations.models.audit import audit, sign_note
from simulations.models.float64 import outputs, relative_change
from simulations.models.roles import template
from simulations.models.running import example_input
from simulations.models.targets import find_subject
from simulations.models.toys import FAMILIES, build, random_tokens
from simulations.models.trace import trace

STEPS = {"untie": "untie_lm_head", "bias": "handle_norm_bias", "experts": "rescale router and every expert"}
KEYS = ["param", "role", "effective", "consumers", "fold_exact", "reason", "decay"]


def expected(family):
    """Rows of `norms.tsv`, a table kept apart from the code; layer numbers are starred."""
    with Path(__file__).with_name("norms.tsv").open(encoding="utf-8") as file:
        return {tuple(row.values())[1:] for row in csv.DictReader(file, delimiter="\t") if row["family"] == family}


def described(row):
    """A row of an audit in the terms of the table."""
    short = [template(c).replace(".weight", "").replace(" (tied to ", "=").rstrip(")") for c in row.consumers]
    marks = [mark for mark, step in STEPS.items() if step in row.requires] + list(row.flags)
    fold = "folds" if row.fold_exact else "fixed"
    return row.template, row.role, row.effective, fold, "+".join(marks) or "-", " ".join(short)


@cache
def toy(family):
    model = build(family, seed=0).float()
    return model, {"input_ids": random_tokens(model, 2, 24, seed=0), "use_cache": False}


@cache
def audited(kind, **overrides):
    subject = find_subject(kind, sizes="tiny", overrides=overrides)
    return audit(subject.model, subject.example, counts=subject.given)


def warned(found, *words):
    return any(all(word in line for word in words) for line in found.warnings)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    rows = audit(*toy(family)).rows
    assert {described(r) for r in rows if r.param} == expected(family)
    for row in rows:
        if row.param is None:
            assert (row.role, row.effective, row.fold_exact, row.q, row.share) == ("none", "none", None, None, None)
        else:
            assert bool(row.reason) is not row.fold_exact


LLAMA_1B = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32} | {
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}
QWEN3 = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16} | {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
OLMO2 = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16} | {
    "num_key_value_heads": 16,
    "vocab_size": 100352,
}
FALCON = {"hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 8} | {
    "num_key_value_heads": 2,
    "head_dim": 64,
    "mamba_d_ssm": 1536,
    "mamba_n_heads": 24,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "vocab_size": 32784,
}


@pytest.mark.parametrize(
    ("kind", "overrides", "parameters", "by_role"),
    [
        ("llama", LLAMA_1B, 1_235_814_400, {"input": 67_584}),
        ("gemma2", {}, 2_614_341_888, {"input": 122_112, "output": 119_808}),
        ("qwen3", QWEN3, 596_049_920, {"input": 58_368, "output": 7_168}),
        ("olmo2", OLMO2, 1_484_916_736, {"input": 2_048, "output": 131_072}),
        ("falcon_h1", FALCON, 521_411_104, {"input": 74_752}),
    ],
)
def test_counts_of_published_shapes(kind, overrides, parameters, by_role):
    found = audited(kind, **overrides)
    assert (found.totals.parameters, found.totals.by_role, found.totals.biases) == (parameters, by_role, 0)
    assert found.totals.scales == sum(by_role.values())
    total = sum(found.copies[r.param] * r.share for r in found.rows if r.param)
    assert total == pytest.approx(found.totals.scales / parameters, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "overrides", "norm", "counted"),
    [
        ("jamba", {}, "input_layernorm", {"self_attn.k_proj": 4, "mamba.in_proj": 28}),
        ("jamba", {}, "pre_ff_layernorm", {"feed_forward.gate_proj": 16, "feed_forward.experts.gate_up_proj": 16}),
        ("bert", {}, "output.LayerNorm", {"attention.self.key": 11, "cls.predictions.transform.dense": 1}),
        ("olmo", {}, "input_layernorm", {"self_attn.k_proj": 32}),
    ],
)
def test_norms_that_are_read_differently_by_layer_are_counted_apart(kind, overrides, norm, counted):
    """At the given sizes, though the model that is traced has few layers."""
    found, counts = audited(kind, **overrides), Counter()
    for row in found.rows:
        if re.search(rf"\d\.{norm}$", row.norm) and row.effective != "bias":
            first = row.consumers[0].removesuffix(".weight")
            counts[re.sub(r".*\.\d+\.", "", first)] += found.copies[row.param or row.norm]
    assert counts == counted


def rescaled(model, norm, factor, consumers):
    """The model's norm divided by ``factor`` channel by channel and the consumers multiplied, by plain loops."""
    named = dict(model.named_parameters())
    kept = {n: named[n].detach().clone() for n in (norm.scale, norm.bias, *(c.parameter for c in consumers)) if n}
    with torch.no_grad():
        named[norm.scale].copy_((norm.offset + named[norm.scale]) / factor - norm.offset)
        if norm.bias:
            named[norm.bias].div_(factor)
        for consumer in consumers:
            for index, channel in enumerate(consumer.channels.tolist()):
                if channel >= 0:
                    named[consumer.parameter].select(consumer.axis, index).mul_(factor.flatten()[channel])
    return kept


BREADTH = ["glm4", "bloom", "minicpm3", "lfm2", "olmoe", "vaultgemma", "nemotron_h", "rwkv", "openai-gpt", "xglm"]


@pytest.mark.parametrize("kind", BREADTH)
def test_an_independent_oracle(kind):
    """In float64 with random scales: input norms rescale against their consumers, of the others no subset will do."""
    subject = find_subject(kind, sizes="tiny")
    model, example = subject.model, subject.example or example_input(subject.model, batch=4)
    traced = trace(model)
    assert traced.unread == []
    model = model.double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.copy_(0.2 * noise if traced.uses[name].kind in ("matrix", "embedding") else p + 0.1 * noise)
    before = outputs(model, example)
    named = dict(model.named_parameters())

    def change(norm, consumers):
        kept = rescaled(model, norm, factor, consumers)
        changed = relative_change(before, outputs(model, example))
        with torch.no_grad():
            for name, value in kept.items():
                named[name].copy_(value)
        return changed

    assert any(n.scale for n in traced.norms)
    for norm in (n for n in traced.norms if n.scale):
        factor = 0.5 + 1.5 * torch.rand(named[norm.scale].shape, generator=generator, dtype=torch.float64)
        assert change(norm, ()) > 1e-4, norm.module
        if norm.absorbable:
            assert change(norm, norm.consumers) < 1e-12, norm.module
        else:
            subsets = chain.from_iterable(combinations(norm.consumers, k + 1) for k in range(len(norm.consumers)))
            assert all(change(norm, some) > 1e-6 for some in subsets), norm.module


def test_q_at_the_given_sizes_is_that_of_a_model_of_these_sizes():
    sizes = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"vocab_size": 800, "num_experts": 6}
    overrides = sizes | {"head_dim": 48, "moe_intermediate_size": 96, "num_experts_per_tok": 2}
    tiny = find_subject("qwen3_moe", sizes="tiny", overrides=overrides)
    real = audit(find_subject("qwen3_moe", sizes="given", overrides=overrides).model)
    wanted = {r.param: r.q for r in real.rows if r.q}
    found = {r.param: r.q for r in audit(tiny.model, counts=tiny.given).rows if r.q}
    assert found.keys() == wanted.keys() and len(found) == 5
    for name, q in found.items():
        assert 1 - q.given == pytest.approx(1 - (wanted[name].min + wanted[name].max) / 2, rel=0.05), name
        assert (q.given > 0) is (q.sign_note.startswith("Q > 0")), name
        assert wanted[name].given is None and q.min > q.given


def test_q_has_no_law_for_tied_heads_and_output_norms():
    found = audited("gemma2")
    assert {r.template: r.q is not None for r in found.rows} == {
        "model.layers.*.input_layernorm.weight": True,
        "model.layers.*.post_attention_layernorm.weight": False,
        "model.layers.*.pre_feedforward_layernorm.weight": True,
        "model.layers.*.post_feedforward_layernorm.weight": False,
        "model.norm.weight": False,
    }


@pytest.mark.parametrize(
    ("low", "high", "begins", "contains"),
    [
        (1.0, 1.0, "Q > 0: v keeps its sign", "≥ 1"),
        (0.2, 0.4, "Q > 0: v keeps its sign", "P_j ≥ v_j² ≥ Q_j"),
        (-0.1, 0.4, "Q > 0 for some channels only", "nothing is guaranteed"),
        (-9.0, -0.1, "Q < 0: v may pass through 0", "not guaranteed"),
    ],
)
def test_what_the_sign_of_q_means(low, high, begins, contains):
    assert sign_note(low, high).startswith(begins) and contains in sign_note(low, high)
    assert ("≥ 1" in sign_note(low, high)) is (low >= 1 or high < 0)


def test_decay_of_each_recipe_and_its_target():
    rows = {r.template: r for r in audited("gemma3_text").rows}
    q_norm, final = rows["model.layers.*.self_attn.q_norm.weight"], rows["model.norm.weight"]
    assert q_norm.decay == {"dim_rule": False, "trainer": False, "all": True, "iwd": False}
    assert final.decay == {"dim_rule": False, "trainer": False, "all": True, "iwd": True}
    assert (final.decay_target, final.init, final.effective_init) == (1.0, 0.0, 1.0)
    (bias, *_) = [r for r in audited("gpt2").rows if r.effective == "bias"]
    assert bias.decay == {"dim_rule": False, "trainer": False, "all": True, "iwd": False}
    assert (bias.decay_target, bias.init) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("llama", ["post_attention_layernorm", "but it is an input norm"]),
        ("toy gemma3n", ["input_layernorm", "but it is no input norm"]),
        ("gemma2", ["offset + w", "(1 + w)/s − 1"]),
        ("gemma2", ["one group for all decays output norms"]),
        ("gemma2", ["model.norm.weight", "untie before folding"]),
        ("nemotron", ["the effective scale is not 1"]),
        ("gpt2", ["ln_1", "folding moves the norm's bias"]),
        ("mixtral", ["post_attention_layernorm", "all of them or none"]),
        ("bert", ["mixed: weights and something else read it"]),
        ("qwen3", ["q_norm", "k_norm", "rotary"]),
        ("olmo", ["a norm without a scale"]),
        ("mamba2", ["Trainer decays backbone.norm_f.weight", "no other norm scale"]),
        ("mamba2", ["Trainer decays", "A_log", "no matrix product reads"]),
        ("mamba", ["the dimension rule decays", "A_log"]),
        ("gpt_oss", ["Trainer decays", "sinks"]),
        ("xlstm", ["Trainer decays", "norm_ffn"]),
        ("hyperclovax", ["Trainer decays output norms and no input norm: the opposite of IWD"]),
        ("mllama", ["cross_attn", "not read on this example"]),
    ],
)
def test_warnings(kind, words):
    overrides = {"num_key_value_heads": 8} if kind == "nemotron" else {}
    family = kind.removeprefix("toy ")
    found = audit(*toy(family)) if family != kind else audited(kind, **overrides)
    assert warned(found, *words), found.warnings


def test_a_plain_model_has_no_warning_that_does_not_apply():
    assert audited("phi3").warnings == tuple(w for w in audited("phi3").warnings if "but it is an input norm" in w)


class Sandwich(nn.Module):
    """An input norm and an output norm, under names that Trainer's patterns tell apart."""

    def __init__(self):
        super().__init__()
        self.a_norm, self.scale2, self.linear = nn.RMSNorm(4), nn.RMSNorm(4), nn.Linear(4, 4)

    def forward(self, x):
        return x + self.scale2(self.linear(self.a_norm(x)))


def test_a_block_that_two_layers_share_has_one_norm_of_each_kind():
    rows = [r for r in audited("zamba").rows if "shared_transf" in r.norm]
    assert len(rows) == 2 and all(r.fold_exact for r in rows)
    assert not any("tied" in c for r in rows for c in r.consumers)


class Mixture(nn.Module):
    """A router and experts that are modules of their own, each called if a token is sent there."""

    def __init__(self):
        super().__init__()
        self.norm, self.route = nn.RMSNorm(4), nn.Linear(4, 2)
        self.experts = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(2)])

    def forward(self, x):
        y = self.norm(x)
        weight, choice = self.route(y).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            here = torch.where(choice == e)
            out[here] = expert(y[here]) * weight[here][:, None]
        return x + out


def test_experts_need_not_be_one_parameter():
    torch.manual_seed(0)
    (row,) = audit(Mixture(), torch.randn(4, 30, 4)).rows
    assert row.requires == (STEPS["experts"],) and len(row.consumers) == 3
    assert _read_by(row) == ["2 × experts.*:1", "route:1"]


def test_the_opposite_of_iwd_is_named():
    found = audit(Sandwich(), torch.randn(2, 5, 4))
    assert warned(found, "Trainer decays output norms and no input norm: the opposite of IWD")
    assert {r.param: r.role for r in found.rows} == {"a_norm.weight": "input", "scale2.weight": "output"}
    assert not warned(audited("gemma2"), "the opposite of IWD")


def test_a_scale_whose_role_depends_on_the_layer_is_counted_as_such():
    assert set(audited("bert").totals.by_role) == {"input", "mixed", "varies"}


def test_a_wrong_role_a_left_out_router_and_an_ignored_offset_show(monkeypatch):
    """Faults planted in the trace: the table of families must not hold then."""

    def planted(family, **changes):
        real = trace

        def wrong(model, example=None):
            traced = real(model, example)
            norms = tuple(dataclasses.replace(n, **{k: f(n) for k, f in changes.items()}) for n in traced.norms)
            return dataclasses.replace(traced, norms=norms)

        monkeypatch.setattr("simulations.models.audit.trace", wrong)
        with pytest.raises(AssertionError):
            test_families(family)
        monkeypatch.undo()

    planted("gemma2", consumers=lambda n: ())
    planted("mixtral", consumers=lambda n: tuple(c for c in n.consumers if "gate.weight" not in c.parameter))
    planted("gemma2", offset=lambda n: 0.0)
    planted("llama-tied", consumers=lambda n: tuple(dataclasses.replace(c, also_used_by=()) for c in n.consumers))


def scalevec(*arguments):
    return CliRunner().invoke(cli.main, [str(a) for a in arguments], catch_exceptions=False)


def test_the_command_prints_a_table_and_writes_json(tmp_path):
    result = scalevec("audit", "qwen3_moe", "--set", "mlp_only_layers=[0]", "--json", tmp_path / "rows.json")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "traced as a tiny Qwen3MoeForCausalLM" in text and "output" in text and "mlp.gate:1" in text
    assert "norm scales: " in text and "warning: " in text and "yes, all" in text
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert all(list(row)[: len(KEYS)] == KEYS for row in rows)
    assert all(list(row["decay"]) == ["dim_rule", "trainer", "all", "iwd"] for row in rows)
    experts = next(r for r in rows if r["param"] == "model.layers.1.post_attention_layernorm.weight")
    assert experts["requires"] == [STEPS["experts"]] and experts["input_axes"]["model.layers.1.mlp.gate.weight"] == 1
    assert experts["q"]["min"] <= experts["q"]["max"] and not math.isnan(experts["share"])


@pytest.mark.parametrize("kind", ["gemma2", "bert", "qwen3", "mamba2"])
def test_no_column_of_the_table_is_cut(kind):
    from rich.console import Console

    out = Console(width=120, markup=False, highlight=False)
    with out.capture() as captured:
        out.print(table(audited(kind)))
    header, *lines = captured.get().splitlines()
    assert header.rstrip().endswith("to") and all(len(line) <= 120 for line in lines)
    assert "parameters" in summary(audited(kind))


FUNCTION = """
import torch
from torch import nn

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.power = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (x / x.norm(dim=-1, keepdim=True)).abs() ** self.power

def fine():
    return nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), torch.randn(2, 5, 4)

def no_norm():
    return nn.Linear(4, 3), torch.randn(2, 5, 4)

def odd_norm():
    return nn.Sequential(Odd(), nn.Linear(4, 3)), torch.randn(2, 5, 4)

def wrong_example():
    return nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), torch.randn(2, 5, 7)

def no_example():
    return nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), None

def raises():
    raise RuntimeError("out of\\nluck")
"""


def test_the_command_on_a_function_and_its_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FUNCTION)
    Path("folder").mkdir()
    assert scalevec("audit", "mine.py:fine").exit_code == 0
    assert "its output is not a number plus 0.power, channel" in scalevec("audit", "mine.py:odd_norm").stdout
    for target, message in {
        "mine.py:no_norm": "no module of it normalises",
        "mine.py:wrong_example": "does not run on it",
        "mine.py:no_example": "expected an example input",
        "mine.py:raises": "raised RuntimeError: out of luck",
        "LamaConfig": "did you mean LlamaConfig",
        "folder": "no weights",
        "gemma4_assistant": "hidden_size_per_layer_input must be 0",
    }.items():
        result = scalevec("audit", target, "--json", "rows.json")
        assert result.exit_code == 2 and message in result.stderr, (target, result.stderr)
        assert result.stderr.count("\n") == 1 and result.stdout == ""
        assert not Path("rows.json").exists()


def test_help_has_an_example():
    assert "scalevec audit LlamaConfig" in scalevec("audit", "--help").output


def test_a_sequence_of_norms_and_layers_counts_the_norms_alone():
    """In a sequence the names of norms and of layers differ in their numbers only."""
    torch.manual_seed(0)
    parts = [m for _ in range(3) for m in (nn.LayerNorm(8), nn.Linear(8, 8))]
    found = audit(nn.Sequential(*parts), torch.randn(5, 8))
    assert found.totals.scales == found.totals.biases == 3 * 8 and found.totals.by_role == {"input": 24}
    assert set(found.copies.values()) == {1} and len(found.copies) == 6


def test_what_is_alike_in_all_layers_is_named_once():
    lines = [w for w in audited("WhisperConfig").warnings if "also returns its output" in w]
    assert lines and all(line.count("encoder_attn.k_proj.weight") == 1 for line in lines)
