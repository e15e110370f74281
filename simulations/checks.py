"""Checking many scopes: spread over processes, each result stored the moment it is there, nothing checked twice."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scalevec_theory.check import EFFORTS, check_scope, falsify
from scalevec_theory.claim import Claim, Counterexample, Evidence, Result, Scope, Verdict
from scalevec_theory.counts import check_count
from scalevec_theory.flow import check_device
from scalevec_theory.registry import (
    UnknownName,
    blame,
    claims_in_file,
    defining_module,
    find_scopes,
    installed_claims,
    split_address,
)
from simulations.parallel import Call, Raised, run_parallel
from simulations.provenance import provenance, versions
from simulations.store import check_writable, plain, read_json, write_json

FOLDER = Path("results") / "checks"
RAISED = "its code raised, "
"""How the reason of a scope begins that was not run because of an exception."""

LIBRARIES = ("numpy", "scipy", "torch", "sympy", "numba", "z3-solver", "python-flint", "transformers")


@dataclass(frozen=True)
class Target:
    """One scope to check, of an installed claim or of a user's file."""

    claim: Claim
    scope: Scope
    file: str | None = None

    @property
    def address(self) -> str:
        """``claim:scope``."""
        return f"{self.claim.id}:{self.scope.name}"

    @property
    def argument(self) -> str:
        """What names this scope on the command line."""
        return f"{self.file}:{self.address}" if self.file else self.address

    @property
    def source(self) -> str:
        """The file that defines the claim."""
        return self.file or str(sys.modules[defining_module(self.claim.id)].__file__)


def find_targets(names: Sequence[str]) -> list[Target]:
    """The scopes that ``CLAIM[:SCOPE]`` and ``FILE.py[:CLAIM[:SCOPE]]`` name, each once; all installed ones for none.

    Raises
    ------
    UnknownName : no such claim or scope.
    BrokenClaimFile : a file is missing, raises, or defines no claim.
    """
    found: dict[str, Target] = {}
    for name in names or installed_claims():
        file, address = split_address(name)
        claims = installed_claims() if file is None else claims_in_file(file)
        for one in [address] if address else claims:
            for claim, scope in find_scopes(one, claims):
                target = Target(claim, scope, file)
                found.setdefault(target.argument, target)
    return list(found.values())


def find_target(name: str, scope: str) -> Target:
    """The one target that ``CLAIM`` or ``FILE.py[:CLAIM]`` and a scope's name stand for; raises as `find_targets`."""
    candidates = find_targets([name])
    named = [t for t in candidates if t.scope.name == scope]
    if not named:
        raise UnknownName(f"scope of {name}", scope, (t.scope.name for t in candidates))
    if len(named) > 1:
        raise ValueError(f"{name} has several scopes {scope}: {', '.join(t.argument for t in named)}; name the claim")
    return named[0]


def check_all(
    targets: Sequence[Target],
    *,
    effort: str = "quick",
    seed: int = 0,
    device: str = "cpu",
    jobs: int = 1,
    fresh: bool = False,
    folder: Path = FOLDER,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Result]:
    """Check every target, longest known first, and return the results in the order of the targets.

    A scope whose code raises is not run, for the `RAISED` reason.  A result is stored in ``folder`` as soon as it is
    there and used again while the claim's code, this library and the libraries it computes with are the same.

    Parameters
    ----------
    jobs : processes; the results are the same for any number.
    fresh : check again what is stored.
    report : is told how many scopes are done, and of how many that were not stored.

    Raises
    ------
    ValueError : an unknown effort, a negative seed, no such device, jobs below 1.
    OSError : ``folder`` cannot be written.
    """
    check_setting(effort, seed, device)
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / "result.json")
    places = [folder / _file_name(t, effort, seed, device) for t in targets]
    keys = [_key(t) for t in targets]
    stored = [read_json(p) for p in places]
    results: dict[int, Result] = {}
    for i, key in enumerate(keys):
        result = None if fresh else _stored_result(stored[i], key)
        if result is not None:
            results[i] = result
    # Scopes of one claim compile the same functions: begun at once, each process would compile them for itself.
    order = [(-_seconds(stored[i]), t.claim.scopes.index(t.scope)) for i, t in enumerate(targets)]
    waiting = sorted((i for i in range(len(targets)) if i not in results), key=order.__getitem__)
    calls = [
        Call(_check_one, (targets[i].file, targets[i].address, effort, seed, device), targets[i].source)
        for i in waiting
    ]
    outcomes = run_parallel(calls, jobs)
    report(0, len(waiting))
    try:
        for done, (position, record) in enumerate(outcomes, start=1):
            i = waiting[position]
            results[i] = _not_run(targets[i], record) if isinstance(record, Raised) else _result(record)
            if results[i].verdict != Verdict.NOT_RUN:  # what was missing may be there next time
                write_json(places[i], {"key": keys[i], "result": record})
            report(done, len(waiting))
    finally:
        outcomes.close()
    return [results[i] for i in range(len(targets))]


def _not_run(target: Target, error: Raised) -> Result:
    expected = "holds" if target.scope.holds else "fails"
    return Result(target.claim.id, target.scope.name, expected, Verdict.NOT_RUN, False, 0.0, reason=f"{RAISED}{error}")


def check_setting(effort: str, seed: int, device: str) -> None:
    """Raise ValueError unless effort, seed and device are ones that a check accepts."""
    if effort not in EFFORTS:
        raise ValueError(f"effort={effort!r}: expected one of {', '.join(EFFORTS)}")
    if seed < 0:
        raise ValueError(f"seed={seed}: expected >= 0")
    check_device(device)


def _check_one(file: str | None, address: str, effort: str, seed: int, device: str) -> dict[str, Any]:
    """One scope's result as plain data: a worker's whole work."""
    ((claim, scope),) = find_scopes(address, installed_claims() if file is None else claims_in_file(file))
    result = check_scope(claim, scope, effort=effort, seed=seed, device=device, file=file)
    record: dict[str, Any] = json.loads(json.dumps(plain(asdict(result))))
    return record


def falsify_one(target: Target, budget: int, *, seed: int = 0, device: str = "cpu") -> Evidence:
    """Search one scope for a counterexample.

    Raises
    ------
    ValueError : a scope without a problem space, a budget below 1, a negative seed, no such device.
    Raised : the claim's code raised.
    """
    check_setting("quick", seed, device)
    if target.scope.space is None:
        raise ValueError(f"{target.argument} is not stated on a problem space, so there is nothing to search; check it")
    check_count("budget", budget)
    try:
        return falsify(target.claim, target.scope, budget, seed=seed, device=device, file=target.file)
    except Exception as error:
        raise Raised(f"{target.address}: {blame(target.source, error)}") from error


def as_json(result: Result) -> dict[str, Any]:
    """A result as ``scalevec check --json`` lists it."""
    found = result.counterexample
    return {
        "claim": result.claim,
        "scope": result.scope,
        "expected": result.expected,
        "verdict": str(result.verdict),
        "ok": result.ok,
        "seconds": round(result.seconds, 3),
        "evidence": [
            {name: getattr(e, name) for name in ("kind", "margin", "stderr", "instances", "seed", "detail")}
            for e in result.evidence
        ],
        "counterexample": found and asdict(found),
    }


def as_evidence(results: Sequence[Result], effort: str, seed: int) -> dict[str, Any]:
    """What a long check found, small enough to be kept: no counterexamples and no text of proofs, which do not depend
    on the effort."""
    found = []
    for record in map(as_json, results):
        del record["counterexample"]
        record["evidence"] = [{**e, "detail": "" if e["kind"] == "proof" else e["detail"]} for e in record["evidence"]]
        found.append(record)
    return {"provenance": provenance(), "effort": effort, "seed": seed, "results": found}


def _result(record: dict[str, Any]) -> Result:
    """The result that ``asdict`` made the record of."""

    def counterexample(found: dict[str, Any] | None) -> Counterexample | None:
        return None if found is None else Counterexample(**found)

    def evidence_of(found: dict[str, Any]) -> Evidence:
        error = math.inf if found["error"] is None else found["error"]  # JSON has no infinity
        return Evidence(**{**found, "error": error, "counterexample": counterexample(found["counterexample"])})

    return Result(
        **{
            **record,
            "verdict": Verdict(record["verdict"]),
            "evidence": tuple(evidence_of(e) for e in record["evidence"]),
            "counterexample": counterexample(record["counterexample"]),
        }
    )


def _stored_result(content: Any, key: str) -> Result | None:
    """The result in a stored file, unless it is of other code or the file is damaged."""
    try:
        return _result(content["result"]) if content["key"] == key else None
    except (KeyError, TypeError, ValueError):
        return None


def _seconds(content: Any) -> float:
    """How long the scope took when last checked, by any code; for ever if that is not known."""
    try:
        return float(content["result"]["seconds"])
    except (KeyError, TypeError, ValueError):
        return math.inf


def _file_name(target: Target, effort: str, seed: int, device: str) -> str:
    where = _digest(json.dumps([target.file and str(Path(target.file).resolve()), effort, seed, device]).encode())
    return f"{target.claim.id}--{target.scope.name}--{where[:10]}.json"


def _key(target: Target) -> str:
    """A hash of everything but the file's name that a result depends on: code, versions, and files that are read.

    A file of a user's may import all of ours.
    """
    package = "simulations" if target.file else defining_module(target.claim.id).partition(".")[0]
    parts = [_package_digest("scalevec_theory"), _package_digest(package), _digest(Path(__file__).read_bytes())]
    for file in (*([Path(target.file)] if target.file else []), *target.scope.reads):
        parts.append(_digest(file.read_bytes()) if file.is_file() else "missing")
    return _digest(json.dumps([target.address, parts, versions(LIBRARIES)]).encode())


@cache
def _package_digest(name: str) -> str:
    """A hash of the Python source of a package, and of the outcomes of experiments that come with it."""
    (root,) = importlib.import_module(name).__path__
    files = sorted([*Path(root).rglob("*.py"), *Path(root).rglob("outcomes/*.json")])
    return _digest(b"".join(_digest(f"{f.relative_to(root)}".encode() + f.read_bytes()).encode() for f in files))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
