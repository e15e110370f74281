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
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, ModuleType

from scalevec_theory.claim import Claim, Scope


class UnknownName(ValueError):
    """A claim, scope or figure that does not exist; the message names the nearest ones."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
        super().__init__(f"no {what} named {name!r}" + (f"; nearest: {', '.join(near)}" if near else "; there is none"))


class BrokenClaimFile(ValueError):
    """A claim file that cannot be loaded."""


def _claims_of(module: ModuleType) -> list[Claim]:
    return [x for x in vars(module).values() if isinstance(x, Claim)]


@cache
def _installed() -> dict[str, tuple[Claim, str]]:
    """Every claim of every installed claim package with the module that defines it, by id, in alphabetical order."""
    found: dict[str, tuple[Claim, str]] = {}
    for entry in sorted(entry_points(group="scalevec.claims"), key=lambda e: e.name):
        package = _import(entry.value)
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
            name = f"{package.__name__}.{info.name}"
            for claim in _claims_of(_import(name)):
                if claim.id in found:
                    raise ValueError(f"claim {claim.id!r} is defined twice: in {found[claim.id][1]} and in {name}")
                found[claim.id] = claim, name
    return dict(sorted(found.items()))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise BrokenClaimFile(f"claim module {name}: {type(error).__name__}: {error}") from error


def installed_claims() -> dict[str, Claim]:
    """Every claim of every installed claim package, by id, in alphabetical order."""
    return {name: claim for name, (claim, _) in _installed().items()}


def defining_module(claim_id: str) -> str:
    """The name of the module that defines an installed claim.

    Raises
    ------
    UnknownName : no such claim.
    """
    if claim_id not in _installed():
        raise UnknownName("claim", claim_id, _installed())
    return _installed()[claim_id][1]


class _SourceLoader(SourceFileLoader):
    """Compiles the text of today: what Python keeps compiled may be of one as long and of the same second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def module_in_file(path: str | Path) -> ModuleType:
    """Run a Python file as a module of its own.

    Raises
    ------
    BrokenClaimFile : the file is missing, is not Python, or raises when run; the message is one line.
    """
    path = Path(path)
    if not path.is_file():
        raise BrokenClaimFile(f"{path}: no such file")
    name = f"_claims_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    loader = _SourceLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader) if path.suffix == ".py" else None
    if spec is None:
        raise BrokenClaimFile(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a claim file may raise anything, SystemExit included
        raise BrokenClaimFile(blame(path, error)) from error
    return module


def claims_in_file(path: str | Path) -> dict[str, Claim]:
    """The claims a Python file defines.

    Raises
    ------
    BrokenClaimFile : as `module_in_file`, or the file defines no `Claim`, or two of one id; the message is one line.
    """
    claims: dict[str, Claim] = {}
    for claim in _claims_of(module_in_file(path)):
        if claims.setdefault(claim.id, claim) is not claim:
            raise BrokenClaimFile(f"{path}: defines the claim {claim.id!r} twice")
    if not claims:
        raise BrokenClaimFile(f"{path}: defines no Claim (a module-level name bound to scalevec_theory.claim.Claim)")
    return claims


def split_address(name: str) -> tuple[str | None, str]:
    """File and what is named in it, of ``NAME``, ``FILE.py`` or ``FILE.py:NAME``; a file is told by its ``.py``."""
    if name.endswith(".py"):
        return name, ""
    file, mark, address = name.rpartition(".py:")
    return (f"{file}.py", address) if mark else (None, name)


def blame(path: str | Path, error: BaseException) -> str:
    """``PATH:LINE: ErrorType: message`` on one line; the line is that of the deepest frame in ``path``, if any."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == Path(path).resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == Path(path).resolve():
        line = error.lineno
    message = " ".join(str(error).split())
    return f"{path}{f':{line}' if line else ''}: {type(error).__name__}{f': {message}' if message else ''}"


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
    """One scope by its address ``claim:scope``, installed or in a file: the door by which counterexamples are rerun."""
    if ":" not in name:
        raise ValueError(f"name={name!r}: expected CLAIM:SCOPE")
    return find_scopes(name, None if file is None else claims_in_file(file))[0][1]
