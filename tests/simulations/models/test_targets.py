"""What can be audited: configurations at tiny and given sizes, files, saved models, functions of the user's."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from simulations.models import targets
from simulations.models.roles import template
from simulations.models.running import LENGTH, call, example_input
from simulations.models.shrinking import HEADS, MOST_LAYERS, VOCABULARY, WIDTH
from simulations.models.targets import find_subject
from simulations.models.trace import trace
from simulations.settings import parse_settings

LLAMA = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32}

FUNCTION = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.RMSNorm(4), nn.Linear(4, 3)), torch.randn(2, 5, 4)

def raises():
    raise RuntimeError("out of\\nluck")

def returns_less():
    return nn.Linear(4, 3)
"""


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    "kind",
    [
        *("llama", "gpt_neo", "gemma3n_text", "deepseek_v3", "mixtral", "jamba", "falcon_h1", "mamba2", "zamba2"),
        *("qwen3_next", "recurrent_gemma", "rwkv", "gemma4_text", "electra", "t5", "vit", "dinov2", "whisper"),
        *("siglip", "siglip_text_model", "swin"),
    ],
)
def test_tiny_sizes_keep_the_structure(kind):
    """Every parameter of the given model has one of the same name, but for layer numbers, in the tiny one, and back."""
    subject = find_subject(kind, sizes="tiny")
    tiny, given = dict(subject.model.named_parameters()), dict(subject.given.named_parameters())
    assert {template(n) for n in tiny} == {template(n) for n in given}
    assert sum(p.numel() for p in tiny.values()) < 300_000 < sum(p.numel() for p in given.values())
    assert {p.device.type for p in given.values()} == {"meta"}
    assert all(p.ndim == given[n].ndim and max(p.shape) <= max(given[n].shape) for n, p in tiny.items() if n in given)
    assert not subject.model.training


def test_tiny_sizes_keep_ratios_of_heads_kinds_of_layers_and_ties():
    grouped = find_subject("mistral", sizes="tiny").config
    assert (grouped.hidden_size, grouped.num_attention_heads, grouped.num_key_value_heads) == (WIDTH, HEADS, HEADS // 2)
    single = find_subject("gemma", sizes="tiny", overrides={"num_key_value_heads": 1, "tie_word_embeddings": False})
    assert (single.config.num_key_value_heads, single.config.tie_word_embeddings) == (1, False)
    hybrid = find_subject("jamba", sizes="tiny")
    kinds = {tuple(n for n, _ in layer.named_children()) for layer in hybrid.model.model.layers}
    assert kinds == {tuple(n for n, _ in layer.named_children()) for layer in hybrid.given.model.layers}
    assert len(kinds) == 2 and len(hybrid.model.model.layers) <= MOST_LAYERS
    sliding = find_subject("gemma3_text", sizes="tiny").config.layer_types
    assert set(sliding) == {"sliding_attention", "full_attention"}
    experts = find_subject("qwen3_moe", sizes="tiny", overrides={"mlp_only_layers": [0, 5]}).config
    assert (experts.num_experts, experts.num_experts_per_tok, experts.mlp_only_layers) == (4, 2, [0])


def test_the_last_layers_share_what_earlier_ones_computed():
    config = find_subject("gemma3n_text", sizes="tiny").config
    own = config.layer_types[: -config.num_kv_shared_layers]
    assert (
        set(own) == set(config.layer_types[-config.num_kv_shared_layers :]) == {"sliding_attention", "full_attention"}
    )


def test_a_tiny_image_has_several_patches():
    """Attention to one patch alone is the same whatever queries and keys are."""
    for kind in ("vit", "siglip_vision_model"):
        config = find_subject(kind, sizes="tiny").config
        assert config.image_size >= 2 * config.patch_size and config.image_size % config.patch_size == 0


@pytest.mark.parametrize(
    ("kind", "inputs", "norm", "consumers"),
    [
        ("siglip", {"pixel_values", "input_ids"}, "vision_model.encoder.layers.0.layer_norm1", 3),
        ("siglip_text_model", {"input_ids"}, "encoder.layers.0.layer_norm1", 3),
        ("swin", {"pixel_values"}, "encoder.layers.0.downsample.norm", 1),
        ("wav2vec2", {"input_values"}, "feature_projection.layer_norm", 1),
        ("canary", {"input_features", "decoder_input_ids"}, "model.decoder.layers.0.input_layernorm", 3),
        ("moonshine", {"input_values", "decoder_input_ids"}, "model.decoder.layers.0.post_attention_layernorm", 1),
    ],
)
def test_models_of_images_sounds_and_towers_of_larger_ones_are_read(kind, inputs, norm, consumers):
    subject = find_subject(kind, sizes="tiny")
    assert set(example_input(subject.model) if subject.example is None else subject.example) - {"use_cache"} == inputs
    traced = trace(subject.model, subject.example)
    assert set(traced.unread) <= {"masked_spec_embed"}  # read in training only
    assert {n.module: len(n.consumers) for n in traced.norms}[norm] == consumers


def test_three_heads_become_two_which_divide_the_width():
    """As in the smallest DeiT."""
    small = {"hidden_size": 192, "num_attention_heads": 3}
    assert find_subject("deit", sizes="tiny", overrides=small).config.num_attention_heads == 2


def test_a_model_of_speech_is_read_from_its_encoder_to_its_head():
    subject = find_subject("whisper", sizes="tiny")
    traced = trace(subject.model, subject.example)
    assert not traced.unread
    consumers = {n.module: len(n.consumers) for n in traced.norms}
    assert (consumers["model.encoder.layers.0.self_attn_layer_norm"], consumers["model.decoder.layer_norm"]) == (3, 1)


def test_a_model_that_decodes_needs_no_example_of_the_user():
    model = find_subject("t5", sizes="tiny").model
    with torch.no_grad():
        assert call(model, example_input(model)).logits.shape[:2] == (2, LENGTH)


def test_sizes():
    small = find_subject("llama", overrides=LLAMA)
    assert small.given is None and small.config.hidden_size == 16
    large = find_subject("LlamaConfig")
    assert large.config.hidden_size == WIDTH and large.given.config.hidden_size == 4096
    assert find_subject("llama", sizes="tiny", overrides=LLAMA | {"vocab_size": 999}).config.vocab_size == VOCABULARY
    assert find_subject("llama", sizes="given", overrides=LLAMA).given is None
    with pytest.raises(ValueError, match="sizes='huge': expected one of auto, tiny, given"):
        find_subject("llama", sizes="huge")


def test_auto_shrinks_beyond_a_number_of_parameters(monkeypatch):
    count = sum(p.numel() for p in find_subject("llama", overrides=LLAMA).model.parameters())
    monkeypatch.setattr(targets, "LARGEST", count)
    assert find_subject("llama", overrides=LLAMA).given is None
    monkeypatch.setattr(targets, "LARGEST", count - 1)
    assert find_subject("llama", overrides=LLAMA).given is not None


def test_special_tokens_lie_within_the_tiny_vocabulary():
    config = find_subject("modernbert-decoder", sizes="tiny").config
    numbers = [v for n, v in vars(config).items() if n.endswith("_token_id") and isinstance(v, int)]
    assert len(numbers) == len(set(numbers)) >= 4 and max(numbers) < VOCABULARY


def test_initial_values_are_the_models_own_and_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    after = torch.rand(1)
    torch.manual_seed(3)
    one, two = find_subject("gemma2", sizes="tiny").model, find_subject("gemma2", sizes="tiny").model
    assert torch.equal(torch.rand(1), after)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not one.model.norm.weight.any()
    assert 0.015 < float(one.model.layers[0].mlp.up_proj.weight.detach().std()) < 0.025


def test_a_config_file(tmp_path):
    find_subject("llama", overrides=LLAMA | {"tie_word_embeddings": True}).config.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    subject = find_subject(str(file), overrides={"hidden_size": 24})
    assert subject.model.lm_head.weight is subject.model.model.embed_tokens.weight
    assert subject.config.hidden_size == 24
    fields = json.loads(file.read_text())
    file.write_text(json.dumps(fields | {"quantization_config": {"quant_method": "awq"}}))
    assert find_subject(str(file)).config.hidden_size == 16
    file.write_text(json.dumps(fields | {"model_type": "mine", "auto_map": {"AutoModel": "code.Mine"}}))
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ValueError, match=r"model_type='mine' is none of transformers; its own code .* is not run"):
        find_subject(str(file))
    assert not (tmp_path / "ran").exists()
    file.write_text("{")
    with pytest.raises(ValueError, match=r"config.json: no JSON"):
        find_subject(str(file))
    with pytest.raises(ValueError, match=r"nowhere.json: No such file"):
        find_subject(str(tmp_path / "nowhere.json"))


def test_a_saved_model_keeps_its_weights(tmp_path):
    model = find_subject("llama", overrides=LLAMA).model
    with torch.no_grad():
        model.model.norm.weight.fill_(3.0)
    model.save_pretrained(tmp_path)
    subject = find_subject(str(tmp_path))
    assert torch.equal(subject.model.model.norm.weight, model.model.norm.weight)
    assert subject.given is None and not subject.model.training
    for arguments in ({"sizes": "tiny"}, {"overrides": {"hidden_size": 8}}):
        with pytest.raises(ValueError, match="a saved model has the sizes it has"):
            find_subject(str(tmp_path), **arguments)


def test_a_folder_without_safetensors_is_refused_and_nothing_is_unpickled(tmp_path):
    model = find_subject("llama", overrides=LLAMA).model
    model.config.save_pretrained(tmp_path)

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    torch.save({"model.norm.weight": Bomb()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no weights \(\*.safetensors\) in it; give .*config.json for random ones"):
        find_subject(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"not at all")
    with pytest.raises(ValueError, match="cannot be loaded") as caught:
        find_subject(str(tmp_path))
    assert "\n" not in str(caught.value) and not (tmp_path / "exploded").exists()


def test_a_function_of_the_users(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FUNCTION)
    subject = find_subject(f"{file}:build")
    assert call(subject.model, subject.example).shape == (2, 5, 3)
    assert (subject.config, subject.given) == (None, None)
    with pytest.raises(ValueError, match=r"mine.py:raises raised RuntimeError: out of\nluck"):
        find_subject(f"{file}:raises")
    with pytest.raises(ValueError, match=r"returns_less returned Linear: expected a torch module and an example"):
        find_subject(f"{file}:returns_less")
    with pytest.raises(ValueError, match="nothing_here"):
        find_subject(f"{file}:nothing_here")
    with pytest.raises(ValueError, match="a function has no configuration of which to set hidden_size"):
        find_subject(f"{file}:build", overrides={"hidden_size": 8})
    with pytest.raises(ValueError, match="no such file"):
        find_subject("nowhere.py:build")


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"'LamaConfig': no configuration class, .* did you mean LlamaConfig"):
        find_subject("LamaConfig")
    with pytest.raises(ValueError, match=r"hidden_siz=8: no such field of LlamaConfig; did you mean hidden_size"):
        find_subject("llama", overrides={"hidden_siz": 8})
    with pytest.raises(ValueError, match="no such field of Gemma3Config"):
        find_subject("gemma3", overrides={"txt_config.hidden_size": 8})


def test_overrides_reach_aliases_nested_and_undeclared_fields():
    assert find_subject("gpt2", sizes="tiny", overrides={"num_hidden_layers": 7}).given.config.n_layer == 7
    nested = find_subject("gemma3", sizes="tiny", overrides={"text_config.intermediate_size": 640})
    assert nested.given.config.text_config.intermediate_size == 640
    undeclared = find_subject("falcon_h1", sizes="tiny", overrides={"head_dim": 64})
    assert undeclared.given.model.layers[0].self_attn.head_dim == 64


@pytest.mark.parametrize("overrides", [{"hidden_size": "wide"}, {"hidden_act": "nonsense"}])
def test_what_a_class_refuses_is_said_in_one_line(overrides):
    with pytest.raises(ValueError, match="LlamaConfig: ") as caught:
        find_subject("llama", overrides=LLAMA | overrides)
    assert "\n" not in str(caught.value)


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(targets, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"llama: transformers is not installed: pip install 'scalevec\[hf\]'"):
        find_subject("llama")


def test_settings_are_read_as_json_or_text():
    assert parse_settings(["a=3", "b=[1, 2]", "c=silu", "d.e=true"]) == {"a": 3, "b": [1, 2], "c": "silu", "d.e": True}
    with pytest.raises(ValueError, match="set='a': expected key=value"):
        parse_settings(["a"])


def test_a_file_without_a_function_is_told_to_name_one(tmp_path):
    with pytest.raises(ValueError, match=r"model\.py: expected .*model\.py:FUNCTION"):
        find_subject(str(tmp_path / "model.py"))
