"""Moving a norm's scale into the parameters that consume its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from simulations.models.trace import Norm


def effective_scale(norm: Norm, state: Mapping[str, Tensor]) -> Tensor:
    """offset + w, in the shape of the norm's scale.  Raises ValueError if the norm has none."""
    if norm.scale is None:
        raise ValueError(f"{norm.module}: this norm has no scale")
    return norm.offset + state[norm.scale]


def move_scale(model: nn.Module, norm: Norm, factor: Tensor) -> None:
    """Multiply the consumers of each channel by ``factor`` and divide the norm's effective scale and its bias by it."""
    named = dict(model.named_parameters())
    with torch.no_grad():
        moved = effective_scale(norm, named) / factor
        named[str(norm.scale)].copy_(moved - norm.offset)
        if norm.bias is not None:
            named[norm.bias].div_(factor)
        for consumer in norm.consumers:
            weight = named[consumer.parameter].movedim(consumer.axis, -1)
            weight.mul_(torch.where(consumer.channels >= 0, factor.flatten()[consumer.channels], 1.0))


def absorb(model: nn.Module, norm: Norm) -> None:
    """Fold the norm's scale into its consumers and its bias into theirs (created where there is none).

    Raises
    ------
    ValueError : a consumer of a norm with a bias is not the ``weight`` of a module that takes a ``bias``.
    """
    named = dict(model.named_parameters())
    move_scale(model, norm, effective_scale(norm, named).detach())
    if norm.bias is None:
        return
    with torch.no_grad():
        shift = named[norm.bias]
        for consumer in norm.consumers:
            path, _, name = consumer.parameter.rpartition(".")
            owner: Any = model.get_submodule(path)
            weight = named[consumer.parameter]
            if name != "weight" or weight.ndim != 2 or not hasattr(owner, "bias"):
                raise ValueError(f"{consumer.parameter}: its module takes no bias to which {norm.bias} could be moved")
            moved = weight.movedim(consumer.axis, -1) @ shift[consumer.channels]
            owner.bias = nn.Parameter(moved if owner.bias is None else owner.bias + moved)
        shift.zero_()
