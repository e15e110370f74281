"""A parametrisation evaluated on exact symbols: Python function in, exact expressions of its parameters out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy

from scalevec_theory.parametrizations import Parametrization


class ExactArray(np.ndarray):
    """An object array on which ``np.sqrt``, ``np.exp`` and the like build sympy expressions."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, ExactArray) else x for x in inputs]
        if "out" in kwargs:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, ExactArray) else x for x in kwargs["out"])
        symbolic = getattr(sympy, ufunc.__name__, None) if method == "__call__" and ufunc.nin == 1 else None
        if symbolic is not None:
            result = np.vectorize(symbolic, otypes=[object])(plain[0])
        else:
            result = getattr(ufunc, method)(*plain, **kwargs)
        return np.asarray(result, dtype=object).view(ExactArray)

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(super().__getitem__(index), dtype=object).view(ExactArray)


def _shape(name: str, block: str, default: Any) -> tuple[int, ...]:
    shape = (default,) if isinstance(default, int) and not isinstance(default, bool) else default
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 1 for n in shape):
        shown = "no default" if default is inspect.Parameter.empty else f"default {default!r}"
        raise ValueError(f"{name}: block {block} has {shown}; expected its shape, like {block}=(2, 3)")
    return shape


def symbols_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, ExactArray]:
    """One positive symbol for each entry of each block, named like ``W[0,1]`` (a scalar block: ``s``).

    Positive, so that √(x²) is x; formulas that follow are algebraic identities and do not depend on it.
    """
    blocks = {}
    for block, shape in shapes.items():
        array = np.empty(shape, dtype=object)
        for index in np.ndindex(shape):
            label = f"{block}[{','.join(map(str, index))}]" if index else block
            array[index] = sympy.Symbol(label, positive=True)
        blocks[block] = array.view(ExactArray)
    return blocks


def evaluate(
    parametrization: Parametrization | Callable[..., Any], dims: Mapping[str, int] | None
) -> tuple[list[sympy.Symbol], list[sympy.Expr]]:
    """The parameters of a parametrisation and the entries of θ as exact expressions of them.

    Raises
    ------
    ValueError : see ``gradient_fields.gradient_fields``.
    """
    if isinstance(parametrization, Parametrization):
        batch: tuple[int, ...] = (1,)
        name = parametrization.name
        shapes = parametrization.shapes(**(dims or {}))
        function: Callable[..., Any] = parametrization.forward
    elif not callable(parametrization):
        raise ValueError(f"{parametrization!r}: expected a Parametrization or a function of parameter blocks")
    elif dims:
        raise ValueError(f"dims={dict(dims)}: a function has its shapes as default values and takes no dims")
    else:
        batch = ()
        name = getattr(parametrization, "__name__", repr(parametrization))
        shapes = {
            p.name: _shape(name, p.name, p.default) for p in inspect.signature(parametrization).parameters.values()
        }
        function = parametrization
        if not shapes:
            raise ValueError(f"{name} has no arguments; expected parameter blocks with their shapes as default values")
    blocks = symbols_of(shapes)
    symbols = [x for a in blocks.values() for x in a.ravel().tolist()]  # before a function that works in place
    try:
        theta = function(**{b: a.reshape(batch + a.shape) for b, a in blocks.items()})
    except Exception as error:
        message = f"{name} raised {type(error).__name__}: {' '.join(str(error).split())}"
        if ExactArray.__name__ in message:
            message += "; it is evaluated on numpy arrays of exact symbols: expected numpy's functions, not torch's"
        raise ValueError(message) from error
    if not isinstance(theta, np.ndarray | sympy.Expr):
        raise ValueError(f"{name} returned {type(theta).__name__}; expected an array of expressions of its blocks")
    entries = np.asarray(theta, dtype=object).ravel().tolist()
    return symbols, [exact(x) for x in entries]


def invariants_of(
    invariants: Callable[..., Mapping[str, Any]], shapes: Mapping[str, tuple[int, ...]]
) -> list[sympy.Expr]:
    """The entries of named conserved quantities as exact expressions of the parameters."""
    values = invariants(**{b: a.reshape((1, *a.shape)) for b, a in symbols_of(shapes).items()})
    return [exact(x) for q in values.values() for x in np.asarray(q, dtype=object).ravel().tolist()]


def exact(entry: Any) -> sympy.Expr:
    """``entry`` with every float replaced by the simplest rational that rounds to it."""
    try:
        expression = sympy.sympify(entry, strict=True)
    except sympy.SympifyError:
        expression = None
    if not isinstance(expression, sympy.Expr):
        raise ValueError(f"{entry!r}: expected an algebraic expression of the parameters")
    return expression.xreplace({x: _rational(x) for x in expression.atoms(sympy.Float)})


def _rational(x: sympy.Float) -> sympy.Rational:
    simplest = sympy.Rational(float(x)).limit_denominator(10**6)
    if float(simplest) != float(x):
        raise ValueError(f"{x}: not the nearest float to a rational with denominator up to 10^6; the count is over Q")
    return simplest
