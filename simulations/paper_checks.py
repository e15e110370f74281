"""The page ``paper_checks.md``: what was claimed, what was found, and how to find it again.

The page depends on code, effort and seed alone.  Numbers that a processor's rounding decides are left out, or written
so coarsely that it cannot show: a margin has one digit, or is "0 within" its error rounded up to a power of ten.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from textwrap import wrap

from scalevec_theory.check import code, installed_source, search_budget
from scalevec_theory.claim import Claim, Counterexample, Evidence, Result, Scope, Verdict
from scalevec_theory.search import significant
from simulations.checks import Target

WIDTH = 120

DIGITS = 6
"""Significant digits of a counterexample on the page."""

HEADER = """# Every claim, checked

Written by `{command}`, never by hand. The same code and seed give the same bytes.

A claim is a margin that must not be negative, stated on a set of problems, its scope. A scope that is expected to hold
must come out *proved* (exact algebra) or *confirmed* (searched or simulated without a violation); one that is expected
to fail must come out *refuted*, with a counterexample, and its code block, pasted into Python, computes it again.
"""


def render(targets: Sequence[Target], results: Sequence[Result], effort: str, seed: int) -> str:
    """The page for these targets (grouped by claim) and their results."""
    settings = options(effort, seed)
    parts = [HEADER.format(command=f"scalevec check{settings} --report paper_checks.md")]
    parts.append(f"**{summary(results)}**\n")
    parts.append("\n".join(["| claim | scope | expected | verdict | evidence |", "|---|---|---|---|---|"]))
    for target, result in zip(targets, results, strict=True):
        claim, scope = target.claim.id, target.scope.name
        kinds = ", ".join(dict.fromkeys(e.kind for e in result.evidence))
        parts.append(
            f"| [{claim}](#{claim}) | [{scope}](#{claim}{scope}) | {result.expected} | {_verdict(result)} | {kinds} |"
        )
    for _, group in groupby(zip(targets, results, strict=True), key=lambda pair: (pair[0].claim.id, pair[0].file)):
        pairs = list(group)
        parts.append(_claim(pairs[0][0].claim))
        parts += [_scope(target, result, effort, settings) for target, result in pairs]
    return "\n".join(parts) + "\n"


def options(effort: str, seed: int) -> str:
    """What a command line needs for an effort and a seed that are not the default."""
    return (f" --effort {effort}" if effort != "quick" else "") + (f" --seed {seed}" if seed else "")


def summary(results: Sequence[Result]) -> str:
    """How many scopes came out how, in one line."""
    counts = Counter(r.verdict for r in results)
    wrong = sum(not r.ok for r in results)
    found = ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v])
    return f"{_count(len(results), 'scope')}: {found}; {f'{wrong} not' if wrong else 'all'} as expected."


def _verdict(result: Result) -> str:
    return str(result.verdict) if result.ok else f"**{result.verdict}: not as expected**"


def _claim(claim: Claim) -> str:
    lines = [f"\n## {claim.id}\n", f"**{escape(claim.title)}.** {escape(claim.statement)}\n"]
    lines.append(f"Source: {escape(claim.source)}.")
    if claim.figures:
        links = ", ".join(f"[{name}](results/figures/{name}.png)" for name in claim.figures)
        lines.append(f"Figures: {links}, drawn by `scalevec figures {' '.join(claim.figures)}`.")
    return "\n".join(lines)


def _scope(target: Target, result: Result, effort: str, settings: str) -> str:
    lines = [f"\n### {target.address}\n", f"{escape(target.scope.statement)}\n"]
    lines.append(f"Expected: {result.expected}. Verdict: {_verdict(result)}.")
    lines.append(f"Rerun: `scalevec check{settings} {target.argument}`\n")
    lines += [_evidence(target.scope, e, effort) for e in result.evidence]
    if result.reason:
        lines.append(f"- not run: {escape(result.reason)}")
    if result.counterexample is not None:
        lines.append(_counterexample(target, result.counterexample))
    return "\n".join(lines)


def _evidence(scope: Scope, evidence: Evidence, effort: str) -> str:
    if evidence.kind == "proof":
        name = {True: "proof", False: "disproof", None: "no proof"}[evidence.supports]
        lines = [part for line in evidence.detail.splitlines() for part in wrap(line, WIDTH, subsequent_indent="    ")]
        return "\n".join([f"- {name}:\n", "```text", *lines, "```"])
    return f"- {escape(in_words(scope, evidence, effort))}"


def in_words(scope: Scope, evidence: Evidence, effort: str) -> str:
    """What a search, a simulation or training found, in one line."""
    if evidence.kind == "search" and scope.space is not None:
        budget = search_budget(scope, effort)
        parts = [f"search of at most {budget:,} problems ({scope.space.assumptions}): {evidence.detail}"]
        if evidence.invalid:
            parts.append("some failed to compute")
    else:
        parts = [f"{evidence.kind} of {_count(evidence.instances, 'instance')}: {evidence.detail}"]
    if evidence.margin is not None:
        parts.append(f"margin {coarse(evidence, scope.accuracy)}")
    return "; ".join(parts)


def coarse(evidence: Evidence, accuracy: float) -> str:
    """A margin as it is printed on the page."""
    margin, error, stderr = evidence.margin or 0.0, evidence.error, evidence.stderr
    if evidence.kind == "search" and error == 0 and 0 <= margin <= accuracy:
        return f"≥ 0 at accuracy {_digit(accuracy)}"
    if stderr:
        return f"{_digit(margin)} with standard error {_digit(stderr)}"
    if abs(margin) <= error:
        return f"0 within {_digit(10.0 ** math.ceil(math.log10(error)))}" if error else "0"
    return _digit(margin)


def _counterexample(target: Target, found: Counterexample) -> str:
    title, block = shown(target, found)
    return f"\n{title}:\n\n```python\n{block}```"


def shown(target: Target, found: Counterexample) -> tuple[str, str]:
    """A counterexample as it stands on a page: its title, and code with no more than `DIGITS` digits."""
    fields = {name: rounded(value) for name, value in found.fields.items()}
    note, block = "", found.code
    if fields != found.fields and target.scope.space is not None:
        note = f", rounded to {DIGITS} digits; the command above prints it in full"
        block = code(installed_source(target.address, target.file), fields)
    return f"Counterexample, margin {_digit(found.margin)}{note}", block


def rounded(value: object) -> object:
    """Nested lists of numbers to `DIGITS` significant digits."""
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return significant(value, DIGITS) if isinstance(value, float) else value


def _digit(x: float) -> str:
    return re.sub(r"e([+-])0+", r"e\1", f"{significant(x, 1):g}")


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def escape(text: str) -> str:
    """Text in which Markdown sees no markup; an underscore within a word is none."""
    text = re.sub(r"([\\`*<|\[])", r"\\\1", text)
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def readme_table(claims: Iterable[Claim]) -> str:
    """The table of claims in the README: what each says, and its scopes with what is expected of them."""
    rows = ["| claim | what it says | scopes that hold | scopes that fail |", "|---|---|---|---|"]
    for claim in claims:
        holding, failing = (
            ", ".join(s.name for s in claim.scopes if s.holds is expected) or "–" for expected in (True, False)
        )
        rows.append(f"| [{claim.id}](paper_checks.md#{claim.id}) | {escape(claim.title)} | {holding} | {failing} |")
    return "\n".join(rows) + "\n"
