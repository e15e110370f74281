"""Finding claims, and saying clearly what could not be found or loaded."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from scalevec_theory import registry
from scalevec_theory.registry import (
    BrokenClaimFile,
    UnknownName,
    claims_in_file,
    find_scopes,
    installed_claims,
    module_in_file,
    scope,
)

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


def test_an_address_names_a_scope_and_a_module_a_claim() -> None:
    with pytest.raises(ValueError, match="name='conservation': expected CLAIM:SCOPE"):
        scope("conservation")
    assert registry.defining_module("conservation") == "scalevec_theory.theorems.conservation"
    with pytest.raises(UnknownName, match="nearest: conservation"):
        registry.defining_module("conservatoin")


def test_where_no_name_is_near_the_first_ones_are_told() -> None:
    assert str(UnknownName("claim", "zzz", ("b", "a"))) == "no claim named 'zzz'; nearest: a, b"


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
        ("def f():\n    1 / 0\n\nf()", "mine.py:2: ZeroDivisionError"),
        ("raise ValueError('two\\nlines')", "mine.py:1: ValueError: two lines"),
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


def test_an_interrupt_is_not_put_down_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        claims_in_file(file)


def test_files_of_one_name_are_different_modules(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("")
    assert len({registry.module_in_file(tmp_path / folder / "mine.py").__name__ for folder in ("a", "b")}) == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (GOOD, ValueError, "claim 'mine' is defined twice: in broken_claims.one and in broken_claims.one"),
        ("1 / 0", BrokenClaimFile, "claim module broken_claims.one: ZeroDivisionError: division by zero"),
    ],
)
def test_a_broken_claim_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "broken_claims").mkdir()
    (tmp_path / "broken_claims" / "__init__.py").write_text("")
    (tmp_path / "broken_claims" / "one.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("broken_claims", "broken_claims.one"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    entry = EntryPoint("mine", "broken_claims", "scalevec.claims")
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry, entry])
    with pytest.raises(error, match=message):
        registry._installed.__wrapped__()


def test_a_missing_claim_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokenClaimFile, match="no such"):
        claims_in_file(tmp_path / "none.py")


def test_a_file_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for text in ("x = 1\n", "x = 2\n"):
        path.write_text(text)
        os.utime(path, (1, 1))
        assert module_in_file(path).x == int(text[4])
    assert os.listdir(tmp_path) == ["mine.py"]
