"""The model of `transformers` that a decoder of the lab is like, and its weights under the lab's names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from simulations.lm.architecture import Architecture
from simulations.lm.mixer import KERNEL

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION = {
    r"self_attn\.q_proj": "attention.query",
    r"self_attn\.k_proj": "attention.key",
    r"self_attn\.v_proj": "attention.value",
    r"self_attn\.o_proj": "attention.out",
    r"self_attn\.q_norm": "attention.query_norm",
    r"self_attn\.k_norm": "attention.key_norm",
}
GATED = {r"\.mlp\.(gate|up|down)_proj": r".feed_forward.\1"}
FRAME = {r"^model\.": "", r"^embed_tokens": "embedding", r"^lm_head": "head"}
PRE = {"input_layernorm": "attention_norm"}
AFTER_ATTENTION = {"post_attention_layernorm": "feed_forward_norm"}
SANDWICH = {
    "post_attention_layernorm": "attention_out_norm",
    "pre_feedforward_layernorm": "feed_forward_norm",
    "post_feedforward_layernorm": "feed_forward_out_norm",
}
EXPERTS = {
    r"\.mlp\.gate\.weight": ".feed_forward.router.weight",
    r"\.mlp\.experts\.gate_up_proj": ".feed_forward.gate_up",
    r"\.mlp\.experts\.down_proj": ".feed_forward.down",
}
MIXER = {
    r"\.feed_forward\.(gate|up|down)_proj": r".feed_forward.\1",
    "pre_ff_layernorm": "feed_forward_norm",
    r"mamba\.in_proj": "mixer.into",
    r"mamba\.out_proj": "mixer.out",
    r"mamba\.conv1d": "mixer.convolution",
    r"mamba\.dt_bias": "mixer.step_bias",
    r"mamba\.A_log": "mixer.log_decay",
    r"mamba\.D$": "mixer.skip",
    "final_layernorm": "norm",
}
GPT2 = {
    r"^transformer\.": "",
    r"^wte": "embedding",
    r"^wpe": "positions",
    r"^h\.": "layers.",
    r"\.ln_1": ".attention_norm",
    r"\.ln_2": ".feed_forward_norm",
    r"^ln_f": "norm",
    r"\.attn\.c_proj": ".attention.out",
    r"\.mlp\.c_fc": ".feed_forward.up",
    r"\.mlp\.c_proj": ".feed_forward.down",
    r"^lm_head": "head",
}
RENAMED: Mapping[str, Mapping[str, str]] = {
    "llama": FRAME | ATTENTION | GATED | PRE | AFTER_ATTENTION,
    "gemma3_text": FRAME | ATTENTION | GATED | PRE | SANDWICH,
    "gpt2": GPT2,
    "qwen3": FRAME | ATTENTION | GATED | PRE | AFTER_ATTENTION,
    "olmo2": FRAME | ATTENTION | GATED | SANDWICH,
    "mixtral": FRAME | ATTENTION | EXPERTS | PRE | AFTER_ATTENTION,
    "falcon_h1": FRAME | ATTENTION | PRE | MIXER,
}
MODEL_TYPE = {
    "llama": "llama",
    "gemma": "gemma3_text",
    "gpt2": "gpt2",
    "qwen3": "qwen3",
    "olmo2": "olmo2",
    "moe": "mixtral",
    "hybrid": "falcon_h1",
}


def twin(family: str, a: Architecture, **options: Any) -> PreTrainedModel:
    """The same architecture as a model of `transformers`, with weights of its own; nothing is downloaded.

    ``options`` are those of `AutoModelForCausalLM.from_config`.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoConfig, AutoModelForCausalLM

    if family == "gpt2":
        sizes: dict[str, Any] = {
            "n_embd": a.width,
            "n_layer": a.layers,
            "n_head": a.heads,
            "n_inner": a.hidden,
            "n_positions": a.length,
            "layer_norm_epsilon": a.epsilon,
        } | dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    else:
        sizes = {
            "hidden_size": a.width,
            "num_hidden_layers": a.layers,
            "num_attention_heads": a.heads,
            "num_key_value_heads": a.keys,
            "head_dim": a.head_size,
            "intermediate_size": a.hidden,
            "rms_norm_eps": a.epsilon,
            "max_position_embeddings": a.length,
            "rope_parameters": {"rope_type": "default", "rope_theta": a.rope_base},
        }
    if family == "gemma":
        rope = sizes["rope_parameters"]
        sizes |= {
            "query_pre_attn_scalar": a.head_size,
            "layer_types": ["full_attention"] * a.layers,
            "rope_parameters": {"full_attention": rope, "sliding_attention": rope},
        }
    if family == "moe":
        sizes |= {"num_local_experts": a.experts, "num_experts_per_tok": a.active, "router_aux_loss_coef": a.balance}
    if family == "hybrid":
        sizes |= {
            "mamba_d_ssm": a.mixer_heads * a.mixer_head_dim,
            "mamba_n_heads": a.mixer_heads,
            "mamba_d_head": a.mixer_head_dim,
            "mamba_n_groups": a.mixer_groups,
            "mamba_d_state": a.state,
            "mamba_d_conv": KERNEL,
            "mamba_chunk_size": 64,
        }
    sizes |= {"vocab_size": a.vocabulary, "tie_word_embeddings": a.tied, "initializer_range": a.init}
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    config = AutoConfig.for_model(MODEL_TYPE[family], **sizes, **special)
    return AutoModelForCausalLM.from_config(config, **options)


def weights_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """The state of a `twin` under the lab's names."""
    found = {}
    for name, value in model.state_dict().items():
        for pattern, new in RENAMED[model.config.model_type].items():
            name = re.sub(pattern, new, name)
        if model.config.model_type == "gpt2" and value.ndim == 2 and "layers" in name:
            value = value.T
        if ".attn.c_attn" in name:
            for part, which in zip(value.chunk(3), ("query", "key", "value"), strict=True):
                found[name.replace("attn.c_attn", f"attention.{which}")] = part
        else:
            found[name] = value
    return found
