"""What a small decoder is made of, as data; one entry for each family of models that it can be like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from simulations.settings import check_types


@dataclass(frozen=True)
class Architecture:
    """A decoder-only language model.

    Attributes
    ----------
    width, layers, heads, kv_heads, head_dim, hidden, vocabulary : sizes; kv_heads = 0 means as many as heads, head_dim
        = 0 width / heads.
    length : most tokens in a sequence, of which only learned positions take notice.
    norm, epsilon, offset : of every norm; its scale is offset + w, and w starts at 1 − offset.
    placement : where a layer has norms: before its sub-modules (``pre``), before and after (``sandwich``), after
        (``post``, before the residual addition).
    qk_norm : norms on queries and keys: none, one for each ``head``, one over ``all`` heads.
    feed_forward : ``swiglu``, ``geglu`` (tanh approximation) or ``gelu`` (without a gate).
    positions, rope_base : rotary or learned positions.
    bias : whether linear layers have biases.
    tied : whether the output head is the embedding.
    scaled_embedding : whether embeddings are multiplied by √width.
    experts, active, balance : feed-forward experts (0: dense), how many a token uses, weight of the balancing loss.
    state, mixer_heads, mixer_head_dim, mixer_groups : a Mamba-2 mixer beside the attention, of this state size (0:
        none).
    init : standard deviation of every matrix at the start.
    """

    width: int = 64
    layers: int = 4
    heads: int = 4
    kv_heads: int = 0
    head_dim: int = 0
    hidden: int = 176
    vocabulary: int = 256
    length: int = 128
    norm: Literal["rms", "layer"] = "rms"
    epsilon: float = 1e-6
    offset: float = 0.0
    placement: Literal["pre", "sandwich", "post"] = "pre"
    qk_norm: Literal["none", "head", "all"] = "none"
    feed_forward: Literal["swiglu", "geglu", "gelu"] = "swiglu"
    positions: Literal["rotary", "learned"] = "rotary"
    rope_base: float = 10_000.0
    bias: bool = False
    tied: bool = False
    scaled_embedding: bool = False
    experts: int = 0
    active: int = 2
    balance: float = 0.01
    state: int = 0
    mixer_heads: int = 4
    mixer_head_dim: int = 16
    mixer_groups: int = 1
    init: float = 0.02

    def __post_init__(self) -> None:
        """Raises ValueError for a size below 1, heads that do not divide, or more active experts than there are."""
        check_types(self)
        sizes = ("width", "layers", "heads", "hidden", "vocabulary", "length", "active")
        for name in (*sizes, "mixer_heads", "mixer_head_dim", "mixer_groups"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected >= 1")
        for name in ("kv_heads", "head_dim", "epsilon", "experts", "balance", "state", "init"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: expected >= 0")
        if not self.rope_base > 0:
            raise ValueError(f"rope_base={self.rope_base}: expected > 0")
        if self.heads % self.keys:
            raise ValueError(f"kv_heads={self.kv_heads}: expected a divisor of heads={self.heads}")
        if self.head_dim == 0 and self.width % self.heads:
            raise ValueError(f"heads={self.heads}: expected a divisor of width={self.width}, or head_dim given")
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(f"head_dim={self.head_size}: expected an even number for rotary positions")
        if self.state and self.mixer_heads % self.mixer_groups:
            raise ValueError(f"mixer_groups={self.mixer_groups}: expected a divisor of mixer_heads={self.mixer_heads}")
        if 0 < self.experts < self.active:
            raise ValueError(f"active={self.active}: expected at most experts={self.experts}")

    @property
    def keys(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def head_size(self) -> int:
        return self.head_dim or self.width // self.heads


FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "gemma": {
        "offset": 1.0,
        "placement": "sandwich",
        "qk_norm": "head",
        "feed_forward": "geglu",
        "tied": True,
        "scaled_embedding": True,
    },
    "gpt2": {
        "norm": "layer",
        "epsilon": 1e-5,
        "feed_forward": "gelu",
        "positions": "learned",
        "bias": True,
        "tied": True,
    },
    "qwen3": {"qk_norm": "head"},
    "olmo2": {"placement": "post", "qk_norm": "all"},
    "moe": {"experts": 4, "hidden": 88},
    "hybrid": {"state": 16},
}
"""What makes a decoder like a family: Gemma 3, GPT-2, Qwen3, OLMo-2, Mixtral, Falcon-H1 without its multipliers."""


SIZE_NAMES = {f.name for f in fields(Architecture)}


def architecture(family: str, **sizes: Any) -> Architecture:
    """The architecture of a family, with any field set to something else.

    Raises
    ------
    ValueError : an unknown family or field, or a value that does not fit.
    """
    if family not in FAMILIES:
        raise ValueError(f"family={family!r}: expected one of {', '.join(FAMILIES)}")
    if unknown := sorted(set(sizes) - SIZE_NAMES):
        raise ValueError(
            f"{unknown[0]}={sizes[unknown[0]]!r}: no such size; expected one of {', '.join(sorted(SIZE_NAMES))}"
        )
    return replace(Architecture(), **{**FAMILIES[family], **sizes})
