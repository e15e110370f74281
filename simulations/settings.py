"""``--set KEY=VALUE`` of the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Values by key from ``key=value``, the value as JSON or else as text.

    Raises
    ------
    ValueError : not of this form.
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ValueError(f"set={text!r}: expected key=value")
        try:
            found[key.strip()] = json.loads(value)
        except ValueError:
            found[key.strip()] = value
    return found
