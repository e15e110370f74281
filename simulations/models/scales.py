"""Scale vectors and multipliers as parametrizations of a model's tensors, and what stands where in a model.

A parametrized tensor W is computed from ``original``, which stays in the model, each time it is read; writing to it in
place is lost without a word.  Vectors are stored with one axis, so that nothing takes them for a matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList, register_parametrization, remove_parametrizations

from scalevec_theory.parametrizations import exponential_scale, magnitude_direction_scale

MultiplierKind = Literal["column", "row", "scalar", "magnitude", "direction"]
OUTPUT_NORM = "output_norm"


class Vector(nn.Module):
    """A vector ``(n,)``, entry by entry."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(start.flatten().clone())

    def forward(self) -> Tensor:
        return self.value


class MagnitudeDirection(nn.Module):
    """v = β α / rms(α), β ``(1,)`` and α ``(n,)``, with rms(α) = 1 at the start (arXiv 2605.26895, OR)."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        rms = start.square().mean().sqrt()
        if not rms > 0:
            raise ValueError("OR: a scale vector that is 0 has no direction; expected entries other than 0")
        self.beta = nn.Parameter(rms.reshape(1).clone())
        self.alpha = nn.Parameter(start.flatten() / rms)

    def forward(self) -> Tensor:
        out: Tensor = magnitude_direction_scale(self.beta, self.alpha[None])[0]
        return out


class Exponential(nn.Module):
    """v = exp(β + α − mean α), β ``(1,)`` and α ``(n,)`` (arXiv 2605.26895, ER)."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        if not bool((start > 0).all()):
            raise ValueError(
                f"ER: effective scale {float(start.min()):.3g}: expected scales above 0, to take logarithms of"
            )
        logarithm = start.flatten().log()
        self.beta = nn.Parameter(logarithm.mean().reshape(1))
        self.alpha = nn.Parameter(logarithm - logarithm.mean())

    def forward(self) -> Tensor:
        out: Tensor = exponential_scale(self.beta, self.alpha[None])[0]
        return out


class Attachment(nn.Module):
    """What `attach` puts on one tensor; ``trained`` is whether the tensor was being trained."""

    kind: MultiplierKind | None = None
    foldable = False

    def __init__(self) -> None:
        super().__init__()
        self.trained = True


class Multiply(Attachment):
    """W times a vector along ``axes``: the vector has one entry for each index of these axes together."""

    def __init__(self, vector: nn.Module, shape: tuple[int, ...], axes: tuple[int, ...], kind: MultiplierKind) -> None:
        super().__init__()
        self.vector, self.kind, self.foldable = vector, kind, True
        self.shape = tuple(n if a in axes else 1 for a, n in enumerate(shape))

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.vector().reshape(self.shape)


class EffectiveScale(Attachment):
    """A norm's parameter w such that offset + w is the vector; what w was stays, unused, as the original."""

    def __init__(self, vector: nn.Module, offset: float, foldable: bool) -> None:
        super().__init__()
        self.vector, self.offset, self.foldable = vector, offset, foldable

    def forward(self, w: Tensor) -> Tensor:
        return (self.vector() - self.offset).reshape(w.shape)


class ScaleOne(Attachment):
    """A norm's parameter such that the effective scale is 1; what it was stays, unused, as the original."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, w: Tensor) -> Tensor:
        return torch.full_like(w, 1 - self.offset)


class Divide(Attachment):
    """A norm's bias over a constant vector: the scale that was moved behind it."""

    by: Tensor

    def __init__(self, by: Tensor) -> None:
        super().__init__()
        if not bool(by.all()):
            raise ValueError(
                "HG: the norm has a bias and a scale with entries of 0, by which the bias cannot be divided"
            )
        self.register_buffer("by", by.clone())

    def forward(self, bias: Tensor) -> Tensor:
        return bias / self.by


class OutputNorm(nn.Module):
    """v Norm(y) over the last axis, put behind a module by a hook (arXiv 2605.26895, DNP)."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(start.clone())

    def forward(self, y: Tensor) -> Tensor:
        return nn.functional.rms_norm(y, self.value.shape, self.value, eps=1e-6)


def normalise_output(module: nn.Module, args: object, out: Tensor) -> Tensor:
    """The forward hook that applies a module's `OutputNorm`."""
    normed: Tensor = getattr(module, OUTPUT_NORM)(out)
    return normed


@dataclass(frozen=True)
class Multiplier:
    """One attached parameter: its kind, the model's parameter that it acts on, and whether it merges into weights."""

    kind: MultiplierKind
    parameter: str
    foldable: bool


def multipliers(model: nn.Module) -> dict[str, Multiplier]:
    """Every attached parameter of a model by its name; empty if nothing is attached.

    The kinds are ``column``, ``row`` and ``scalar`` of a matrix, and ``magnitude`` (β) and ``direction`` (α) of a
    vector that OR or ER split in two.  ``parameter`` is the name without parametrizations (``q_proj.weight``).
    """
    found: dict[str, Multiplier] = {}
    split: dict[str, MultiplierKind] = {"beta": "magnitude", "alpha": "direction"}
    for path, module in model.named_modules():
        if isinstance(module, Attachment):
            plain = plain_name(path.rpartition(".")[0])
            for local, _ in module.named_parameters():
                kind = split.get(local.rpartition(".")[2], module.kind)
                assert kind is not None
                found[f"{path}.{local}"] = Multiplier(kind, plain, module.foldable)
        elif isinstance(module, OutputNorm):
            found[f"{path}.value"] = Multiplier("row", f"{path.removesuffix(OUTPUT_NORM)}weight", False)
    return found


def plain_name(name: str) -> str:
    """A parameter's name as it is without parametrizations."""
    return name.replace("parametrizations.", "").removesuffix(".original")


def normalise(module: nn.Module, start: Tensor) -> None:
    """Normalise what a module returns, and multiply it by a vector ``(channels,)`` that is to be trained."""
    setattr(module, OUTPUT_NORM, OutputNorm(start))
    module.register_forward_hook(normalise_output)


def register(owner: nn.Module, name: str, attachment: Attachment) -> None:
    """Parametrize a tensor of a module by an attachment; vectors that replace it leave it untrained."""
    tensor: Tensor = getattr(owner, name)
    lists = getattr(owner, "parametrizations", {})
    original = lists[name].original if name in lists else tensor
    attachment.to(original)
    attachment.trained = original.requires_grad
    if isinstance(attachment, EffectiveScale | ScaleOne):
        original.requires_grad_(False)
    order = list(owner._parameters)
    register_parametrization(owner, name, attachment)
    owner.__dict__.setdefault("_order_before_attaching", order)


def attached_tensors(model: nn.Module) -> Iterator[tuple[nn.Module, str, ParametrizationList]]:
    """Module, name and parametrizations of every tensor to which something is attached."""
    for module in list(model.modules()):
        for name, found in list(getattr(module, "parametrizations", {}).items()):
            if any(isinstance(p, Attachment) for p in found):
                yield module, name, found


def strip(model: nn.Module) -> None:
    """Take off everything that is attached; tensors are left as their originals, the same objects as before."""
    for module, name, found in attached_tensors(model):
        _own_class(module)
        first: Any = found[0]
        found.original.requires_grad_(first.trained)
        remove_parametrizations(module, name, leave_parametrized=False)
        if not hasattr(module, "parametrizations"):
            order = module.__dict__.pop("_order_before_attaching")
            module._parameters.update({n: module._parameters.pop(n) for n in order})
    for module in list(model.modules()):
        if isinstance(getattr(module, OUTPUT_NORM, None), OutputNorm):
            delattr(module, OUTPUT_NORM)
            for key, hook in list(module._forward_hooks.items()):
                if hook is normalise_output:
                    del module._forward_hooks[key]


def _own_class(module: nn.Module) -> None:
    """A parametrized module's deep copies share its class, of which removing a parametrization takes an attribute."""
    cls = type(module)
    fields = {n: v for n, v in vars(cls).items() if n not in ("__dict__", "__weakref__")}
    module.__class__ = type(cls.__name__, cls.__bases__, fields)
