"""Which parameters consume which norm, read off the data flow of one forward pass; no name or class is consulted.

Every entry of a norm's output carries the number of its channel, every entry of a parameter its own number; views,
gathers, splits and concatenations are replayed on these numbers.  Where the two meet in a matrix product, each
parameter entry learns which channel it multiplies, whatever the layout (fused, transposed, stacked experts).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from simulations.models.probe import find_norms

Role = Literal["input", "output", "mixed", "none"]

NONE = -1
COPY = {"_to_copy", "clone", "detach", "alias", "lift_fresh"}
REARRANGE = {
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "repeat", "squeeze", "unsqueeze", "flip",
    "slice", "select", "split", "split_with_sizes", "unbind", "index", "index_select", "gather", "cat", "stack", "roll",
    "unfold",
}  # fmt: skip
ELEMENTWISE = {"mul", "div", "neg", "add", "sub"}
SHAPE_ONLY = {"zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_ones", "new_empty", "new_full"}
# Where the two factors of a matrix product stand among an operation's arguments.
PRODUCT = {
    "mm": (0, 1),
    "bmm": (0, 1),
    "addmm": (1, 2),
    "baddbmm": (1, 2),
    "_grouped_mm": (0, 1),
    "grouped_mm_fallback": (0, 1),
}


@dataclass(frozen=True)
class Consumer:
    """A parameter that multiplies the norm's output in a matrix product.

    ``channels[i]`` is the norm's channel that index i along ``axis`` multiplies (−1: none).  ``names`` are all the
    parameter's names, ``parameter`` the first; ``also_used_by`` are the operations that use it for something else.
    """

    parameter: str
    shape: tuple[int, ...]
    axis: int
    channels: Tensor
    names: tuple[str, ...]
    also_used_by: tuple[str, ...]


@dataclass(frozen=True)
class Norm:
    """A norm module: its scale vector, of effective value ``offset + w``, and what reads its output.

    ``consumers`` are the parameters it is multiplied with, ``others`` the names of all other operations that read it.
    """

    module: str
    class_name: str
    scale: str | None
    bias: str | None
    offset: float
    consumers: tuple[Consumer, ...]
    others: tuple[str, ...]

    @property
    def role(self) -> Role:
        """``input``: only parameter products read the output; ``output``: none does; ``none``: there is no scale."""
        if self.scale is None:
            return "none"
        if not self.consumers:
            return "output"
        return "mixed" if self.others else "input"

    @property
    def absorbable(self) -> bool:
        """Whether the scale can be moved into its consumers, in place, without changing the model's function."""
        return self.role == "input" and not any(c.also_used_by for c in self.consumers)


def trace_norms(model: nn.Module, forward: Callable[[], object]) -> list[Norm]:
    """Every norm of ``model`` that ``forward()`` runs, with its role and consumers, in order of first use.

    ``forward`` runs the model once and returns what it returned, on inputs long enough that every expert of a mixture
    gets a token: a parameter that the pass does not read (`untouched`) cannot be seen to consume anything.

    Raises
    ------
    ValueError : ``model`` is in training mode (dropout hides linearity), or a module that normalises has a parameter
        that is neither a scale nor a bias of the last axes of its output.
    """
    if model.training:
        raise ValueError("model.training=True: expected a model in evaluation mode")
    with torch.no_grad():
        norms = find_norms(model, forward)
        flow = _Flow(model)
        hooks = []
        for norm in norms:
            hooks.append(norm.module.register_forward_pre_hook(partial(flow.enter, norm.name)))
            hooks.append(norm.module.register_forward_hook(partial(flow.leave, norm.name)))
        try:
            with flow:
                flow.finish(forward())
        finally:
            for hook in hooks:
                hook.remove()
    found = []
    for norm in norms:
        consumers = flow.consumers(norm.name)
        others = tuple(sorted(flow.others[norm.name]))
        kind = type(norm.module).__name__
        found.append(Norm(norm.name, kind, norm.scale, norm.bias, norm.offset, consumers, others))
    return found


def untouched(model: nn.Module, forward: Callable[[], object]) -> list[str]:
    """Names of the parameters that ``forward()`` never reads: a trace of that pass says nothing about them."""
    with torch.no_grad(), _Flow(model) as flow:
        forward()
    return [names[0] for i, names in enumerate(flow.names) if i not in flow.read]


@dataclass(frozen=True)
class _Marks:
    """Numbers of a tensor's entries, in the tensor's shape (None: channels were mixed), and the sources they are of."""

    numbers: Tensor | None
    sources: frozenset[Any]


class _Table:
    """Marks of tensors by identity; it keeps the tensors, so that no identity is used twice."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[Tensor, _Marks]] = {}

    def get(self, tensor: object) -> _Marks | None:
        entry = self._marks.get(id(tensor))
        return entry[1] if entry else None

    def set(self, tensor: Tensor, marks: _Marks) -> None:
        self._marks[id(tensor)] = (tensor, marks)

    def among(self, tensors: Sequence[object]) -> list[_Marks]:
        return [marks for t in tensors if (marks := self.get(t)) is not None]


class _Flow(TorchDispatchMode):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        names: dict[Tensor, list[str]] = defaultdict(list)
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names[parameter].append(name)
        self.names = list(names.values())
        self.parameters = list(names)
        self.activations, self.weights = _Table(), _Table()
        self.start: list[int] = []
        total = 0
        for i, p in enumerate(self.parameters):
            self.start.append(total)
            self.weights.set(p, _Marks(torch.arange(total, total + p.numel()).reshape(p.shape), frozenset([i])))
            total += p.numel()
        self.met = torch.full((total,), NONE)
        self.read: set[int] = set()
        self.channels: dict[str, tuple[int, int]] = {}
        self.others: dict[str, set[str]] = defaultdict(set)
        self.also: dict[int, set[str]] = defaultdict(set)
        self.inside: str | None = None

    def enter(self, norm: str, module: nn.Module, args: Any) -> None:
        self.inside = norm

    def leave(self, norm: str, module: nn.Module, args: Any, out: Tensor) -> None:
        self.inside = None
        shape = next((p.shape for p in module.parameters()), out.shape[-1:])
        first = self.channels.setdefault(norm, (sum(n for _, n in self.channels.values()), shape.numel()))[0]
        numbers = torch.arange(first, first + shape.numel()).reshape(shape).expand(out.shape)
        self.activations.set(out, _Marks(numbers, frozenset([norm])))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.split("::")[-1].rstrip("_")
        if name in SHAPE_ONLY:
            return out
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        active, weights = self.activations.among(tensors), self.weights.among(tensors)
        self.read.update(*(w.sources for w in weights))
        if self.inside is not None:
            self._stop(f"norm {self.inside}", active, [])
        elif name in PRODUCT:
            left, right = (args[i] for i in PRODUCT[name])
            self._product(name, left, right)
            rest = [t for t in tensors if t is not left and t is not right]
            self._stop(name, self.activations.among(rest), self.weights.among(rest))
        else:
            if active and not self._follow(self.activations, func, name, args, kwargs, out):
                self._stop(name, active, [])
            if weights and not self._follow(self.weights, func, name, args, kwargs, out):
                self._stop(name, [], weights)
        return out

    def finish(self, returned: object) -> None:
        self._stop("returned", self.activations.among(tree_leaves(returned)), [])

    def _stop(self, name: str, active: Sequence[_Marks], weights: Sequence[_Marks]) -> None:
        for marks in active:
            for norm in marks.sources:
                self.others[norm].add(name)
        for marks in weights:
            for i in marks.sources:
                self.also[i].add(name)

    def _follow(self, table: _Table, func: Any, name: str, args: Any, kwargs: Any, out: Any) -> bool:
        """Mark the results of an operation that passes each entry on unmixed; False if it is no such operation."""
        if name in COPY:
            table.set(out, table.among(args)[0])
            return True
        if name in REARRANGE:
            marked = table.among(tree_leaves((args, kwargs)))
            sources = frozenset().union(*(m.sources for m in marked))
            if any(m.numbers is None for m in marked):
                for t in tree_leaves(out):
                    table.set(t, _Marks(None, sources))
                return True

            def numbers(t: Any) -> Any:
                if (marks := table.get(t)) is not None:
                    return marks.numbers
                return torch.full(t.shape, NONE) if isinstance(t, Tensor) and t.is_floating_point() else t

            moved = func(*tree_map(numbers, args), **tree_map(numbers, kwargs))
            for t, n in zip(tree_leaves(out), tree_leaves(moved), strict=True):
                table.set(t, _Marks(n, sources))
            return True
        if name in ELEMENTWISE:
            marks = self._elementwise(table, name, args, out)
            if marks is not None:
                table.set(out, marks)
            return marks is not None
        return False

    def _elementwise(self, table: _Table, name: str, args: Any, out: Tensor) -> _Marks | None:
        """Products with, and quotients by, anything unmarked keep the marks; sums keep them only among equals."""
        marked = table.among(args)
        numbers = [None if m.numbers is None else m.numbers.expand(out.shape) for m in marked]
        if name in ("mul", "div", "neg") and len(marked) == 1 and (name != "div" or table.get(args[0])):
            return _Marks(numbers[0], marked[0].sources)
        if name in ("add", "sub") and len(marked) == 2 and marked[0].sources == marked[1].sources:
            first, second = numbers
            same = first is not None and second is not None and torch.equal(first, second)
            return _Marks(first if same else None, marked[0].sources)
        return None

    def _product(self, name: str, left: Tensor, right: Tensor) -> None:
        if (x := self.activations.get(left)) and (w := self.weights.get(right)):
            met = self._meet(x.numbers, w.numbers)
        elif (x := self.activations.get(right)) and (w := self.weights.get(left)):
            met = self._meet(*(n if n is None else n.transpose(-1, -2) for n in (x.numbers, w.numbers)))
        else:
            self._stop(name, self.activations.among([left, right]), self.weights.among([left, right]))
            return
        if not met:
            self._stop(name, [x], [w])

    def _meet(self, x: Tensor | None, w: Tensor | None) -> bool:
        """Record x @ w, ``(..., n, k)`` by ``(..., k, m)``; whether each parameter entry has met one channel only."""
        if x is None or w is None or not torch.equal(x, x[..., :1, :].expand(x.shape)):
            return False
        entry = w >= 0
        numbers, channel = w[entry], x[..., 0, :, None].expand(w.shape)[entry]
        known = self.met[numbers]
        self.met[numbers] = channel
        return bool(((known == NONE) | (known == channel)).all()) and torch.equal(self.met[numbers], channel)

    def consumers(self, norm: str) -> tuple[Consumer, ...]:
        first, size = self.channels[norm]
        found = []
        for i, p in enumerate(self.parameters):
            met = self.met[self.start[i] : self.start[i] + p.numel()].reshape(p.shape) - first
            met = torch.where((met >= 0) & (met < size), met, NONE)
            if (met == NONE).all():
                continue
            for axis in range(p.ndim):
                channels = met.movedim(axis, 0).reshape(p.shape[axis], -1).amax(-1)
                along = channels.reshape([-1 if a == axis else 1 for a in range(p.ndim)])
                if bool(((met == NONE) | (met == along)).all()):
                    names, also = tuple(self.names[i]), tuple(sorted(self.also[i]))
                    found.append(Consumer(names[0], tuple(p.shape), axis, channels, names, also))
                    break
            else:
                self.others[norm].add(f"irregular product with {self.names[i][0]}")
        return tuple(found)
