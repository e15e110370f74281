"""Attaching scale vectors and multipliers to a real model, taking them off, and merging them into plain weights.

Sources: arXiv 2605.26895 (HG, DP, DNP, OR, ER), arXiv 2601.04890 (scalar, row and column multipliers, redundancy).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from scalevec_theory.redundancy import redundancies
from simulations.models.designs import NO_OUTPUT, Where, install, parse, planned
from simulations.models.float64 import EXACT, change_in_float64, float64_copy, outputs, relative_change, returned
from simulations.models.rewriting import assign, change_at_random_scales, examined, expect_range, randomise
from simulations.models.roles import Trace
from simulations.models.running import Example, example_input
from simulations.models.saving import allow_saving, forbid_saving
from simulations.models.scales import (
    Multiplier,
    OutputNorm,
    attached_tensors,
    multipliers,
    normalise,
    plain_name,
    strip,
)
from simulations.models.sparse_redundancy import TERMS, sparse_redundancies

MERGE_FIRST = "merge first, or store its state dict and attach the same design before loading"

VECTOR = ("scale", "bias", "vector")

VERIFIED = 1e-8
"""Most that outputs may change when what the finder calls a symmetry is applied with finite factors."""

EXAMINED = 400
"""Most entries of vectors among which every redundancy is looked for: the time grows with their third power."""


@dataclass(frozen=True)
class Attached:
    """What `attach` did.

    Attributes
    ----------
    design : its parts.
    attached : every new parameter, as `multipliers` gives them.
    refused : what was left out although the design names it, each with the reason.
    exact : False if the design changes the function from the start (DNP).
    error_float64 : relative change of the outputs in float64, DNP left out; the larger of two, with the model's scales
        and with random ones.
    error : relative change of the outputs of the model itself, in its own precision.
    redundant : the redundancies that attached vectors take part in, or one line that says why none was looked for; of
        more than `EXAMINED` entries those of few entries or of whole vectors, which the last line says.  Tables of
        positions stay as they are.
    """

    design: tuple[str, ...]
    attached: Mapping[str, Multiplier]
    refused: Mapping[str, str]
    exact: bool
    error_float64: float
    error: float
    redundant: tuple[str, ...]


def attach(
    model: nn.Module,
    design: str,
    example: Example | None = None,
    *,
    where: Where | None = None,
    changes_function: bool = False,
    thorough: bool = False,
) -> Attached:
    """Attach scale vectors or multipliers to a model, in place, so that it computes the same function as before.

    New parameters are found by `multipliers`; they are not in an optimizer that was made before.  Weights become
    ``parametrizations.weight.original`` in the state dict, which a plain model therefore refuses to load, and
    `save_pretrained` is refused; writing in place to ``.weight`` of such a module is lost without a word.

    Parameters
    ----------
    design : parts joined by ``+``, in any case.

        - ``HG``: a norm whose scale several parameters consume gives each its own, on its input axis (experts that are
          one parameter have one together, as have fused q, k and v); the norm's own scale becomes 1 and is not trained.
        - ``DP``: a scale on each output of every parameter that consumes a norm, the head left out.
        - ``DNP``: these outputs normalised, times a scale that starts at their rms on ``example``.  No start keeps the
          function; it is refused unless ``changes_function``.  Only what a module returns can be normalised.
        - ``OR``, ``ER``: the effective scale of every norm, and each vector of HG and DP, as β α / rms(α), or as
          exp(β + α − mean α).
        - ``scalar``, ``row``, ``column``: a multiplier on every matrix, on its outputs, on its inputs; of a stack of
          experts, matrix by matrix.  Embeddings and the head are left out: a row multiplier on the head does harm
          (arXiv 2601.04890).
    example : what the model is called with, as for `trace`; it must reach every parameter.
    where : says by its name which parameters get DP, DNP and multipliers (the head, too); None: as above.
    thorough : look for redundancies in wide models, too, which takes longer (80 s with 16,000 entries).

    Raises
    ------
    ValueError : an unknown part; a part for which there is no place, with the reasons; a model that is parametrized
        already; outputs that change.  The model is as it was.
    """
    parts = parse(design)
    if "DNP" in parts and not changes_function:
        raise ValueError(f"design={design!r}: DNP changes the function from the start; allow it by changes_function")
    for path, module in model.named_modules():
        if is_parametrized(module) or isinstance(module, OutputNorm):
            raise ValueError(f"{path}: it is parametrized already; merge or detach first")
        if path and hasattr(module, "_orig_mod"):
            raise ValueError(f"{path}: a part that is compiled takes no parameters; attach first, then compile")
    example, traced = examined(model, example)
    plan = planned(model, traced, parts, where)
    sizes = output_sizes(model, example, plan.normalised)
    plan.refused |= {f"DNP {name}": NO_OUTPUT for name in plan.normalised if name not in sizes}
    error_float64 = max(
        change_at_random_scales(model, example, traced.norms, lambda exact: install(exact, traced.norms, plan)),
        change_in_float64(float64_copy(model), example, lambda exact: install(exact, traced.norms, plan)),
    )
    if error_float64 > EXACT:
        raise ValueError(
            f"design={design!r}: the outputs would change by {error_float64:.1e} of their size in float64; "
            f"expected <= {EXACT:g}"
        )
    found = _redundant(model, example, traced, parts, where, thorough)
    before = outputs(model, example)
    install(model, traced.norms, plan)
    for parameter, size in sizes.items():
        normalise(model.get_submodule(parameter.rpartition(".")[0]), size)
    forbid_saving(model, MERGE_FIRST)
    error = relative_change(before, outputs(model, example))
    return Attached(parts, multipliers(model), plan.refused, not sizes, error_float64, error, found)


def output_sizes(model: nn.Module, example: Example, parameters: Sequence[str]) -> dict[str, Tensor]:
    """For weights of modules the rms of the module's output on an example, once for each of its channels.

    A module that does not return as many channels as its weight has on one axis is left out.
    """
    sizes: dict[str, Tensor] = {}
    hooks = []
    for parameter in parameters:
        weight = model.get_parameter(parameter)

        def record(module: nn.Module, args: object, out: object, name: str = parameter, like: Tensor = weight) -> None:
            if isinstance(out, Tensor) and out.shape[-1] in like.shape:
                sizes[name] = out.square().mean().sqrt().expand(out.shape[-1])

        hooks.append(model.get_submodule(parameter.rpartition(".")[0]).register_forward_hook(record))
    try:
        if parameters:
            outputs(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    return sizes


def _redundant(
    model: nn.Module, example: Example, traced: Trace, parts: Sequence[str], where: Where | None, thorough: bool
) -> tuple[str, ...]:
    """The redundancies among a model's vectors with a design attached, those that attached vectors take part in.

    OR and ER are left out, for theirs is known; weights and tables are held fixed, for they take up any multiplier.
    """
    exact = float64_copy(model)
    randomise(exact, traced.norms)
    install(exact, traced.norms, planned(exact, traced, parts, where, vectors=False))
    attached = multipliers(exact)
    vectors = {n for n, u in traced.uses.items() if u.kind in VECTOR and prod(u.shape) == max((*u.shape, 1))}
    for name, p in exact.named_parameters():
        p.requires_grad_((name in attached or name in vectors) and p.requires_grad)
    entries = {name: p.numel() for name, p in exact.named_parameters() if p.requires_grad}
    offsets = {str(n.scale): n.offset for n in traced.norms if n.offset and n.scale in entries}
    total = sum(entries.values())
    if total > EXAMINED and not thorough:
        return (f"not examined: {total:,} entries of vectors, more than {EXAMINED}; thorough=True looks all the same",)

    def forward() -> Tensor:
        return torch.cat([t.flatten() for t in returned(exact, example)])

    lines = []
    try:
        if total > EXAMINED:
            found = sparse_redundancies(exact, forward, offsets=offsets)
            lines = [f"of {total:,} entries: sought were those of at most {TERMS} of them, and those of whole vectors"]
        else:
            found = redundancies(exact, forward, offsets=offsets).families
    except ValueError as error:
        return (f"not examined: {error}",)
    families = [f for f in found if f.change < VERIFIED and any(s.parameter in attached for s in f.sites)]
    lines = [str(f) for f in families] + lines
    for name, multiplier in attached.items():
        lines = [line.replace(name, f"{multiplier.parameter} ({multiplier.kind})") for line in lines]
    return tuple(lines)


def detach(model: nn.Module) -> None:
    """Take off everything that is attached: weights as trained, what vectors replaced as it was before.

    Raises
    ------
    ValueError : nothing is attached.
    """
    _expect_attached(model)
    strip(model)
    allow_saving(model)


def merge(model: nn.Module, example: Example | None = None) -> tuple[float, float]:
    """Multiply everything that is attached into plain weights: the same function, with the classes and keys of before.

    Verified in float64 before the model is touched.  Returns the relative change of the outputs in float64 and in the
    model's own precision.

    Raises
    ------
    ValueError : nothing is attached; a DNP norm, which is no weight; outputs that change or a weight that overflows.
        The model is as it was.
    """
    _expect_attached(model)
    if norms := [name for name, module in model.named_modules() if isinstance(module, OutputNorm)]:
        raise ValueError(
            f"{', '.join(norms)}: a norm that DNP attached cannot be merged into weights; detach takes it off"
        )
    example = example_input(model, batch=16) if example is None else example
    exact = float64_copy(model)
    change = change_in_float64(exact, example, _bake)
    if change > EXACT:
        raise ValueError(f"merging would change the outputs by {change:.1e} of their size in float64")
    expect_range(exact, {plain_name(name): p.dtype for name, p in model.named_parameters()})
    before = outputs(model, example)
    detach(model)
    assign(model, exact)
    return change, relative_change(before, outputs(model, example))


def _bake(model: nn.Module) -> None:
    values = [(found.original, found()) for _, _, found in attached_tensors(model)]
    strip(model)
    with torch.no_grad():
        for original, value in values:
            original.copy_(value)


def _expect_attached(model: nn.Module) -> None:
    if not multipliers(model):
        raise ValueError(f"{type(model).__name__}: nothing is attached")
