"""Finding the norms of a model, their scale and its offset, by what modules compute: no name or class is consulted.

A norm's output does not change when its input is multiplied by a positive number.  Of its parameters, a bias adds to
the output; the scale w multiplies it by offset + w, which is read off at w = 0, 1 and 2.  What does neither is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_structure, tree_unflatten

from simulations.models.float64 import Float64
from simulations.models.running import copied, one_line
from simulations.models.scales import attached_tensors


@dataclass(frozen=True)
class NormModule:
    """A module that normalises; its effective scale is ``offset + w``, where w is the parameter named ``scale``.

    ``shape`` is that of scale and bias, with as many axes of length 1 behind it as it takes to broadcast to the output.
    ``unclear`` says what is wrong where the effective scale is another function of the parameter, such as exp(w), or
    where the parameters are no scale and bias of channels at all; then ``scale`` and ``shape`` are None.
    """

    name: str
    module: nn.Module
    scale: str | None
    bias: str | None
    offset: float
    shape: tuple[int, ...] | None
    unclear: str = ""


def find_norms(model: nn.Module, forward: Callable[[], object]) -> list[NormModule]:
    """The norms among the innermost modules of ``model`` that ``forward()`` calls, in order of first use.

    A parametrized module counts as innermost; its scale is the original, or what `attach` has parametrized.

    Raises
    ------
    ValueError : a module that normalises cannot be copied; a leaf module does not run in float64.
    """
    calls: dict[nn.Module, tuple[Any, Any]] = {}

    def record(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        x: Any = next(iter(tree_leaves((args, kwargs))), None)
        if module not in calls and _is_batch(x) and _is_batch(out) and x.numel() == out.numel():  # heads may be joined
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
        try:
            call = _replay(plain, *arguments)
            normalises = _is_norm(call)
        except Exception as error:
            raise ValueError(f"{names[module]}: it cannot be run again in float64: {one_line(error)}") from error
        if normalises:
            found.append(_describe(names[module], module, plain, call))
    return found


def _is_batch(t: object) -> bool:
    return isinstance(t, Tensor) and t.is_floating_point() and t.ndim >= 2


def _plain_copy(module: nn.Module) -> nn.Module:
    """A copy in float64, in which what low precision or saturation blurs can be told; what is attached is baked in.

    Parameters that are all 0 become 1: a norm whose scale starts at 0 is one.
    """
    plain = copied(module).double()
    if any(attached_tensors(plain)):
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

    def response(parameter: Tensor) -> tuple[Tensor, Tensor, bool]:
        kept, out = parameter.clone(), []
        for value in (0.0, 1.0, 2.0):
            parameter.fill_(value)
            out.append(call(8.0))
        parameter.copy_(kept)
        return out[0], out[1] - out[0], close(out[2] - out[1], out[1] - out[0])

    full = {local: f"{name}.{local}" if name else local for local, _ in module.named_parameters()}
    steps = {local: response(p)[1:] for local, p in module.named_parameters()}
    biases = [local for local, (step, affine) in steps.items() if affine and close(step, torch.ones_like(step))]
    scales = [local for local in steps if local not in biases]
    if len(biases) > 1 or len(scales) > 1:
        unclear = f"its parameters are {', '.join(full.values())}, and not one scale and one bias"
        return NormModule(name, original, None, None, 0.0, None, unclear)
    scale, bias = (module.get_parameter(found[0]) if found else None for found in (scales, biases))
    if bias is not None:
        bias.fill_(0.0)
    at_zero, per_unit = response(scale)[:2] if scale is not None else (call(8.0), torch.ones(()))
    size = float((per_unit * per_unit).sum())
    offset = float((at_zero * per_unit).sum()) / size if scale is not None and size else 0.0
    offset = float(round(offset)) + 0.0 if abs(offset - round(offset)) < 1e-3 else offset
    drawn = []
    for seed in (0, 1):
        generator = torch.Generator().manual_seed(seed)
        for p in (scale, bias):
            if p is not None:
                p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
        drawn.append((call(8.0), *(None if p is None else p.clone() for p in (scale, bias))))
    (before, _, shift), (out, *_) = drawn

    def explains(shape: tuple[int, ...]) -> bool:
        scaled = at_zero if scale is None else (offset + scale.reshape(shape)) * per_unit
        return close(out, scaled if bias is None else scaled + bias.reshape(shape))

    def multiplies(shape: tuple[int, ...]) -> bool:
        """Whether two outputs differ by a factor for each channel."""
        one, two = (before, out) if bias is None else (before - shift.reshape(shape), out - bias.reshape(shape))
        factor = (one * two).sum_to_size(shape) / (one * one).sum_to_size(shape)
        return close(two, factor * one)

    named = [full[found[0]] if found else None for found in (scales, biases)]
    placements = _placements(scale, bias, out)
    if (shape := next(filter(explains, placements), None)) is not None:
        return NormModule(name, original, named[0], named[1], offset, shape)
    parameters = ", ".join(full.values()) or "nothing"
    if scale is None or (shape := next(filter(multiplies, placements), None)) is None:
        unclear = f"its output is not a number plus {parameters}, channel by channel"
        return NormModule(name, original, None, None, 0.0, None, unclear)
    unclear = (
        f"its effective scale is a function of {named[0]}, but neither w nor a number plus w: it is not folded here"
    )
    return NormModule(name, original, named[0], named[1], 0.0, shape, unclear)


def _placements(scale: Tensor | None, bias: Tensor | None, out: Tensor) -> list[tuple[int, ...]]:
    """The shapes in which a norm's parameters may stand for channels of its output: along its last axes or others."""
    given = {p.numel(): tuple(p.shape) for p in (scale, bias) if p is not None} or {1: tuple(out.shape[-1:])}
    placed = [shape + (1,) * k for shape in given.values() for k in range(out.ndim - len(shape) + 1)]
    return [shape for shape in placed if len(given) == 1 and _broadcasts(shape, out.shape)]


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))
