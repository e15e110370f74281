"""``KEY=VALUE`` on the command line: single values, axes of a grid, intervals."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin, get_type_hints


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Values by key from ``key=value``, the value as JSON or else as text.

    Raises
    ------
    ValueError : not of this form.
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, value = _split(text, "set", "key=value")
        if key in found:
            raise ValueError(f"set={text!r}: {key} is given twice")
        found[key] = _value(value)
    return found


def parse_axes(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Lists of values by key from ``key=1e-3,3e-3`` (as `parse_settings` has them) and ``key=0:4``, which is 0 to 3.

    Raises
    ------
    ValueError : not of this form, or no value.
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, values = _split(text, "grid", "key=value,value or key=first:end")
        if bounds := re.fullmatch(r"(-?\d+):(-?\d+)", values):
            found[key] = list(range(int(bounds[1]), int(bounds[2])))
        else:
            whole = _value(f"[{values}]")
            found[key] = whole if isinstance(whole, list) else [_value(v) for v in values.split(",")]
        if not found[key]:
            raise ValueError(f"grid={text!r}: expected at least one value")
    return found


def parse_ranges(texts: Iterable[str]) -> dict[str, tuple[str, float, float]]:
    """Kind, low and high by key, from ``key=log:1e-4:1e-2``.

    Raises
    ------
    ValueError : not of this form.
    """
    found = {}
    for text in texts:
        key, interval = _split(text, "range", form := "key=kind:low:high, kind uniform, log or int")
        try:
            kind, low, high = interval.split(":")
            found[key] = (kind, float(low), float(high))
        except ValueError:
            raise ValueError(f"range={text!r}: expected {form}") from None
    return found


def _split(text: str, option: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise ValueError(f"{option}={text!r}: expected {form}")
    return key.strip(), value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def check_types(settings: Any) -> None:
    """That every field of a dataclass of settings has a value of its type; numbers must be finite.

    Raises
    ------
    ValueError : one has not.
    """
    for name, kind in get_type_hints(type(settings)).items():
        value, origin = getattr(settings, name), get_origin(kind)
        if origin is Literal and (not isinstance(value, str) or value not in get_args(kind)):
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(get_args(kind))}")
        types, words = _KINDS.get(origin or kind, (object, ""))
        if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name}={value!r}: expected {words}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name}={value}: expected a finite number")


_KINDS: dict[Any, tuple[Any, str]] = {
    int: (int, "an integer"),
    float: ((int, float), "a number"),
    str: (str, "a word"),
    bool: (bool, "true or false"),
    tuple: (tuple, "a list"),
}
