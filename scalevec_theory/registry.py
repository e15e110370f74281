"""Finding claims: every module of an installed claim package, or a file of one's own.

A claim package is named by an entry point in the group ``scalevec.claims``; each of its modules that defines a
module-level `Claim` contributes it.  Adding a claim is adding a file.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from scalevec_theory.claim import Claim, Scope


class UnknownName(ValueError):
    """A claim, scope or figure that does not exist; the message names the nearest ones."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
        super().__init__(f"no {what} named {name!r}; nearest: {', '.join(near)}")


class BrokenClaimFile(ValueError):
    """A claim file that cannot be loaded."""


def _claims_of(module: ModuleType) -> list[Claim]:
    return [x for x in vars(module).values() if isinstance(x, Claim)]


@cache
def installed_claims() -> dict[str, Claim]:
    """Every claim of every installed claim package, by id, in alphabetical order."""
    found: dict[str, Claim] = {}
    for entry in sorted(entry_points(group="scalevec.claims"), key=lambda e: e.name):
        package = entry.load()
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
            for claim in _claims_of(importlib.import_module(f"{package.__name__}.{info.name}")):
                if claim.id in found:
                    raise ValueError(f"claim {claim.id!r} is defined twice, the second time in {info.name}")
                found[claim.id] = claim
    return dict(sorted(found.items()))


def claims_in_file(path: str | Path) -> dict[str, Claim]:
    """The claims a Python file defines.

    Raises
    ------
    BrokenClaimFile : the file is missing, raises when run, or defines no `Claim`; the message is one line.
    """
    path = Path(path)
    if not path.is_file():
        raise BrokenClaimFile(f"{path}: no such claim file")
    name = f"_claims_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BrokenClaimFile(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a claim file may raise anything, SystemExit included
        line = _line_in(path, error)
        raise BrokenClaimFile(
            f"{path}{line}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        ) from error
    claims = {c.id: c for c in _claims_of(module)}
    if not claims:
        raise BrokenClaimFile(f"{path}: defines no Claim (a module-level name bound to scalevec_theory.claim.Claim)")
    return claims


def _line_in(path: Path, error: BaseException) -> str:
    """``:LINE`` of the deepest frame of ``path`` in the traceback, or of a syntax error."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f":{error.lineno}"
    line, trace = "", error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path:
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def find_scopes(name: str, claims: dict[str, Claim] | None = None) -> list[tuple[Claim, Scope]]:
    """The scopes that ``claim`` or ``claim:scope`` names.

    Raises
    ------
    UnknownName : no such claim or scope.
    """
    claims = installed_claims() if claims is None else claims
    claim_id, _, scope_name = name.partition(":")
    if claim_id not in claims:
        raise UnknownName("claim", claim_id, claims)
    claim = claims[claim_id]
    scopes = {s.name: s for s in claim.scopes}
    if not scope_name:
        return [(claim, s) for s in claim.scopes]
    if scope_name not in scopes:
        raise UnknownName(f"scope of {claim_id}", scope_name, scopes)
    return [(claim, scopes[scope_name])]


def scope(name: str, file: str | Path | None = None) -> Scope:
    """One scope by its address ``claim:scope``, installed or in a file: the door through which counterexamples are rerun."""
    if ":" not in name:
        raise ValueError(f"name={name!r}: expected CLAIM:SCOPE")
    return find_scopes(name, None if file is None else claims_in_file(file))[0][1]
