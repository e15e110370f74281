"""What an experiment says for or against a statement about one of its contrasts."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from scipy import stats

from scalevec_theory.claim import Z_SCORE, Counterexample, Evidence, NotRun, Scope, Setting, measured
from simulations.lm.experiment import Contrast, Estimate, Experiment, Outcome, committed, perform
from simulations.lm.experiments import EXPERIMENTS

RUNS = Path("results/runs")


def contrast_scope(
    name: str, statement: str, experiment: str, contrast: str, *, holds: bool, below: float | None = None
) -> Scope:
    """The scope that a contrast's difference is positive or, given ``below``, that its size is less than that.

    At quick effort the evidence is the outcome of full effort that comes with the code; at standard and full effort the
    experiment is run (into ``results/runs``, from where it goes on if it is stopped).
    """
    e = EXPERIMENTS[experiment]
    of = next(c for c in e.contrasts if c.name == contrast)

    def measure(setting: Setting) -> list[Evidence]:
        if setting.effort == "quick":
            outcome = _committed(e.id)
        else:
            outcome = perform(e, setting.effort, RUNS, device=setting.device)
        return [evidence(outcome, e, of, below)]

    return Scope(name, statement, holds, measure=measure)


@cache
def _committed(name: str) -> Outcome:
    if (outcome := committed(EXPERIMENTS[name])) is None:
        raise NotRun(f"the experiment {name} has not been run at full effort; scalevec experiment {name} --effort full")
    return outcome


def evidence(outcome: Outcome, e: Experiment, contrast: Contrast, below: float | None = None) -> Evidence:
    """The margin is the difference, or ``below`` less its size, in nats per token.

    Beyond `Z_SCORE` standard errors the quantile of Student's law of the same tail counts, by way of ``error``.
    """
    found = outcome.estimate(contrast)
    margin = found.difference if below is None else below - abs(found.difference)
    quantile = float(stats.t.isf(stats.norm.sf(Z_SCORE), found.seeds - 1))
    again = None
    if margin < 0:
        again = Counterexample(
            {"experiment": e.id, "contrast": contrast.name}, margin, code(outcome, e, contrast, below)
        )
    return measured(
        "training",
        margin,
        describe(outcome, contrast, found),
        stderr=found.stderr,
        error=(quantile - Z_SCORE) * found.stderr,
        instances=2 * found.seeds,
        counterexample=again,
    )


def describe(outcome: Outcome, contrast: Contrast, found: Estimate) -> str:
    """The difference in words, with its interval, the tokens it is worth, and where the runs come from."""
    if found.efficiency != found.efficiency:
        worth = f"{contrast.better} never reaches the final loss of {contrast.worse}"
    else:
        worth = (
            f"{contrast.better} reaches the final loss of {contrast.worse} after {found.efficiency:.0%} of the tokens"
        )
    paper = "" if contrast.paper is None else f"; the paper has {contrast.paper:+.3f} at its scale"
    return (
        f"{outcome.effort} effort, {contrast.worse} - {contrast.better}: {found.difference:+.4f} nats per token, 95% "
        f"interval {found.low:+.4f} to {found.high:+.4f}, {found.seeds} pairs; {worth}{paper}"
    )


def code(outcome: Outcome, e: Experiment, contrast: Contrast, below: float | None) -> str:
    """Code that shows a negative margin again: from what is stored, or by running the experiment."""
    lines = [
        "from pathlib import Path\n",
        "from simulations.lm.experiment import committed, perform",
        "from simulations.lm.experiments import EXPERIMENTS\n",
        f"e = EXPERIMENTS[{e.id!r}]",
        f"contrast = next(c for c in e.contrasts if c.name == {contrast.name!r})",
        "outcome = committed(e)"
        if outcome.effort == "full"
        else f"outcome = perform(e, {outcome.effort!r}, Path('results/runs'))",
        "difference = outcome.estimate(contrast).difference",
        "margin = difference" if below is None else f"margin = {below!r} - abs(difference)",
        "assert margin < 0, margin\n",
    ]
    return "\n".join(lines)
