"""Checking a scope: gather every kind of evidence it offers and judge it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from scalevec_theory.claim import Claim, Counterexample, Evidence, NotRun, Result, Scope, Setting, Verdict, judge
from scalevec_theory.problems import Problems
from scalevec_theory.search import margins, search

EFFORTS = {"quick": 2_000, "standard": 20_000, "full": 400_000}
"""Problems a search may spend, by effort; a scope's ``cost`` divides it."""

MOST_INVALID = 0.1
"""A search in which more than this share of problems failed to compute is inconclusive."""

MOST_UNDECIDED = 0.5
"""A search in which more than this share of margins lies within numerical error is inconclusive."""


def generator(seed: int, name: str) -> np.random.Generator:
    """The random generator of one scope: it depends on the seed and the scope's address, not on what else runs."""
    if seed < 0:
        raise ValueError(f"seed={seed}: expected >= 0")
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return np.random.default_rng([seed, digest])


def check_scope(
    claim: Claim,
    scope: Scope,
    *,
    effort: str = "quick",
    seed: int = 0,
    device: str = "cpu",
    budget: int | None = None,
    file: str | None = None,
) -> Result:
    """Prove, search and measure one scope.

    Parameters
    ----------
    effort : quick, standard or full.
    budget : problems to search, instead of the effort's.
    file : the user's claim file the scope comes from, named in the counterexample's code.

    Raises
    ------
    ValueError : an unknown effort, a budget below 1, a negative seed.
    """
    if effort not in EFFORTS:
        raise ValueError(f"effort={effort!r}: expected one of {', '.join(EFFORTS)}")
    started = time.perf_counter()
    name = f"{claim.id}:{scope.name}"
    rng = generator(seed, name)
    evidence: list[Evidence] = []
    reason = ""
    if scope.proof is not None:
        evidence.append(_prove(scope))
    if scope.margin is not None:
        budget = search_budget(scope, effort) if budget is None else budget
        evidence.append(falsify(claim, scope, budget, seed=seed, device=device, file=file))
    if scope.measure is not None:
        try:
            evidence.extend(scope.measure(Setting(effort, seed, rng, device)))
        except NotRun as missing:
            reason = str(missing)
    verdict = judge(evidence)
    expected = (Verdict.PROVED, Verdict.CONFIRMED) if scope.holds else (Verdict.REFUTED,)
    return Result(
        claim.id,
        scope.name,
        "holds" if scope.holds else "fails",
        verdict,
        verdict in expected and not reason,
        time.perf_counter() - started,
        tuple(evidence),
        next((e.counterexample for e in evidence if e.supports is False and e.counterexample), None),
        reason,
    )


def _prove(scope: Scope) -> Evidence:
    assert scope.proof is not None
    proof = scope.proof()
    certificates = proof.check()
    holds = all(c.holds for c in certificates)
    lines = []
    for lemma, c in zip(proof.lemmas, certificates, strict=True):
        given = [f"  given {name}" for name in lemma.hypotheses]
        lines += [lemma.statement, *given, f"  {c.method}; residual: {c.residual}"]
    return Evidence(
        "proof", True if holds else None, "\n".join([*lines, proof.conclusion]), instances=len(certificates)
    )


def search_budget(scope: Scope, effort: str) -> int:
    """How many problems a search of this scope may spend at an effort."""
    return max(64, int(EFFORTS[effort] / scope.cost))


def falsify(
    claim: Claim, scope: Scope, budget: int, *, seed: int = 0, device: str = "cpu", file: str | None = None
) -> Evidence:
    """Search one scope's problem space for a counterexample, spending ``budget`` problems before it is shrunk.

    Raises
    ------
    ValueError : the scope is not stated on a problem space, a budget below 1, a negative seed.
    """
    name = f"{claim.id}:{scope.name}"
    outcome = search(scope, budget, generator(seed, name), device)
    counted = max(outcome.instances, 1)
    counterexample = None
    detail = "no violation found"
    supports: bool | None = True
    if outcome.counterexample is not None:
        counterexample = describe(scope, outcome.counterexample, installed_source(name, file))
        supports, detail = False, "violation found, verified at a hundredth of the accuracy, and shrunk"
    elif outcome.instances == 0:
        supports, detail = None, "no problem of the space could be drawn"
    elif outcome.unverified:
        supports, detail = None, "a violation was found that failed to compute at a hundredth of the accuracy"
    elif outcome.margin == -np.inf:
        supports, detail = None, "a margin is minus infinity: a violation, or an overflow"
    elif outcome.invalid > MOST_INVALID * counted:
        supports, detail = None, f"{outcome.invalid} of {counted} problems failed to compute"
    elif outcome.undecided > MOST_UNDECIDED * counted:
        supports, detail = None, f"{outcome.undecided} of {counted} margins lie within their numerical error"
    return Evidence(
        "search",
        supports,
        detail,
        margin=outcome.margin if np.isfinite(outcome.margin) else None,
        error=outcome.error,
        instances=outcome.instances,
        invalid=outcome.invalid,
        undecided=outcome.undecided,
        seed=seed,
        counterexample=counterexample,
    )


def _plain(values: Any) -> Any:
    """Nested lists with whole numbers printed as such."""
    if isinstance(values, list):
        return [_plain(v) for v in values]
    return int(values) if float(values).is_integer() and abs(values) < 1e6 else values


Source = tuple[list[str], str]
"""Code that leads to a scope: import lines, and an expression that then evaluates to it."""


def installed_source(name: str, file: str | None = None) -> Source:
    """The source of a scope that is reached by its address, in a claim file where one is given."""
    where = f", file={file!r}" if file else ""
    return ["from scalevec_theory.registry import scope"], f"scope({name!r}{where})"


def describe(scope: Scope, problem: Problems, source: Source) -> Counterexample:
    """A batch of one problem as plain numbers, with code that recomputes its margin when pasted."""
    assert scope.space is not None
    sizes = {letter: problem.dims[letter] for letter in scope.space.free_letters}
    fields = sizes | {k: _plain(x[0].tolist()) for k, x in problem.fields.items()}
    margin = float(margins(scope, problem, scope.accuracy / 100).value[0])
    return Counterexample(fields, margin, code(source, fields))


def code(source: Source, fields: Mapping[str, object]) -> str:
    """Code that computes the margin of the problem with these fields and asserts that it is negative."""
    lines, expression = source
    arguments = "".join(f"\n    {k}={v}," for k, v in fields.items())
    return "\n".join([*lines, "", f"margin = {expression}.evaluate({arguments}\n)", "assert margin < 0, margin", ""])
