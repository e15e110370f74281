"""Moving a norm's scale into the parameters that consume its output, and back.

Source: arXiv 2605.26895 (absorption), stated there for one linear layer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from simulations.models.float64 import EXACT, outputs, relative_change
from simulations.models.rewriting import change_at_random_scales, examined, rewrite
from simulations.models.roles import Consumer, Norm, template
from simulations.models.running import Example
from simulations.models.saving import allow_saving, forbid_saving
from simulations.models.trace import trace

NEVER_SAVE = "its folded biases have no place there: unfold first, or fold the norms without a bias only"


def effective_scale(norm: Norm, state: Mapping[str, Tensor]) -> Tensor:
    """offset + w, in the shape of the norm's scale.  Raises ValueError if it has none, or another function of w."""
    if norm.scale is None or norm.unclear:
        raise ValueError(f"{norm.module}: {norm.unclear or 'this norm has no scale'}")
    return norm.offset + state[norm.scale]


def move_scale(model: nn.Module, norm: Norm, factor: Tensor) -> None:
    """Multiply the consumers of each channel by ``factor`` and divide the norm's effective scale and its bias by it."""
    named = dict(model.named_parameters())
    with torch.no_grad():
        moved = effective_scale(norm, named) / factor
        named[str(norm.scale)].copy_(moved - norm.offset)
        if norm.bias is not None:
            named[norm.bias].div_(factor)
    scale_consumers(model, norm, factor)


def scale_consumers(model: nn.Module, norm: Norm, factor: Tensor) -> None:
    """Multiply what each consumer does to a channel by the channel's ``factor``."""
    with torch.no_grad():
        for consumer in norm.consumers:
            weight = model.get_parameter(consumer.parameter)
            weight.movedim(consumer.axis, -1).mul_(by_index(consumer, factor, 1.0))


def move_bias(model: nn.Module, norm: Norm, shift: Tensor) -> None:
    """Take ``shift`` off the norm's bias and add its image to the consumers' biases, created where there are none.

    Raises
    ------
    ValueError : a consumer has no place for a bias; nothing has been changed then.
    """
    places = [_bias_place(model, consumer) for consumer in norm.consumers]
    named = dict(model.named_parameters())
    with torch.no_grad():
        for consumer, (owner, name) in zip(norm.consumers, places, strict=True):
            weight = named[consumer.parameter]
            moved = _image(consumer, weight, shift)
            if getattr(owner, name) is None:
                setattr(owner, name, nn.Parameter(torch.zeros_like(moved), weight.requires_grad))
            getattr(owner, name).add_(moved)
        named[str(norm.bias)].sub_(shift)


def absorb(model: nn.Module, norm: Norm) -> None:
    """Fold the norm's scale into its consumers and its bias into theirs (created where there is none).

    Raises
    ------
    ValueError : a consumer of a norm with a bias is not the ``weight`` of a module that takes a ``bias``; nothing has
        been changed then.
    """
    named = dict(model.named_parameters())
    if norm.bias is not None:
        move_bias(model, norm, named[norm.bias].detach().clone())
    scale_consumers(model, norm, effective_scale(norm, named).detach())
    with torch.no_grad():
        named[str(norm.scale)].fill_(1 - norm.offset)


def check_plain(model: nn.Module, norms: Sequence[Norm]) -> None:
    """That scales and biases of norms are parameters, and not made from others by a design that is attached.

    Raises
    ------
    ValueError : one is not.
    """
    named = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name in (name for norm in norms for name in (norm.scale, norm.bias)):
        if name is not None and name not in named:
            raise ValueError(f"{name}: it is parametrized; merge or detach first")


def by_index(consumer: Consumer, channels: Tensor, otherwise: float) -> Tensor:
    """One number for each channel of a norm, as one for each index along a consumer's axis."""
    met = consumer.channels.to(channels.device)
    return torch.where(met >= 0, channels.flatten()[met], otherwise)


def owners(model: nn.Module, parameter: str | nn.Parameter) -> dict[nn.Module, str]:
    """The modules that hold a parameter (several if it is tied), each with the attribute's name."""
    wanted = model.get_parameter(parameter) if isinstance(parameter, str) else parameter
    return {m: n for m in model.modules() for n, p in m.named_parameters(recurse=False) if p is wanted}


def _image(consumer: Consumer, weight: Tensor, vector: Tensor) -> Tensor:
    """What a consumer makes of an output that is ``vector`` ``(channels,)`` everywhere: one entry for each output."""
    product = (weight.movedim(consumer.axis, -1) * by_index(consumer, vector, 0.0)).movedim(-1, consumer.axis)
    return product.sum([a for a in range(product.ndim) if a != consumer.output])


def _bias_place(model: nn.Module, consumer: Consumer) -> tuple[Any, str]:
    """The module and the attribute of the bias that is added to the consumer's product.

    It goes by the weight's name (``weight`` and ``bias``, ``in_proj_weight`` and ``in_proj_bias``), and `fold` verifies
    it.  Where the bias is None one can be made, but for layers that have several.  Raises ValueError if there is none.
    """
    ((owner, weight), *more) = owners(model, consumer.parameter).items()
    name = weight.replace("weight", "bias")
    bias = getattr(owner, name, False)
    if isinstance(bias, nn.Parameter):
        fits = consumer.output is not None and bias.numel() == consumer.shape[consumer.output]
        fits = fits and len(owners(model, bias)) == 1
    else:
        fits = bias is None and name == "bias" and consumer.output is not None
    if more or name == weight or not fits:
        raise ValueError(f"{consumer.parameter}: its module takes no bias to which the norm's could be moved")
    return owner, name


def refusal(model: nn.Module, norm: Norm) -> str | None:
    """Why the norm cannot be folded exactly, and what would make it; None if it can."""
    if (reason := held(model, norm)) or norm.bias is None:
        return reason
    alone, without = (
        "its scale alone would fold, its bias not",
        f"it folds if the norm has no bias ({norm.bias} = None)",
    )
    if norm.altered:
        why = "a consumer reads the output multiplied by something, or with zeros beside it: no constant is added there"
        return f"{alone}: {why}; {without}"
    for consumer in norm.consumers:
        try:
            _bias_place(model, consumer)
        except ValueError as error:
            given = "" if consumer.output is None else "its module is given a bias of its own, or if "
            return f"{alone}: {error}; {without.replace('if ', f'if {given}', 1)}"
    return None


def held(model: nn.Module, norm: Norm) -> str | None:
    """Why factors cannot be moved from the norm's scale and bias into its consumers; None if they can.

    That is less than folding asks for, which leaves no bias behind.
    """
    if norm.scale is None or norm.unclear:
        return norm.unclear or "it has no scale"
    read = ", ".join(norm.others)
    if norm.role == "output":
        return f"no parameter is multiplied with its output (read by: {read or 'nothing'})"
    if norm.others == ("returned",):
        rest = held(model, replace(norm, others=()))
        products = ", ".join(dict.fromkeys(map(template, [*(c.parameter for c in norm.consumers), *norm.indirect])))
        then = f"would still not fold: {rest}" if rest else "would fold (inside a module that returns only these)"
        return f"the model also returns its output; for the products with {products} alone it {then}"
    if norm.others:
        return f"not only parameters are multiplied with its output (also read by: {read})"
    if norm.indirect:
        how = "by groups of channels, or made into another matrix first"
        return f"{', '.join(norm.indirect)}: it multiplies the output {how}: it is not folded here"
    for consumer in norm.consumers:
        if consumer.also_used_by:
            used = f"{consumer.parameter} is also used by {', '.join(consumer.also_used_by)}"
            tied = len(owners(model, consumer.parameter)) > 1
            return f"{used}; it is tied ({', '.join(consumer.names)}): untie first" if tied else used
    for parameter in filter(None, (norm.scale, norm.bias)):
        if set(owners(model, parameter)) > {model.get_submodule(m) for m in norm.modules or (norm.module,)}:
            return f"{parameter} belongs to other modules, too"
    if norm.shared:
        return f"its parameters are also used by {', '.join(norm.shared)}"
    return None


def untie(model: nn.Module, example: Example | None = None) -> tuple[str, ...]:
    """Give each further module that holds a tied consumer of a norm (the head) its own copy; returns their names.

    The function stays the same.  Configurations of `transformers` are told, so that loading does not tie again.
    """
    untied: list[str] = []
    for norm in trace(model, example).norms:
        for consumer in norm.consumers:
            first, *others = owners(model, consumer.parameter).items()
            if not consumer.also_used_by or not others:
                continue
            untied += [n for n in consumer.names if model.get_submodule(n.rpartition(".")[0]) is not first[0]]
            for owner, name in others:
                weight = getattr(owner, name)
                setattr(owner, name, nn.Parameter(weight.detach().clone(), weight.requires_grad))
    for module in model.modules() if untied else ():
        if getattr(getattr(module, "config", None), "tie_word_embeddings", False):
            module.config.tie_word_embeddings = False  # type: ignore[union-attr]
        if isinstance(ties := getattr(module, "all_tied_weights_keys", None), dict):
            ties.clear()
    return tuple(untied)


def absorb_all(model: nn.Module, norms: Sequence[Norm]) -> None:
    """`absorb`, norm by norm."""
    for norm in norms:
        absorb(model, norm)


@dataclass(frozen=True)
class Folded:
    """What `fold` did.

    Attributes
    ----------
    folded : the norms' module names.
    refused : the other norms, each with the reason.
    state : what `unfold` needs, tensors that can be stored: by parameter name the effective scales and the biases that
        were taken out (float64), and an empty tensor for each bias that was created.
    error_float64 : relative change of the outputs in float64, the larger of two: with the model's scales and with
        random ones (scales that are all 1 would hide a mistake).
    error : relative change of the outputs of the model itself, in its own precision.
    """

    folded: tuple[str, ...]
    refused: Mapping[str, str]
    state: Mapping[str, Tensor]
    error_float64: float
    error: float


def fold(model: nn.Module, example: Example | None = None, *, norms: Collection[str] | None = None) -> Folded:
    """Move the scale of every norm, and its bias, into the parameters that consume its output, in place.

    Effective scales (w, or 1 + w) become 1 and biases 0.  The model's function in evaluation mode stays the same, which
    is verified in float64 before the model is touched; its parameters stay the same objects, each rounded once.
    Takes two copies of the model in float64, one after the other.

    A model that was given biases its class does not have refuses `save_pretrained`.

    Parameters
    ----------
    example : what the model is called with, as for `trace`; it must reach every parameter.
    norms : module names of norms; only these are folded.  None: all that can be.

    Raises
    ------
    ValueError : the model has no norm or does not run on the example; the example does not reach a parameter; one of
        ``norms`` does not exist or cannot be folded; or outputs change, which leaves the model as it was.
    """
    example, traced = examined(model, example)
    check_plain(model, traced.norms)
    refused = {n.module: reason for n in traced.norms if (reason := refusal(model, n))}
    for name in norms or ():
        if name not in {n.module for n in traced.norms}:
            raise ValueError(f"norms={name!r}: no such norm; there are {', '.join(n.module for n in traced.norms)}")
        if name in refused:
            raise ValueError(f"norms={name!r}: cannot be folded: {refused[name]}")
    chosen = [n for n in traced.norms if n.module not in refused and (norms is None or n.module in norms)]
    tried = change_at_random_scales(model, example, traced.norms, lambda exact: absorb_all(exact, chosen))
    if tried > EXACT:
        wrong = [n.module for n in chosen if _changes_alone(model, example, traced.norms, n)]
        raise ValueError(
            f"folding {', '.join(wrong) or 'these norms together'} changes the outputs by {tried:.1e} of their size "
            f"in float64 (expected <= {EXACT:g}); nothing has been folded"
        )
    named = {name: p.detach().double() for name, p in model.named_parameters()}
    state = {str(n.scale): effective_scale(n, named) for n in chosen}
    state |= {n.bias: named[n.bias].clone() for n in chosen if n.bias is not None}
    exact_error, error = rewrite(model, example, lambda exact: absorb_all(exact, chosen))
    created = [name for name, _ in model.named_parameters() if name not in named]
    state |= {name: torch.empty(0) for name in created}
    if created:
        forbid_saving(model, NEVER_SAVE)
    return Folded(tuple(n.module for n in chosen), refused, state, max(tried, exact_error), error)


def _changes_alone(model: nn.Module, example: Example, norms: Sequence[Norm], norm: Norm) -> bool:
    return change_at_random_scales(model, example, norms, lambda exact: absorb(exact, norm)) > EXACT


def unfold(
    model: nn.Module, folded: Folded | Mapping[str, Tensor], example: Example | None = None
) -> tuple[float, float]:
    """Undo `fold`, exactly to rounding, also after training: each scale is multiplied by what was taken out of it.

    The model's function stays the same, verified as in `fold`; biases that `fold` created go again if they are no more
    than rounding.  Returns the relative change of the outputs in float64 and in the model's own precision.

    Parameters
    ----------
    folded : what `fold` returned, or its ``state``.

    Raises
    ------
    ValueError : a scale that was taken out has an entry of 0 (the consumers' weights were multiplied by it and are
        lost); a name or shape does not fit this model; a norm can no longer be folded.  The model is as it was.
    """
    state = folded.state if isinstance(folded, Folded) else folded
    example, traced = examined(model, example)
    check_plain(model, traced.norms)
    norms = [n for n in traced.norms if n.scale in state]
    named = dict(model.named_parameters())
    known = {n.scale for n in norms} | {n.bias for n in norms}
    for name, value in state.items():
        if name not in named or (value.numel() and (name not in known or value.shape != named[name].shape)):
            raise ValueError(f"folded: {name} {tuple(value.shape)} is no scale or bias of a norm of this model")
        if any(n.scale == name for n in norms) and not bool(value.all()):
            raise ValueError(f"folded: {name} had entries of 0; what its consumers had there is lost")
    for norm in norms:
        if reason := refusal(model, norm):
            raise ValueError(f"{norm.module}: cannot be unfolded: {reason}")
    created = [name for name, value in state.items() if not value.numel()]

    def restore(exact: nn.Module) -> None:
        for norm in norms:
            scale = state[str(norm.scale)].to(exact.get_parameter(str(norm.scale)))
            move_scale(exact, norm, 1 / scale)
            if norm.bias is not None:
                move_bias(exact, norm, -state[norm.bias].to(scale))

    before = outputs(model, example)
    change, _ = rewrite(model, example, restore)
    for norm in norms:
        for consumer in norm.consumers if norm.bias is not None else ():
            _drop_rounding(model, consumer, state[str(norm.bias)], created)
    if created and all(name not in dict(model.named_parameters()) for name in created):
        allow_saving(model)
    return change, relative_change(before, outputs(model, example))


def _drop_rounding(model: nn.Module, consumer: Consumer, shift: Tensor, created: Collection[str]) -> None:
    """Remove a created bias whose entries are no more than the rounding of the sum that they held."""
    owner, local = _bias_place(model, consumer)
    if f"{consumer.parameter.rpartition('.')[0]}.{local}".lstrip(".") in created:
        weight = model.get_parameter(consumer.parameter).detach()
        terms = weight.numel() // weight.shape[consumer.output or 0]
        image = _image(consumer, weight.abs().double(), shift.abs().to(weight.device))
        if bool((getattr(owner, local).detach().abs() <= terms * torch.finfo(weight.dtype).eps * image).all()):
            setattr(owner, local, None)
