"""What is known of a model's parameters and norms once its data flow has been traced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Role = Literal["input", "output", "mixed", "none"]
Kind = Literal["matrix", "convolution", "embedding", "scale", "bias", "vector", "unread"]


def template(name: str) -> str:
    """A parameter's name with every number in it, as of a layer, replaced by a star."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.)", "*", name)


@dataclass(frozen=True)
class Consumer:
    """A parameter that multiplies the norm's output in a matrix product or a convolution.

    ``channels[i]`` is the norm's channel that index i along ``axis`` multiplies (−1: none).  ``names`` are all the
    parameter's names, ``parameter`` the first; ``also_used_by`` are the operations that use it for something else, and
    the other norms that it consumes.  ``routed``: it multiplies a choice of the output's rows, as an expert does.
    ``output`` is the axis of the product's outputs (of a convolution by channel the same axis), None if it is no one
    axis, as in a stack of experts.
    """

    parameter: str
    shape: tuple[int, ...]
    axis: int
    channels: Tensor
    names: tuple[str, ...]
    also_used_by: tuple[str, ...]
    routed: bool = False
    output: int | None = None


@dataclass(frozen=True)
class Norm:
    """A norm: its scale vector, of effective value ``offset + w``, and what reads its output.

    ``module`` is the first of ``modules``, which share scale and bias (as blocks do that a model runs several times).
    ``consumers`` are the parameters it is multiplied with, ``others`` the names of all other operations that read it;
    ``blended``: some of these read sums of channels with one another, as a rotary embedding makes them; ``altered``:
    some consumer multiplies not the output itself but the output times something, or shifted with zeros put in, so that
    the norm's bias adds no constant there; ``shared``: what else reads scale or bias, the other norms among it;
    ``unclear``: why no effective scale is known, where the module's parameters act otherwise; ``indirect``: parameters
    that multiply the output along no one axis of theirs, by groups of channels or made into another matrix first.
    """

    module: str
    class_name: str
    scale: str | None
    bias: str | None
    offset: float
    consumers: tuple[Consumer, ...]
    others: tuple[str, ...]
    blended: bool = False
    altered: bool = False
    modules: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    unclear: str = ""
    indirect: tuple[str, ...] = ()

    @property
    def role(self) -> Role:
        """``input``: only parameter products read the output; ``output``: none does; ``none``: there is no scale."""
        if self.scale is None:
            return "none"
        if not (self.consumers or self.indirect):
            return "output"
        return "mixed" if self.others else "input"

    @property
    def absorbable(self) -> bool:
        """Whether the scale can be moved into its consumers, in place, without changing the model's function."""
        free = not (self.shared or self.unclear or self.indirect or any(c.also_used_by for c in self.consumers))
        return self.role == "input" and free


@dataclass(frozen=True)
class Use:
    """What one parameter is used for.

    Attributes
    ----------
    parameter, names : the first of its names, and all of them.
    kind : ``matrix`` (of two or more axes, in a matrix product), ``convolution``, ``embedding`` (rows looked up by what
        the model is given, and not also a matrix), ``scale`` or ``bias`` (of a norm), ``unread`` (the pass did not read
        it) or ``vector`` (everything else, used entry by entry, of whatever shape: biases, decay rates, gates, sinks,
        multipliers, and tables of positions, whether they are added or looked up).
    input_axis : of a matrix, the axis that the product sums over; None for the others, and where it is not one axis.
    operations : the operations that read it.
    returned : whether the model returns (or makes its loss of) the parameter's product: the output head.
    """

    parameter: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    kind: Kind
    input_axis: int | None
    operations: tuple[str, ...]
    returned: bool


@dataclass(frozen=True)
class Trace:
    """The norms of a model in order of first use, and the use of every parameter by its first name."""

    norms: tuple[Norm, ...]
    uses: Mapping[str, Use]

    @property
    def unread(self) -> list[str]:
        """Parameters that the pass did not read: nothing is known of them."""
        return [name for name, use in self.uses.items() if use.kind == "unread"]
