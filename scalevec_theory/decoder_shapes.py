"""Sizes of dense decoders and the parameters they and the scale-vector designs cost, as plain arithmetic.

Source: arXiv 2605.26895 (counts of its Llama-1B), published model configurations for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalevec_theory.counts import check_count


@dataclass(frozen=True)
class Decoder:
    """Sizes of a dense decoder: per layer q, k, v, o and gate, up, down, no biases; RMSNorm scales throughout.

    ``layer_scales`` counts the entries of a layer's norm scales, ``layer_extra`` what a layer has besides attention,
    MLP and norms; there is one final norm.
    """

    width: int
    layers: int
    ffn: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    layer_scales: int
    tied: bool = False
    layer_extra: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "tied":
                check_count(name, value, 0 if name in ("layer_scales", "layer_extra") else 1)

    @property
    def scales(self) -> int:
        """Number of scale parameters."""
        return self.layers * self.layer_scales + self.width

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """Outputs and inputs of a layer's matrices: q, k, v, o, gate, up, down."""
        d, q, kv = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (q, d), (kv, d), (kv, d), (d, q), (self.ffn, d), (self.ffn, d), (d, self.ffn)

    @property
    def total(self) -> int:
        """Number of parameters."""
        layer = sum(c * d for c, d in self.matrices) + self.layer_extra
        return self.layers * layer + (1 if self.tied else 2) * self.vocabulary * self.width + self.scales

    def heterogeneous(self) -> int:
        """Parameters HG adds: q, k, v and gate, up each get an input scale of their own in place of two shared ones."""
        return self.layers * 3 * self.width

    def dual(self) -> int:
        """Parameters that HG with DP (or DNP) adds: a scale on both sides of every matrix of a layer."""
        return self.layers * (sum(c + d for c, d in self.matrices) - 2 * self.width)

    def unified(self) -> int:
        """Parameters that HG, DP or DNP, and OR add: as `dual`, with a magnitude for every scale vector of a layer."""
        return self.dual() + self.layers * 2 * len(self.matrices)


# Inferred: both of the paper's counts come out exactly with q, k, v and o all 1,792 x 1,792, that is with as many
# key-value heads as heads; any head size does (here 14 heads of 128).
LLAMA_1B = Decoder(1792, 22, 4778, 50304, 14, 14, 128, 2 * 1792)

# Falcon-H1's Mamba branch: input projection to (gate, x, B, C, dt), convolution of width 4 with bias over (x, B, C),
# A_log, D and dt_bias for 24 heads, output projection; its inner width is 1,536, its state 128.
_MAMBA = 1024 * (2 * 1536 + 2 * 128 + 24) + 5 * (1536 + 2 * 128) + 3 * 24 + 1536 * 1024

PUBLISHED: dict[str, tuple[Decoder, int, int]] = {
    "Llama-3.2-1B": (Decoder(2048, 16, 8192, 128256, 32, 8, 64, 2 * 2048, tied=True), 67_584, 1_235_814_400),
    "Gemma-2-2b": (Decoder(2304, 26, 9216, 256000, 8, 4, 256, 4 * 2304, tied=True), 241_920, 2_614_341_888),
    "Qwen3-0.6B": (
        Decoder(1024, 28, 3072, 151936, 16, 8, 128, 2 * 1024 + 2 * 128, tied=True),
        65_536,
        596_049_920,
    ),
    "OLMo-2-1B": (Decoder(2048, 16, 8192, 100352, 16, 16, 128, 4 * 2048), 133_120, 1_484_916_736),
    "Falcon-H1-0.5B": (
        Decoder(1024, 36, 2048, 32784, 8, 2, 64, 2 * 1024, layer_extra=_MAMBA),
        74_752,
        521_411_104,
    ),
}
