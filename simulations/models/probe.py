"""Finding the norms of a model, their scale and its offset, by what modules compute: no name or class is consulted.

A norm's output does not change when its input is multiplied by a positive number.  Of its parameters, a bias adds to
the output; the scale w multiplies it by offset + w, which is read off at w = 0, 1 and 2.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._pytree import tree_leaves, tree_map, tree_structure, tree_unflatten

from simulations.models.float64 import Float64


@dataclass(frozen=True)
class NormModule:
    """A module that normalises; its effective scale is ``offset + w``, where w is the parameter named ``scale``."""

    name: str
    module: nn.Module
    scale: str | None
    bias: str | None
    offset: float


def find_norms(model: nn.Module, forward: Callable[[], object]) -> list[NormModule]:
    """The norms among the innermost modules of ``model`` that ``forward()`` calls, in order of first use.

    A parametrized module counts as innermost; its scale is then the parametrized tensor.

    Raises
    ------
    ValueError : a module that normalises has a parameter that is neither a scale nor a bias of its output's last axes.
    """
    calls: dict[nn.Module, tuple[Any, Any]] = {}

    def record(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        x: Any = next(iter(tree_leaves((args, kwargs))), None)
        if module not in calls and _is_batch(x) and _is_batch(out) and x.shape == out.shape:
            calls[module] = tree_map(lambda t: t.clone() if isinstance(t, Tensor) else t, (args, kwargs))

    names = {
        m: name for name, m in model.named_modules() if all(n == "parametrizations" for n, _ in m.named_children())
    }
    hooks = [m.register_forward_hook(record, with_kwargs=True) for m in names if ".parametrizations" not in names[m]]
    try:
        forward()
    finally:
        for hook in hooks:
            hook.remove()
    found = []
    for module, arguments in calls.items():
        plain = _plain_copy(module)
        call = _replay(plain, *arguments)
        if _is_norm(call):
            found.append(_describe(names[module], module, plain, call))
    return found


def _is_batch(t: object) -> bool:
    return isinstance(t, Tensor) and t.is_floating_point() and t.ndim >= 2


def _plain_copy(module: nn.Module) -> nn.Module:
    """A copy in float64, in which what low precision or saturation blurs can be told; parametrizations are baked in.

    Parameters that are all 0 become 1: a norm whose scale starts at 0 is one.
    """
    plain = copy.deepcopy(module).double()
    if is_parametrized(plain):
        baked = {name: nn.Parameter(getattr(plain, name)) for name in plain.parametrizations}  # type: ignore[union-attr]
        # Not torch's own removal: that takes the property from the class, which the original shares.
        del plain.parametrizations
        plain.__class__ = type(plain).__bases__[0]
        for name, value in baked.items():
            plain.register_parameter(name, value)
    for parameter in plain.parameters():
        if not bool(parameter.any()):
            parameter.fill_(1.0)
    return plain


def _replay(module: nn.Module, args: Any, kwargs: Any) -> Callable[..., Any]:
    """The recorded call with its first argument replaced by a fixed random one, as a function of that one's size."""
    leaves = [t.double() if isinstance(t, Tensor) and t.is_floating_point() else t for t in tree_leaves((args, kwargs))]
    structure = tree_structure((args, kwargs))
    x = torch.randn(leaves[0].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(leaves[0])

    def call(size: float, roll: int = 0) -> Any:
        rest = [t.clone() if isinstance(t, Tensor) else t for t in leaves[1:]]
        a, k = tree_unflatten([size * x.roll(roll, -1), *rest], structure)
        with Float64():
            return module(*a, **k).double()

    return call


def _is_norm(call: Callable[..., Any]) -> bool:
    """Whether the output does not change with the size of the first argument, but does with its direction.

    Sizes 8 and 2²⁰: large enough that a norm's ε does not hide the invariance, and far enough apart that an activation
    which saturates does not fake it.
    """
    small, large, rolled = call(8.0), call(2.0**20), call(8.0, roll=1)
    close = partial(torch.allclose, rtol=1e-3, atol=1e-3)
    return close(small, large) and not close(small, rolled)


def _describe(name: str, original: nn.Module, module: nn.Module, call: Callable[..., Any]) -> NormModule:
    """Probe each parameter of a copy, which ``call`` runs: a bias adds 1 per unit, a scale multiplies by offset + w."""
    close = partial(torch.allclose, rtol=1e-3, atol=1e-4)

    def response(parameter: Tensor) -> tuple[Tensor, Tensor]:
        kept, out = parameter.clone(), []
        for value in (0.0, 1.0, 2.0):
            parameter.fill_(value)
            out.append(call(8.0))
        parameter.copy_(kept)
        if not close(out[2] - out[1], out[1] - out[0]):
            raise ValueError(f"{name}: its output is not affine in its parameter of shape {tuple(parameter.shape)}")
        return out[0], out[1] - out[0]

    full = {local: f"{name}.{local}" if name else local for local, _ in module.named_parameters()}
    steps = {local: response(p)[1] for local, p in module.named_parameters()}
    biases = [local for local, step in steps.items() if close(step, torch.ones_like(step))]
    scales = [local for local in steps if local not in biases]
    if len(biases) > 1 or len(scales) > 1:
        raise ValueError(f"{name}: parameters {', '.join(full.values())}; expected at most one scale and one bias")
    bias = full[biases[0]] if biases else None
    if not scales:
        return NormModule(name, original, None, bias, 0.0)
    scale, shape = module.get_parameter(scales[0]), call(8.0).shape
    if shape[len(shape) - scale.ndim :] != scale.shape:
        raise ValueError(f"{full[scales[0]]}: shape {tuple(scale.shape)} does not end the output's {tuple(shape)}")
    at_zero, per_unit = response(scale)
    if biases:
        at_zero = at_zero - module.get_parameter(biases[0])
    offset = float((at_zero * per_unit).sum() / (per_unit * per_unit).sum())
    offset = float(round(offset)) if abs(offset - round(offset)) < 1e-3 else offset
    return NormModule(name, original, full[scales[0]], bias, offset + 0.0)
