"""Models in float64, where exactness can be decided: how far two of them are from computing the same function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from simulations.models.running import Example, copied, evaluation_mode, run, tensors_in

EXACT = 1e-12
"""Most that outputs in float64 may change, relative to the largest, where the function is to stay the same."""


class Float64(TorchFunctionMode):
    """Grants float64 wherever the code under it asks for float32 (norms and softmax upcast to float32 by name).

    Products of experts in groups, which torch does not have in float64, are done group by group.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            func = Tensor.double

        def promote(x: Any) -> Any:
            return torch.float64 if x is torch.float32 else x

        args, kwargs = tuple(map(promote, args)), {k: promote(x) for k, x in (kwargs or {}).items()}
        if func is torch.full and len(args) == 2 and isinstance(args[1], float):  # the default would be float32
            kwargs.setdefault("dtype", torch.float64)
        if getattr(func, "__name__", "") in ("grouped_mm", "_grouped_mm") and args[0].dtype == torch.float64:
            return _grouped_product(*args, **kwargs)
        return func(*args, **kwargs)


def _grouped_product(rows: Tensor, matrices: Tensor, *, offs: Tensor, **others: None) -> Tensor:
    """Group e, the rows up to ``offs[e]``, times matrix e; rows after the last group give 0."""
    ends = offs.tolist()
    groups = [rows[start:end] @ m for start, end, m in zip([0, *ends], ends, matrices, strict=False)]
    return torch.cat([*groups, rows.new_zeros(len(rows) - ends[-1], matrices.shape[-1])])


def float64_copy(model: nn.Module) -> nn.Module:
    """A copy of the model in float64 and in evaluation mode; eight bytes for each of its parameters."""
    return copied(model).double().eval()


def returned(model: nn.Module, example: Example) -> list[Tensor]:
    """The tensors of floats that the model returns; a model of float64 computes in it throughout.

    Raises
    ------
    ValueError : the model does not run on ``example``, or returns no tensor of floats.
    """
    if all(p.dtype == torch.float64 for p in model.parameters()):
        example = tree_map(lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, example)
        with Float64():
            result = run(model, example)
    else:
        result = run(model, example)
    found = [t for t in tensors_in(result) if t.is_floating_point() and t.numel()]
    if not found:
        raise ValueError(f"example: {type(model).__name__} returns no tensor of floats on it; nothing can be compared")
    return found


def outputs(model: nn.Module, example: Example) -> list[Tensor]:
    """`returned` in evaluation mode, without gradients."""
    with torch.no_grad(), evaluation_mode(model):
        return returned(model, example)


def relative_change(before: list[Tensor], after: list[Tensor]) -> float:
    """Largest difference of an entry, relative to the largest of its tensor; infinite where there is no comparing."""
    worst = 0.0
    for one, other in zip(before, after, strict=True):
        one, other = one.double(), other.double()
        change = torch.where(one == other, 0.0, (other - one).abs()).max()
        size = one.abs()[one.isfinite()].max() if bool(one.isfinite().any()) else torch.zeros(())
        ratio = float(change / size) if size > 0 else float(change)
        worst = max(worst, ratio if math.isfinite(ratio) else math.inf)
    return worst


def change_in_float64(model: nn.Module, example: Example, transform: Callable[[nn.Module], object]) -> float:
    """`relative_change` of the outputs when ``transform`` is applied, in place, to a model in float64."""
    before = outputs(model, example)
    transform(model)
    return relative_change(before, outputs(model, example))
