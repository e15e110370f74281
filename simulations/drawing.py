"""Drawing figures, spread over processes."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path

from scalevec_theory.registry import UnknownName
from simulations.parallel import Call, Raised, run_parallel
from simulations.store import check_writable, write_bytes


def draw_all(
    names: Sequence[str],
    out: Path,
    seed: int,
    jobs: int,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Draw the named figures (all of them if none is named) into ``out``, and return the files, figure by figure.

    Raises
    ------
    UnknownName : no such figure.
    ValueError : a negative seed, jobs below 1.
    Raised : a figure's code raised.
    OSError : ``out`` cannot be written.
    """
    figures = _modules(names)
    if seed < 0:
        raise ValueError(f"seed={seed}: expected >= 0")
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out / "figure.svg")
    modules = list(figures.values())
    calls = [Call(_draw, (module, out, seed), _source(module)) for module in modules]
    files: dict[int, list[Path]] = {}
    report(0, len(calls))
    for i, drawn in run_parallel(calls, jobs):
        if isinstance(drawn, Raised):
            raise drawn
        files[i] = drawn
        report(len(files), len(calls))
    return [file for i in range(len(calls)) for file in files[i]]


def copy_drawn(names: Sequence[str], drawn: Path, out: Path) -> list[str]:
    """Copy the named figures that are in the folder ``drawn`` as SVG and PNG to ``out``, and return the others.

    Raises
    ------
    OSError : ``out`` cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    missing = []
    for name in names:
        files = [drawn / f"{name}.{kind}" for kind in ("svg", "png")]
        if all(file.is_file() for file in files):
            for file in files:
                write_bytes(out / file.name, file.read_bytes())
        else:
            missing.append(name)
    return missing


def describe(names: Sequence[str]) -> dict[str, str]:
    """What is seen in each of the named figures: the first paragraph of its module's docstring, on one line.

    Raises
    ------
    UnknownName : no such figure.
    """
    found = {}
    for name, module in _modules(names).items():
        docstring = ast.get_docstring(ast.parse(Path(_source(module)).read_text(encoding="utf-8"))) or ""
        found[name] = " ".join(docstring.partition("\n\n")[0].split())
    return found


def _modules(names: Sequence[str]) -> dict[str, str]:
    """The modules of the named figures, all for none, by name; raises `UnknownName`."""
    # Figures stand above this package; the command line is the one place that reaches up to them, by name only.
    figures: dict[str, str] = importlib.import_module("figures").available()
    for name in names:
        if name not in figures:
            raise UnknownName("figure", name, figures)
    return {name: figures[name] for name in names or figures}


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    return str(spec.origin) if spec is not None else module


def _draw(module: str, out: Path, seed: int) -> list[Path]:
    files: list[Path] = importlib.import_module(module).draw(out, seed)
    return files
