"""What the command line prints: tables of claims and of verdicts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from scalevec_theory.claim import Claim, Evidence, Result
from simulations.checks import Target

WIDTH = 120
"""Columns where the output is not a terminal."""


def console() -> Console:
    """Standard output, where nothing that is printed is taken for markup."""
    return Console(width=None if sys.stdout.isatty() else WIDTH, markup=False, highlight=False, emoji=False)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Progress on standard error: a bar with the time left, or a line every tenth of the way where it is no terminal.

    Yields what to tell (done, total).
    """
    err = Console(stderr=True)
    if not err.is_terminal:
        yield lambda done, total: _tell_tenth(what, done, total)
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _tell_tenth(what: str, done: int, total: int) -> None:
    if done and total >= 10 and done * 10 // total > (done - 1) * 10 // total:
        print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)


def claims_table(claims: Iterable[Claim]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("claim", "title", "scopes (+ holds, − fails)", "figures"):
        table.add_column(column, overflow="fold")
    for claim in claims:
        scopes = "\n".join(f"{'+' if s.holds else '−'} {s.name}" for s in claim.scopes)
        table.add_row(claim.id, claim.title, scopes, "\n".join(claim.figures))
    return table


def scopes_table(targets: Sequence[Target]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "scope", "what it says"):
        table.add_column(column, overflow="fold")
    for target in targets:
        table.add_row("+" if target.scope.holds else "−", target.address, target.scope.statement)
    return table


def verdicts_table(targets: Sequence[Target], results: Sequence[Result]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "scope", "expected", "verdict", "evidence"):
        table.add_column(column, overflow="fold")
    table.add_column("margin", justify="right")
    table.add_column("seconds", justify="right")
    for target, result in zip(targets, results, strict=True):
        kinds = ", ".join(dict.fromkeys(e.kind for e in result.evidence))
        verdict = str(result.verdict)
        table.add_row(
            "✓" if result.ok else "✗",
            target.address,
            result.expected,
            verdict,
            kinds,
            _margin(result),
            f"{result.seconds:.1f}",
            style=None if result.ok else "bold red",
        )
    return table


def _margin(result: Result) -> str:
    if result.counterexample is not None:
        return f"{result.counterexample.margin:.2g}"
    least = min((e for e in result.evidence if e.margin is not None), key=lambda e: e.margin or 0.0, default=None)
    if least is None:
        return ""
    within = least.supports and (least.margin or 0.0) < 0  # not negative beyond its numerical error
    return f"{least.margin:.2g}" + (f" ± {least.error:.0e}" if within else "")


def describe_result(target: Target, result: Result) -> str:
    """A scope's statement, evidence and counterexample in full."""
    lines = [f"{target.address}: {target.scope.statement}", f"expected: {result.expected}; verdict: {result.verdict}"]
    if result.reason:
        lines.append(f"not run: {result.reason}")
    lines += [describe_evidence(e) for e in result.evidence]
    if result.counterexample is not None:
        lines += [f"counterexample, margin {result.counterexample.margin:.3g}:", "", result.counterexample.code]
    return "\n".join(lines)


def describe_evidence(evidence: Evidence) -> str:
    """One piece of evidence with its numbers."""
    if evidence.kind == "proof":
        return f"proof:\n  {evidence.detail.replace(chr(10), chr(10) + '  ')}"
    numbers = [f"{evidence.instances:,} instances"]
    if evidence.invalid or evidence.undecided:
        numbers.append(f"{evidence.invalid:,} failed to compute, {evidence.undecided:,} within their numerical error")
    if evidence.margin is not None:
        numbers.append(f"margin {evidence.margin:.3g}")
    if evidence.stderr:
        numbers.append(f"standard error {evidence.stderr:.2g}")
    if evidence.error:
        numbers.append(f"numerical error {evidence.error:.2g}")
    return f"{evidence.kind}: {evidence.detail} ({'; '.join(numbers)})"
