"""Which parameters weight decay pulls: the common recipes and individual weight decay.

Individual weight decay (IWD, arXiv 2605.26895) decays the scales of input norms and no other norm scale: a scale that
only parameter products read could be folded into them, so decaying it costs the model nothing that it can express; an
output norm's scale sets the size of what leaves its sub-module, which no weight before the norm can give back.
"""

from __future__ import annotations

import re

from torch import nn

from simulations.models.roles import Role, Trace, Use

SCALES = ("iwd", "none", "all", "output")

WEIGHTS = ("matrix", "convolution", "embedding")
TRAINER_EXEMPTS = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")


def all_rule(model: nn.Module) -> dict[str, bool]:
    """Every parameter decays: one group for all."""
    return {name: True for name, _ in model.named_parameters()}


def dim_rule(model: nn.Module) -> dict[str, bool]:
    """Parameters of two axes or more decay, the others do not."""
    return {name: p.ndim >= 2 for name, p in model.named_parameters()}


def trainer_rule(model: nn.Module) -> dict[str, bool]:
    """What transformers' Trainer decays: all but `nn.LayerNorm` and parameters whose names match its patterns.

    The rule is restated here because Trainer's module takes seconds to import and an audit must not need transformers.
    """
    exempt = {p for m in model.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    named = model.named_parameters()
    return {name: p not in exempt and not TRAINER_EXEMPTS.search(name.lower()) for name, p in named}


def iwd_rule(traced: Trace, scales: str = "iwd") -> dict[str, bool]:
    """Individual weight decay (arXiv 2605.26895), from what the parameters do: see `decays`."""
    roles = scale_roles(traced)
    return {name: decays(use, roles.get(name), scales) for name, use in traced.uses.items()}


def decays(use: Use, role: Role | None, scales: str = "iwd") -> bool:
    """Whether a parameter decays.

    Matrices, convolutions and embeddings do; of norm scales those of input norms (``scales="iwd"``), none, all, or the
    others only (``"output"``, the opposite of IWD); biases, decay rates and skips of state spaces, attention sinks,
    position vectors (added or looked up) and other vectors do not.
    """
    if use.kind == "scale":
        return scale_decays(role, scales)
    return use.kind in WEIGHTS


def scale_decays(role: Role | None, scales: str) -> bool:
    """Whether a norm scale of this role decays."""
    return scales == "all" or scales == ("iwd" if role == "input" else "output")


def scale_roles(traced: Trace) -> dict[str, Role]:
    """The role of each norm scale by its first name; ``mixed`` where norms of different roles share it."""
    first = {name: use.parameter for use in traced.uses.values() for name in use.names}
    roles: dict[str, Role] = {}
    for norm in traced.norms:
        if norm.scale is not None:
            name = first[norm.scale]
            roles[name] = norm.role if roles.get(name, norm.role) == norm.role else "mixed"
    return roles
