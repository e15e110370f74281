"""Every claim comes out as expected, and what is written about it is what the program writes now."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from scalevec_theory.claim import Result, Verdict
from scalevec_theory.registry import installed_claims
from simulations.checks import Target, check_all, find_targets
from simulations.paper_checks import readme_table, render, summary

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def checked() -> tuple[list[Target], list[Result]]:
    """Every scope at quick effort and seed 0; what `scalevec check` has stored is not computed again."""
    targets = find_targets(())
    return targets, check_all(targets, jobs=os.cpu_count() or 1, folder=ROOT / "results" / "checks")


def test_every_verdict_is_the_expected_one(checked: tuple[list[Target], list[Result]]) -> None:
    assert [f"{r.claim}:{r.scope}: {r.verdict} {r.reason}" for r in checked[1] if not r.ok] == []


def test_paper_checks_is_not_stale(checked: tuple[list[Target], list[Result]]) -> None:
    assert (ROOT / "paper_checks.md").read_text() == render(*checked, "quick", 0), "run: make reproduce"


def test_every_counterexample_runs_when_pasted(checked: tuple[list[Target], list[Result]]) -> None:
    """Those whose code measures a scope anew only where that takes less than a second: it is the code of the check."""
    refuted = [r for r in checked[1] if r.verdict == Verdict.REFUTED]
    assert len(refuted) > 10
    for result in refuted:
        assert result.counterexample is not None, f"{result.claim}:{result.scope} is refuted without a counterexample"
        if "check_scope" not in result.counterexample.code or result.seconds < 1:
            exec(result.counterexample.code, {})


def test_the_counterexample_for_correlated_inputs_is_small(checked: tuple[list[Target], list[Result]]) -> None:
    (result,) = [r for r in checked[1] if (r.claim, r.scope) == ("loss-dominance", "correlated-inputs")]
    assert result.counterexample is not None
    target = result.counterexample.fields["T"]
    assert isinstance(target, list) and len(target) == 1 and len(target[0]) == 2
    numbers = [x for value in result.counterexample.fields.values() for row in value for x in row]  # type: ignore[attr-defined]
    assert all(x == float(f"{x:.1e}") for x in numbers)


def test_the_readme_counts_what_came_out(checked: tuple[list[Target], list[Result]]) -> None:
    line = summary(checked[1])
    assert line in (ROOT / "README.md").read_text(), f"README.md should say: {line}"


def test_the_readme_lists_the_claims_that_are_installed() -> None:
    table = readme_table(installed_claims().values())
    assert table in (ROOT / "README.md").read_text(), f"the table in README.md should read\n\n{table}"


def test_kept_evidence_is_as_expected(
    checked: tuple[list[Target], list[Result]],
) -> None:
    expected = {(r.claim, r.scope): r.expected for r in checked[1]}
    kept_files = {path.stem: path for path in (ROOT / "simulations" / "evidence").glob("*.json")}
    assert set(kept_files) <= {"standard", "full", "cost"}  # cost: times, of which the figures test the form
    for effort in kept_files.keys() - {"cost"}:
        path = kept_files[effort]
        kept = json.loads(path.read_text())
        assert kept["effort"] == effort and not kept["provenance"]["commit"].endswith("+"), path
        for record in kept["results"]:
            assert expected[record["claim"], record["scope"]] == record["expected"], path
            assert record["ok"], f"{path}: {record['claim']}:{record['scope']}"
