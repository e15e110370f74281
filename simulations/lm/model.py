"""One compact decoder that is like any of the families of `architecture.FAMILIES`."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simulations.lm.architecture import Architecture
from simulations.lm.mixer import Mixer
from simulations.models.outline import outline


class Norm(nn.Module):
    """RMS or layer norm over the last axis, times offset + w (plus a bias for layer norms)."""

    def __init__(self, a: Architecture, size: int) -> None:
        super().__init__()
        self.layer, self.epsilon, self.offset = a.norm == "layer", a.epsilon, a.offset
        self.weight = nn.Parameter(torch.full((size,), 1 - a.offset))
        self.bias = nn.Parameter(torch.zeros(size)) if self.layer else None

    def forward(self, x: Tensor) -> Tensor:
        scale = self.offset + self.weight if self.offset else self.weight
        if self.layer:
            return F.layer_norm(x, self.weight.shape, scale, self.bias, self.epsilon)
        return F.rms_norm(x, self.weight.shape, scale, self.epsilon)


class Attention(nn.Module):
    """Causal self-attention, ``(B, T, width)`` to the same."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.a = a
        size, keys = a.heads * a.head_size, a.keys * a.head_size
        self.query = nn.Linear(a.width, size, bias=a.bias)
        self.key = nn.Linear(a.width, keys, bias=a.bias)
        self.value = nn.Linear(a.width, keys, bias=a.bias)
        self.out = nn.Linear(size, a.width, bias=a.bias)
        if a.qk_norm != "none":
            self.query_norm = Norm(a, a.head_size if a.qk_norm == "head" else size)
            self.key_norm = Norm(a, a.head_size if a.qk_norm == "head" else keys)

    def forward(self, x: Tensor, rotation: Tensor | None) -> Tensor:
        a = self.a
        q, k, v = self.query(x), self.key(x), self.value(x)
        if a.qk_norm == "all":
            q, k = self.query_norm(q), self.key_norm(k)
        q, k, v = (y.unflatten(-1, (-1, a.head_size)).transpose(1, 2) for y in (q, k, v))
        if a.qk_norm == "head":
            q, k = self.query_norm(q), self.key_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=a.keys != a.heads)
        return self.out(y.transpose(1, 2).flatten(2))


def rotation_angles(a: Architecture, length: int, device: torch.device) -> Tensor:
    """For `rotate`: cosines, and sines with their signs, ``(2, length, head_dim)``."""
    frequency = a.rope_base ** (-torch.arange(0, a.head_size, 2, device=device, dtype=torch.float64) / a.head_size)
    angle = torch.arange(length, device=device, dtype=torch.float64)[:, None] * frequency
    return torch.stack([angle.cos().repeat(1, 2), torch.cat([-angle.sin(), angle.sin()], -1)])


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn channel i against channel i + head_dim/2."""
    cos, sin = rotation
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def activation(a: Architecture, x: Tensor) -> Tensor:
    return F.silu(x) if a.feed_forward == "swiglu" else F.gelu(x, approximate="tanh")


class FeedForward(nn.Module):
    """``(B, T, width)`` to the same, and 0 as its balancing loss."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.a = a
        if a.feed_forward != "gelu":
            self.gate = nn.Linear(a.width, a.hidden, bias=a.bias)
        self.up = nn.Linear(a.width, a.hidden, bias=a.bias)
        self.down = nn.Linear(a.hidden, a.width, bias=a.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.a.feed_forward == "gelu":
            y = activation(self.a, self.up(x))
        else:
            y = activation(self.a, self.gate(x)) * self.up(x)
        return self.down(y), x.new_zeros(())


class Experts(nn.Module):
    """Every token goes through its ``active`` most probable experts; none is dropped.

    The balancing loss is experts · Σ_e (share of tokens sent to e) · (mean probability of e), as in Mixtral.
    """

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.a = a
        self.router = nn.Linear(a.width, a.experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(a.experts, 2 * a.hidden, a.width))
        self.down = nn.Parameter(torch.empty(a.experts, a.width, a.hidden))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.flatten(0, -2)
        probability = self.router(tokens).float().softmax(-1)
        weight, chosen = probability.topk(self.a.active, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=self.a.experts)
        source = order // self.a.active
        parts = []
        # index_select and unbind, because the gradients of indexing are far slower.
        inputs = tokens.index_select(0, source).split(counts.tolist())
        for part, gate_up, down in zip(inputs, self.gate_up.unbind(), self.down.unbind(), strict=True):
            gate, up = F.linear(part, gate_up).chunk(2, -1)
            parts.append(F.linear(activation(self.a, gate) * up, down))
        y = torch.cat(parts) * weight.flatten()[order, None]
        share = counts / len(tokens)
        balance = self.a.experts * (share * probability.mean(0)).sum()
        return torch.zeros_like(tokens).index_add(0, source, y).view_as(x), balance


class Layer(nn.Module):
    """Attention (with a mixer beside it in a hybrid) and a feed-forward, each added to the stream."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.attention = Attention(a)
        self.mixer = Mixer(a) if a.state else None
        self.feed_forward = Experts(a) if a.experts else FeedForward(a)
        before, after = a.placement != "post", a.placement != "pre"
        self.attention_norm = Norm(a, a.width) if before else nn.Identity()
        self.attention_out_norm = Norm(a, a.width) if after else nn.Identity()
        self.feed_forward_norm = Norm(a, a.width) if before else nn.Identity()
        self.feed_forward_out_norm = Norm(a, a.width) if after else nn.Identity()

    def forward(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor]:
        normed = self.attention_norm(x)
        y = self.attention(normed, rotation)
        if self.mixer is not None:
            y = y + self.mixer(normed)
        x = x + self.attention_out_norm(y)
        y, balance = self.feed_forward(self.feed_forward_norm(x))
        return x + self.feed_forward_out_norm(y), balance


class Decoder(nn.Module):
    """Next-token logits ``(B, T, vocabulary)`` of token numbers ``(B, T)``."""

    def __init__(self, a: Architecture, seed: int = 0) -> None:
        """Matrices start as N(0, init²) drawn from ``seed``, scales at an effective 1, biases at 0."""
        super().__init__()
        self.a = a
        self.embedding = nn.Embedding(a.vocabulary, a.width)
        self.positions = nn.Embedding(a.length, a.width) if a.positions == "learned" else None
        self.layers = nn.ModuleList(Layer(a) for _ in range(a.layers))
        self.norm = Norm(a, a.width)
        self.head = nn.Linear(a.width, a.vocabulary, bias=False)
        if a.tied:
            self.head.weight = self.embedding.weight
        if self.head.weight.is_meta:
            return
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.ndim > 1:
                    p.copy_(a.init * torch.randn(p.shape, generator=generator))
                elif name.endswith(".bias"):
                    p.zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits_and_balance(tokens)[0]

    def logits_and_balance(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the mean of the layers' balancing losses (0 where there are no experts)."""
        a, length = self.a, tokens.shape[-1]
        x = self.embedding(tokens)
        if a.scaled_embedding:
            x = x * math.sqrt(a.width)
        rotation = None
        if self.positions is not None:
            x = x + self.positions.weight[:length]
        else:
            rotation = rotation_angles(a, length, x.device).to(x.dtype)
        balance = x.new_zeros(())
        for layer in self.layers:
            x, part = layer(x, rotation)
            balance = balance + part / a.layers
        return self.head(self.norm(x)), balance

    def loss(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy in nats per token, and that plus the weighted balancing loss (what training minimises)."""
        logits, balance = self.logits_and_balance(tokens)
        cross_entropy = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        return cross_entropy, cross_entropy + self.a.balance * balance


def count_parameters(a: Architecture) -> int:
    """Distinct parameters, counted without allocating them."""
    return sum(p.numel() for p in outline(partial(Decoder, a)).parameters())
