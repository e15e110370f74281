"""Sweeps: designs, keys, one run for each point, failures, and the built-in simulations."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import xarray

from simulations import tasks
from simulations.lm.run import make_run
from simulations.runs import RunStore
from simulations.settings import parse_axes, parse_ranges
from simulations.sweep import TASKS, Range, Sweep, _module, as_dataset, find_target

STUDY = """
import os
import numpy as np

def measure(x, y=2, **more):
    open("calls", "a").write(f"{x}\\n")
    if x == 3:
        raise RuntimeError("x is three")
    return {"product": x * y, "process": os.getpid()} if "process" in more else x * y

def nothing():
    return None

def spectrum(x):
    a = np.random.default_rng(x).standard_normal((400, 400)).astype("float32")
    return {"largest": np.linalg.eigvalsh(a @ a.T)[-1], "trace": (a @ a).trace(), "process": os.getpid()}
"""
SMALL = {"width": 16, "layers": 1, "heads": 2, "hidden": 16, "data": "markov:8", "steps": 4, "warmup": 1, "batch": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("study.py").write_text(STUDY)
    return tmp_path


def calls() -> int:
    return len(Path("calls").read_text().splitlines()) if Path("calls").exists() else 0


def test_every_point_is_run_once_and_a_failure_stops_no_other() -> None:
    sweep = Sweep.grid("study.py:measure", {"x": [1, 3, 5], "y": range(2)})
    told: list[tuple[int, int]] = []
    points = sweep.run(Path("runs"), report=lambda done, total: told.append((done, total)))
    assert [p.settings for p in points] == [{"x": x, "y": y} for x in (1, 3, 5) for y in (0, 1)]
    assert [dict(p.results) for p in points] == [{"result": r} for r in (0, 1)] + [{}] * 2 + [
        {"result": r} for r in (0, 5)
    ]
    failed = f"{Path('study.py').resolve()}:8: RuntimeError: x is three"
    assert [p.error for p in points] == ["", "", failed, failed, "", ""]
    assert told == [(done, 6) for done in range(7)] and calls() == 6
    told.clear()
    again = sweep.run(Path("runs"), report=lambda done, total: told.append((done, total)))
    assert [p.results for p in again] == [p.results for p in points] and told == [(0, 2), (1, 2), (2, 2)]
    assert calls() == 8 and len(RunStore(Path("runs")).keys()) == 4


def test_a_default_that_is_given_is_the_same_run_and_other_text_another() -> None:
    (plain,) = Sweep.grid("study.py:measure", {"x": [1]}).run(Path("runs"))
    (given,) = Sweep.grid("study.py:measure", {"y": [2]}, {"x": 1}).run(Path("runs"))
    assert plain.key == given.key and calls() == 1
    Path("study.py").write_text(STUDY.replace("x * y", "x + y"))
    (other,) = Sweep.grid("study.py:measure", {"x": [1]}).run(Path("runs"))
    assert other.key != plain.key and (plain.results, other.results) == ({"result": 2}, {"result": 3})


def test_a_file_that_changes_under_way_is_noticed() -> None:
    sweep = Sweep.grid("study.py:measure", {"x": [1]})
    Path("study.py").write_text(STUDY + "\n")
    _module.cache_clear()  # as in a new worker process, which has not loaded the file
    with pytest.raises(ValueError, match=r"study.py has changed since the sweep began; give the command again"):
        sweep.run(Path("runs"))


def test_processes_find_the_numbers_of_one_and_share_the_work() -> None:
    one, two = (Sweep.grid("study.py:spectrum", {"x": range(4)}).run(Path(f"by{n}"), jobs=n) for n in (1, 2))
    assert {p.results["process"] for p in one} == {os.getpid()} and os.getpid() not in {
        p.results["process"] for p in two
    }
    for a, b in zip(one, two, strict=True):
        assert (a.results["largest"], a.results["trace"]) == (b.results["largest"], b.results["trace"])


def test_runs_of_the_lab_have_the_keys_of_scalevec_train() -> None:
    sweep = Sweep.grid("train:llama", {"lr": [1e-3, 3e-3]}, {**SMALL, "length": 8, "held_out": 1, "evaluations": 1})
    points = sweep.run(Path("runs"))
    sizes = {name: SMALL[name] for name in ("width", "layers", "heads", "hidden")}
    others = {name: value for name, value in SMALL.items() if name not in sizes}
    runs = [
        make_run("llama", {**sizes, "length": 8}, lr=lr, length=8, held_out=1, evaluations=1, **others)
        for lr in (1e-3, 3e-3)
    ]
    assert [p.key for p in points] == [run.key for run in runs] and not any(p.error for p in points)
    assert {"loss", "held_out_loss", "gradient_norm"} == set(points[0].results)


def test_a_larger_random_design_begins_with_the_smaller() -> None:
    ranges = {"sigma": Range("log", 1e-3, 1), "time": Range("uniform", 1, 2), "paths": Range("int", 1, 3)}
    few, many = (Sweep.random("noise", n, ranges, {"seed": range(2)}, {"d": 3}, seed=4).points for n in (50, 400))
    assert few == many[:100] and [p["seed"] for p in few[:4]] == [0, 1, 0, 1] and all(p["d"] == 3 for p in few)
    assert few[0]["sigma"] == few[1]["sigma"] != few[2]["sigma"]
    drawn = {name: np.array([p[name] for p in many[::2]]) for name in ranges}
    assert set(drawn["paths"]) == {1, 2, 3} and drawn["time"].min() > 1 and drawn["time"].max() < 2
    assert abs(np.median(np.log10(drawn["sigma"])) + 1.5) < 0.25 and drawn["sigma"].min() < 2e-3
    assert Sweep.random("noise", 50, ranges, seed=5).points[0] != Sweep.random("noise", 50, ranges, seed=4).points[0]


def test_axes_and_ranges_are_read_from_text() -> None:
    axes = parse_axes(["lr=1e-3,3e-3", "seed=0:3", "design=HG+OR,none", "betas=[0.9,0.95],[0.9,0.99]", "k=-1:1"])
    assert axes == {
        **{"lr": [1e-3, 3e-3], "seed": [0, 1, 2], "design": ["HG+OR", "none"]},
        **{"betas": [[0.9, 0.95], [0.9, 0.99]], "k": [-1, 0]},
    }
    assert parse_ranges(["lr=log:1e-4:1e-2"]) == {"lr": ("log", 1e-4, 1e-2)}


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_axes, "lr", "grid='lr': expected key=value,value or key=first:end"),
        (parse_axes, "seed=3:3", "grid='seed=3:3': expected at least one value"),
        (parse_ranges, "lr=1:2", "range='lr=1:2': expected key=kind:low:high, kind uniform, log or int"),
        (parse_ranges, "lr=log:a:b", "range='lr=log:a:b': expected key=kind:low:high"),
    ],
)
def test_text_that_is_no_axis_or_range_is_named(parse, text, message) -> None:
    with pytest.raises(ValueError, match=message):
        parse([text])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: find_target("nois"), "target='nois': expected train:FAMILY, equilibrium, flow, noise, or FILE.py:FUN"),
        (lambda: find_target("gone.py:f"), "gone.py: no such file"),
        (lambda: find_target("study.py:measur"), "measur"),
        (lambda: Sweep.grid("noise", {"seed": [0]}, {"seed": 1}), "seed is an axis and has a fixed value, too"),
        (lambda: Sweep.random("noise", 2, {"seed": Range("int", 0, 2)}, {"seed": [0]}), "seed has a range and is an"),
        (lambda: Sweep.random("noise", 0, {}), "random=0, seed=0: expected random >= 1"),
        (lambda: Sweep.grid("noise", {"sigm": [1]}).run(Path("runs")), "noise: got an unexpected keyword argument 's"),
        (lambda: Sweep.grid("study.py:measure", {}).run(Path("runs")), "study.py:measure: missing a required arg"),
        (lambda: Sweep.grid("train:llama", {"depth": [1]}).run(Path("runs")), "depth=1: no such size or setting"),
        (lambda: Sweep.grid("noise", {}).run(Path("runs"), jobs=0), "jobs=0: expected >= 1"),
        (lambda: Range("log", 0, 1), "range=log:0:1: expected 0 < low < high"),
        (lambda: Range("uniform", 1, 1), "range=uniform:1:1: expected low < high"),
        (lambda: Range("normal", 0, 1), "range='normal': expected uniform, log or int"),
        (lambda: as_dataset("text", "f"), "f returned str: expected a number, a mapping of numbers or an xarray"),
        (lambda: as_dataset({"a": None}, "f"), "f returned NoneType: expected a number"),
    ],
)
def test_what_makes_no_sense_is_named(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_a_function_may_return() -> None:
    assert as_dataset(np.float32(0.5), "f").identical(xarray.Dataset({"result": np.float32(0.5)}))
    assert as_dataset({"a": 1, "b": np.bool_(True)}, "f").identical(xarray.Dataset({"a": 1, "b": True}))
    given = xarray.Dataset({"x": ("k", [1.0])})
    assert as_dataset(given, "f") is given
    (point,) = Sweep.grid("study.py:nothing", {}).run(Path("runs"))
    assert point.error.endswith(
        "study.py:nothing returned NoneType: expected a number, a mapping of numbers or an xarray dataset"
    )


def test_the_built_in_simulations_follow_the_theory() -> None:
    assert all(callable(getattr(tasks, name)) for name in TASKS)
    flow = tasks.flow("plain", time=1.0, points=6)
    assert np.allclose(flow["loss"], float(flow["loss"][0]) * np.exp(-2 * flow["time"]), rtol=1e-7)
    for inputs in tasks.INPUTS:
        scaled = tasks.flow("dual-scale", inputs, weight_decay=0.0, seed=1)
        assert scaled["drift"] < 1e-7 and (scaled["loss"].diff("time") < 0).all()
    noisy = tasks.noise("plain", kind="isotropic", sigma=0.5, d=3, dt=2e-3, paths=4000, time=2.0, points=3)
    still = tasks.flow("plain", c=1, d=3, time=2.0, points=3)
    # Ornstein-Uhlenbeck: d coordinates of variance σ²(1 − e^(−2t))/2 about the flow; Euler's bias is of order dt
    expected = still["loss"] + 3 * 0.5**2 * (1 - np.exp(-2 * still["time"])) / 4
    assert (np.abs(noisy["loss"] - expected) <= 4 * noisy["loss_stderr"] + 2e-3 * expected).all()
    for name in ("adamw", "sgd", "lion"):
        rms = tasks.equilibrium(name, lr=1e-2, weight_decay=0.5, steps=400, n=8192, points=5)
        error = np.abs(rms["simulated"] - rms["predicted"])[1:]
        assert (error < 5 * rms["simulated_stderr"][1:] + 0.02 * rms["predicted"][1:]).all(), name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tasks.flow("plan"), "parametrization='plan': expected one of plain, input-scale"),
        (lambda: tasks.flow(inputs="white"), "inputs='white': expected one of whitened, uncorrelated, correlated"),
        (lambda: tasks.flow(c=0), "c=0: expected >= 1"),
        (lambda: tasks.flow(seed=-1), "seed=-1: expected >= 0"),
        (lambda: tasks.flow(points=1), "time=5.0, points=1: expected time > 0 and at least 2 points"),
        (lambda: tasks.noise(kind="white"), "kind='white': expected one of isotropic, minibatch, label"),
        (lambda: tasks.equilibrium("muon"), "optimizer='muon': expected one of adam"),
    ],
)
def test_simulations_name_what_they_refuse(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
