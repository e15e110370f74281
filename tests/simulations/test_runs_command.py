"""``scalevec sweep`` and ``scalevec runs``, as their user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner, Result

from simulations import cli
from simulations.export import export
from simulations.runs import RunStore
from simulations.runs_command import citations

STUDY = """
def measure(x, y="a", fail=0):
    if x == fail:
        raise ArithmeticError("on purpose")
    return {"square": float(x) ** 2, "half": x / 2}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("study.py").write_text(STUDY)
    return tmp_path


def scalevec(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments), catch_exceptions=False)


def sweep(*arguments: str) -> Result:
    return scalevec("sweep", "study.py:measure", "--jobs", "1", *arguments)


def keys() -> list[str]:
    return RunStore(Path("results/runs")).keys()


def test_a_sweep_prints_a_table_and_where_the_runs_are() -> None:
    result = sweep("--grid", "x=1,3", "--grid", "y=a,b", "--export", "out.csv")
    assert result.exit_code == 0 and result.stderr == ""
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["key", "x", "y", "square", "half", "seconds"]
    assert [line.split()[1:5] for line in lines[:4]] == [
        ["1", "a", "1", "0.5"],
        ["1", "b", "1", "0.5"],
        ["3", "a", "9", "1.5"],
        ["3", "b", "9", "1.5"],
    ]
    assert lines[5:] == ["4 of 4 runs are in results/runs", "out.csv"]
    table = pandas.read_csv("out.csv")
    assert list(table["results.square"]) == [1, 1, 9, 9] and list(table["settings.y"]) == ["a", "b", "a", "b"]
    assert list(table["key"]) == [line.split()[0] for line in lines[:4]]


def test_a_failed_point_is_one_line_and_status_1() -> None:
    result = sweep("--grid", "x=0:3", "--set", "fail=1")
    assert result.exit_code == 1 and "2 of 3 runs are in results/runs" in result.stdout
    line = f"scalevec: failed: fail=1, x=1: {Path('study.py').resolve()}:4: ArithmeticError: on purpose\n"
    assert result.stderr == line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--random", "3"], "random=3, range=None: expected both or neither"),
        (["--range", "x=log:1:2"], "random=None, range=x=log:1:2: expected both or neither"),
        (["--grid", "z=1"], "study.py:measure: missing a required argument: 'x'; it takes x, y, fail"),
        (["--grid", "x=1", "--export", "out.xls"], "out.xls: expected a name that ends with .csv or .parquet"),
        (["--grid", "x=1", "--scheduler", "nowhere"], "scheduler='nowhere': no Dask scheduler answered within"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(arguments, message, monkeypatch) -> None:
    monkeypatch.setattr("simulations.cluster.FIRST", 0.2)
    result = sweep(*arguments)
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"scalevec: error: {message}") and result.stderr.count("\n") == 1


def test_runs_are_listed_shown_and_compared() -> None:
    sweep("--random", "2", "--range", "x=int:2:9", "--set", "y=b")
    a, b = keys()
    listed = scalevec("runs", "list").stdout.splitlines()
    assert listed[0].split() == ["key", "what", "when", "(UTC)", "size", "seconds", "result"]
    assert sorted(line.split()[0] for line in listed[1:]) == [a, b]
    assert all("study.py:measure" in line and "kB" in line and "square " in line for line in listed[1:])
    shown = scalevec("runs", "show", a[:6]).stdout
    for expected in ("settings:", "provenance:", "final values:", a, "commit", "square"):
        assert expected in shown
    compared = scalevec("runs", "compare", a, b).stdout.splitlines()
    assert [line.split()[0] for line in compared if line.strip()] == [a, "x", "square", "half"]
    assert compared[0].split() == [a, b, "difference"]


def test_keys_that_fit_none_or_several_runs_are_named() -> None:
    sweep("--grid", "x=1:21")
    result = scalevec("runs", "show", "")
    assert result.exit_code == 2 and result.stderr.startswith(
        "scalevec: error: key='': 20 runs in results/runs begin so: "
    )
    result = scalevec("runs", "remove", keys()[0], "none")
    assert result.stderr == "scalevec: error: key='none': 0 runs in results/runs begin so\n" and len(keys()) == 20


def test_removed_runs_are_gone_and_damaged_ones_are_set_aside() -> None:
    sweep("--grid", "x=1,2,3")
    first, second, third = keys()
    result = scalevec("runs", "remove", first[:8])
    assert result.stdout == f"removed results/runs/{first}.nc\n" and keys() == [second, third]
    path = Path(f"results/runs/{second}.nc")
    path.write_bytes(path.read_bytes()[:-1])
    result = scalevec("runs", "show", second)
    assert result.exit_code == 2 and result.stderr.endswith(f"{second}.nc: not a whole run\n")
    assert [line.split()[0] for line in scalevec("runs", "list").stdout.splitlines()[1:]] == [third]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_export_has_one_row_for_each_run(ending: str) -> None:
    sweep("--grid", "x=1,2.5")
    sweep("--grid", "x=4", "--set", "y=[1,2]")
    assert scalevec("runs", "export", f"runs.{ending}").stdout == f"runs.{ending}: 3 runs\n"
    table = pandas.read_csv("runs.csv") if ending == "csv" else pandas.read_parquet("runs.parquet")
    table = table.sort_values("settings.x")
    assert list(table["settings.x"]) == [1, 2.5, 4] and list(table["results.square"]) == [1, 6.25, 16]
    assert list(table["settings.y"]) == ['"a"', '"a"', "[1, 2]"] and set(table["task"]) == {"study.py:measure"}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_integers_stay_integers_where_some_runs_have_none(ending: str) -> None:
    sweep("--grid", "x=3")
    Path("other.py").write_text("def other(z):\n    return 1.5\n")
    scalevec("sweep", "other.py:other", "--grid", "z=2", "--jobs", "1")
    scalevec("runs", "export", f"runs.{ending}")
    if ending == "csv":
        assert set(pandas.read_csv("runs.csv", dtype=str)["settings.x"].dropna()) == {"3"}
    else:
        column = pandas.read_parquet("runs.parquet")["settings.x"]
        assert str(column.dtype) == "Int64" and column.dropna().tolist() == [3]


def test_runs_are_cited_with_what_made_them() -> None:
    assert scalevec("runs", "cite").stderr == "scalevec: error: results/runs: no runs to cite\n"
    sweep("--grid", "x=1,3")
    store = RunStore(Path("results/runs"))
    first, second = (run for key in keys() if (run := store.get(key)) is not None)
    origin = json.loads(first.attrs["provenance"])
    one = scalevec("runs", "cite", keys()[0]).stdout
    assert f"version = {{{origin['scalevec']}, commit {origin['commit']}}}," in one
    assert f"torch {origin['torch']}" in one and origin["processor"] not in one
    assert f"runs {keys()[0]}}}," in one and keys()[1] not in one
    both = citations([first, second])
    assert len(both) == 1 and f"runs {keys()[0]}, {keys()[1]}}}," in both[0]
    other = second.assign_attrs(provenance=json.dumps(origin | {"torch": "1.0"}))
    assert ["torch 1.0" in entry for entry in citations([first, other])] == [False, True]
    trained = second.assign_attrs(data_fingerprint="abc")
    assert ["data abc" in entry for entry in citations([first, trained])] == [False, True]


def test_parquet_without_pyarrow_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulations.export.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"x.parquet: Parquet needs pyarrow; pip install 'scalevec\[report\]', or wri"):
        export([], Path("x.parquet"))


def test_help_of_runs_and_sweep_has_examples() -> None:
    for command in cli.main.commands["runs"].commands:  # type: ignore[attr-defined]
        assert f"Example:\n    scalevec runs {command}" in scalevec("runs", command, "--help").stdout
