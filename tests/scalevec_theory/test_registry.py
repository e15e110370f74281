"""Finding claims, and saying clearly what could not be found or loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalevec_theory.registry import BrokenClaimFile, UnknownName, claims_in_file, find_scopes, installed_claims, scope

GOOD = """
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.problems import ProblemSpace, Real

def margin(problems, accuracy):
    return Margin.equal(problems["x"], problems["x"], accuracy)

claim = Claim("mine", "t", "s", "me", (Scope("all", "s", True, ProblemSpace("any", {}, {"x": Real("")}), margin),))
"""

PROMISED = (
    "absorption conservation completeness preconditioner loss-dominance radial-solution early-gap heterogeneity "
    "dual-placement dual-norm-placement magnitude-direction exponential product-form complementarity"
)


def test_every_promised_claim_is_installed() -> None:
    assert set(PROMISED.split()) <= set(installed_claims())


def test_every_claim_says_where_it_comes_from_and_every_scope_states_something() -> None:
    for claim in installed_claims().values():
        assert claim.title and claim.statement and claim.formula and claim.source, claim.id
        assert all(len(s.statement) > 20 for s in claim.scopes), claim.id


def test_scopes_are_found_by_address() -> None:
    assert len(find_scopes("conservation")) > 3
    assert find_scopes("conservation:adam")[0][1].name == "adam" == scope("conservation:adam").name


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("conservatoin", "conservation"), ("conservation:adm", "adam"), ("absorbtion:x", "absorption")],
)
def test_a_misspelt_name_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownName, match=nearest):
        find_scopes(name)


def test_a_claim_file_is_loaded_with_its_claims(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(GOOD)
    assert list(claims_in_file(file)) == ["mine"]
    assert scope("mine:all", file=file).evaluate(x=1) > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no Claim"),
        ("\n1 / 0", r"mine.py:2: ZeroDivisionError: division by zero"),
        ("def f(:", r"mine.py:1: SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        (GOOD.replace('"mine"', '"Not A Name"'), r"ValueError: claim name 'Not A Name'"),
        (GOOD + "other" + GOOD[GOOD.rindex("claim =") + 5 :], "defines the claim 'mine' twice"),
    ],
)
def test_a_broken_claim_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(BrokenClaimFile, match=message) as caught:
        claims_in_file(file)
    assert "\n" not in str(caught.value)


def test_a_missing_claim_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokenClaimFile, match="no such"):
        claims_in_file(tmp_path / "none.py")
