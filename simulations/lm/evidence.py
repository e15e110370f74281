"""What an experiment says for or against a statement about one of its contrasts."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

from scalevec_theory.claim import Z_SCORE, Counterexample, Evidence, NotRun, Scope, Setting, measured
from scalevec_theory.registry import UnknownName
from simulations.lm.contrast import Contrast, Estimate, decisive
from simulations.lm.experiment import Experiment, Outcome, committed, perform
from simulations.lm.experiments import EXPERIMENTS

RUNS = Path("results/runs")
ROUNDING = 1e-6
"""Numbers are kept to six digits: what differs by less is not told apart."""


def contrast_scope(
    name: str,
    statement: str,
    experiment: str | Experiment,
    contrast: str,
    *,
    holds: bool,
    within: tuple[float, float] | None = None,
    outcome: str | Path | None = None,
) -> Scope:
    """The scope that a contrast lies ``within`` two numbers; None: those that it was declared with.

    The evidence is an outcome of full effort: of one of `EXPERIMENTS`, named, that which comes with the code (at full
    effort it is run anew, into ``results/runs``, from where it goes on if it is stopped); of an experiment of one's
    own, that in the file ``outcome``, which ``scalevec experiment FILE.py --effort full --json OUTCOME`` writes.

    Raises
    ------
    UnknownName : no such experiment, or no such contrast in it.
    ValueError : an experiment of one's own without its file, or a named one with a file.
    """
    own = isinstance(experiment, Experiment)
    if own != (outcome is not None):
        raise ValueError(
            f"outcome={outcome!r}: expected the file of an experiment of your own, and none of one that is named"
        )
    if isinstance(experiment, str) and experiment not in EXPERIMENTS:
        raise UnknownName("experiment", experiment, list(EXPERIMENTS))
    e = EXPERIMENTS[experiment] if isinstance(experiment, str) else experiment
    file = None if outcome is None else Path(outcome)
    contrasts = {c.name: c for c in e.contrasts}
    if contrast not in contrasts:
        raise UnknownName(f"contrast of {e.id}", contrast, list(contrasts))
    of = contrasts[contrast]
    asked = of.within if within is None else within

    def measure(setting: Setting) -> list[Evidence]:
        if setting.effort == "full" and file is None:
            return [evidence(perform(e, "full", RUNS, device=setting.device), e, of, asked)]
        return [evidence(_committed(e, file), e, of, asked, file)]

    return Scope(name, statement, holds, measure=measure, reads=() if file is None else (file,))


def _committed(e: Experiment, file: Path | None) -> Outcome:
    if (outcome := _read(e.id) if file is None else committed(e, file)) is None:
        command = e.id if file is None else f"FILE.py:{e.id} --json {file}"
        raise NotRun(
            f"the experiment {e.id}, as it is declared, has not been run at full effort; "
            f"scalevec experiment {command} --effort full"
        )
    return outcome


@cache
def _read(name: str) -> Outcome | None:
    return committed(EXPERIMENTS[name])


def evidence(
    outcome: Outcome,
    e: Experiment,
    contrast: Contrast,
    within: tuple[float, float] | None = None,
    file: Path | None = None,
) -> Evidence:
    """The margin is the distance from the nearer end of the interval that is asked about, negative outside of it.

    Beyond `Z_SCORE` standard errors the quantile of Student's law of the same tail counts, by way of ``error``.
    """
    found = outcome.estimate(contrast)
    low, high = contrast.within if within is None else within
    margin = min(found.value - low, high - found.value)
    again = None
    if margin < 0:
        again = Counterexample(
            {"experiment": e.id, "contrast": contrast.name}, margin, code(outcome, contrast, (low, high), file)
        )
    return measured(
        "training",
        margin,
        describe(outcome, contrast, found),
        stderr=found.stderr,
        error=(decisive(found.seeds) - Z_SCORE) * found.stderr + ROUNDING,
        instances=len(contrast.weights) * found.seeds,
        counterexample=again,
    )


def describe(outcome: Outcome, contrast: Contrast, found: Estimate) -> str:
    """The contrast in words, with its interval, the tokens it is worth, and where the runs come from."""
    worth = ""
    if contrast.pair is not None:
        worse, better = contrast.pair
        worth = (
            f"; {better} never reaches the final loss of {worse}"
            if math.isnan(found.efficiency)
            else f"; {better} reaches the final loss of {worse} after {found.efficiency:.0%} of the tokens"
        )
    paper = "" if contrast.paper is None else f"; the paper has {contrast.paper:+.3f} at its scale"
    return (
        f"{outcome.effort} effort, {contrast.formula}: {found.value:+.4f}{contrast.units}, 95% interval "
        f"{found.low:+.4f} to {found.high:+.4f}, {found.seeds} seeds{worth}{paper}"
    )


def code(outcome: Outcome, contrast: Contrast, within: tuple[float, float], file: Path | None) -> str:
    """Code that shows a negative margin again: from what is stored, or by running the experiment."""
    kept = f"OUTCOMES / {outcome.experiment + '.json'!r}" if file is None else f"Path({str(file)!r})"
    lines = [
        "from math import inf",
        "from pathlib import Path\n",
        "from simulations.lm.contrast import Contrast",
        "from simulations.lm.experiment import OUTCOMES, perform, stored",
        "from simulations.lm.experiments import EXPERIMENTS\n",
        f"contrast = {contrast!r}",
        f"outcome = stored({kept})"
        if outcome.effort == "full"
        else f"outcome = perform(EXPERIMENTS[{outcome.experiment!r}], {outcome.effort!r}, Path('results/runs'))",
        "value = outcome.estimate(contrast).value",
        f"margin = min(value - {within[0]!r}, {within[1]!r} - value)",
        "assert margin < 0, margin\n",
    ]
    return "\n".join(lines)
