"""A vector of eight doubles for compiled kernels, so that their speed does not hang on a compiler's guess.

Numba's loop vectoriser needs long loops and proof that arrays do not overlap; inner loops over a handful of
parameters have neither.  Here a kernel says itself which eight numbers travel together: LLVM maps them to one, two or
four registers of whatever processor it runs on.  `load`, `store` and `item` take flat indices of contiguous arrays and
check no bounds.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable  # noqa: F401
from numba.core.typing.templates import infer_global

LANES = 8
_IR = ir.VectorType(ir.DoubleType(), LANES)


class VectorType(types.Type):
    """Numba's type of a vector of LANES doubles."""

    def __init__(self) -> None:
        super().__init__(name=f"float64x{LANES}")


vector = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, _IR)


def _spread(builder: Any, value: Any) -> Any:
    """The vector all of whose entries are ``value``; a vector as it is."""
    if value.type == _IR:
        return value
    first = builder.insert_element(ir.Constant(_IR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(_IR, ir.Undefined), zeros)


_OPERANDS = ((vector, vector), (vector, types.float64), (types.float64, vector))


def _define(operation: Any, instruction: str) -> None:
    class Template(ConcreteTemplate):
        cases = [signature(vector, *operands) for operands in _OPERANDS]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y = (_spread(builder, a) for a in args)
        return getattr(builder, instruction)(x, y, flags=("contract",))

    infer_global(operation)(Template)
    for operands in _OPERANDS:
        lower_builtin(operation, *operands)(lower)


for _operation, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_operation, _instruction)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, element: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), element.as_pointer())


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """``array[index : index + LANES]``."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig.args[0], *args, _IR), align=8)

    return vector(array, types.intp), lower


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set ``array[index : index + LANES]``."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, sig.args[0], *args[:2], _IR), align=8)

    return types.void(array, types.intp, vector), lower


@intrinsic
def item(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]``, never counted from the end."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig.args[0], *args, ir.DoubleType()))

    return types.float64(array, types.intp), lower


@intrinsic
def spread(typing: Any, value: Any) -> Any:
    """The vector all of whose entries are ``value``."""
    return vector(types.float64), lambda context, builder, sig, args: _spread(builder, args[0])


@intrinsic
def larger_magnitude(typing: Any, x: Any, y: Any) -> Any:
    """max(|x|, |y|) entry by entry."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        absolute = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_IR, [_IR]), f"llvm.fabs.v{LANES}f64")
        a, b = (builder.call(absolute, [v]) for v in args)
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    return vector(vector, vector), lower


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """The sum of the entries, halves added first."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, lanes = args[0], LANES
        while lanes > 1:
            lanes //= 2
            halves = [
                builder.shuffle_vector(
                    value,
                    ir.Constant(value.type, ir.Undefined),
                    ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(k, k + lanes))),
                )
                for k in (0, lanes)
            ]
            value = builder.fadd(*halves)
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return types.float64(vector), lower
