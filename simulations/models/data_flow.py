"""Where parameters and norms' outputs go in one forward pass: which index of a parameter multiplies which channel.

No name or class is consulted.  Every entry of a norm's output carries the number of its channel; every entry of a
parameter carries its index along each axis (`marks`).  Where the two meet in a matrix product, each index of the
parameter learns which channel it multiplies, whatever the layout (fused, transposed, stacked experts).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate, chain
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from simulations.models.marks import (
    COPY,
    NONE,
    REARRANGE,
    RESHAPE,
    ZERO,
    Marks,
    Table,
    along,
    along_second_axis,
    constant,
    number,
    of_sum,
    rearrange,
)
from simulations.models.roles import Consumer, Kind, Use
from simulations.models.running import tensors_in

ELEMENTWISE = {"mul", "div", "neg", "add", "sub"}
# What may come between the last product and what the model returns: soft-capping, and a loss.
AFTER_HEAD = {"mul", "div", "tanh", "add", "_log_softmax", "nll_loss_forward", "mean", "sum"}
POOL = {"mean", "sum", *(f"{kind}avg_pool{n}d" for kind in ("", "_adaptive_") for n in (2, 3))}
SHAPE_ONLY = {"zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones", "new_empty", "new_full"}
# Where the two factors of a matrix product stand among an operation's arguments.
LOOKUP = {"index", "index_select", "gather"}
PRODUCT = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "addmm": (1, 2),
    "baddbmm": (1, 2),
    "_grouped_mm": (0, 1),
    "grouped_mm_fallback": (0, 1),
}
# Other operations in which a parameter of two axes or more is a matrix, and those that look up its rows.
MATRIX = {*PRODUCT, "mv", "addmv", "_trilinear", "_cudnn_rnn", "_native_multi_head_attention"}
EMBEDDING = {"embedding", "_embedding_bag", "_embedding_bag_forward_only", "lookup"}


class Flow(TorchDispatchMode):
    """Index i along axis a of a parameter is its *slot* number ``slot[parameter][a] + i``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        names: dict[Tensor, list[str]] = defaultdict(list)
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names[parameter].append(name)
        self.names = list(names.values())
        self.parameters = list(names)
        self.activations, self.weights, self.products = Table(), Table(), Table()
        self.slot: list[list[int]] = []
        total = 0
        for i, p in enumerate(self.parameters):
            *starts, end = accumulate(p.shape, initial=total)
            self.slot.append(starts)
            self.weights.set(p, Marks(tuple(along(p, a, s) for a, s in enumerate(starts)), frozenset([i])))
            total = end
        self.met: dict[str, Tensor] = defaultdict(lambda: torch.full((total,), NONE))
        self.irregular: dict[str, Tensor] = defaultdict(lambda: torch.zeros(total, dtype=torch.bool))
        self.summed: dict[int, set[int]] = defaultdict(set)
        self.operations: dict[int, set[str]] = defaultdict(set)
        self.returned: set[int] = set()
        self.channels: dict[str, tuple[int, int]] = {}
        self.others: dict[str, set[str]] = defaultdict(set)
        self.indirect: dict[str, set[int]] = defaultdict(set)
        self.blended: set[str] = set()
        self.altered: set[str] = set()
        self.rows: dict[str, int] = {}
        self.routed: set[tuple[str, int]] = set()
        self.outputs: dict[int, int | None] = {}
        self.also: dict[int, set[str]] = defaultdict(set)
        self.inside: str | None = None
        self.fixed: dict[int, Tensor] = {id(t): t for t in (*self.parameters, *model.buffers())}

    def enter(self, norm: str, module: nn.Module, args: Any) -> None:
        self.inside = norm

    def leave(self, norm: str, placed: tuple[int, ...], module: nn.Module, args: Any, out: Tensor) -> None:
        self.inside = None
        size = prod(placed)
        first = self.channels.setdefault(norm, (sum(n for _, n in self.channels.values()), size))[0]
        self.rows[norm] = out.numel() // size
        numbers = torch.arange(first, first + size, device=out.device).reshape(placed).expand(out.shape)
        self.activations.set(out, Marks((numbers,), frozenset([norm])))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # which does not take apart what is made of other operations
            with self:
                if (out := func.decompose(*args, **kwargs)) is not NotImplemented:
                    return out
        out = func(*args, **kwargs)
        name = func._schema.name.split("::")[-1].rstrip("_")
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        fixed = self._note_fixed(tensors, out)
        if name in SHAPE_ONLY:
            return out
        active, weights = self.activations.among(tensors), self.weights.among(tensors)
        if self.inside is not None:
            self._stop(f"norm {self.inside}", active, weights)
        elif name in PRODUCT:
            left, right = (args[i] for i in PRODUCT[name])
            if not (left.numel() and right.numel()):  # an expert that no row came to: nothing of it was read
                return out
            self._product(name, left, right, out)
            rest = [t for t in tensors if t is not left and t is not right]
            self._stop("add", self.activations.among(rest), self.weights.among(rest))  # a bias is no factor
            if fixed:
                self._derive(weights, out)
        elif name == "convolution":
            self._convolution(name, *args)
            self._stop("add", [], self.weights.among(args[2:3]))
            if fixed:
                self._derive(weights, out)
        else:
            if active and not self._follow(self.activations, func, name, args, kwargs, out):
                self._stop(name, active, [])
            if weights and not self._follow(self.weights, func, name, args, kwargs, out):
                read = "position" if name == "embedding" and self._by_position(args[1:2]) else name
                self._stop(read, [], weights)
                if fixed:
                    self._derive(weights, out)
            made = {m.sources: m for m in self.products.among(tensors)}
            if len(made) == 1 and name in AFTER_HEAD | COPY | REARRANGE:
                for t in tree_leaves(out):
                    self.products.set(t, next(iter(made.values())))
        return out

    def _note_fixed(self, tensors: Sequence[Tensor], out: Any) -> bool:
        """Note whether an operation's results are made of parameters, buffers and constants alone."""
        fixed = all(id(t) in self.fixed for t in tensors)
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and fixed:
                self.fixed[id(t)] = t
            else:
                self.fixed.pop(id(t), None)
        return fixed

    def _by_position(self, indices: Any) -> bool:
        """Whether rows are chosen by where they stand and not by what the model is given: by constants, several of
        them, or by the same consecutive numbers in each of several sequences."""
        chosen = [t for t in tree_leaves(indices) if isinstance(t, Tensor)]
        if all(id(t) in self.fixed for t in chosen):
            return not chosen or any(not constant(t.flatten(), 0) for t in chosen if t.numel())
        if len(chosen) > 1 or chosen[0].dtype == torch.bool or chosen[0].ndim < 2 or chosen[0].shape[-1] < 2:
            return False
        rows = chosen[0].flatten(0, -2)
        return len(rows) > 1 and constant(rows, 0) and bool((rows.diff() == 1).all())

    def _derive(self, weights: Sequence[Marks], out: Any) -> None:
        """Mark what is made of parameters alone, as a sum or a normalised weight is, as those that have its shape."""
        sources = frozenset[int]().union(*(m.sources for m in weights))
        for t in tree_leaves(out):
            alike = frozenset(i for i in sources if isinstance(t, Tensor) and self.parameters[i].shape == t.shape)
            if alike and t.ndim > 1:
                self.weights.set(t, Marks(None, alike))

    def finish(self, returned: object) -> None:
        leaves = tensors_in(returned)
        self._stop("returned", self.activations.among(leaves), [])
        self.returned = {i for marks in self.products.among(leaves) for i in marks.sources}

    def _stop(self, name: str, active: Sequence[Marks], weights: Sequence[Marks]) -> None:
        for marks in active:
            for norm in marks.sources:
                self.others[norm].add(name)
                if marks.numbers is None:
                    self.blended.add(norm)
        for marks in weights:
            for i in marks.sources:
                self.also[i].add(name)
                self.operations[i].add(name)

    def _follow(self, table: Table, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> bool:
        """Mark the results of an operation that passes each entry on unmixed; False if it is no such operation."""
        if name in COPY:
            table.set(out, table.among(args)[0])
            return True
        zeros = name == "constant_pad_nd" and not any(args[2:])
        if name in RESHAPE and isinstance(args[1], torch.dtype):
            return False
        if name in REARRANGE or zeros:
            if name in LOOKUP and table is self.weights and not self._by_position(args[1:]):
                for i in chain.from_iterable(m.sources for m in table.among(args[:1])):
                    self.operations[i].add("lookup")
            marked = table.among(tree_leaves((args, kwargs)))
            sources = frozenset().union(*(m.sources for m in marked))
            moved: list[list[Tensor]] = []
            if all(m.numbers is not None for m in marked):
                moved = [
                    rearrange(func, name, *tree_map(partial(number, table, axis, name), (args, kwargs)))
                    for axis in range(max(len(m.numbers or ()) for m in marked))
                ]
            altered = (zeros and max(args[1], default=0) > 0) or any(m.altered for m in marked)
            for place, t in enumerate(tree_leaves(out)):
                table.set(t, Marks(tuple(numbers[place] for numbers in moved) or None, sources, altered))
            return True
        if name in ELEMENTWISE:
            marks = self._elementwise(table, name, args, out)
            if marks is not None:
                table.set(out, marks)
            return marks is not None
        if table is self.activations and (name in POOL or "upsample" in name):
            marks = self._pooled(name, args, out)
            if marks is not None:
                table.set(out, marks)
            return marks is not None
        return False

    def _pooled(self, name: str, args: Any, out: Tensor) -> Marks | None:
        """A weighted sum over positions leaves a channel what it is, and a mean without padding a constant as well."""
        marks = self.activations.get(args[0])
        if marks is None or marks.numbers is None:
            return None
        (numbers,) = marks.numbers
        axes = args[1] if name in ("mean", "sum") and len(args) > 1 else range(numbers.ndim)
        if size := re.search(r"(\d)d", name):
            axes = range(-int(size[1]), 0)
        numbers, low = numbers.amax(tuple(axes), keepdim=True), numbers.amin(tuple(axes), keepdim=True)
        if not torch.equal(numbers, low):
            return None
        numbers = numbers.reshape(out.shape) if numbers.numel() == out.numel() else numbers.expand(out.shape)
        padded = name.startswith("avg_pool") and any(tree_leaves(args[3:]))
        return Marks((numbers,), marks.sources, marks.altered or name == "sum" or padded)

    def _elementwise(self, table: Table, name: str, args: Any, out: Tensor) -> Marks | None:
        """Products with, and quotients by, anything unmarked keep the marks; sums keep them only among equals.

        A parameter that is multiplied by a smaller one, as by a multiplier of its rows, is still that parameter.
        """
        tensors = [t for t in args if isinstance(t, Tensor) and table.get(t) is not None]
        if table is self.weights and name in ("mul", "div") and len(tensors) == 2:
            first, second = tensors
            if second.numel() < first.numel() == out.numel() or (
                name == "mul" and first.numel() < second.numel() == out.numel()
            ):
                large, small = (first, second) if first.numel() > second.numel() else (second, first)
                self._stop(name, [], self.weights.among([small]))
                tensors = [large]
        marked = table.among(tensors)
        numbers = [m.numbers and tuple(n.expand(out.shape) for n in m.numbers) for m in marked]
        if name in ("mul", "div", "neg") and len(marked) == 1 and (name != "div" or tensors[0] is args[0]):
            return Marks(numbers[0], marked[0].sources, True)
        if name in ("add", "sub") and len(marked) == 2 and marked[0].sources == marked[1].sources:
            return Marks(of_sum(*numbers), marked[0].sources, True)
        return None

    def _product(self, name: str, left: Tensor, right: Tensor, out: Tensor) -> None:
        for tensor, other, transposed in ((left, right, True), (right, left, False)):
            if (marks := self.weights.get(tensor)) and not (marks.numbers is None and id(other) in self.fixed):
                self._record_sum(name, marks, transposed)
                self.products.set(out, marks)
        if (x := self.activations.get(left)) and (w := self.weights.get(right)):
            met = self._meet(x, w, False, id(right) in self.fixed)
        elif (x := self.activations.get(right)) and (w := self.weights.get(left)):
            met = self._meet(x, w, True, id(left) in self.fixed)
        else:
            self._stop(name, self.activations.among([left, right]), self.weights.among([left, right]))
            return
        if not met:
            self._stop(name, [x], [w])

    def _record_sum(self, name: str, marks: Marks, transposed: bool) -> None:
        """Note the axes of the parameter that run along the summed axis of a product, ``(…, k, m)`` by its columns."""
        for i in marks.sources:
            self.operations[i].add(name)
            for axis, numbers in enumerate(marks.numbers or ()):
                n = numbers.transpose(-1, -2) if transposed else numbers
                if axis < len(self.slot[i]) and bool((n[..., 1:, :1] != n[..., :-1, :1]).any()) and constant(n, -1):
                    self.summed[i].add(axis)

    def _meet(self, x: Marks, w: Marks, transposed: bool, fixed: bool) -> bool:
        """Record x @ w, ``(..., n, k)`` by ``(..., k, m)``; whether each row of x has the same channels.

        ``fixed``: w is made of parameters alone.
        """
        if x.numbers is None or (w.numbers is None and not fixed):
            return False
        (channels,) = x.numbers
        channels = channels.transpose(-1, -2) if transposed else channels
        padding = 0
        if x.altered and bool((zero := (channels == ZERO).all(-1)).any()):  # rows of zeros, whatever multiplies them
            row = (~zero).int().argmax(-1)[..., None, None].expand(*channels.shape[:-2], 1, channels.shape[-1])
            channels = torch.where(zero[..., None], channels.gather(-2, row), channels)
            padding = int(zero.sum()) * channels.shape[-1]
        if not constant(channels, -2):
            return False
        if w.numbers is None:
            self._record_indirect(x, w)
            return True
        if x.altered:
            self.altered |= x.sources
        rows = (channels.numel() - padding) // max(1, channels[..., 0, :].unique().numel())
        self.routed |= {(norm, i) for norm in x.sources for i in w.sources if rows != self.rows[norm]}
        channels = channels[..., 0, :, None].clamp(min=NONE)
        several = channels.shape[-2] > 1 and not constant(channels, -2)
        for numbers in w.numbers:
            n = numbers.transpose(-1, -2) if transposed else numbers
            if constant(n, -1):
                n = n[..., :1]
            c, every = channels, several and constant(n, -2)
            if every:  # each index meets every channel: two show it
                n, c = n[..., :2, :], channels[..., [0, -1], :]
            self._record(x.sources, n, c)
        return True

    def _record(self, norms: Iterable[str], slots: Tensor, channels: Tensor) -> None:
        """Note that indices of a parameter multiply channels of norms, entry by entry of two tensors that broadcast."""
        slots, channel = (t.flatten().cpu() for t in torch.broadcast_tensors(slots, channels))
        channel, slots = channel[slots >= 0], slots[slots >= 0]
        for norm in norms:
            met = self.met[norm]
            known = met[slots]
            met[slots] = channel
            clash = (met[slots] != channel) | ((known != NONE) & (known != channel))
            self.irregular[norm][slots[clash]] = True

    def _record_indirect(self, x: Marks, w: Marks) -> None:
        for norm in x.sources:
            self.indirect[norm] |= w.sources

    def _convolution(
        self, name: str, input: Tensor, kernel: Tensor, bias: Tensor | None, stride: Any, padding: Sequence[int],
        dilation: Any, transposed: bool, output_padding: Any, groups: int,
    ) -> None:  # fmt: skip
        """Record an input ``(batch, channels, …)`` that a kernel ``(outputs, channels / groups, …)`` is moved over, or
        one of ``(channels, outputs / groups, …)`` that is transposed."""
        x, w = self.activations.get(input), self.weights.get(kernel)
        for i in w.sources if w else ():
            self.operations[i].add(name)
        numbers = x.numbers[0] if x and x.numbers else None
        channels = None if numbers is None else along_second_axis(numbers)
        if x is None or numbers is None or channels is None or w is None or w.numbers is None:
            self._stop(name, self.activations.among([input, kernel]), self.weights.among([input, kernel]))
            return
        if not transposed and 1 < groups < len(channels):
            self._record_indirect(x, w)
            return
        taps = kernel[0, 0].numel()
        if x.altered or any(padding) or (transposed and taps > 1) or bool((numbers == ZERO).any()):
            self.altered |= x.sources
        if transposed:
            met = channels[:, None]
        else:
            met = channels.reshape(groups, 1, -1).expand(-1, len(kernel) // groups, -1).reshape(kernel.shape[:2])
        for slots in w.numbers:
            flat = slots.flatten(2)
            self._record(x.sources, flat[..., :1] if constant(flat, -1) else flat, met[..., None])
        one_axis = not transposed or groups == 1
        along = [a for a, n in enumerate(w.numbers) if one_axis and not constant(n, int(transposed))]
        for i in w.sources:
            self.outputs[i] = along[0] if len(along) == 1 and self.outputs.get(i, along[0]) == along[0] else None

    def consumers(self, norm: str) -> tuple[Consumer, ...]:
        first, size = self.channels.get(norm, (0, 0))
        found = []
        for i, p in enumerate(self.parameters):
            irregular = False
            for axis, start in enumerate(self.slot[i]):
                here = slice(start, start + p.shape[axis])
                met = self.met[norm][here] - first
                met = torch.where((met >= 0) & (met < size), met, NONE)
                if (met == NONE).all():
                    continue
                if not (irregular := bool(self.irregular[norm][here].any())):
                    shared = {f"norm {other}" for other in self.channels if other != norm and self._consumes(other, i)}
                    also = tuple(sorted(self.also[i] | shared))
                    names = tuple(self.names[i])
                    routed = (norm, i) in self.routed
                    output = self.outputs.get(i, 1 - axis if p.ndim == 2 else None)
                    found.append(Consumer(names[0], tuple(p.shape), axis, met, names, also, routed, output))
                    break
            if irregular:
                self.others[norm].add(f"irregular product with {self.names[i][0]}")
        return tuple(found)

    def first_name(self, parameter: str | None) -> str | None:
        """The first of a parameter's names; what is parametrized keeps its own."""
        return next((names[0] for names in self.names if parameter in names), parameter)

    def readers(self, parameters: Sequence[str | None], norm: str) -> tuple[str, ...]:
        """What else than the norm reads its parameters."""
        own = [i for i, names in enumerate(self.names) if names[0] in parameters]
        return tuple(sorted(set().union(*(self.operations[i] for i in own)) - {f"norm {norm}"}))

    def _consumes(self, norm: str, i: int) -> bool:
        if norm not in self.met or not self.slot[i]:
            return False
        return bool((self.met[norm][self.slot[i][0] :][: sum(self.parameters[i].shape)] != NONE).any())

    def uses(self, scales: set[str | None], biases: set[str | None]) -> dict[str, Use]:
        found = {}
        for i, (p, names) in enumerate(zip(self.parameters, self.names, strict=True)):
            operations, axes = self.operations[i], self.summed[i]
            kind: Kind = "vector"
            if scales & set(names):
                kind = "scale"
            elif biases & set(names):
                kind = "bias"
            elif not operations:
                kind = "unread"
            elif p.ndim > 1 and operations & MATRIX:
                kind = "matrix"
            elif p.ndim > 1 and "convolution" in operations:
                kind = "convolution"
            elif operations & EMBEDDING and p.ndim > 1:
                kind = "embedding"
            axis = next(iter(axes)) if kind == "matrix" and len(axes) == 1 else None
            shape, done = tuple(p.shape), tuple(sorted(operations))
            found[names[0]] = Use(names[0], tuple(names), shape, kind, axis, done, i in self.returned)
        return found
