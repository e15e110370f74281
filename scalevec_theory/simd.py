"""Vectors of 64 bytes and unchecked access to flat arrays, for kernels compiled by numba.

Numba's vectoriser needs long loops and proof that arrays do not overlap.  With a handful of parameters there is
neither, so a kernel says itself which numbers travel together, and LLVM maps them to the registers of the processor.
A vector holds 8 float64 or uint64, or 16 float32 or int32, by the type of the array it is loaded from.  Vectors add,
subtract, multiply and divide, integer ones also shift and combine bit by bit, with each other and with numbers, which
take the vector's type.  (Kernels that numba has cached on disk do not notice a change in this file: touch the files
that use it.)
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

BITS = 512
LANES = BITS // 64
"""Entries of a vector of float64."""

_ELEMENTS = {
    types.float64: ir.DoubleType(),
    types.float32: ir.FloatType(),
    types.uint64: ir.IntType(64),
    types.int32: ir.IntType(32),
}
_FLOATS, _INTEGERS = (types.float64, types.float32), (types.uint64, types.int32)


class _VectorType(types.Type):
    def __init__(self, element: Any) -> None:
        self.element = element
        self.lanes = BITS // element.bitwidth
        self.ir = ir.VectorType(_ELEMENTS[element], self.lanes)
        super().__init__(name=f"{element}x{self.lanes}")


_VECTORS = {element: _VectorType(element) for element in _ELEMENTS}


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Any) -> None:
        super().__init__(manager, vector, vector.ir)


def _broadcast(builder: Any, vector: Any, value: Any) -> Any:
    """The vector all of whose entries are ``value``; a vector as it is."""
    if value.type == vector.ir:
        return value
    first = builder.insert_element(ir.Constant(vector.ir, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.lanes), [0] * vector.lanes)
    return builder.shuffle_vector(first, ir.Constant(vector.ir, ir.Undefined), zeros)


def _define(operation: Any, instructions: dict[Any, str]) -> None:
    """``operation`` between vectors, and between a vector and a number, by the instruction for each element type."""
    operands = {
        e: ((_VECTORS[e], _VECTORS[e]), (_VECTORS[e], e), (e, _VECTORS[e])) for e in _ELEMENTS if e in instructions
    }

    class Template(ConcreteTemplate):
        cases = [signature(_VECTORS[e], *pair) for e, pairs in operands.items() for pair in pairs]  # noqa: RUF012

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = sig.return_type
        x, y = (_broadcast(builder, vector, a) for a in args)
        flags = ("contract",) if vector.element in _FLOATS else ()
        return getattr(builder, instructions[vector.element])(x, y, flags=flags)

    infer_global(operation)(Template)
    for pairs in operands.values():
        for pair in pairs:
            lower_builtin(operation, *pair)(lower)


for _operation, _float, _integer in (
    (operator.add, "fadd", "add"),
    (operator.sub, "fsub", "sub"),
    (operator.mul, "fmul", "mul"),
):
    _define(_operation, dict.fromkeys(_FLOATS, _float) | dict.fromkeys(_INTEGERS, _integer))
_define(operator.truediv, dict.fromkeys(_FLOATS, "fdiv"))
_define(operator.and_, dict.fromkeys(_INTEGERS, "and_"))
_define(operator.or_, dict.fromkeys(_INTEGERS, "or_"))
_define(operator.xor, dict.fromkeys(_INTEGERS, "xor"))
_define(operator.lshift, dict.fromkeys(_INTEGERS, "shl"))
_define(operator.rshift, {types.uint64: "lshr", types.int32: "ashr"})


def _pointer(context: Any, builder: Any, array: Any, args: Any, element: Any) -> Any:
    """The address of entry ``args[1]`` of the array ``args[0]`` of type ``array``."""
    data = context.make_array(array)(context, builder, args[0]).data
    return builder.bitcast(builder.gep(data, [args[1]]), element.as_pointer())


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """The vector that starts at ``array[index]``, unchecked."""
    vector = _VECTORS[array.dtype]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig.args[0], args, vector.ir), align=array.dtype.bitwidth // 8)

    return vector(array, types.intp), lower


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set the entries from ``array[index]`` on to a vector of the array's type, unchecked."""
    vector = _VECTORS[array.dtype]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, sig.args[0], args, vector.ir)
        builder.store(args[2], pointer, align=array.dtype.bitwidth // 8)

    return types.void(array, types.intp, vector), lower


@intrinsic
def item(typing: Any, array: Any, index: Any) -> Any:
    """``array[index]``, unchecked and never counted from the end."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, sig.args[0], args, _ELEMENTS[array.dtype]))

    return array.dtype(array, types.intp), lower


@intrinsic
def put(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set ``array[index]``, unchecked and never counted from the end."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, sig.args[0], args, _ELEMENTS[array.dtype]))

    return types.void(array, types.intp, array.dtype), lower


@intrinsic
def copy(typing: Any, source: Any, start: Any, target: Any, to: Any, count: Any) -> Any:
    """Set ``target[to : to + count]`` to ``source[start : start + count]``, unchecked, arrays of one type."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointers = [
            _pointer(context, builder, array, pair, ir.IntType(8))
            for array, pair in ((sig.args[2], args[2:4]), (sig.args[0], args[:2]))
        ]
        cgutils.raw_memcpy(builder, *pointers, args[4], source.dtype.bitwidth // 8)

    return types.void(source, types.intp, target, types.intp, types.intp), lower


@intrinsic
def broadcast(typing: Any, value: Any) -> Any:
    """The vector all of whose entries are ``value``."""
    vector = _VECTORS[value]
    return vector(value), lambda context, builder, sig, args: _broadcast(builder, vector, args[0])


@intrinsic
def zeros(typing: Any) -> Any:
    """A vector of float64 zeros."""
    vector = _VECTORS[types.float64]
    return vector(), lambda context, builder, sig, args: ir.Constant(vector.ir, [0.0] * vector.lanes)


def _call(builder: Any, name: str, vector: Any, arguments: list[Any]) -> Any:
    """LLVM's own function ``name`` of vectors of one float type."""
    function = ir.FunctionType(vector.ir, [vector.ir] * len(arguments))
    full = f"llvm.{name}.v{vector.lanes}f{vector.element.bitwidth}"
    return builder.call(cgutils.get_or_insert_function(builder.module, function, full), arguments)


@intrinsic
def sqrt(typing: Any, x: Any) -> Any:
    return x(x), lambda context, builder, sig, args: _call(builder, "sqrt", x, [args[0]])


@intrinsic
def larger_magnitude(typing: Any, x: Any, y: Any) -> Any:
    """max(|x|, |y|) entry by entry."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (_call(builder, "fabs", x, [value]) for value in args)
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)

    return x(x, x), lower


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """The sum of the entries, halves first, so that the order is the same on every processor."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, lanes = args[0], x.lanes
        while lanes > 1:
            lanes //= 2
            undefined = ir.Constant(value.type, ir.Undefined)
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(k, k + lanes))) for k in (0, lanes)]
            value = builder.fadd(*(builder.shuffle_vector(value, undefined, mask) for mask in masks))
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return x.element(x), lower


@intrinsic
def to_float(typing: Any, x: Any) -> Any:
    """int32 entries as float32, rounded to nearest."""
    vector = _VECTORS[types.float32]
    return vector(x), lambda context, builder, sig, args: builder.sitofp(args[0], vector.ir)


@intrinsic
def bits(typing: Any, x: Any) -> Any:
    """The integers, of the same size, with the bits of the float entries."""
    vector = _VECTORS[types.uint64 if x.element is types.float64 else types.int32]
    return vector(x), lambda context, builder, sig, args: builder.bitcast(args[0], vector.ir)


@intrinsic
def from_bits(typing: Any, x: Any) -> Any:
    """The floats, of the same size, with the bits of the integer entries."""
    vector = _VECTORS[types.float64 if x.element is types.uint64 else types.float32]
    return vector(x), lambda context, builder, sig, args: builder.bitcast(args[0], vector.ir)


@intrinsic
def shift_right(typing: Any, x: Any, count: Any) -> Any:
    """int32 entries shifted to the right with zeros coming in."""
    return x(x, types.int32), lambda context, builder, sig, args: builder.lshr(args[0], _broadcast(builder, x, args[1]))
