"""The reference of the Python packages, from their docstrings."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import pdoc
import pdoc.render

MODULES = (
    "scalevec_theory",
    "simulations",
    *("!scalevec_theory.theorems", "!simulations.claims"),  # claims have pages of their own
    *("!simulations.cli", "!simulations.lm.commands"),  # and commands have --help
)


def write_api(out: Path, modules: Sequence[str] = MODULES) -> Path:
    """Write one page for each module, "!" before those left out, into ``out``, and return the first.

    Raises
    ------
    OSError : ``out`` cannot be written.
    """
    templates = Path(__file__).parent / "templates" / "api"
    pdoc.render.configure(docformat="numpy", show_source=False, template_directory=templates)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Error parsing type annotation")  # of imports for type checkers only
        pdoc.pdoc(*modules, output_directory=out)
    return out / "index.html"
