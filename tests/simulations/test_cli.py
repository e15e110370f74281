import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from toy import COUNTED, TOY

import simulations.checks
from scalevec_theory.check import EFFORTS
from scalevec_theory.registry import installed_claims
from simulations import cli
from simulations.tables import progress

STUBBORN = """
def endless(setting):
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
"""
SLOW = """
claim = Claim("slow", "t", "s", "nowhere", (
    Scope("quick", "1 ≥ 0", True, measure=simulate),
    Scope("endless", "1 ≥ 0", True, measure=endless),
    Scope("endless-too", "1 ≥ 0", True, measure=endless),
))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with the claim files ``toy.py`` and ``counted.py``."""
    monkeypatch.chdir(tmp_path)
    Path("toy.py").write_text(TOY)
    Path("counted.py").write_text(COUNTED)
    return tmp_path


def scalevec(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, [str(a) for a in arguments], catch_exceptions=False)


def error_of(*arguments: str) -> str:
    """The one line of standard error of a command that must end with status 2 and print nothing else."""
    result = scalevec(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("scalevec: error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("scalevec: error: ").rstrip()


def test_kept_evidence_says_where_it_comes_from() -> None:
    assert scalevec("check", "toy.py", "--jobs", "1", "--seed", "3", "--evidence", "kept.json").exit_code == 0
    kept = json.loads(Path("kept.json").read_text())
    assert (kept["effort"], kept["seed"]) == ("quick", 3)
    assert {"commit", "torch", "processor", "cores"} <= set(kept["provenance"])
    assert kept["results"] and all("counterexample" not in r for r in kept["results"])


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = "import sys, simulations.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\n"
    code += (
        "heavy = {'torch', 'sympy', 'numpy', 'numba', 'rich', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("command", sorted(cli.main.commands))
def test_every_command_has_an_example(command: str) -> None:
    result = scalevec(command, "--help")
    assert result.exit_code == 0
    assert f"Example:\n    scalevec {command}" in result.stdout
    assert "Example:" in scalevec("--help").stdout


def test_efforts_are_those_of_the_library() -> None:
    assert tuple(EFFORTS) == cli.EFFORTS


def test_claims_lists_every_scope() -> None:
    result = scalevec("claims")
    assert result.exit_code == 0
    for claim in installed_claims().values():
        assert claim.id in result.stdout
        for scope in claim.scopes:
            assert f"{'+' if scope.holds else '−'} {scope.name}" in result.stdout


def test_check_prints_verdicts_and_writes_both_files() -> None:
    result = scalevec("check", "toy.py", "--jobs", "1", "--json", "out.json", "--report", "page.md")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "✓  toy:sign    fails     refuted" in result.stdout
    assert "assert margin < 0, margin" in result.stdout
    assert result.stdout.endswith("\n4 scopes: 1 proved, 2 confirmed, 1 refuted; all as expected.\n")
    assert Path("page.md").read_text().startswith("# Every claim, checked")
    entries = json.loads(Path("out.json").read_text())
    keys = {"claim", "scope", "expected", "verdict", "ok", "seconds", "evidence", "counterexample"}
    assert all(set(e) == keys for e in entries)
    evidence = {"kind", "margin", "stderr", "instances", "seed", "detail"}
    assert all(set(x) == evidence for e in entries for x in e["evidence"])
    assert [e["verdict"] for e in entries] == ["confirmed", "refuted", "proved", "confirmed"]
    assert [e["expected"] for e in entries] == ["holds", "fails", "holds", "holds"]
    assert set(entries[1]["counterexample"]) == {"fields", "margin", "code"}
    assert [e["counterexample"] is None for e in entries] == [True, False, True, True]
    assert sorted(os.listdir()) == ["counted.py", "out.json", "page.md", "results", "toy.py"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"x² ≥ 0", True', '"x² ≥ 0", False'), "✗  toy:square  fails     confirmed"),
        (('"x ≥ 0", False', '"x ≥ 0", True'), "✗  toy:sign    holds     refuted"),
        (('{"y = x": Eq(y, x)}', "{}"), "✗  toy:exact   holds     inconclusive"),
        (("0.3 + mean,", "mean,"), "✗  toy:mean    holds     inconclusive"),
    ],
)
def test_a_verdict_that_is_not_expected_gives_status_1(change: tuple[str, str], told: str) -> None:
    Path("toy.py").write_text(TOY.replace(*change))
    result = scalevec("check", "toy.py", "--jobs", "1", "--json", "out.json")
    assert result.exit_code == 1
    assert told in result.stdout
    assert "1 not as expected" in result.stdout
    assert [e["ok"] for e in json.loads(Path("out.json").read_text())].count(False) == 1


def test_falsify_finds_shrinks_and_says_whether_that_was_expected() -> None:
    result = scalevec("falsify", "toy.py", "--scope", "sign", "--budget", "100")
    assert result.exit_code == 0
    assert "scope('toy:sign', file='toy.py').evaluate(\n    x=-1,\n)" in result.stdout
    code = result.stdout[result.stdout.index("from scalevec_theory") :]
    exec(code, {})
    result = scalevec("falsify", "toy.py:toy", "--scope", "square", "--budget", "100", "--seed", "3")
    assert result.exit_code == 0
    assert "no violation found" in result.stdout
    Path("toy.py").write_text(TOY.replace('"x ≥ 0", False', '"x ≥ 0", True'))
    assert scalevec("falsify", "toy.py", "--scope", "sign", "--budget", "100").exit_code == 1


def test_discover() -> None:
    result = scalevec("discover", "input-scale", "--dims", "c=1, d=2")
    assert result.exit_code == 0
    assert "v[0]**2 - W[0,0]**2" in result.stdout
    Path("mine.py").write_text("def product(x=(), y=()):\n    return x * y\n")
    result = scalevec("discover", "mine.py:product", "--degree", "2")
    assert result.exit_code == 0
    assert "x**2 - y**2" in result.stdout


def test_figures_prints_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "simulations.drawing.draw_all",
        lambda names, out, seed, jobs, report: [out / f"{n}-{seed}-{jobs}" for n in names],
    )
    result = scalevec("figures", "a", "b", "--out", "there", "--seed", "2", "--jobs", "3")
    assert (result.exit_code, result.stdout) == (0, "there/a-2-3\nthere/b-2-3\n")


def test_new_claim() -> None:
    result = scalevec("new-claim", "my-idea")
    assert result.exit_code == 0
    assert (
        result.stdout
        == "wrote my_idea.py and test_my_idea.py; now run\n  scalevec check my_idea.py\n  pytest test_my_idea.py\n"
    )
    assert error_of("new-claim", "my-idea") == "my_idea.py exists; choose another name"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("check conservatoin", "no claim named 'conservatoin'; nearest: conservation"),
        ("check conservation:adm", "no scope of conservation named 'adm'; nearest: adam"),
        ("check missing.py", "missing.py: no such file"),
        ("check counted.py --seed -1", "seed=-1: expected >= 0"),
        ("check counted.py --jobs 0", "jobs=0: expected >= 1"),
        ("check counted.py --seed one", "Invalid value for '--seed': 'one' is not a valid integer."),
        ("check counted.py --json no/x.json", "no/x.json: No such file or directory"),
        ("check counted.py --report toy.py/page.md", "toy.py/page.md: Not a directory"),
        ("check counted.py --json .", "Invalid value for '--json': File '.' is a directory."),
        ("check counted.py --nonsense", "No such option '--nonsense'."),
        ("falsify toy.py --scope sing --budget 5", "no scope of toy.py named 'sing'; nearest: sign"),
        ("falsify toy.py --scope sign --budget 0", "budget=0: expected an integer >= 1"),
        ("falsify toy.py --scope sign --budget 5 --seed -2", "seed=-2: expected >= 0"),
        ("falsify toy.py --scope mean --budget 5", "toy.py:toy:mean is not stated on a problem space"),
        ("falsify toy.py --budget 5", "Missing option '--scope'."),
        ("discover input-scale --dims c=2,d=0", "dims='c=2,d=0': expected sizes >= 1 such as c=2,d=3"),
        ("discover input-scale --dims 2", "dims='2': expected sizes >= 1 such as c=2,d=3"),
        ("discover input-scale --dims c=1,d=1 --degree 0", "degree=0"),
        ("discover nothing", "'nothing': expected FILE.py:NAME or one of "),
        ("figures no-such-figure", "no figure named 'no-such-figure'; nearest: "),
        ("figures --out toy.py", "Invalid value for '--out': Directory 'toy.py' is a file."),
        ("figures --seed -1", "seed=-1: expected >= 0"),
        ("new-claim No", "name='No': expected lower-case words joined by hyphens, such as my-idea"),
        ("chek", "No such command 'chek'."),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(arguments: str, message: str) -> None:
    assert error_of(*arguments.split()).startswith(message)
    assert {p.name for p in Path().rglob("*") if p.is_file()} == {"toy.py", "counted.py"}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\ny = x / 0\n", "bad.py:2: ZeroDivisionError: division by zero"),
        ("import nothing_of_this_name\n", "bad.py:1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def f(:\n", "bad.py:1: SyntaxError: invalid syntax (bad.py, line 1)"),
        ("raise SystemExit(0)\n", "bad.py:1: SystemExit: 0"),
        ("x = 1\n", "bad.py: defines no Claim"),
        (TOY.replace('"x ≥ 0", False', '"x ≥ 0", False, accuracy=-1'), "bad.py:"),
    ],
)
def test_a_claim_file_that_does_not_work_gets_one_line(code: str, message: str) -> None:
    Path("bad.py").write_text(code)
    told = error_of("check", "bad.py", "--jobs", "1", "--json", "out.json", "--report", "page.md")
    assert told.startswith(message)
    assert not Path("out.json").exists() and not Path("page.md").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('lambda p, accuracy: Margin(p["x"] ** 2', 'lambda p, accuracy: Margin(q["x"] ** 2'),
            r"bad.py:\d+: NameError: name 'q' is not",
        ),
        (('p["x"] ** 2, 0 * p["x"]', 'p["x"][:, None], 0 * p["x"]'), r"bad.py:\d+: ValueError: value has shape"),
        (
            ('Margin(p["x"] ** 2, 0 * p["x"])', 'p["x"] ** 2'),
            r"bad.py: TypeError: scope 'square': its margin returned Tensor,",
        ),
    ],
)
def test_a_scope_whose_code_raises_is_told_and_the_others_are_judged(change: tuple[str, str], message: str) -> None:
    assert change[0] in TOY
    Path("bad.py").write_text(TOY.replace(*change))
    result = scalevec("check", "bad.py", "--jobs", "1")
    assert result.exit_code == 2
    assert "✗  toy:square  holds     not run" in result.stdout
    assert "✓  toy:sign    fails     refuted" in result.stdout
    assert re.search(f"not run: its code raised, {message}", result.stdout)
    assert "Traceback" not in result.output


def test_claims_by_name_says_what_their_scopes_say() -> None:
    result = scalevec("claims", "toy.py:toy:sign", "conservation")
    assert result.exit_code == 0
    assert re.search(r"− +toy:sign +x ≥ 0 *\n", result.stdout)
    assert re.search(r"\+ +conservation:any-loss +Q_j is constant", result.stdout)


def test_progress_is_told_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("scopes") as tell:
        for done in range(0, 41):
            tell(done, 40)
        for done in range(0, 5):
            tell(done, 4)  # over in no time: nothing to tell
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"scopes: {n} of 40" for n in range(4, 41, 4)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
@pytest.mark.parametrize("command", ["check toy.py", "falsify toy.py --scope sign --budget 5"])
def test_a_device_that_is_not_there(command: str) -> None:
    assert error_of(*command.split(), "--device", "cuda").startswith(
        "device='cuda': expected a device this machine has"
    )


def test_a_full_disk_gets_one_line_and_keeps_what_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    write = simulations.checks.write_json

    def full(path: Path, value: object) -> None:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        write(path, value)

    monkeypatch.setattr(simulations.checks, "write_json", full)
    told = error_of("check", "toy.py", "--jobs", "1", "--json", "out.json")
    assert told.startswith("results/checks/toy--") and told.endswith(".json: No space left on device")
    assert sorted(Path("results/checks").iterdir()) == sorted(written)
    assert not Path("out.json").exists()


def test_a_results_folder_that_cannot_be_made_gets_one_line() -> None:
    Path("results").write_text("a file")
    assert error_of("check", "counted.py") in ("results/checks: Not a directory", "results: File exists")
    assert not Path("calls").exists()


def test_a_file_cannot_be_written_after_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("page.md").write_text("before")
    monkeypatch.setattr("simulations.paper_checks.render", lambda *a: "after")
    monkeypatch.setattr(
        "os.replace",
        lambda a, b: (
            (_ for _ in ()).throw(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            if str(b).endswith("page.md")
            else shutil.move(a, b)
        ),
    )
    assert error_of("check", "counted.py", "--report", "page.md").endswith("page.md: No space left on device")
    assert Path("page.md").read_text() == "before"
    assert sorted(os.listdir()) == ["calls", "counted.py", "page.md", "results", "toy.py"]


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def started(jobs: int) -> subprocess.Popen[str]:
    """A check of three scopes, of which the first is done and the other two never will be."""
    Path("slow.py").write_text("import time\n" + COUNTED[: COUNTED.index("claim =")] + STUBBORN + SLOW)
    code = "import sys, simulations.cli as cli\ncli.GRACE = 1.0\ncli.main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "check", "slow.py", "--jobs", str(jobs)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 300
    while not list(Path("results/checks").glob("slow--quick--*.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
        assert run.poll() is None, run.communicate()
    return run


def must_end_quietly(run: subprocess.Popen[str]) -> None:
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out) == (130, "")
    assert err.strip() == "scalevec: interrupted; what was finished is stored"
    deadline = time.monotonic() + 30
    while group_is_alive(run.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not group_is_alive(run.pid)


def test_ctrl_c_ends_a_parallel_run_and_loses_nothing() -> None:
    run = started(jobs=2)
    time.sleep(0.5)  # the other worker is well inside its endless scope
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    must_end_quietly(run)
    assert Path("calls").read_text() == "x"
    assert scalevec("check", "slow.py:slow:quick").exit_code == 0
    assert Path("calls").read_text() == "x"


def test_an_interrupt_is_told_once_though_two_threads_end_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    cli._said.clear()
    cli._say_interrupted()
    cli._say_interrupted()
    assert capsys.readouterr().err == "scalevec: interrupted; what was finished is stored\n"


def test_a_run_that_is_told_to_end_takes_its_workers_along_whatever_they_swallow() -> None:
    run = started(jobs=2)
    time.sleep(0.5)
    run.terminate()
    must_end_quietly(run)
