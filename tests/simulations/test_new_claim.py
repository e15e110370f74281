import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import simulations.new_claim
from scalevec_theory.registry import claims_in_file
from simulations.cli import main
from simulations.new_claim import write_claim

pytest_plugins = ["pytester"]


def test_claim_and_test_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    assert write_claim("my-idea", tmp_path) == (tmp_path / "my_idea.py", tmp_path / "test_my_idea.py")
    (claim,) = claims_in_file(tmp_path / "my_idea.py").values()
    assert claim.id == "my-idea"
    assert {s.holds for s in claim.scopes} == {True, False}
    monkeypatch.chdir(tmp_path)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "test_my_idea.py").assert_outcomes(passed=2)
    checked = CliRunner().invoke(main, ["check", "my_idea.py", "--jobs", "1"])
    assert checked.exit_code == 0 and "1 confirmed, 1 refuted; all as expected" in checked.output, checked.output


def test_what_is_written_is_tidy(tmp_path: Path) -> None:
    files = write_claim("my-idea", tmp_path)
    for command in (["check", "--select", "E,F,W,I,UP,B,SIM,NPY"], ["format", "--check"]):
        run = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length", "120", *files],
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("there", ["my_idea.py", "test_my_idea.py"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(ValueError, match=f"{there} exists"):
        write_claim("my-idea", tmp_path)
    assert os.listdir(tmp_path) == [there]
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize("name", ["", "My", "a/b", "../a", "a_b", "a--b", "1st", "class", "a.py"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="expected lower-case words joined by hyphens"):
        write_claim(name, tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["random", "torch", "conservation", "growth-test"])
def test_no_module_is_hidden(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"name='{name}': a module .* exists"):
        write_claim(name, tmp_path)
    assert os.listdir(tmp_path) == []


def test_both_files_or_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = simulations.new_claim.write_text

    def full(path: Path, text: str) -> None:
        if path.name.startswith("test_"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, text)

    monkeypatch.setattr(simulations.new_claim, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_claim("my-idea", tmp_path)
    assert os.listdir(tmp_path) == []
