"""Vectors of LANES doubles and unchecked access to flat arrays, for kernels compiled by numba.

Numba's vectoriser needs long loops and proof that arrays do not overlap.  With a handful of parameters there is
neither, so a kernel says itself which doubles travel together, and LLVM maps them to the registers of the processor.
Vectors add, subtract, multiply and divide with each other and with numbers.  (Kernels that numba has cached on disk do
not notice a change in this file: touch the files that use it.)
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 8
_IR = ir.VectorType(ir.DoubleType(), LANES)


class _VectorType(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"float64x{LANES}")


_vector = _VectorType()


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, _IR)


def _broadcast(builder: Any, value: Any) -> Any:
    """The vector all of whose entries are ``value``; a vector as it is."""
    if value.type == _IR:
        return value
    first = builder.insert_element(ir.Constant(_IR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(_IR, ir.Undefined), zeros)


def _define(operation: Any, instruction: str) -> None:
    """``operation`` between vectors, and between a vector and a number."""
    operands = ((_vector, _vector), (_vector, types.float64), (types.float64, _vector))

    class Template(ConcreteTemplate):
        cases = [signature(_vector, *pair) for pair in operands]  # noqa: RUF012

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y = (_broadcast(builder, a) for a in args)
        return getattr(builder, instruction)(x, y, flags=("contract",))

    infer_global(operation)(Template)
    for pair in operands:
        lower_builtin(operation, *pair)(lower)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


def _pointer(context: Any, builder: Any, array: Any, args: Any, element: Any) -> Any:
    """The address of entry ``args[1]`` of the array ``args[0]`` of type ``array``."""
    data = context.make_array(array)(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), element.as_pointer())


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """``array[index : index + LANES]``, unchecked."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig.args[0], args, _IR), align=8)

    return _vector(array, types.intp), lower


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set ``array[index : index + LANES]``, unchecked."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, sig.args[0], args, _IR), align=8)

    return types.void(array, types.intp, _vector), lower


@intrinsic
def item(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]``, unchecked and never counted from the end."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig.args[0], args, ir.DoubleType()))

    return types.float64(array, types.intp), lower


@intrinsic
def put(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set ``array[index]``, unchecked and never counted from the end."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, sig.args[0], args, ir.DoubleType()))

    return types.void(array, types.intp, types.float64), lower


@intrinsic
def copy(typing: Any, source: Any, start: Any, target: Any, to: Any, count: Any) -> Any:
    """Set ``target[to : to + count]`` to ``source[start : start + count]``, unchecked."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointers = [
            _pointer(context, builder, array, pair, ir.IntType(8))
            for array, pair in ((sig.args[2], args[2:4]), (sig.args[0], args[:2]))
        ]
        cgutils.raw_memcpy(builder, *pointers, args[4], 8)

    return types.void(source, types.intp, target, types.intp, types.intp), lower


@intrinsic
def zeros(typing: Any) -> Any:
    return _vector(), lambda context, builder, sig, args: ir.Constant(_IR, [0.0] * LANES)


@intrinsic
def larger_magnitude(typing: Any, x: Any, y: Any) -> Any:
    """max(|x|, |y|) entry by entry."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name, function = f"llvm.fabs.v{LANES}f64", ir.FunctionType(_IR, [_IR])
        absolute = cgutils.get_or_insert_function(builder.module, function, name)
        a, b = (builder.call(absolute, [value]) for value in args)
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    return _vector(_vector, _vector), lower


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """The sum of the entries, halves first, so that the order is the same on every processor."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, lanes = args[0], LANES
        while lanes > 1:
            lanes //= 2
            undefined = ir.Constant(value.type, ir.Undefined)
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(k, k + lanes))) for k in (0, lanes)]
            value = builder.fadd(*(builder.shuffle_vector(value, undefined, mask) for mask in masks))
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return types.float64(_vector), lower
