"""Checks of arguments that count something."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_count(name: str, value: Any, least: int = 1) -> int:
    """The count as Python's integer.

    Raises
    ------
    ValueError : not an integer, or below ``least``.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r}: expected an integer >= {least}")
    return int(value)
