"""Changing a model in place, only after float64 has shown that its function stays the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from simulations.models.float64 import EXACT, change_in_float64, float64_copy, outputs, relative_change
from simulations.models.roles import Norm, Trace
from simulations.models.running import Example
from simulations.models.trace import traced_on

Transform = Callable[[nn.Module], object]
"""Changes a model in place."""


def examined(model: nn.Module, example: Example | None) -> tuple[Example, Trace]:
    """The trace of a model, and the example it ran on.

    Raises
    ------
    ValueError : the model does not run on the example or has no norm, or a matrix is not read: a norm could feed it.
    """
    example, traced = traced_on(model, example)
    if not traced.norms:
        raise ValueError(f"{type(model).__name__}: no module of it normalises")
    if unread := [name for name in traced.unread if len(traced.uses[name].shape) > 1]:
        raise ValueError(
            f"example: it does not reach {', '.join(unread)}; nothing is known of what reads a norm there, "
            "expected an example that every parameter takes part in"
        )
    return example, traced


def randomise(model: nn.Module, norms: Sequence[Norm], seed: int = 0) -> None:
    """Draw a model's effective scales between ½ and 3/2 and its norms' biases around 0; make what is all 0 random.

    A model as it starts, with scales of 1 and biases of 0, would hide what is wrong.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(p: Tensor) -> Tensor:
        return torch.randn(p.shape, generator=generator, dtype=p.dtype)

    with torch.no_grad():
        for norm in norms:
            if norm.scale is not None:
                w = model.get_parameter(norm.scale)
                w.copy_(torch.rand(w.shape, generator=generator, dtype=w.dtype) + 0.5 - norm.offset)
            if norm.bias is not None:
                b = model.get_parameter(norm.bias)
                b.copy_(0.2 * noise(b))
        for p in model.parameters():
            if not bool(p.any()):
                p.copy_(0.1 * noise(p))


def change_at_random_scales(model: nn.Module, example: Example, norms: Sequence[Norm], transform: Transform) -> float:
    """Relative change of the outputs in float64 when a copy of the model, at random scales, is transformed."""
    exact = float64_copy(model)
    randomise(exact, norms)
    return change_in_float64(exact, example, transform)


def rewrite(model: nn.Module, example: Example, transform: Transform) -> tuple[float, float]:
    """Transform a copy in float64 and, if its outputs stay the same, give the model its parameters, rounded once.

    Returns the relative change of the outputs in float64 and in the model's own precision.

    Raises
    ------
    ValueError : the outputs change by more than `EXACT`, or a parameter overflows; the model is as it was.
    """
    exact = float64_copy(model)
    change = change_in_float64(exact, example, transform)
    if change > EXACT:
        raise ValueError(f"the outputs would change by {change:.1e} of their size in float64; expected <= {EXACT:g}")
    before = outputs(model, example)
    assign(model, exact)
    return change, relative_change(before, outputs(model, example))


def assign(model: nn.Module, exact: nn.Module) -> None:
    """Give a model the parameters of another one of float64, each rounded once.

    Parameters that only the other has are made, those that it lacks are removed, all others stay the same objects.

    Raises
    ------
    ValueError : a parameter overflows; the model is as it was.
    """
    old, new = dict(model.named_parameters()), dict(exact.named_parameters())
    expect_range(exact, {name: p.dtype for name, p in old.items()})
    with torch.no_grad():
        for name in [*new, *old]:
            path, _, leaf = name.rpartition(".")
            owner = model.get_submodule(path)
            if name not in new:
                setattr(owner, leaf, None)
            elif name not in old:
                like = next(owner.parameters(recurse=False))
                setattr(owner, leaf, nn.Parameter(new[name].to(like), new[name].requires_grad))
            elif not torch.equal(rounded := new[name].to(old[name].dtype), old[name]):
                old[name].copy_(rounded)


def expect_range(exact: nn.Module, dtypes: Mapping[str, torch.dtype]) -> None:
    """Raise ValueError if a parameter is too large for the type it is to have (by its name; else the first of them)."""
    for name, parameter in exact.named_parameters():
        p = parameter.detach()
        to = dtypes.get(name, next(iter(dtypes.values())))
        if bool(p.isfinite().all()) and not bool(p.to(to).isfinite().all()):
            raise ValueError(f"{name}: an entry of {float(p.abs().max()):.1e} overflows {to}")
