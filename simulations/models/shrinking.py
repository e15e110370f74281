"""Any configuration of `transformers` at toy size: the same structure with other numbers.

Sizes are set by the names of a configuration's fields, never by family.  The first layers are kept, as many as it takes
to meet every kind of layer: kinds are told apart by the modules a layer is made of (on the meta device, where nothing
is allocated) and by the lists of the configuration that hold one entry for each layer.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

Fields = dict[str, Any]

WIDTH, HEADS, HEAD_DIM, VOCABULARY = 32, 4, 8, 64

FEWEST_LAYERS = 2
"""So that what one layer hands to the next is seen."""

MOST_LAYERS = 16

DEPTH = re.compile(r"(num_)?(hidden_|encoder_|decoder_)?layers|n_layers?|num_blocks|num_layers_per_stack|depth")

# Size by pattern of the field's name (the first that matches counts).  What is smaller already is left as it is.
SIZES: Sequence[tuple[str, int]] = (
    (r".*(experts?_per_tok(en)?|top_?k|topk|moe_k|topk_group|shared_experts?|zero_expert_num|o_groups|n_groups?)", 2),
    (r".*(num|n)_(expert_group|hash_layers)", 2),
    (r".*(num|n)_(routed_|local_)?experts|num_centroids|.*ngram_parts", 4),
    (r".*topk_blocks|.*index_topk", 8),
    (r"cross_attn_k", 1),
    (r"attention_head_dim", 2 * HEAD_DIM),
    (r".*vocab(_size)?(_base|_per_layer_input)?|unpadded_vocab_size|codebook_size", VOCABULARY),
    (r"max_(position_embeddings|seq_len|sequence_length|source_positions|target_positions)|n_positions|n_ctx", 256),
    (r"context_length|model_max_length|rel_extent|.*position_bias_max_distance|.*max_distance", 256),
    (r".*(window|window_size|window_len|chunk_size|chunk_length|block_size|local_attention)", 8),
    (r"rotary_dim|d_rel", HEAD_DIM // 2),
    (r".*(head_?dim|head_size|kv_channels|dim_head|d_head|d_kv|query_pre_attn_scalar)", HEAD_DIM),
    (r"(n_)?mamba_(n_|num_)?heads", 2 * WIDTH // HEAD_DIM),
    (r".*(num_|n_)?attention_heads(_per_layer)?|.*n_heads?|(linear_)?num_(value_)?heads|num_query_groups", HEADS),
    (r".*(d_state|state_size)", 4),
    (r".*(rank|dt_rank|time_step_rank|lowrank)", 12),
    (r"mamba_d_ssm|.*d_inner", 2 * WIDTH),
    (r".*(moe|expert)_(intermediate_size|ffn_hidden_size|ffn_dim)|expert_.*size|.*shared.*intermediate_size", 24),
    (r".*(intermediate_size(_mlp)?|ffn_dim|d_ff|dff|dim_ff|ffn_hidden_size|n_inner|feed_forward_size|mlp_dim)", 48),
    (r"hidden_size_per_layer_input|.*ple_embed_dim|.*prompt_mid_dim|router_hidden_size", 16),
    (r".*(hidden_size(_global)?|d_model|n_embd|embed_dim|emb_dim|embedding_dim|embedding_size|lru_width)", WIDTH),
    (r"dim_model_base|word_embed_proj_dim|(adapter|projector).*_(dim|input_size)|vision_output_dim", WIDTH),
    (r"projection_size|conv_dim|(tdnn|xvector_output)_dim", WIDTH),
    (r"image_size", 32),
    (r"patch_size", 8),  # several patches: attention to one alone would not show what queries and keys do
)  # fmt: skip

# How many there are of the first, as a share of the second: one, some or all.
GROUPED = re.compile(r"(.*)(key_value_heads|kv_heads|kv_n_heads|num_key_heads)")
PARTNERS = (r".*attention_heads", r"n_heads?", r"num_heads", r"linear_num_value_heads")


def shrink(config: PreTrainedConfig, model: nn.Module) -> PreTrainedConfig:
    """A configuration of the class of ``config`` with tiny sizes; ``model`` is what ``config`` builds (meta is enough).

    Raises
    ------
    ValueError : the class refuses the tiny sizes.
    """
    stacks = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    fields = copy.deepcopy(config.to_dict())
    split_heads = any("qk_rope_head_dim" in part for part in _parts(fields))
    for part in _parts(fields):
        given = dict(part)
        part.update({name: _smaller(name, value, given) for name, value in given.items()})
        _shorten(part, given, stacks)
        _renumber_tokens(part)
        _fit_windows(part)
        factor = part.get("partial_rotary_factor")
        if factor and not split_heads and factor * HEAD_DIM < 2:
            part["partial_rotary_factor"] = 0.5
    try:
        return type(config).from_dict(fields)
    except Exception as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{type(config).__name__}: no tiny sizes found ({said}); give sizes of your own") from error


def _parts(fields: Fields) -> Iterator[Fields]:
    """The configuration's fields and those of the configurations inside it."""
    for name, value in fields.items():
        if isinstance(value, dict) and name != "per_layer_config" and all(isinstance(key, str) for key in value):
            yield from _parts(value)
    yield fields


def _smaller(name: str, value: Any, given: Fields) -> Any:
    """The size of a field among the ``given`` ones; what is no size is returned as it is."""
    rotary = given.get("qk_rope_head_dim")
    if isinstance(value, list | tuple):  # a size for each layer, or no sizes
        return [_smaller(name, v, given) for v in value]
    if not isinstance(value, int) or isinstance(value, bool) or name.endswith("token_id"):
        return value
    if rotary and re.fullmatch(r"head_dim|qk_head_dim|qk_(nope|rope)_head_dim", name):
        return value * HEAD_DIM // (2 * rotary)  # their sums and equalities are kept
    if name == "num_heads" and "expand" in given:  # of a state space of this many times the width
        return given["expand"] * WIDTH // HEAD_DIM
    if name == "attention_hidden_size" and isinstance(given.get("hidden_size"), int):
        return WIDTH * value // given["hidden_size"]
    if name.endswith("embedding_size") and value != given.get("hidden_size", value):
        return 3 * WIDTH // 4  # a projection leads from one to the other
    if GROUPED.fullmatch(name):
        return _grouped(name, value, given)
    size = next((min(value, size) for pattern, size in SIZES if re.fullmatch(pattern, name)), value)
    return 2 if size == 3 and name.endswith("heads") else size  # which is to divide the width


def _grouped(name: str, value: int, given: Fields) -> int:
    """Heads that others share: one for all, one for two or one for each, as at the given sizes."""
    prefix = name.partition("num_")[0]
    partners = [n for n in given if any(re.fullmatch(p, n) for p in PARTNERS) and isinstance(given[n], int)]
    partners.sort(key=lambda n: n.partition("num_")[0] == prefix)
    many = given[partners[-1]] if partners else value
    return min(value, 1 if value == 1 else HEADS if value >= many else HEADS // 2)


def _shorten(part: Fields, given: Fields, stacks: Sequence[nn.ModuleList]) -> None:
    """Keep the first layers, as many as it takes to meet every kind, in every field that counts or lists layers."""
    counts = {n: v for n, v in given.items() if DEPTH.fullmatch(n) and isinstance(v, int) and v > FEWEST_LAYERS}
    for depth in set(counts.values()):
        lists = {n: v for n, v in given.items() if isinstance(v, list | tuple) and len(v) == depth}
        shared = given.get("num_kv_shared_layers")
        kept = _layers_kept(list(lists.values()), [] if shared else [s for s in stacks if len(s) == depth])
        layers = list(range(kept))
        if shared:  # the last layers reuse what earlier layers of their kind computed
            part["num_kv_shared_layers"] = kept
            layers += range(depth - shared, depth - shared + kept)
        segments = [n for n, v in given.items() if re.fullmatch(r"n_\w+_layers", n) and isinstance(v, int) and v > 0]
        if sum(given[n] for n in segments) == depth:
            size = kept + kept % 2  # a layer's halves may be listed apart
            part.update(dict.fromkeys(segments, size))
            layers = list(range(size * len(segments)))
        part.update({n: len(layers) for n, v in counts.items() if v == depth})
        part.update({n: [part[n][i] for i in layers] for n in lists})
        if len(layers) < depth:  # stages of a backbone go by the number of their layer; the last one is the default
            for name in ("stage_names", "out_features", "out_indices"):
                part.pop(name, None)
        _renumber_layers(part, given, depth, len(layers))


def _renumber_layers(part: Fields, given: Fields, depth: int, kept: int) -> None:
    """Cut fields that speak of layers by their number."""
    for name, value in given.items():
        if isinstance(value, list | tuple) and len(value) != depth and _layer_numbers(name, value, depth):
            part[name] = [i for i in value if i < kept]
        elif name.endswith("end_index"):
            part[name] = min(value, kept - 1)
    if types := given.get("attention_types"):  # a pattern and how often it is repeated
        part["attention_types"] = [[types[0][0], -(-kept // len(types[0][0]))]]
    if overrides := given.get("per_layer_config"):
        part["per_layer_config"] = {
            layer: {n: round(part[n] * v / given[n]) if type(v) is int and given.get(n) else v for n, v in own.items()}
            for layer, own in overrides.items()
            if int(layer) < kept
        }


def _layers_kept(lists: Sequence[Sequence[Any]], stacks: Sequence[nn.ModuleList]) -> int:
    kinds: list[Sequence[Any]] = [[_kind(layer) for layer in stack] for stack in stacks]
    kinds += [v for v in lists if not any(isinstance(kind, float) for kind in v)]
    kept = max(FEWEST_LAYERS, *(_reach(k, 1) for k in kinds), 0)
    if any(_shares(stack) for stack in stacks):
        kept = max(kept, *(_reach(k, 2) for k in kinds))
    return kept if kept <= MOST_LAYERS else FEWEST_LAYERS


def _kind(layer: nn.Module) -> tuple[tuple[str, str], ...]:
    return tuple((name, type(m).__qualname__) for name, m in layer.named_modules() if not name.split(".")[-1].isdigit())


def _reach(kinds: Sequence[Any], times: int) -> int:
    """Length of the shortest beginning that has every kind in it ``times`` times, or as often as there is."""
    places = {k: [i for i, other in enumerate(kinds) if other == k] for k in kinds}
    return 1 + max((p[:times][-1] for p in places.values()), default=0)


def _shares(stack: nn.ModuleList) -> bool:
    """Whether layers have parameters in common."""
    return len(list(stack.named_parameters(remove_duplicate=False))) > len(list(stack.parameters()))


def _layer_numbers(name: str, value: Sequence[Any], depth: int) -> bool:
    plain = all(isinstance(i, int) and 0 <= i < depth for i in value)
    return plain and bool(re.search(r"layers|ids|idxs|indices", name))


def _fit_windows(part: Fields) -> None:
    """Make images as large as it takes that the last of several stages, each half as large, is a window still."""
    depths, patch, image = part.get("depths"), part.get("patch_size"), part.get("image_size")
    if isinstance(depths, list | tuple) and isinstance(part.get("window_size"), int) and isinstance(patch, int):
        part["window_size"], part["embed_dim"] = 2, HEAD_DIM  # which each stage doubles
        size = 2 * patch * 2 ** (len(depths) - 1)
        part["image_size"] = [size, size] if isinstance(image, list | tuple) else size


def _renumber_tokens(part: Fields) -> None:
    """Special tokens beyond the vocabulary become its last ones, each its own."""
    size = part.get("vocab_size")
    if not isinstance(size, int):
        return
    large = [n for n, v in part.items() if re.search(r"token_(id|index)$", n) and isinstance(v, int) and v >= size]
    part.update({name: size - place for place, name in enumerate(large, 1)})
