"""The redundant multipliers of published decoder models, found from their functions alone.

Source: arXiv 2601.04890 (redundant multipliers), stated there for single blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache

import torch

from scalevec_theory.claim import Claim, Evidence, Scope, Setting
from scalevec_theory.redundancy import Redundancies, redundancies
from simulations.claims.real_models import evidence, toy_model
from simulations.models.toys import build, logits
from simulations.models.trace import trace

EXACT, NEEDED = 1e-8, 1e-4
"""Logits may change by no more under a symmetry found, and must change by more if one of its sites is left out."""


@cache
def found(family: str, seed: int, offsets: bool = True, null: float = 1e-10) -> Redundancies:
    """The redundant multipliers of the last layer, final norm and head of a toy model, on two of each token."""
    toy_model(family, seed)
    model = build(family, seed)
    decoder = model.model
    decoder.layers = decoder.layers[-1:]
    for i, layer in enumerate(decoder.layers):
        layer.self_attn.layer_idx = i
    model.config.num_hidden_layers = 1
    vocabulary = model.get_input_embeddings().weight.shape[0]
    order = torch.randperm(2 * vocabulary, generator=torch.Generator().manual_seed(seed))
    tokens = torch.arange(vocabulary).repeat(2)[order].reshape(2, -1)
    norms = trace(model).norms if offsets else ()
    known = {str(n.scale): n.offset for n in norms if n.offset}
    return redundancies(model, lambda: logits(model, tokens), offsets=known, null=null, seed=seed)


def counts(result: Redundancies) -> Counter[str]:
    """How many symmetries of each kind, by the last names of the modules involved."""
    kinds: Counter[str] = Counter()
    for family in result.families:
        names = []
        for site in family.sites:
            *_, module, name = ("", *site.parameter.split("."))
            short = name if name not in ("weight", "bias") else module + (".bias" if name == "bias" else "")
            names.append(f"{short} {site.kind}" if site.kind != "entries" else short)
        kinds[" ~ ".join(sorted(names))] += family.count
    return kinds


def families_margin(family: str, expected: Mapping[str, int], offsets: bool, seed: int) -> float:
    """½ minus the number of symmetries found and not expected, expected and not found, or in no family."""
    result = found(family, seed, offsets)
    kinds = counts(result)
    wrong = sum(abs(kinds[k] - expected.get(k, 0)) for k in kinds.keys() | expected.keys())
    return 0.5 - wrong - abs(result.unexplained)


def verified_margin(family: str, offsets: bool, seed: int) -> float:
    """The least slack: each family, applied with finite factors, changes nothing, and needs all its sites."""
    return min(min(1 - f.change / EXACT, f.without / NEEDED - 1) for f in found(family, seed, offsets).families)


def _measure(family: str, expected: Mapping[str, int], offsets: bool = True) -> Callable[[Setting], list[Evidence]]:
    def measure(setting: Setting) -> list[Evidence]:
        names = "null space, named, against the families expected"
        applied = f"families applied with finite factors: logits change by less than {EXACT:g}"
        return [
            evidence(setting, families_margin, names, family=family, expected=dict(expected), offsets=offsets),
            evidence(setting, verified_margin, applied, family=family, offsets=offsets),
        ]

    return measure


def _sorted(families: Mapping[str, int]) -> dict[str, int]:
    return {" ~ ".join(sorted(name.split(" ~ "))): count for name, count in families.items()}


ATTENTION = {
    "input_layernorm ~ q_proj columns ~ k_proj columns ~ v_proj columns": 16,
    "v_proj rows ~ o_proj columns": 8,
}
UP_DOWN = {"up_proj rows ~ down_proj columns": 24}
MLP = UP_DOWN | {"post_attention_layernorm ~ gate_proj columns ~ up_proj columns": 16}
QUERY_KEY = {"q_proj rows ~ k_proj rows": 4}
HEAD = {"norm ~ lm_head columns": 16}
EXPERTS = {
    "gate_up_proj rows ~ down_proj columns": 48,
    "post_attention_layernorm ~ gate columns ~ gate_up_proj columns": 16,
}
BIASED = {
    "q_proj rows ~ q_proj.bias ~ k_proj rows ~ k_proj.bias": 4,
    "v_proj rows ~ v_proj.bias ~ o_proj columns": 8,
    "input_layernorm ~ q_proj columns ~ k_proj columns ~ v_proj columns": 16,
}
GEMMA = UP_DOWN | {"pre_feedforward_layernorm ~ gate_proj columns ~ up_proj columns": 16}

claim = Claim(
    id="real-redundancy",
    title="The redundant multipliers of real decoder layers, found and named",
    statement="In a layer of an unmodified model the redundant row and column multipliers are norm weights with the "
    "columns of every consumer, up rows with down columns, v rows with o columns, and q with k rows per rotary pair; "
    "and no others.",
    formula=r"\ker\,\frac{\partial f}{\partial \ln\,m} = \operatorname{span}\{\text{norm} - \text{consumers},\ "
    r"\text{up} - \text{down},\ v - o,\ q - k \text{ per rotary pair},\ \text{rows} - \text{columns}\}",
    source="arXiv 2601.04890, redundant multipliers",
    figures=("redundancy",),
    scopes=(
        Scope(
            "llama",
            "Llama (untied head): the families are those of the statement, the final norm's with the head among them.",
            holds=True,
            measure=_measure("llama", _sorted(ATTENTION | MLP | QUERY_KEY | HEAD)),
        ),
        Scope(
            "qwen2",
            "Qwen2 (biases, tied head): biases scale with their rows; the final norm's weight is not redundant.",
            holds=True,
            measure=_measure("qwen2", _sorted(BIASED | MLP)),
        ),
        Scope(
            "qwen3",
            "Qwen3 (q/k-norm, tied head): q/k-norm weights take the place of q and k rows, pair by rotary pair.",
            holds=True,
            measure=_measure("qwen3", _sorted(ATTENTION | MLP | {"q_norm ~ k_norm": 4})),
        ),
        Scope(
            "gemma2",
            "Gemma-2 (1 + w, norms on outputs too): the multiplier of an input norm is on 1 + w.",
            holds=True,
            measure=_measure("gemma2", _sorted(ATTENTION | GEMMA | QUERY_KEY)),
        ),
        Scope(
            "qwen3-moe",
            "Qwen3-MoE: the post-attention norm is redundant with router and experts together, up rows with down "
            "columns expert by expert.",
            holds=True,
            measure=_measure("qwen3-moe", _sorted(ATTENTION | EXPERTS | HEAD | {"q_norm ~ k_norm": 4})),
        ),
        Scope(
            "gemma2-offset-ignored",
            "Gemma-2: with the multiplier on w instead of 1 + w, the symmetries found leave the function the same.",
            holds=False,
            measure=_measure("gemma2", _sorted(ATTENTION | GEMMA | QUERY_KEY), offsets=False),
        ),
        Scope(
            "qwen3-rows",
            "Qwen3: q rows are redundant with k rows, as without q/k-norm.",
            holds=False,
            measure=_measure("qwen3", _sorted(ATTENTION | MLP | QUERY_KEY)),
        ),
    ),
)
