"""What a model does with its parameters and with its norms' outputs, read off the data flow of one forward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from simulations.models.data_flow import Flow
from simulations.models.probe import NormModule, find_norms
from simulations.models.roles import Norm, Trace
from simulations.models.running import Example, evaluation_mode, example_input, run


def trace(model: nn.Module, example: Example | None = None) -> Trace:
    """Run ``model`` on ``example`` in evaluation mode and see what becomes of norms and parameters.

    The example must be long enough that every expert of a mixture gets a token: of a parameter that is not read
    (`Trace.unread`) nothing can be seen.  The model is left as it was.

    Parameters
    ----------
    example : a tensor (the one argument), a tuple or list (positional arguments) or a mapping (keyword arguments).
        None: random tokens, for a language model of `transformers`; as many as it takes to read every parameter, up to
        1,536.

    Raises
    ------
    ValueError : the model does not run on ``example``, or a module that normalises cannot be run on its own.
    """
    return traced_on(model, example)[1]


def traced_on(model: nn.Module, example: Example | None) -> tuple[Example, Trace]:
    """`trace`, with the example it was made on."""
    if example is not None:
        return example, _trace(model, example)
    for batch in (2, 16, 64):
        made = example_input(model, batch=batch)
        found = _trace(model, made)
        if not found.unread:
            break
    return made, found


def _trace(model: nn.Module, example: Example) -> Trace:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"{name or 'model'}: a scripted or traced module cannot be followed; expected its source")
    with torch.no_grad(), evaluation_mode(model), _no_fused_layers():
        norms = find_norms(model, partial(run, model, example))
        flow = Flow(model)
        first = _first_of_shared(norms)
        hooks = []
        for norm in norms:
            if norm.shape is None:
                continue
            hooks.append(norm.module.register_forward_pre_hook(partial(flow.enter, first[norm.name])))
            hooks.append(norm.module.register_forward_hook(partial(flow.leave, first[norm.name], norm.shape)))
        try:
            with flow:
                flow.finish(run(model, example))
        finally:
            for hook in hooks:
                hook.remove()
    found = []
    for norm in norms:
        if first[norm.name] != norm.name:
            continue
        consumers = flow.consumers(norm.name)
        others = tuple(sorted(flow.others[norm.name]))
        kind = type(norm.module).__name__
        blended, altered = norm.name in flow.blended, norm.name in flow.altered
        modules = tuple(name for name, other in first.items() if other == norm.name)
        read = (consumers, others, blended, altered)
        scale, bias = (flow.first_name(parameter) for parameter in (norm.scale, norm.bias))
        shared = flow.readers((scale, bias), norm.name)
        indirect = tuple(flow.names[i][0] for i in sorted(flow.indirect[norm.name]))
        found.append(Norm(norm.name, kind, scale, bias, norm.offset, *read, modules, shared, norm.unclear, indirect))
    return Trace(tuple(found), flow.uses({n.scale for n in norms}, {n.bias for n in norms}))


@contextlib.contextmanager
def _no_fused_layers() -> Iterator[None]:
    """Attention and recurrent layers done by their products, not by one operation that hides these."""
    fast = torch.backends.mha.get_fastpath_enabled()
    libraries: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.cudnn)
    enabled = [library.enabled for library in libraries]
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        for library in libraries:
            library.enabled = False
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for library, value in zip(libraries, enabled, strict=True):
            library.enabled = value


def _first_of_shared(norms: Sequence[NormModule]) -> dict[str, str]:
    """For each norm module the first one that has the same parameters; itself where it has none."""
    first: dict[Any, str] = {}
    names = {}
    for norm in norms:
        own = tuple(norm.module.parameters()) or norm.name
        names[norm.name] = first.setdefault((own, norm.offset), norm.name)
    return names
