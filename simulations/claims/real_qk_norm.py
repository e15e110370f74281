"""The q/k-norm of published models is dual-norm placement on each head of q and k.

Source: arXiv 2605.26895 (dual-norm placement).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from scalevec_theory.claim import Claim, Evidence, Scope, Setting
from scalevec_theory.theorems.dual_norm_placement import dual_norm
from simulations.claims.real_models import ALIVE, ROUNDING, evidence, toy_model
from simulations.models.folding import effective_scale, move_scale
from simulations.models.roles import Norm
from simulations.models.toys import relative_change


class PerHeadDualNorm(nn.Module):
    """A projection and its q- or k-norm as one: `dual_norm` of each head, ``(..., d)`` to ``(..., h c)``."""

    def __init__(self, v_out: Tensor, W: Tensor, v_in: Tensor, epsilon: float) -> None:
        super().__init__()
        self.v_out, self.W, self.v_in, self.epsilon = v_out, W, v_in, epsilon

    def forward(self, x: Tensor) -> Tensor:
        return dual_norm(self.v_out, self.W, self.v_in, x[..., None, :], self.epsilon).flatten(-2)


def _replace_norms(model: Any, norms: dict[str, Norm], keep_scale: bool) -> None:
    """Put `PerHeadDualNorm` in place of q/k projection and norm; a pre-norm's scale becomes v_in of both."""
    for i, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        named = {n: p.detach().clone() for n, p in model.named_parameters()}
        v_in = torch.ones(model.config.hidden_size, dtype=torch.float64)
        if pre := norms.get(f"model.layers.{i}.input_layernorm"):
            v_in = effective_scale(pre, named)
            others = [c for c in pre.consumers if not c.parameter.endswith(("q_proj.weight", "k_proj.weight"))]
            move_scale(model, replace(pre, consumers=tuple(others)), v_in)
        for which in ("q", "k"):
            prefix = f"model.layers.{i}.self_attn.{which}"
            norm = getattr(attention, f"{which}_norm")
            W = named[f"{prefix}_proj.weight"].unflatten(0, (-1, attention.head_dim))
            v_out = effective_scale(norms[f"{prefix}_norm"], named)
            v_out = (
                v_out.reshape(-1, attention.head_dim) if keep_scale else torch.ones_like(v_out[: attention.head_dim])
            )
            epsilon = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
            setattr(attention, f"{which}_proj", PerHeadDualNorm(v_out, W, v_in, epsilon))
            setattr(attention, f"{which}_norm", nn.Identity())


def qk_norm_margin(family: str, seed: int) -> float:
    """1e-13 minus the relative change of the logits when DNP of each head replaces q/k-norm in every layer.

    NaN if leaving v_out away changes them no more than `ALIVE`: then the check could not have failed.
    """
    model, norms, tokens = toy_model(family, seed)

    def change(keep_scale: bool) -> float:
        replaced = copy.deepcopy(model)
        _replace_norms(replaced, {n.module: n for n in norms}, keep_scale)
        return relative_change(model, replaced, tokens)

    return ROUNDING - change(keep_scale=True) if change(keep_scale=False) > ALIVE else math.nan


def _measure(family: str) -> Callable[[Setting], list[Evidence]]:
    detail = f"logits unchanged to {ROUNDING:g} of their size, and changed by more than {ALIVE:g} without v_out"
    return lambda setting: [evidence(setting, qk_norm_margin, detail, family=family)]


claim = Claim(
    id="real-qk-norm",
    title="The q/k-norm of published models is dual-norm placement",
    statement="Replacing projection and norm of q and k in every layer by v_out ⊙ Norm(W(v_in ⊙ x)) of each head, with "
    "the pre-norm's scale as v_in and rotary embedding after it, leaves a model's logits the same.",
    formula=r"q_h = v_{\text{out}} \odot \operatorname{Norm}\left(W_h (v_{\text{in}} \odot x)\right) \quad \text{for "
    r"every head } h, \text{ and } k_h \text{ alike}",
    source="arXiv 2605.26895, dual-norm placement",
    figures=("dual-norm-placement",),
    scopes=(
        Scope("qwen3", "Qwen3: q/k-norm is DNP of each head.", holds=True, measure=_measure("qwen3")),
        Scope("gemma3", "Gemma-3 (1 + w): q/k-norm is DNP of each head.", holds=True, measure=_measure("gemma3")),
        Scope(
            "olmo2",
            "OLMo-2: q/k-norm is DNP of each head (it normalises all heads together).",
            holds=False,
            measure=_measure("olmo2"),
        ),
    ),
)
