"""Experiments: pairing, intervals, an effect that is there and one that is not, and what is stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulations.lm.commands import split_settings
from simulations.lm.experiment import (
    OUTCOMES,
    Contrast,
    Experiment,
    Outcome,
    perform,
    power,
    store,
    stored,
    tokens_to_reach,
)
from simulations.lm.experiments import EXPERIMENTS

SIZES = {"width": 16, "layers": 1, "heads": 2, "hidden": 16}
SETTINGS = {"data": "markov:8", "batch": 8, "length": 16, "lr": 1e-2, "held_out": 4, "evaluations": 3}

PLANTED = Experiment(
    "planted",
    "Is an effect found that is there, and none where there is none?",
    "made up",
    "llama",
    {"fast": {}, "slow": {"lr": 1e-3}, "same": {"clip_multipliers": False}},
    (Contrast("known", "slow", "fast"), Contrast("nothing", "same", "fast"), Contrast("reversed", "fast", "slow")),
    threshold=0.1,
    steps=(30, 30, 30),
    seeds=(3, 3, 3),
    sizes=SIZES,
    settings=SETTINGS,
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return perform(PLANTED, "standard", tmp_path_factory.mktemp("runs"))


def test_a_known_effect_is_found_and_has_its_sign(outcome):
    known, reverse = (outcome.estimate(c) for c in (PLANTED.contrasts[0], PLANTED.contrasts[2]))
    assert known.low > 0 and known.difference == -reverse.difference and reverse.high < 0
    assert 0 < known.efficiency < 1 and np.isnan(reverse.efficiency)


def test_no_effect_is_zero(outcome):
    nothing = outcome.estimate(PLANTED.contrasts[1])
    assert nothing.difference == nothing.low == nothing.high == 0 and nothing.efficiency == 1


def test_what_is_stored_is_what_was_found(outcome, tmp_path: Path):
    store(outcome, tmp_path / "planted.json")
    assert stored(tmp_path / "planted.json") == outcome
    (tmp_path / "planted.json").write_text("{}")
    with pytest.raises(ValueError, match=r"planted.json: no stored outcome of an experiment"):
        stored(tmp_path / "planted.json")


def test_intervals_hold_what_they_say():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        curves = {"a": {s: [x] for s, x in enumerate(rng.normal(0.3, 1, 5))}, "b": {s: [0.0] for s in range(5)}}
        made = Outcome("made", "full", {"a": [1], "b": [1]}, curves, 0, 0.0, {})
        found = made.estimate(Contrast("x", "a", "b"))
        inside += found.low <= 0.3 <= found.high
    assert 0.92 < inside / 400 < 0.98


def test_one_pair_is_no_estimate():
    made = Outcome("made", "full", {"a": [1], "b": [1]}, {"a": {0: [1.0]}, "b": {0: [0.0], 1: [0.0]}}, 0, 0.0, {})
    with pytest.raises(ValueError, match="made:x: 1 pairs of runs; expected two or more"):
        made.estimate(Contrast("x", "a", "b"))


def test_tokens_to_reach_interpolates():
    steps = np.array([0, 10, 20])
    assert tokens_to_reach(steps, np.array([3, 2, 1.5]), np.array([3, 2, 1.0])) == pytest.approx(0.75)
    assert tokens_to_reach(steps, np.array([3, 2, 1.5]), np.array([1, 1, 1.0])) == 0
    assert np.isnan(tokens_to_reach(steps, np.array([3, 2, 0.5]), np.array([3, 2, 1.0])))


def test_power_of_the_design_that_is_documented():
    assert power(0.005, 0.003, 8) == pytest.approx(0.956, abs=0.01)
    assert power(0.0, 0.003, 8) < 0.002


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
        assert len({e.run(arm, seed, effort).key for arm, seed in todo if seed < 2}) == 2 * len(e.arms)


def test_quick_effort_runs(tmp_path: Path):
    e = EXPERIMENTS["iwd"]
    found = perform(e, "quick", tmp_path)
    assert all(np.isfinite(found.estimate(contrast).difference) for contrast in e.contrasts)


def test_a_contrast_of_nothing_is_refused():
    with pytest.raises(ValueError, match="contrast 'x': no arm 'b'; expected one of a"):
        Experiment("e", "", "", "llama", {"a": {}}, (Contrast("x", "a", "b"),), 1, (1,) * 3, (2,) * 3, {}, {})


def test_settings_are_sorted_into_sizes_and_settings():
    sizes, settings = split_settings(("width=32", "lr=1e-3", "design=HG+OR", "betas=[0.9, 0.99]", "length=64"))
    assert sizes == {"width": 32, "length": 64}
    assert settings == {"lr": 1e-3, "design": "HG+OR", "betas": (0.9, 0.99), "length": 64}
    with pytest.raises(ValueError, match="depth=2: no such size or setting; expected one of accumulate"):
        split_settings(("depth=2",))


def test_outcomes_that_come_with_the_code_are_whole():
    for path in OUTCOMES.glob("*.json"):
        outcome, e = stored(path), EXPERIMENTS[path.stem]
        assert outcome.experiment == e.id and outcome.effort == "full"
        assert not outcome.provenance["commit"].endswith("+")
        for contrast in e.contrasts:
            assert outcome.estimate(contrast).seeds == e.seeds[2]
