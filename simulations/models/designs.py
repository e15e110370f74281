"""What a design attaches to which parameters of a traced model, and what it must leave out.

Sources: arXiv 2605.26895 (HG, DP, DNP, OR, ER), arXiv 2601.04890 (scalar, row and column multipliers, redundancy).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from simulations.models.folding import by_index, effective_scale, held, owners, refusal
from simulations.models.roles import Consumer, Norm, Trace, Use
from simulations.models.scales import (
    Attachment,
    Divide,
    EffectiveScale,
    Exponential,
    MagnitudeDirection,
    Multiply,
    ScaleOne,
    Vector,
    register,
)

PARTS = ("HG", "DP", "DNP", "OR", "ER", "scalar", "row", "column")
VECTORS: Mapping[str, Callable[[Tensor], nn.Module]] = {"OR": MagnitudeDirection, "ER": Exponential}
NO_OUTPUT = "its product is no module's output"
NOTHING = "no norm has a scale and is read by parameters alone"
NO_MATRIX = "no matrix is chosen; without `where` embeddings and the head are left out"
MatrixKind = Literal["row", "column", "scalar"]

Where = Callable[[str], bool]
Scales = Mapping[str, Tensor]
"""Effective scales (float64) as they are when something is attached, by the norm's module name."""


def parse(design: str) -> tuple[str, ...]:
    """The parts of a design in the order of `PARTS`.

    Raises
    ------
    ValueError : an unknown part (with the nearest that there is), a part twice, or OR and ER together.
    """
    known = {part.lower(): part for part in PARTS}
    given = [part.strip() for part in design.split("+")]
    for part in given:
        if part.lower() not in known:
            near = get_close_matches(part.lower(), known, n=1)
            hint = f"; did you mean {known[near[0]]}?" if near else ""
            raise ValueError(f"{design!r}: no part {part!r}{hint}; expected {', '.join(PARTS)} joined by +")
    found = [known[part.lower()] for part in given]
    if len(set(found)) < len(found) or {"OR", "ER"} <= set(found):
        raise ValueError(f"design={design!r}: expected each part once, and OR or ER")
    return tuple(part for part in PARTS if part in found)


@dataclass(frozen=True)
class Change:
    """Something to attach to a parameter, made from the effective scales that there are."""

    parameter: str
    make: Callable[[Scales], Attachment]


@dataclass
class Plan:
    """Changes to attach, parameters whose outputs are to be normalised, and what was left out, with the reasons."""

    changes: list[Change] = field(default_factory=list)
    normalised: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def install(model: nn.Module, norms: Sequence[Norm], plan: Plan) -> None:
    """Attach a plan's changes to a model."""
    named = {name: p.detach().double() for name, p in model.named_parameters()}
    scales = {n.module: effective_scale(n, named) for n in norms if n.scale is not None and not n.unclear}
    places = {change.parameter: next(iter(owners(model, change.parameter).items())) for change in plan.changes}
    for change in plan.changes:
        register(*places[change.parameter], change.make(scales))


def planned(model: nn.Module, traced: Trace, parts: Sequence[str], where: Where | None, vectors: bool = True) -> Plan:
    """The plan of a design; without ``vectors`` OR and ER are left out of it.

    Raises
    ------
    ValueError : there is nothing to which one of the parts could be attached, with the reasons.
    """
    plan = Plan()
    site = _Sites(model, traced, where, plan)
    vector = next((VECTORS[p] for p in parts if p in VECTORS and vectors), Vector)
    for part in parts:
        before = len(plan.changes) + len(plan.normalised)
        if part == "HG":
            plan.changes += site.branches(vector)
        elif part == "DP":
            plan.changes += site.outputs(vector)
        elif part == "DNP":
            plan.normalised += site.modules()
        elif part in VECTORS:
            plan.changes += site.norms(vector) if vectors else []
        else:
            plan.changes += site.matrices(cast(MatrixKind, part), parts)
        if len(plan.changes) + len(plan.normalised) == before and (vectors or part not in VECTORS):
            reasons = "; ".join(f"{name}: {why}" for name, why in plan.refused.items() if name.startswith(f"{part} "))
            none = NO_MATRIX if part in get_args(MatrixKind) else NOTHING
            raise ValueError(f"design part {part}: there is nothing to attach it to: {reasons or none}")
    return plan


class _Sites:
    def __init__(self, model: nn.Module, traced: Trace, where: Where | None, plan: Plan) -> None:
        self.model, self.traced, self.where, self.plan = model, traced, where, plan
        self.kept = {n.module: held(model, n) for n in traced.norms}
        self.branched: set[str] = set()

    def branches(self, vector: Callable[[Tensor], nn.Module]) -> Iterator[Change]:
        """HG: the scale of a norm to each of its consumers."""
        for norm in self.traced.norms:
            if not norm.consumers:
                continue
            reason = self.kept[norm.module]
            if len(norm.modules) > 1:
                reason = f"{norm.scale} belongs to other modules, too"
            elif len(norm.consumers) == 1:
                reason = f"one parameter consumes it, {norm.consumers[0].parameter}"
            if reason:
                self.plan.refused[f"HG {norm.module}"] = reason
                continue
            self.branched.add(norm.module)
            assert norm.scale is not None
            for consumer in norm.consumers:
                yield Change(consumer.parameter, partial(_branch, norm, consumer, vector))
            yield Change(norm.scale, partial(_scale_one, norm))
            if norm.bias is not None:
                yield Change(norm.bias, partial(_divided, norm))

    def norms(self, vector: Callable[[Tensor], nn.Module]) -> Iterator[Change]:
        """OR, ER: the scales of the norms that still have one."""
        for norm in self.traced.norms:
            if norm.scale is None or norm.module in self.branched:
                continue
            reason = f"{norm.scale} belongs to other modules, too" if len(owners(self.model, norm.scale)) > 1 else ""
            if reason := norm.unclear or reason:
                self.plan.refused[f"OR/ER {norm.module}"] = reason
                continue
            yield Change(norm.scale, partial(_effective, norm, vector, refusal(self.model, norm) is None))

    def outputs(self, vector: Callable[[Tensor], nn.Module]) -> Iterator[Change]:
        """DP: the outputs of the parameters that consume a norm."""
        for use, axis in self._consumers("DP"):
            yield Change(use.parameter, partial(_ones, use, axis, "row", vector))

    def modules(self) -> Iterator[str]:
        """DNP: the modules whose output is a product with a parameter that consumes a norm."""
        for use, _ in self._consumers("DNP"):
            ((_, name),) = owners(self.model, use.parameter).items()
            if name != "weight" or len(use.shape) != 2:
                self.plan.refused[f"DNP {use.parameter}"] = NO_OUTPUT
            else:
                yield use.parameter

    def matrices(self, kind: MatrixKind, parts: Sequence[str]) -> Iterator[Change]:
        """Row, column and scalar multipliers."""
        scaled = {c.parameter: n.module for n in self.traced.norms if self.kept[n.module] is None for c in n.consumers}
        outputs = {use.parameter for use, _ in self._consumers("DP")} if "DP" in parts else set()
        for use in self.traced.uses.values():
            if use.kind != "matrix" or not self._chosen(use, not use.returned and "embedding" not in use.operations):
                continue
            reason = None
            if use.input_axis is None:
                reason = "its products sum over no one axis of it"
            elif kind == "column" and use.parameter in scaled:
                reason = f"redundant: the scale of {scaled[use.parameter]} multiplies the same columns"
            elif kind == "row" and use.parameter in outputs:
                reason = "redundant: the scale of DP multiplies the same rows"
            elif kind == "scalar" and ({"row", "column"} & set(parts) or use.parameter in outputs):
                reason = "redundant: its rows or columns have multipliers"
            if self._free(f"{kind} {use.parameter}", use, reason):
                assert use.input_axis is not None
                yield Change(use.parameter, partial(_ones, use, use.input_axis, kind, Vector))

    def _consumers(self, part: str) -> Iterator[tuple[Use, int]]:
        seen = set()
        for norm in self.traced.norms:
            for consumer in norm.consumers if norm.role == "input" else ():
                use = self.traced.uses[consumer.parameter]
                if use.parameter in seen or not self._chosen(use, True):
                    continue
                seen.add(use.parameter)
                reason = "the head is left out unless `where` names it" if use.returned and not self.where else None
                if use.kind == "convolution":
                    reason = "it is a convolution"
                if self._free(f"{part} {use.parameter}", use, reason):
                    yield use, consumer.axis

    def _chosen(self, use: Use, otherwise: bool) -> bool:
        return otherwise if self.where is None else any(map(self.where, use.names))

    def _free(self, name: str, use: Use, reason: str | None) -> bool:
        if reason is None and len(owners(self.model, use.parameter)) > 1:
            reason = f"it is tied ({', '.join(use.names)}): untie first"
        if reason:
            self.plan.refused[name] = reason
        return not reason


def _branch(norm: Norm, consumer: Consumer, vector: Callable[[Tensor], nn.Module], scales: Scales) -> Attachment:
    start = by_index(consumer, scales[norm.module], 1.0)
    return Multiply(vector(start), consumer.shape, (consumer.axis,), "column")


def _scale_one(norm: Norm, scales: Scales) -> Attachment:
    return ScaleOne(norm.offset)


def _divided(norm: Norm, scales: Scales) -> Attachment:
    return Divide(scales[norm.module])


def _effective(norm: Norm, vector: Callable[[Tensor], nn.Module], foldable: bool, scales: Scales) -> Attachment:
    return EffectiveScale(vector(scales[norm.module]), norm.offset, foldable)


def _ones(use: Use, axis: int, kind: MatrixKind, vector: Callable[[Tensor], nn.Module], scales: Scales) -> Attachment:
    """Multipliers of 1.  The outputs of a matrix are its last axis that is not summed over; more axes make a stack."""
    output = max(a for a in range(len(use.shape)) if a != axis)
    without = {"row": {axis}, "column": {output}, "scalar": {axis, output}}[kind]
    axes = tuple(a for a in range(len(use.shape)) if a not in without)
    ones = torch.ones([use.shape[a] for a in axes] or 1, dtype=torch.float64)
    return Multiply(vector(ones), use.shape, axes, kind)
