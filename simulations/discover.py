"""Conservation laws of a parametrisation in a user's file: what ``scalevec discover FILE.py:NAME`` prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scalevec_theory.laws import find_laws
from scalevec_theory.parametrizations import BUILT_IN, Parametrization
from scalevec_theory.registry import UnknownName, module_in_file


def discover(target: str, degree: int = 2, dims: dict[str, int] | None = None, seed: int = 0) -> str:
    """Find the conservation laws of gradient flow under a parametrisation, one per line, and say whether they are all.

    Parameters
    ----------
    target : ``FILE.py:NAME``, a function of parameter blocks or a ``Parametrization``; or a built-in one's name.
    degree, dims, seed : as in ``find_laws``.

    Raises
    ------
    ValueError : no such file or name, a file that raises, or a parametrisation that ``find_laws`` refuses; one line.
    """
    parametrization = load(target)
    if isinstance(parametrization, Parametrization):
        letters = parametrization.letters
        if (dims or {}).keys() != set(letters):
            given = ", ".join(f"{k}={n}" for k, n in (dims or {}).items()) or "nothing"
            raise ValueError(
                f"dims: {given}; {target} has the axes {', '.join(letters)}: expected a size for each of them"
            )
    try:
        laws = find_laws(parametrization, degree=degree, dims=dims, seed=seed)
    except ArithmeticError as error:
        raise ValueError(f"{target}, seed={seed}: {error}") from error
    sizes = ", ".join(f"{k}={n}" for k, n in (dims or {}).items())
    return f"{target}{f' ({sizes})' if sizes else ''}\n{laws}"


def load(target: str) -> Any:
    """The built-in parametrisation of that name, or the object ``NAME`` of ``FILE.py:NAME``; the file is run."""
    if target in BUILT_IN:
        return BUILT_IN[target]
    file, _, name = target.rpartition(":")
    if not file or not name:
        raise ValueError(f"{target!r}: expected FILE.py:NAME or one of {', '.join(BUILT_IN)}")
    path = str(Path(file).resolve())
    imported = [m for n, m in sys.modules.items() if n.startswith("scalevec") and getattr(m, "__file__", "") == path]
    module = imported[0] if imported else module_in_file(file)
    if not hasattr(module, name):
        raise UnknownName(f"parametrisation in {file}", name, (x for x in vars(module) if not x.startswith("_")))
    return getattr(module, name)
