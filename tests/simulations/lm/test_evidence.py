"""Verdicts from experiments: signs, sizes, small samples, and code that shows a counterexample again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scalevec_theory.claim import NotRun, Setting
from scalevec_theory.registry import UnknownName
from simulations.lm import evidence as module
from simulations.lm.contrast import difference
from simulations.lm.evidence import contrast_scope, evidence
from simulations.lm.experiment import OUTCOMES, Experiment, Outcome, perform, store
from simulations.lm.experiments import EXPERIMENTS

CONTRAST = difference("x", "a", "b", 0.02)
E = EXPERIMENTS["removal"]


def made(differences: list[float]) -> Outcome:
    curves = {
        "a": {s: [3.0, 1 + d] for s, d in enumerate(differences)},
        "b": {s: [3.0, 1.0] for s in range(len(differences))},
    }
    return Outcome("made", "", "full", {"a": [0, 10], "b": [0, 10]}, curves, 1, 1.0, {})


def test_clear_differences_decide_and_unclear_ones_do_not():
    assert evidence(made([0.10, 0.11, 0.09, 0.10]), E, CONTRAST).supports is True
    against = evidence(made([-0.10, -0.11, -0.09, -0.10]), E, CONTRAST)
    assert against.supports is False and against.counterexample is not None
    assert evidence(made([0.10, -0.05, 0.02, 0.08]), E, CONTRAST).supports is None


def test_a_small_difference_is_below_a_bound_only_if_it_is_known_well_enough():
    known = [0.001, -0.001, 0.0005, -0.0005]
    small = replace(CONTRAST, within=(-0.01, 0.01))
    assert evidence(made(known), E, small).supports is True
    assert evidence(made([10 * x for x in known]), E, small).supports is None
    assert evidence(made([0.1, 0.11, 0.1, 0.1]), E, small).supports is False


def test_a_value_is_inside_outside_or_at_the_edge_of_an_interval():
    near = [0.100, 0.101, 0.099, 0.100]
    assert evidence(made(near), E, replace(CONTRAST, within=(0.05, 0.15))).supports is True
    assert evidence(made(near), E, replace(CONTRAST, within=(0.0, 0.05))).supports is False
    assert evidence(made(near), E, replace(CONTRAST, within=(0.15, 0.2))).supports is False
    assert evidence(made(near), E, replace(CONTRAST, within=(0.1, 0.2))).supports is None


def test_few_pairs_need_a_wider_band():
    rng = np.random.default_rng(0)
    wrong = sum(evidence(made(list(rng.normal(0, 1, 3))), E, CONTRAST).supports is not None for _ in range(2000))
    assert wrong / 2000 < 0.006  # twice the tail beyond 3 standard errors of a normal law, and chance


def test_the_detail_says_what_it_is_worth_and_what_the_paper_has():
    found = evidence(made([0.10, 0.11, 0.09, 0.10]), E, CONTRAST)
    assert "+0.1000 nats per token" in found.detail and "the paper has +0.020" in found.detail
    assert "b reaches the final loss of a after 95% of the tokens" in found.detail
    assert "b never reaches" in evidence(made([-0.1, -0.11]), E, CONTRAST).detail


def test_a_counterexample_shows_it_again(monkeypatch: pytest.MonkeyPatch):
    contrast = E.contrasts[0]
    curves = {
        arm: {s: [3.0, 1 + 0.1 * (arm == contrast.pair[1]) + 1e-3 * s * (arm.startswith("with-"))] for s in range(4)}
        for arm in E.arms
    }
    outcome = Outcome(E.id, E.design("full"), "full", {arm: [0, 10] for arm in E.arms}, curves, 1, 1.0, {})
    found = evidence(outcome, E, contrast)
    assert found.counterexample is not None
    monkeypatch.setattr("simulations.lm.experiment.stored", {OUTCOMES / "removal.json": outcome}.__getitem__)
    exec(found.counterexample.code, {})


def test_an_experiment_that_was_not_run_is_not_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "committed", lambda e: None)
    module._read.cache_clear()
    scope = contrast_scope("s", "…", "removal", "lr-0.006", holds=True)
    assert scope.measure is not None
    with pytest.raises(NotRun, match="removal, as it is declared, has not been run at full effort"):
        scope.measure(Setting("quick", 0, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("experiment", "contrast", "told"),
    [
        ("removl", "lr-0.006", "no experiment named 'removl'; nearest: removal"),
        ("removal", "lr-0.06", "no contrast of removal named 'lr-0.06'; nearest: lr-0.0"),
    ],
)
def test_a_contrast_that_is_not_there_is_named_with_the_nearest(experiment, contrast, told):
    with pytest.raises(UnknownName, match=told):
        contrast_scope("x", "x", experiment, contrast, holds=True)


OWN = Experiment(
    "own", "Is a learning rate of nothing as good?", "made up", "llama",
    {"still": {"lr": 1e-9}, "moving": {}},
    (difference("moving", "still", "moving"), difference("still", "moving", "still")),
    threshold=0.1, steps=(4, 4, 20), seeds=(2, 2, 4),
    sizes={"width": 16, "layers": 1, "heads": 2, "hidden": 16},
    settings={"data": "markov:8", "batch": 4, "length": 16, "lr": 1e-2, "held_out": 2, "evaluations": 2},
)  # fmt: skip
QUICK = Setting("quick", 0, np.random.default_rng(0))


def test_an_experiment_of_ones_own_is_judged_by_the_file_it_was_written_to(tmp_path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "own.json"
    moving, still = (
        contrast_scope(c.name, "…", OWN, c.name, holds=c.name == "moving", outcome=file) for c in OWN.contrasts
    )
    assert moving.reads == (file,)
    with pytest.raises(NotRun, match=r"own.json: no such file; scalevec experiment FILE.py:own --effort full --json"):
        moving.measure(QUICK)
    outcome = perform(OWN, "full", tmp_path / "runs")
    store(outcome, file)
    (good,), (bad,) = moving.measure(QUICK), still.measure(QUICK)
    assert good.supports is True and bad.supports is False
    exec(bad.counterexample.code, {})
    for change, told in (
        ({"design": "another"}, "made with other settings or seeds than the experiment own declares now"),
        ({"effort": "quick"}, "an outcome of quick effort"),
        ({"experiment": "else"}, "an outcome of the experiment else; expected one of own$"),
    ):
        store(replace(outcome, **change), file)
        with pytest.raises(NotRun, match=told):
            moving.measure(QUICK)
    file.write_text("{}")
    with pytest.raises(NotRun, match=r"no stored outcome of an experiment \(no 'curves'\)"):
        moving.measure(QUICK)


def test_scopes_of_contrasts_that_make_no_sense_are_refused(tmp_path):
    for given in ({"experiment": OWN}, {"experiment": "removal", "outcome": tmp_path}):
        with pytest.raises(
            ValueError, match=r"outcome=.*: expected the file of an experiment of your own, and none of one"
        ):
            contrast_scope("x", "…", contrast="moving", holds=True, **given)
    with pytest.raises(ValueError, match=r"within=\(0.5, 0.1\): expected a lower end below the upper one"):
        contrast_scope("x", "…", "removal", "lr-0.006", holds=True, within=(0.5, 0.1))
    with pytest.raises(UnknownName, match="no contrast of own named 'x'; there is none"):
        contrast_scope("x", "…", replace(OWN, contrasts=()), "x", holds=True, outcome=tmp_path)
