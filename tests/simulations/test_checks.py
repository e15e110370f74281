import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from toy import COUNTED, TOY

from scalevec_theory.claim import Result, Verdict
from scalevec_theory.registry import BrokenClaimFile, UnknownName, installed_claims
from simulations import checks
from simulations.checks import FOLDER, as_json, check_all, falsify_one, find_target, find_targets
from simulations.parallel import Raised
from simulations.tables import verdicts_table


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with the claim files ``toy.py`` and ``counted.py``."""
    monkeypatch.chdir(tmp_path)
    Path("toy.py").write_text(TOY)
    Path("counted.py").write_text(COUNTED)
    return tmp_path


def without_seconds(results: list[Result]) -> list[dict[str, object]]:
    return [{k: v for k, v in as_json(r).items() if k != "seconds"} for r in results]


def marks() -> int:
    return len(Path("calls").read_text())


def test_names_stand_for_scopes() -> None:
    def arguments(*names: str) -> list[str]:
        return [t.argument for t in find_targets(names)]

    toy = [f"toy.py:toy:{scope}" for scope in ("square", "sign", "exact", "mean")]
    assert arguments("toy.py") == arguments("toy.py:toy") == arguments("toy.py", "toy.py:toy:sign") == toy
    assert arguments("toy.py:toy:sign", "toy.py") == [toy[1], toy[0], *toy[2:]]
    assert arguments("conservation:adam") == ["conservation:adam"]
    everything = [f"{c.id}:{s.name}" for c in installed_claims().values() for s in c.scopes]
    assert arguments() == everything


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("conservatoin", UnknownName, "no claim named 'conservatoin'; nearest: conservation"),
        ("conservation:adm", UnknownName, "no scope of conservation named 'adm'; nearest: adam"),
        ("toy.py:toys", UnknownName, "no claim named 'toys'; nearest: toy"),
        ("toy.py:toy:sing", UnknownName, "no scope of toy named 'sing'; nearest: sign"),
        ("missing.py", BrokenClaimFile, "missing.py: no such file"),
    ],
)
def test_unknown_names(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        find_targets([name])


def test_one_target_from_claim_and_scope() -> None:
    assert find_target("toy.py", "sign").argument == "toy.py:toy:sign"
    with pytest.raises(UnknownName, match=r"no scope of toy.py named 'sing'; nearest: sign"):
        find_target("toy.py", "sing")
    Path("two.py").write_text(
        COUNTED + COUNTED[COUNTED.index("claim =") :].replace("claim =", "other =").replace('"counted"', '"again"')
    )
    with pytest.raises(ValueError, match=r"several scopes one: two.py:counted:one, two.py:again:one; name the claim"):
        find_target("two.py", "one")


def test_results_are_the_same_for_any_number_of_jobs() -> None:
    targets = find_targets(["toy.py", "conservation:gd-increment"])
    runs = [check_all(targets, jobs=jobs, folder=Path(f"jobs{jobs}")) for jobs in (1, 2)]
    assert without_seconds(runs[0]) == without_seconds(runs[1])
    assert [r.verdict for r in runs[0]] == ["confirmed", "refuted", "proved", "confirmed", "proved"]
    assert all(r.ok for r in runs[0])


def test_the_seed_matters_and_only_the_seed() -> None:
    targets = find_targets(["toy.py:toy:mean"])
    first, again, other = (check_all(targets, seed=s, fresh=True)[0].evidence[0] for s in (0, 0, 1))
    assert first.margin == again.margin != other.margin


def test_a_stored_result_is_used_until_something_changes() -> None:
    reports: list[tuple[int, int]] = []

    def check(**options: object) -> list[dict[str, object]]:
        reports.clear()
        targets = find_targets(["counted.py"])
        return [as_json(r) for r in check_all(targets, report=lambda *x: reports.append(x), **options)]  # type: ignore[arg-type]

    first = check()
    assert (marks(), reports) == (1, [(0, 1), (1, 1)])
    assert check() == first
    assert (marks(), reports) == (1, [(0, 0)])
    check(seed=1)
    check(effort="standard")
    assert marks() == 3
    check(fresh=True)
    assert marks() == 4
    Path("counted.py").write_text(COUNTED + "\n# a comment\n")
    check()
    assert marks() == 5


def test_new_versions_or_new_code_of_ours_make_stored_results_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = find_targets(["counted.py"])
    check_all(targets)
    with monkeypatch.context() as patch:
        patch.setattr(checks, "versions", lambda libraries: {"torch": "another"})
        check_all(targets)
    assert marks() == 2
    with monkeypatch.context() as patch:
        patch.setattr(checks, "_package_digest", lambda name: "changed" if name == "scalevec_theory" else "same")
        check_all(targets)
    assert marks() == 3


def test_a_file_that_a_scope_reads_makes_its_stored_result_stale(folder: Path) -> None:
    claim = find_targets(["counted.py"])[0].claim
    data = folder / "data.json"
    scope = replace(claim.scopes[0], reads=(data,))
    target = checks.Target(claim, scope, "counted.py")
    keys = [checks._key(target)]
    for text in ("1", "2"):
        data.write_text(text)
        keys.append(checks._key(target))
    assert len(set(keys)) == 3


def test_the_key_of_a_result_knows_all_code_it_rests_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim of this package rests on the theory as well, and every result on the runner itself."""
    target = find_targets(["training-removal"])[0]
    keys = [checks._key(target)]
    original = checks._package_digest
    for changed in ("scalevec_theory", "simulations"):
        with monkeypatch.context() as patch:
            patch.setattr(checks, "_package_digest", lambda name, c=changed: "new" if name == c else original(name))
            keys.append(checks._key(target))
    monkeypatch.setattr(checks, "__file__", str(folder / "toy.py"))
    keys += [checks._key(target), checks._key(find_targets(["training-removal"])[1])]
    assert len(set(keys)) == 5


def test_a_package_is_other_code_when_an_outcome_or_the_name_of_a_file_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    outcome = folder / "package_of_mine" / "outcomes" / "a.json"
    outcome.parent.mkdir(parents=True)
    (folder / "package_of_mine" / "__init__.py").write_text("")
    digests = []
    for text in ("1", "2"):
        outcome.write_text(text)
        digests.append(checks._package_digest.__wrapped__("package_of_mine"))
    outcome.rename(outcome.with_name("b.json"))
    digests.append(checks._package_digest.__wrapped__("package_of_mine"))
    assert len(set(digests)) == 3


def test_results_of_other_devices_and_of_other_files_are_stored_apart(folder: Path) -> None:
    target = find_targets(["counted.py"])[0]
    elsewhere = replace(target, file=str(folder / "b" / "counted.py"))
    names = {checks._file_name(target, "quick", 0, device) for device in ("cpu", "cuda")}
    assert len({*names, checks._file_name(elsewhere, "quick", 0, "cpu")}) == 3


def test_a_counterexample_comes_back_with_its_evidence_and_names_the_file() -> None:
    (result,) = check_all(find_targets(["toy.py:toy:sign"]))
    assert result.counterexample is not None and "file='toy.py'" in result.counterexample.code
    assert result.evidence[0].counterexample == result.counterexample


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}', "null"])
def test_a_damaged_result_is_ignored(damage: str) -> None:
    targets = find_targets(["counted.py"])
    check_all(targets)
    (stored,) = FOLDER.iterdir()
    stored.write_text(damage)
    assert check_all(targets)[0].verdict == Verdict.CONFIRMED
    assert marks() == 2


def test_a_stored_result_with_the_right_key_and_a_wrong_shape_is_ignored() -> None:
    targets = find_targets(["counted.py"])
    check_all(targets)
    (stored,) = FOLDER.iterdir()
    content = json.loads(stored.read_text())
    for damage in ({}, {"verdict": "maybe"}, {"evidence": [1]}, {"evidence": None}, {"more": 1}):
        record = {**content["result"], **damage} if damage else {}
        stored.write_text(json.dumps({"key": content["key"], "result": record}))
        assert check_all(targets)[0].verdict == Verdict.CONFIRMED
    assert marks() == 6


def test_what_could_not_run_is_tried_again() -> None:
    code = COUNTED.replace("import Claim, Scope, measured", "import Claim, NotRun, Scope, measured")
    code = code.replace('return [measured("simulation", 1.0, "one")]', 'raise NotRun("no such package")')
    Path("counted.py").write_text(code)
    targets = find_targets(["counted.py"])
    for _ in range(2):
        (result,) = check_all(targets)
        assert (result.verdict, result.ok, result.reason) == (Verdict.NOT_RUN, False, "no such package")
    assert marks() == 2


def test_numbers_that_are_not_finite_are_null_in_json_first_and_stored() -> None:
    Path("counted.py").write_text(COUNTED.replace("1.0", 'float("nan")'))
    targets = find_targets(["counted.py"])
    for _ in range(2):
        (entry,) = (as_json(r) for r in check_all(targets))
        assert entry["evidence"][0]["margin"] is None
        assert entry["verdict"] == "inconclusive"
    assert marks() == 1


UNBOUNDED = """
import torch
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.problems import ProblemSpace, Real

def margin(problems, accuracy):
    x = problems["x"]
    inside = (x - 1).abs() < 0.02
    return Margin(torch.where(inside, -0.1, 1.0).double(), torch.where(inside, torch.inf, 0.0).double())

claim = Claim("unbounded", "", "", "", (Scope("all", "s", True, ProblemSpace("any", {}, {"x": Real("")}), margin),))
"""


def test_an_infinite_error_is_one_when_read_back_and_shown() -> None:
    Path("unbounded.py").write_text(UNBOUNDED)
    targets = find_targets(["unbounded.py"])
    results = check_all(targets)
    assert (results[0].verdict, results[0].evidence[0].error) == (Verdict.CONFIRMED, math.inf)
    assert next(iter(verdicts_table(targets, results).columns[5].cells)) == "-0.1 ± inf"


def test_results_come_in_the_order_asked_for_and_the_longest_run_first(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = find_targets(["toy.py"])
    check_all(targets)
    seconds = {"square": 1, "sign": 3, "exact": 2}
    for stored in FOLDER.iterdir():
        content = json.loads(stored.read_text())
        if content["result"]["scope"] in seconds:
            content["result"]["seconds"] = seconds[content["result"]["scope"]]
            stored.write_text(json.dumps(content))
        else:
            stored.unlink()
    run: list[str] = []
    original = checks.run_parallel
    monkeypatch.setattr(
        checks, "run_parallel", lambda calls, jobs: run.extend(c.arguments[1] for c in calls) or original(calls, jobs)
    )
    results = check_all(targets, fresh=True)
    assert [r.scope for r in results] == ["square", "sign", "exact", "mean"]
    assert run == ["toy:mean", "toy:sign", "toy:exact", "toy:square"]


def test_a_scope_that_raises_is_not_run_and_the_others_are() -> None:
    Path("counted.py").write_text(
        COUNTED.replace(
            "measure=simulate),)", 'measure=simulate), Scope("two", "s", True, measure=lambda setting: 1 / 0))'
        )
    )
    for _ in range(2):
        one, two = check_all(find_targets(["counted.py"]))
        assert one.ok and (two.verdict, two.expected, two.ok) == (Verdict.NOT_RUN, "holds", False)
        assert re.fullmatch(r"its code raised, counted.py:\d+: ZeroDivisionError: division by zero", two.reason)
    assert marks() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effort": "huge"}, "effort='huge': expected one of quick, standard, full"),
        ({"seed": -1}, "seed=-1: expected >= 0"),
        ({"jobs": 0}, "jobs=0: expected >= 1"),
        ({"device": "nowhere"}, "device='nowhere': expected a device"),
    ],
)
def test_bad_settings(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_all(find_targets(["counted.py"]), **options)  # type: ignore[arg-type]
    assert not Path("calls").exists()


def test_a_results_folder_that_cannot_be_written_is_found_before_anything_is_checked() -> None:
    Path("results").write_text("a file")
    with pytest.raises(OSError, match="results"):
        check_all(find_targets(["counted.py"]))
    assert not Path("calls").exists()


def test_falsify_one() -> None:
    evidence = falsify_one(find_target("toy.py", "sign"), 100)
    assert evidence.supports is False
    assert evidence.counterexample is not None and evidence.counterexample.fields == {"x": -1}
    assert falsify_one(find_target("toy.py", "square"), 100).supports is True
    with pytest.raises(ValueError, match=r"toy.py:toy:exact is not stated on a problem space"):
        falsify_one(find_target("toy.py", "exact"), 100)
    with pytest.raises(ValueError, match="budget=0: expected an integer >= 1"):
        falsify_one(find_target("toy.py", "sign"), 0)
    Path("toy.py").write_text(TOY.replace('Margin(p["x"], 0 * p["x"])', 'Margin(p["y"], 0 * p["x"])'))
    with pytest.raises(Raised, match=r"toy.py:\d+: KeyError"):
        falsify_one(find_target("toy.py", "sign"), 100)
