"""Changing a model in place, only after float64 has shown that its function stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from simulations.models.float64 import EXACT, change_in_float64, float64_copy, outputs, relative_change
from simulations.models.running import Example, example_input
from simulations.models.trace import Norm, Trace, trace

Transform = Callable[[nn.Module], object]
"""Changes a model in place."""


def examined(model: nn.Module, example: Example | None) -> tuple[Example, Trace]:
    """The trace of a model, and the example it ran on.

    Raises
    ------
    ValueError : the model does not run on the example or has no norm, or a matrix is not read: a norm could feed it.
    """
    if example is None:
        for batch in (2, 16, 64):
            example = example_input(model, batch=batch)
            traced = trace(model, example)
            if not traced.unread:
                break
    else:
        traced = trace(model, example)
    assert example is not None
    if not traced.norms:
        raise ValueError(f"{type(model).__name__}: no module of it normalises")
    if unread := [name for name in traced.unread if len(traced.uses[name].shape) > 1]:
        raise ValueError(
            f"example: it does not reach {', '.join(unread)}; nothing is known of what reads a norm there, "
            "expected an example that every parameter takes part in"
        )
    return example, traced


def change_at_random_scales(
    model: nn.Module, example: Example, norms: Sequence[Norm], transform: Transform, seed: int = 0
) -> float:
    """Relative change of the outputs in float64 when a copy of the model with random scales is transformed.

    Effective scales are drawn between ½ and 3/2, norms' biases around 0, and matrices that are all 0 are made random:
    a model as it starts, with scales of 1, would hide what is wrong.
    """
    exact = float64_copy(model)
    generator = torch.Generator().manual_seed(seed)
    named = dict(exact.named_parameters())
    with torch.no_grad():
        for norm in norms:
            if norm.scale is not None:
                w = named[norm.scale]
                w.copy_(torch.rand(w.shape, generator=generator, dtype=w.dtype) + 0.5 - norm.offset)
            if norm.bias is not None:
                b = named[norm.bias]
                b.copy_(0.2 * torch.randn(b.shape, generator=generator, dtype=b.dtype))
        for p in named.values():
            if p.ndim > 1 and not bool(p.any()):
                p.copy_(0.02 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return change_in_float64(exact, example, transform)


def rewrite(model: nn.Module, example: Example, transform: Transform) -> tuple[float, float]:
    """Transform a copy in float64 and, if its outputs stay the same, give the model its parameters, rounded once.

    Parameters that the transform made are made, those that it removed are removed, all others stay the same objects.
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
    old, new = dict(model.named_parameters()), dict(exact.named_parameters())
    dtype = next(iter(old.values())).dtype
    for name, p in new.items():
        to = old[name].dtype if name in old else dtype
        if bool(p.isfinite().all()) and not bool(p.to(to).isfinite().all()):
            raise ValueError(f"{name}: an entry of {float(p.abs().max()):.1e} overflows {to}")
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
    return change, relative_change(before, outputs(model, example))
