from dataclasses import replace
from pathlib import Path

import pytest
from toy import TOY

from scalevec_theory.claim import Claim, Counterexample, Evidence, Result, Scope, Verdict
from scalevec_theory.problems import ProblemSpace, Real
from simulations.checks import Target, check_all, find_targets
from simulations.paper_checks import coarse, escape, in_words, render, rounded, summary


def found(margin: float | None, error: float = 0.0, kind: str = "search", stderr: float | None = None) -> Evidence:
    return Evidence(kind, True, "", margin=margin, error=error, stderr=stderr, instances=1)


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        (found(9.99e-9), "≥ 0 at accuracy 1e-8"),
        (found(1e-12), "≥ 0 at accuracy 1e-8"),
        (found(3e-9, error=2e-8), "0 within 1e-7"),
        (found(-3e-9, error=1e-7), "0 within 1e-7"),
        (found(-0.0234, error=1e-7), "-0.02"),
        (found(0.0266, error=1e-7), "0.03"),
        (found(-3e-5), "-3e-5"),
        (found(0.123, kind="simulation", stderr=0.0123), "0.1 with standard error 0.01"),
        (found(0.123, kind="simulation", stderr=0.0), "0.1"),
        (found(0.0, kind="simulation"), "0"),
    ],
)
def test_margins_are_printed_coarsely(evidence: Evidence, text: str) -> None:
    assert coarse(evidence, 1e-8) == text


def test_rounding_of_another_processor_does_not_show() -> None:
    for margin, error in ((0.0234, 1e-7), (-3e-9, 2e-8), (7.7e-9, 0.0)):
        noisy = {coarse(found(margin * (1 + noise), error * (1 + noise)), 1e-8) for noise in (0, 1e-9, -1e-9, 1e-3)}
        assert len(noisy) == 1


def test_escape_hides_markup_and_leaves_the_mathematics_alone() -> None:
    assert escape("Q_j = v_j² − Σ_b ‖w_bj‖²") == "Q_j = v_j² − Σ_b ‖w_bj‖²"
    assert escape("a*b < _c_ | `d` [e]") == r"a\*b \< \_c\_ \| \`d\` \[e]"
    assert escape("‖W‖_F") == r"‖W‖\_F"


def test_a_counterexample_has_at_most_six_digits() -> None:
    assert rounded([[1 / 3, 2], [-1e-9 / 3, 0.5]]) == [[0.333333, 2], [-3.33333e-10, 0.5]]
    space = ProblemSpace("x real", {}, {"x": Real("")})
    scope = Scope("sign", "x ≥ 0", False, space, lambda p, a: None)  # type: ignore[arg-type,return-value]
    target = Target(Claim("toy", "t", "s", "nowhere", (scope,)), scope)
    for x, shown in ((-1 / 3, "x=-0.333333,"), (-0.25, "x=-0.25,")):
        example = Counterexample({"x": x}, x, f"scope.evaluate(\n    x={x},\n)\n")
        result = Result("toy", "sign", "fails", Verdict.REFUTED, True, 1.0, (), example)
        page = render([target], [result], "quick", 0)
        assert shown in page
        assert ("rounded to 6 digits" in page) == (x == -1 / 3)


def test_what_failed_and_a_single_instance_are_told_in_words() -> None:
    scope = Scope("sign", "x ≥ 0", False, ProblemSpace("x real", {}, {"x": Real("")}), lambda p, a: None)  # type: ignore[arg-type,return-value]
    assert in_words(scope, Evidence("search", None, "so", invalid=3), "quick").endswith("so; some failed to compute")
    assert in_words(scope, Evidence("simulation", True, "so", instances=1), "quick") == "simulation of 1 instance: so"


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Target], list[Result]]:
    monkeypatch.chdir(tmp_path)
    Path("toy.py").write_text(TOY)
    targets = find_targets(["toy.py"])
    return targets, check_all(targets)


def test_the_page_says_everything_about_a_scope(checked: tuple[list[Target], list[Result]]) -> None:
    page = render(*checked, "quick", 0)
    assert "**4 scopes: 1 proved, 2 confirmed, 1 refuted; all as expected.**" in page
    assert "| [toy](#toy) | [sign](#toysign) | fails | refuted | search |" in page
    assert (
        "Figures: [conservation](results/figures/conservation.png), drawn by `scalevec figures conservation`." in page
    )
    sign = page[page.index("### toy:sign") : page.index("### toy:exact")]
    assert "x ≥ 0\n\nExpected: fails. Verdict: refuted.\nRerun: `scalevec check toy.py:toy:sign`" in sign
    assert "search of at most 2,000 problems (x real)" in sign
    assert "```python\nfrom scalevec_theory.registry import scope" in sign
    exact = page[page.index("### toy:exact") : page.index("### toy:mean")]
    assert "x = y\n  given y = x\n  zero polynomial over Q; residual: 0\nThat is all." in exact
    assert "simulation of 1,000 instances: 0.3 + a mean; margin 0.3 with standard error 0.03" in page


def test_claims_of_one_name_in_two_files_stand_apart(checked: tuple[list[Target], list[Result]]) -> None:
    targets, results = checked
    page = render([*targets, *(replace(t, file="other.py") for t in targets)], [*results, *results], "quick", 0)
    assert page.count("\n## toy\n") == 2


def test_a_disproof_is_not_called_a_proof_and_long_lines_are_broken(checked: tuple[list[Target], list[Result]]) -> None:
    targets, results = checked
    for supports, name in ((True, "- proof:"), (False, "- disproof:"), (None, "- no proof:")):
        evidence = Evidence("proof", supports, "a lemma\n" + "word " * 50, instances=1)
        page = render(targets[:1], [replace(results[0], evidence=(evidence,))], "quick", 0)
        assert f"\n{name}\n\n```text\na lemma\nword word" in page
        assert max(map(len, page[page.index("```text") :].splitlines())) <= 120


def test_the_counterexample_on_the_page_runs(checked: tuple[list[Target], list[Result]]) -> None:
    block = render(*checked, "quick", 0).split("```python\n")[1].split("```")[0]
    names: dict[str, float] = {}
    exec(block, names)
    assert names["margin"] == -1


def test_the_page_depends_on_neither_time_nor_place_of_storage(checked: tuple[list[Target], list[Result]]) -> None:
    targets, results = checked
    again = [replace(r, seconds=r.seconds + 100) for r in check_all(targets, jobs=2, fresh=True)]
    assert render(targets, results, "quick", 0) == render(targets, again, "quick", 0)


def test_effort_and_seed_are_in_every_command(checked: tuple[list[Target], list[Result]]) -> None:
    page = render(*checked, "full", 3)
    assert "`scalevec check --effort full --seed 3 --report paper_checks.md`" in page
    assert "`scalevec check --effort full --seed 3 toy.py:toy:sign`" in page
    assert "at most 400,000 problems" in page


def test_what_is_not_as_expected_stands_out(checked: tuple[list[Target], list[Result]]) -> None:
    targets, results = checked
    wrong = [
        replace(results[0], verdict=Verdict.NOT_RUN, ok=False, evidence=(), reason="no such_ package"),
        *results[1:],
    ]
    page = render(targets, wrong, "quick", 0)
    assert "| holds | **not run: not as expected** |" in page
    assert "- not run: no such\\_ package" in page
    assert summary(wrong) == "4 scopes: 1 proved, 1 confirmed, 1 refuted, 1 not run; 1 not as expected."
