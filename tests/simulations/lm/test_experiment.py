"""Experiments: pairing, intervals, an effect that is there and one that is not, and what is stored."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from simulations.lm import experiment as module
from simulations.lm.commands import experiment as command
from simulations.lm.commands import find_experiments, split_settings
from simulations.lm.contrast import difference, mean, power, ratio, slope
from simulations.lm.evidence import evidence
from simulations.lm.experiment import (
    OUTCOMES,
    Experiment,
    Outcome,
    committed,
    gathered,
    perform,
    store,
    stored,
    tokens_to_reach,
)
from simulations.lm.experiments import EXPERIMENTS
from simulations.lm.model import count_parameters
from simulations.lm.run import set_up
from simulations.lm.training import train
from simulations.settings import parse_settings

SIZES = {"width": 16, "layers": 1, "heads": 2, "hidden": 16}
SETTINGS = {"data": "markov:8", "batch": 8, "length": 16, "lr": 1e-2, "held_out": 4, "evaluations": 3}

PLANTED = Experiment(
    "planted",
    "Is an effect found that is there, and none where there is none?",
    "made up",
    "llama",
    {
        "fast": {},
        "slow": {"lr": 1e-3},
        "same": {"clip_multipliers": False},
        "still": {"lr": 1e-9},
        "large-gate": {"rescaled": "gate", "rescale": 4.0},
    },
    (
        difference("known", "slow", "fast"),
        difference("nothing", "same", "fast"),
        difference("reversed", "fast", "slow"),
        slope("known-slope", {"fast": 1.0, "large-gate": 4.0}, "branches.gate_up", (0.2, math.inf)),
        slope("no-slope", {"fast": 1.0, "same": 4.0}, "branches.gate_up", (-0.01, 0.01)),
        ratio("known-ratio", "large-gate", "branches.gate_up", (0.2, math.inf)),
        ratio("no-ratio", "still", "branches.gate_up", (1.0, math.inf)),
    ),
    threshold=0.1,
    steps=(20, 20, 20),
    seeds=(3, 3, 3),
    sizes=SIZES,
    settings={**SETTINGS, "measures": ("branches",)},
)
BY_NAME = {c.name: c for c in PLANTED.contrasts}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return perform(PLANTED, "standard", tmp_path_factory.mktemp("runs"))


def test_a_known_effect_is_found_and_has_its_sign(outcome):
    known, reverse = (outcome.estimate(BY_NAME[name]) for name in ("known", "reversed"))
    assert known.low > 0 and known.value == -reverse.value and reverse.high < 0
    assert 0 < known.efficiency < 1 and np.isnan(reverse.efficiency)


def test_no_effect_is_zero(outcome):
    nothing = outcome.estimate(BY_NAME["nothing"])
    assert nothing.value == nothing.low == nothing.high == 0 and nothing.efficiency == 1


@pytest.mark.parametrize(
    ("name", "supports"),
    [
        ("known", True),
        ("reversed", False),
        ("nothing", None),
        ("known-slope", True),
        ("no-slope", True),
        ("known-ratio", True),
        ("no-ratio", False),
    ],
)
def test_every_kind_of_contrast_finds_what_is_planted_and_nothing_else(outcome, name, supports):
    assert evidence(outcome, PLANTED, BY_NAME[name]).supports is supports


def test_an_effect_of_unclear_size_is_neither_inside_nor_outside(outcome):
    known = outcome.estimate(BY_NAME["known-ratio"])
    near = replace(BY_NAME["known-ratio"], within=(known.value, math.inf))
    assert evidence(outcome, PLANTED, near).supports is None
    assert abs(outcome.estimate(BY_NAME["no-ratio"]).value) < 0.1


def test_slopes_are_those_of_least_squares():
    at = {"a": 16.0, "b": 32.0, "c": 128.0}
    values = {"a": 3.0, "b": 1.0, "c": 0.5}
    metrics = {"m": {arm: {s: [9.0, x * (1 + s)] for s in range(2)} for arm, x in values.items()}}
    made = Outcome("made", "", "full", {}, {}, 0, 0.0, {}, metrics)
    expected = np.polyfit(np.log(list(at.values())), np.log(list(values.values())), 1)[0]
    assert made.estimate(slope("x", at, "m", (-2, 0))).value == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"contrast 'x': arms at .*; expected two different places or more"):
        slope("x", {"a": 1.0, "b": 1.0}, "m", (-2, 0))


def test_a_number_without_a_logarithm_is_named():
    made = Outcome("made", "", "full", {}, {}, 0, 0.0, {}, {"m": {"a": {0: [0.0], 1: [1.0]}}})
    with pytest.raises(ValueError, match=r"made:x: m = 0.0 has no logarithm"):
        made.estimate(ratio("x", "a", "m", (0, 1)))


def test_contrasts_in_words():
    assert difference("x", "a", "b").formula == "a − b"
    assert slope("x", {"a": 1.0, "b": math.e}, "m", (0, 1)).formula == "log m: − a + b"
    assert ratio("x", "a", "m", (0, 1)).formula == "log m of a"
    assert [c.question for c in (difference("x", "a", "b"), ratio("x", "a", "m", (0, 1)))] == ["> 0", "0 to 1"]
    assert mean("x", "a", "m", (-math.inf, 1)).question == "< 1"


def test_older_runs_keep_their_keys():
    assert EXPERIMENTS["ladder"].run("standard", 0, "full").key == "fa24c00896f1faa2"


def test_what_is_stored_is_what_was_found(outcome, tmp_path: Path):
    store(outcome, tmp_path / "planted.json")
    assert stored(tmp_path / "planted.json") == outcome
    (tmp_path / "planted.json").write_text("{}")
    with pytest.raises(ValueError, match=r"planted.json: no stored outcome of an experiment"):
        stored(tmp_path / "planted.json")


@pytest.mark.parametrize(
    "change",
    [{"settings": {**SETTINGS, "weight_decay": 0.5}}, {"seeds": (2, 4, 9)}, {"arms": {**PLANTED.arms, "more": {}}}],
    ids=["a setting", "seeds", "an arm"],
)
def test_an_outcome_counts_for_no_other_design(change, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(module, "OUTCOMES", tmp_path)
    store(Outcome(PLANTED.id, PLANTED.design("full"), "full", {}, {}, 0, 0.0, {}), tmp_path / "planted.json")
    assert committed(PLANTED) is not None
    assert committed(replace(PLANTED, **change)) is None


def test_intervals_hold_what_they_say():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        curves = {"a": {s: [x] for s, x in enumerate(rng.normal(0.3, 1, 5))}, "b": {s: [0.0] for s in range(5)}}
        made = Outcome("made", "", "full", {"a": [1], "b": [1]}, curves, 0, 0.0, {})
        found = made.estimate(difference("x", "a", "b"))
        inside += found.low <= 0.3 <= found.high
    assert 0.92 < inside / 400 < 0.98


def test_one_pair_is_no_estimate():
    made = Outcome("made", "", "full", {"a": [1], "b": [1]}, {"a": {0: [1.0]}, "b": {0: [0.0], 1: [0.0]}}, 0, 0.0, {})
    with pytest.raises(ValueError, match="made:x: 1 pairs of runs; expected two or more"):
        made.estimate(difference("x", "a", "b"))


def test_tokens_to_reach_interpolates():
    steps = np.array([0, 10, 20])
    assert tokens_to_reach(steps, np.array([3, 2, 1.5]), np.array([3, 2, 1.0])) == pytest.approx(0.75)
    assert tokens_to_reach(steps, np.array([3, 2, 1.5]), np.array([1, 1, 1.0])) == 0
    assert np.isnan(tokens_to_reach(steps, np.array([3, 2, 0.5]), np.array([3, 2, 1.0])))


def test_power_of_the_design_that_is_documented():
    for (threshold, spread, seeds), chance in {
        (0.005, 0.003, 8): 0.60, (0.005, 0.013, 8): 0.01, (0.02, 0.013, 8): 0.50, (0.03, 0.013, 8): 0.91,
        (0.02, 0.01, 6): 0.45, (0.02, 0.04, 6): 0.01,
    }.items():  # fmt: skip
        assert power(threshold, spread, seeds) == pytest.approx(chance, abs=0.005)
    assert power(0.0, 0.003, 8) < 0.002
    assert power(0.005, 0.0, 8) == 1


def test_power_is_the_share_of_effects_that_are_decided():
    x = np.random.default_rng(0).normal(0.02, 0.01, (2000, 6))
    found = [
        evidence(
            Outcome("", "", "full", {"fast": [1]}, {"fast": {s: [v] for s, v in enumerate(row)}}, 0, 0.0, {}),
            PLANTED,
            mean("x", "fast", "held_out_loss", (0, math.inf)),
        ).supports
        for row in x
    ]
    share = sum(one is True for one in found) / len(x)
    assert abs(share - power(0.02, 0.01, 6)) < 4 * (share * (1 - share) / len(x)) ** 0.5


def test_runs_that_read_other_text_are_not_compared(tmp_path: Path):
    runs = [train(BRIEF.run(arm, seed, "quick")) for arm, seed in BRIEF.runs("quick")]
    found = gathered(BRIEF, "quick", BRIEF.runs("quick"), runs, 0)
    assert found.provenance["data=markov:8"] == runs[0].attrs["data_fingerprint"]
    runs[3].attrs["data_fingerprint"] = "other"
    with pytest.raises(ValueError, match=f"brief: its stored run {runs[3].attrs['key']} has read another text"):
        gathered(BRIEF, "quick", BRIEF.runs("quick"), runs, 0)


def test_a_question_that_is_asked_again_is_asked_of_other_seeds(tmp_path: Path):
    again = replace(BRIEF, first_seed=7, shown=("branches.key",))
    assert again.runs("quick") == [(arm, seed + 7) for arm, seed in BRIEF.runs("quick")]
    assert again.design("quick") != BRIEF.design("quick")
    found = perform(again, "quick", tmp_path)
    assert found.seeds == [7, 8, 9] and found.curves["fast"][7] != found.curves["fast"][8]
    assert list(found.metrics) == ["branches.key_value"] and sorted(found.metrics["branches.key_value"]["slow"]) == [
        7,
        8,
        9,
    ]
    assert not perform(BRIEF, "quick", tmp_path).metrics


def test_arms_of_one_seed_start_alike_and_read_the_same():
    ladder = EXPERIMENTS["ladder"]
    runs = [ladder.run(arm, 3, "quick") for arm in ladder.arms]
    assert {r.seed for r in runs} == {3} and len({r.key for r in runs}) == len(runs)
    assert len({(r.data, r.batch, r.length, r.steps) for r in runs}) == 1


@pytest.mark.parametrize("effort", ["quick", "standard", "full"])
def test_every_experiment_asks_for_runs_that_can_be_made(effort):
    for e in EXPERIMENTS.values():
        todo = e.runs(effort)
        assert len(set(todo)) == len(todo)
        assert len({e.run(arm, seed, effort).key for arm, seed in todo[: 2 * len(e.arms)]}) == 2 * len(e.arms)


def test_quick_effort_runs(tmp_path: Path):
    e = EXPERIMENTS["iwd"]
    found = perform(e, "quick", tmp_path)
    assert all(np.isfinite(found.estimate(contrast).value) for contrast in e.contrasts)


BRIEF = replace(
    PLANTED, id="brief", arms={"fast": {}, "slow": {"lr": 1e-3}}, contrasts=(BY_NAME["known"],), steps=(4, 4, 4)
)


def stops_in_the_last_seed(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let the clock go on by a second whenever it is looked at; the minutes after which BRIEF is in its last run."""
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "time", lambda: next(ticks))
    return (5 * (1 + BRIEF.steps[0]) + 3) / 60


def test_the_clock_leaves_out_seeds_that_some_arm_has_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        found = perform(BRIEF, "full", tmp_path, minutes=stops_in_the_last_seed(patch))
    assert found.seeds == [0, 1] and {arm: sorted(c) for arm, c in found.curves.items()} == {
        "fast": [0, 1],
        "slow": [0, 1],
    }
    assert len(list(tmp_path.glob("*.nc"))) == 5 and len(list(tmp_path.glob("*.checkpoint"))) == 1
    store(found, tmp_path / "brief.json")
    assert stored(tmp_path / "brief.json") == found
    whole = perform(BRIEF, "full", tmp_path)
    assert whole.seeds == [0, 1, 2] and all(
        whole.curves[arm][seed] == c for arm in found.curves for seed, c in found.curves[arm].items()
    )
    assert whole.tokens == found.tokens * 3 / 2
    with pytest.raises(ValueError, match="minutes=0: expected > 0"):
        perform(BRIEF, "full", tmp_path, minutes=0)


def test_an_experiment_that_is_stopped_prints_stores_and_draws_what_it_has(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "brief", BRIEF)
    options = ["brief", "--effort", "full", "--runs", str(tmp_path), "--jobs", "1"]
    out = tmp_path / "new"
    files = ["--json", str(out / "brief.json"), "--figure", str(out / "brief.svg")]
    with monkeypatch.context() as patch:
        minutes = stops_in_the_last_seed(patch)
        shown = CliRunner().invoke(command, [*options, *files, "--minutes", str(minutes)])
    assert shown.exit_code == 0, shown.output
    assert "2 of 3 seeds are finished in all arms; the same command goes on with the others" in shown.output
    assert "slow − fast" in shown.output and "power at 0.1" in shown.output
    assert stored(out / "brief.json").seeds == [0, 1]
    bands = (out / "brief.svg").read_text().count('id="FillBetween')
    assert bands == 3 and (out / "brief.png").exists()
    again = CliRunner().invoke(command, options)
    assert "seeds are finished" not in again.output and again.exit_code == 0
    none = CliRunner().invoke(
        command, [*options[:3], "--runs", str(tmp_path / "none"), "--jobs", "1", "--minutes", "1e-9"]
    )
    assert "0 of 3 seeds are finished" in none.output and str(none.exception).endswith("expected two or more")


DECLARED = """
from simulations.lm.contrast import difference
from simulations.lm.experiment import Experiment

def declared(id):
    return Experiment(
        id, "?", "made up", "llama", {"a": {"lr": 1e-2}, "b": {"lr": 1e-9}}, (difference("lr", "b", "a"),), 0.1,
        (4, 4, 4), (2, 2, 2), {"width": 16, "layers": 1, "heads": 2, "hidden": 16},
        {"data": "markov:8", "batch": 4, "length": 16, "held_out": 2, "evaluations": 2},
    )

first, second = declared("first"), declared("second")
"""


def test_experiments_of_a_file_are_run_by_its_name(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(DECLARED)
    options = ["--runs", str(tmp_path / "runs"), "--jobs", "1"]
    shown = CliRunner().invoke(command, [str(file), *options])
    assert shown.exit_code == 0 and "first: ?" in shown.output and "second: ?" in shown.output
    out = tmp_path / "second.json"
    shown = CliRunner().invoke(command, [f"{file}:second", "--effort", "full", "--json", str(out), *options])
    assert shown.exit_code == 0 and "first: ?" not in shown.output and stored(out).experiment == "second"
    for name, text, told in (
        (f"{file}:secnd", DECLARED, "no experiment named 'secnd'; nearest: second"),
        (str(file), "x = 1", "mine.py: declares no experiment"),
        (str(file), DECLARED.replace('"second"', '"first"'), "mine.py: declares the experiment 'first' twice"),
        (str(file), DECLARED.replace("declared(id):", "declared(id) -"), "mine.py:5: SyntaxError"),
        (str(tmp_path / "none.py"), "", "none.py: no such file"),
    ):
        file.write_text(text)
        assert told in str(CliRunner().invoke(command, [name, *options]).exception)


def test_experiments_are_listed_with_what_they_ask_and_took():
    shown = CliRunner().invoke(command, ["--list"], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    for e in EXPERIMENTS.values():
        (line,) = (line for line in shown.output.splitlines() if line.startswith(f"{e.id} "))
        outcome = committed(e)
        assert f" {len(e.runs('full'))} " in line
        assert line.endswith("on request" if outcome is None else f" {outcome.seconds / 60:.0f}"), line
    few = CliRunner().invoke(command, ["long-horizon", "--list"], env={"COLUMNS": "160"})
    assert "1/(ηλ)" in few.output and "short-ladder" not in few.output


def test_the_large_experiment_is_run_on_request_and_its_wider_model_has_as_many_parameters():
    assert "large" not in {e.id for e in find_experiments(())}
    large, *rest = find_experiments(("large",))
    assert not rest and large.on_request
    trained = {}
    for arm in ("standard", "unified"):
        run = large.run(arm, 0, "full")
        lab = set_up(replace(run, architecture=replace(run.architecture, layers=1)))
        trained[arm] = sum(p.numel() for p in lab.model.parameters() if p.requires_grad)
    standard, wider = (large.run(arm, 0, "full").architecture for arm in ("standard", "wider"))
    added = standard.layers * (trained["unified"] - trained["standard"])
    more = count_parameters(wider) - count_parameters(standard)
    assert added <= more < 3 * added and count_parameters(standard) > 85e6


def test_a_contrast_of_nothing_is_refused():
    with pytest.raises(ValueError, match="contrast 'x': no arm 'b'; expected one of a"):
        Experiment("e", "", "", "llama", {"a": {}}, (difference("x", "a", "b"),), 1, (1,) * 3, (2,) * 3, {}, {})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seeds": (2, 3)}, r"experiment 'brief': seeds=\(2, 3\): expected three numbers, for quick, standard, full"),
        ({"seeds": 4}, r"experiment 'brief': seeds=4: expected three numbers"),
        ({"seeds": (2, 3, 1)}, "experiment 'brief': seeds of full effort=1: expected an integer >= 2"),
        ({"steps": (2, 0.5, 9)}, "experiment 'brief': steps of standard effort=0.5: expected an integer >= 1"),
        (
            {"arms": {"fast": {"clip_multiplier": False}, "slow": {}}},
            "no setting of experiment brief, arm fast named 'clip_multiplier'; nearest: clip_multipliers",
        ),
        (
            {"arms": {"fast": {"sizes": {"wdth": 8}}, "slow": {}}},
            "experiment brief, arm fast named 'wdth'; nearest: width",
        ),
        ({"settings": {"laer": 1}}, "no setting of experiment brief named 'laer'"),
        ({"sizes": {"wdth": 1}}, "no setting of experiment brief named 'wdth'; nearest: width"),
    ],
)
def test_what_no_run_could_have_is_refused_where_it_is_declared(change, told):
    with pytest.raises(ValueError, match=told):
        replace(BRIEF, **change)


def test_settings_are_sorted_into_sizes_and_settings():
    texts = ("width=32", "lr=1e-3", "design=HG+OR", "betas=[0.9, 0.99]", "length=64")
    sizes, settings = split_settings(parse_settings(texts))
    assert sizes == {"width": 32, "length": 64}
    assert settings == {"lr": 1e-3, "design": "HG+OR", "betas": (0.9, 0.99), "length": 64}
    with pytest.raises(ValueError, match="depth=2: no such size or setting; expected one of accumulate"):
        split_settings({"depth": 2})


def test_outcomes_that_come_with_the_code_are_whole_and_of_what_is_declared():
    for path in OUTCOMES.glob("*.json"):
        e = EXPERIMENTS[path.stem]
        outcome = committed(e)
        assert outcome is not None, f"{e.id} is not declared as it was run"
        assert outcome.experiment == e.id and outcome.effort == "full"
        assert not outcome.provenance["commit"].endswith("+")
        for contrast in e.contrasts:
            assert outcome.estimate(contrast).seeds == e.seeds[2]


def test_full_effort_of_all_that_need_no_gpu_took_less_than_four_hours_of_two_processes():
    outcomes = [committed(e) for e in find_experiments(())]
    assert sum(o.seconds for o in outcomes if o is not None) / 2 < 4 * 3600


def test_numbers_of_the_papers_stand_where_the_papers_have_them():
    found = {(e.id, c.name): c.paper for e in EXPERIMENTS.values() for c in e.contrasts if c.paper is not None}
    assert found == {
        ("removal-own-lr", "own-lr"): 0.015,
        ("ladder", "removal"): 0.028, ("ladder", "unified"): 0.033,
        ("unified", "muon-cosine"): 0.015, ("unified", "adamw-wsd"): 0.015, ("unified-moe", "adamw-cosine"): 0.02,
        ("large", "removal"): 0.028, ("large", "unified"): 0.033,
        ("short-ladder", "removal"): 0.028, ("short-ladder", "unified"): 0.033,
    }  # fmt: skip


def test_the_rate_of_own_lr_is_the_best_of_each_model():
    outcome, own = committed(EXPERIMENTS["removal"]), EXPERIMENTS["removal-own-lr"]
    assert outcome is not None
    for model in own.arms:
        final = {arm: np.mean([c[-1] for c in runs.values()]) for arm, runs in outcome.curves.items()}
        best = min((arm for arm in final if arm.startswith(f"{model}-")), key=final.__getitem__)
        assert EXPERIMENTS["removal"].run(best, 0, "full").lr == own.run(model, 100, "full").lr
