"""Numbers that tell, for every entry of a tensor, which entry of a parameter or channel of a norm it is.

Views, gathers, splits and concatenations are replayed on these numbers.  The indices along one axis are one broadcast
row of numbers, so that models of a billion parameters can be traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

NONE, ZERO = -1, -2  # numbers of entries that are of no source, and of zeros put in between
COPY = {"_to_copy", "clone", "detach", "alias", "lift_fresh"}
RESHAPE = {"view", "_unsafe_view", "reshape"}
REARRANGE = RESHAPE | {
    "t", "transpose", "permute", "expand", "repeat", "squeeze", "unsqueeze", "flip", "slice", "select", "split",
    "split_with_sizes", "unbind", "index", "index_select", "gather", "cat", "stack", "roll", "unfold",
    *(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)),
}  # fmt: skip


@dataclass(frozen=True)
class Marks:
    """What a tensor's entries are: ``numbers`` has a tensor of the tensor's shape for each axis of its sources, or is
    None where entries were mixed; ``altered``: they were multiplied by something, or zeros were put in."""

    numbers: tuple[Tensor, ...] | None
    sources: frozenset[Any]
    altered: bool = False


class Table:
    """Marks of tensors by identity; it keeps the tensors, so that no identity is used twice."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[Tensor, Marks]] = {}

    def get(self, tensor: object) -> Marks | None:
        entry = self._marks.get(id(tensor))
        return entry[1] if entry else None

    def set(self, tensor: Tensor, marks: Marks) -> None:
        self._marks[id(tensor)] = (tensor, marks)

    def among(self, tensors: Sequence[object]) -> list[Marks]:
        return [marks for t in tensors if (marks := self.get(t)) is not None]


def along(p: Tensor, axis: int, start: int) -> Tensor:
    """The slots of a parameter's entries along one axis, in its shape but with the memory of one row."""
    row = torch.arange(start, start + p.shape[axis], device=p.device)
    return row.reshape([-1 if a == axis else 1 for a in range(p.ndim)]).expand(p.shape)


def constant(numbers: Tensor, axis: int) -> bool:
    """Whether the entries are the same all along ``axis``."""
    return numbers.stride(axis) == 0 or torch.equal(numbers, numbers.narrow(axis, 0, 1).expand_as(numbers))


def along_second_axis(numbers: Tensor) -> Tensor | None:
    """The number of each index along the second axis, if it is the same along all other axes but for zeros."""
    flat = numbers.movedim(1, 0).flatten(1)
    most = flat.amax(1)
    alike = (flat == most[:, None]) | (flat == ZERO)
    return most.clamp(min=NONE) if bool(alike.all()) else None


def number(table: Table, axis: int, name: str, t: Any) -> Any:
    """In place of a tensor of values the numbers of its entries along one axis of their sources; indices stay."""
    if not isinstance(t, Tensor):
        return t
    if (marks := table.get(t)) is not None and marks.numbers is not None and axis < len(marks.numbers):
        return marks.numbers[axis]
    valued = t.is_floating_point() or t.is_complex() or name == "cat"
    return torch.full((), NONE, device=t.device).expand(t.shape) if valued else t


def of_sum(one: tuple[Tensor, ...] | None, two: tuple[Tensor, ...] | None) -> tuple[Tensor, ...] | None:
    """Numbers of a sum whose summands are numbered alike, where neither is a zero."""
    if one is None or two is None:
        return None
    alike = all(bool(((a == b) | (a == ZERO) | (b == ZERO)).all()) for a, b in zip(one, two, strict=True))
    return tuple(torch.where(a == ZERO, b, a) for a, b in zip(one, two, strict=True)) if alike else None


def rearrange(func: Any, name: str, args: Any, kwargs: Any) -> list[Tensor]:
    if name == "constant_pad_nd":
        return [func(args[0], args[1], ZERO)]
    if "_pad" in name:  # these are there for floats only, in which numbers of slots are exact
        return [func(args[0].double(), *args[1:], **kwargs).to(args[0].dtype)]
    # Numbers are broadcast views, which the operation that only views may refuse.
    return tree_leaves(args[0].reshape(args[1]) if name in RESHAPE else func(*args, **kwargs))
