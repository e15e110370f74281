"""Matrices whose size the model does not see, because all that they make goes straight into a norm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from simulations.models.roles import Trace
from simulations.models.running import Example, evaluation_mode, example_input, run, tensors_in

Edge = tuple[Any, int]
"""A node of the autograd graph and the number of one of its outputs."""

SHAPE_ONLY = {
    f"{name}Backward0"
    for name in ("View", "UnsafeView", "ReshapeAlias", "T", "Transpose", "Permute", "Clone", "ToCopy", "Unsqueeze")
} | {"SqueezeBackward1"}


def scale_invariant(model: nn.Module, traced: Trace, example: Example | None = None) -> frozenset[str]:
    """The matrices W, by name, whose product W x, whole and without a bias, is read by a norm alone.

    Multiplying such a matrix by a positive number changes nothing, up to the norm's ε.  (So it is with some matrices
    further up, such as the values of an attention whose output is normalised; they are not looked for.)

    Parameters
    ----------
    traced : of ``model``; example : as for `trace`.
    """
    example = example_input(model) if example is None else example
    entries: list[Edge] = []
    hooks = [
        model.get_submodule(norm.module).register_forward_pre_hook(_through_an_alias(entries)) for norm in traced.norms
    ]
    try:
        with torch.enable_grad(), evaluation_mode(model):
            returned = run(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    readers = _readers([t.grad_fn for t in tensors_in(returned) if t.grad_fn is not None])
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    found = {p for edge in entries for p in _factors(edge, readers)}
    return frozenset(names[p] for p in found if traced.uses[names[p]].kind == "matrix")


def _through_an_alias(entries: list[Edge]) -> Callable[[nn.Module, Any], Any]:
    """A hook that lets a norm read an alias of its input, so that what else reads the input can be told from it."""

    def hook(module: nn.Module, args: Any) -> Any:
        if not args or not isinstance(args[0], Tensor) or args[0].grad_fn is None:
            return None
        alias = args[0].view_as(args[0])
        entries.append(alias.grad_fn.next_functions[0])  # type: ignore[union-attr]
        return (alias, *args[1:])

    return hook


def _readers(ends: list[Any]) -> Counter[Edge]:
    """How many nodes of the graph that leads to ``ends`` read each output of each node."""
    readers: Counter[Edge] = Counter()
    seen, waiting = set(ends), list(ends)
    while waiting:
        for edge in waiting.pop().next_functions:
            if edge[0] is not None:
                readers[edge] += 1
                if edge[0] not in seen:
                    seen.add(edge[0])
                    waiting.append(edge[0])
    return readers


def _factors(edge: Edge, readers: Counter[Edge]) -> list[Tensor]:
    """The parameters of which ``edge`` is the product with something, if nothing else reads either."""
    while readers[edge] == 1:
        sources = [source for source in edge[0].next_functions if source[0] is not None]
        if edge[0].name() in ("MmBackward0", "BmmBackward0"):
            return [w for source in sources if (w := _parameter(source, readers)) is not None]
        if edge[0].name() not in SHAPE_ONLY or len(sources) != 1:
            return []
        edge = sources[0]
    return []


def _parameter(edge: Edge, readers: Counter[Edge]) -> Tensor | None:
    """The parameter that ``edge`` is a view of, if there is one and nothing else reads it."""
    while readers[edge] == 1:
        if hasattr(edge[0], "variable"):
            return edge[0].variable
        if edge[0].name() not in SHAPE_ONLY:
            return None
        (edge,) = edge[0].next_functions
    return None
