"""Real model families at toy size, and what gradient flow and rescaling do to their norm scales.

The models are those of `transformers`, unmodified, built from their configuration classes with random weights; nothing
is downloaded.  They compute in float64 throughout: `Float64` grants float64 wherever their code asks for float32.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from simulations.models.float64 import Float64
from simulations.models.roles import Norm
from simulations.models.trace import trace

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LAYERS: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 32}
_GROUPED: dict[str, Any] = _LAYERS | {"num_key_value_heads": 1, "intermediate_size": 24}
_MAMBA = {
    "mamba_chunk_size": 8,
    "mamba_d_ssm": 16,
    "mamba_n_heads": 2,
    "mamba_d_head": 8,
    "mamba_n_groups": 1,
    "mamba_d_state": 4,
}

FAMILIES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 32, "n_positions": 32}),
    "llama": ("llama", _GROUPED),
    "llama-tied": ("llama", _GROUPED | {"tie_word_embeddings": True}),
    "mistral": ("mistral", _GROUPED),
    "qwen2": ("qwen2", _GROUPED | {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", _GROUPED | {"head_dim": 8, "tie_word_embeddings": True}),
    "qwen3-moe": (
        "qwen3_moe",
        _GROUPED
        | {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
        | {"mlp_only_layers": [0], "decoder_sparse_step": 1},
    ),
    "gemma": ("gemma", _GROUPED | {"head_dim": 8}),
    "gemma2": ("gemma2", _GROUPED | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}),
    "gemma3": ("gemma3_text", _GROUPED | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}),
    "gemma3n": (
        "gemma3n_text",
        _GROUPED
        | {"head_dim": 8, "vocab_size_per_layer_input": 32, "hidden_size_per_layer_input": 4, "laurel_rank": 4}
        | {"num_kv_shared_layers": 0, "activation_sparsity_pattern": None, "layer_types": ["full_attention"] * 2},
    ),
    "olmo": ("olmo", _GROUPED),
    "olmo2": ("olmo2", _GROUPED),
    "mixtral": ("mixtral", _GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek-v3": (
        "deepseek_v3",
        _GROUPED
        | {"num_key_value_heads": 2, "q_lora_rank": 8, "kv_lora_rank": 6, "qk_rope_head_dim": 4, "v_head_dim": 8}
        | {"qk_nope_head_dim": 4, "moe_intermediate_size": 12, "n_routed_experts": 4, "n_shared_experts": 1}
        | {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    ),
    "gpt-oss": ("gpt_oss", _GROUPED | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "phi3": ("phi3", _GROUPED | {"pad_token_id": 0}),
    "cohere": ("cohere", _GROUPED),
    "stablelm": ("stablelm", _GROUPED),
    "falcon-h1": ("falcon_h1", _GROUPED | _MAMBA | {"tie_word_embeddings": False}),
    "falcon-h1-rms": ("falcon_h1", _GROUPED | _MAMBA | {"mamba_rms_norm": True, "tie_word_embeddings": False}),
    "mamba2": (
        "mamba2",
        {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 32, "num_heads": 4, "head_dim": 8, "state_size": 4}
        | {"n_groups": 1, "chunk_size": 8, "tie_word_embeddings": False},
    ),
    "opt-postln": (
        "opt",
        _LAYERS
        | {"ffn_dim": 24, "do_layer_norm_before": False, "word_embed_proj_dim": 16, "max_position_embeddings": 32},
    ),
}


def build(family: str, seed: int) -> PreTrainedModel:
    """A toy model of ``family`` (a key of `FAMILIES`) in float64 evaluation mode, its parameters drawn from ``seed``.

    Matrices are N(0, 1/16) (an untied input embedding N(0, 1)); vectors start where the model puts them, plus
    N(0, 1/25), so that no scale is 1 and no bias 0.

    Raises
    ------
    ValueError : an unknown family.
    ImportError : `transformers` is not installed.
    """
    if family not in FAMILIES:
        raise ValueError(f"family={family!r}: expected one of {', '.join(FAMILIES)}")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoConfig, AutoModelForCausalLM, logging

    logging.set_verbosity_error()  # which of its kernels is slow does not matter for a toy
    model_type, settings = FAMILIES[family]
    config = AutoConfig.for_model(model_type, **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")
    model = model.double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.25 * noise if parameter.ndim > 1 else parameter + 0.2 * noise)
        embedding = model.get_input_embeddings().weight
        if embedding is not model.get_output_embeddings().weight:
            embedding.mul_(4.0)
    return model


def random_tokens(model: PreTrainedModel, batch: int, length: int, seed: int) -> Tensor:
    """Token numbers ``(batch, length)``, the three special ones left out."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, model.get_input_embeddings().weight.shape[0], (batch, length), generator=generator)


def logits(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Next-token logits ``(batch, length, vocabulary)`` in float64."""
    with Float64():
        return model(input_ids=tokens, use_cache=False).logits


def relative_change(before: PreTrainedModel, after: PreTrainedModel, tokens: Tensor) -> float:
    """Largest difference of the two models' logits, relative to the largest logit of the first."""
    with torch.no_grad():
        kept = logits(before, tokens)
        return float((logits(after, tokens) - kept).abs().max() / kept.abs().max())


def norms_of(model: PreTrainedModel) -> list[Norm]:
    """The norms of a toy model, traced on enough tokens that every expert gets one."""
    return list(trace(model).norms)


def loss_gradient(model: PreTrainedModel, tokens: Tensor) -> dict[str, Tensor]:
    """Gradient of the mean next-token cross-entropy in every parameter, by name (a tied parameter appears once)."""
    named = dict(model.named_parameters())
    loss = nn.functional.cross_entropy(logits(model, tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(named.items(), gradients, strict=True)}


def gradient_flow(
    model: PreTrainedModel, tokens: Tensor, times: np.ndarray, tolerance: float
) -> list[dict[str, Tensor]]:
    """States of gradient flow of the language-model loss in all parameters at ``times`` (from 0), by DOP853.

    Where a mixture changes its routing the velocity jumps; the integrator's error control shortens its steps there.
    The model is left at the last state that was tried.  Raises RuntimeError if the integrator gives up.
    """
    named = dict(model.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def state(y: np.ndarray) -> dict[str, Tensor]:
        pieces = torch.from_numpy(y.copy()).split(sizes)
        return {n: piece.reshape(p.shape) for (n, p), piece in zip(named.items(), pieces, strict=True)}

    def velocity(_: float, y: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            for name, value in state(y).items():
                named[name].copy_(value)
        return -torch.cat([g.flatten() for g in loss_gradient(model, tokens).values()]).numpy()

    start = torch.cat([p.detach().flatten() for p in named.values()]).numpy()
    span = (0.0, float(times[-1]))
    solution = solve_ivp(velocity, span, start, "DOP853", times, rtol=tolerance, atol=tolerance)
    if not solution.success:
        raise RuntimeError(f"gradient flow stopped at t={solution.t[-1] if len(solution.t) else 0}: {solution.message}")
    return [state(y) for y in solution.y.T]
