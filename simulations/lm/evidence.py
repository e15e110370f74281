"""What an experiment says for or against a statement about one of its contrasts."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

from scalevec_theory.claim import Z_SCORE, Counterexample, Evidence, NotRun, Scope, Setting, measured
from scalevec_theory.registry import UnknownName
from simulations.lm.contrast import Contrast, Estimate, decisive
from simulations.lm.experiment import Experiment, Outcome, committed, perform, stored
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
    of = contrasts[contrast] if within is None else replace(contrasts[contrast], within=within)

    def measure(setting: Setting) -> list[Evidence]:
        if setting.effort == "full" and file is None:
            return [evidence(perform(e, "full", RUNS, device=setting.device), e, of)]
        return [evidence(_read(e.id) if file is None else _of_file(e, file), e, of, file)]

    return Scope(name, statement, holds, measure=measure, reads=() if file is None else (file,))


@cache
def _read(name: str) -> Outcome:
    if (outcome := committed(EXPERIMENTS[name])) is None:
        raise NotRun(
            f"the experiment {name}, as it is declared, has not been run at full effort; "
            f"scalevec experiment {name} --effort full"
        )
    return outcome


def _of_file(e: Experiment, file: Path) -> Outcome:
    """The outcome of one's own experiment; raises NotRun, saying why, where the file has none of what is declared."""
    again = f"scalevec experiment FILE.py:{e.id} --effort full --json {file}"
    if not file.exists():
        raise NotRun(f"{file.resolve()}: no such file; {again}")
    try:
        outcome = stored(file)
    except ValueError as error:
        raise NotRun(str(error)) from error
    if outcome.experiment != e.id:
        raise NotRun(f"{file}: an outcome of the experiment {outcome.experiment}; expected one of {e.id}")
    if outcome.effort != "full":
        raise NotRun(f"{file}: an outcome of {outcome.effort} effort; {again}")
    if outcome.design != e.design("full"):
        raise NotRun(f"{file}: made with other settings or seeds than the experiment {e.id} declares now; {again}")
    return outcome


def evidence(outcome: Outcome, e: Experiment, contrast: Contrast, file: Path | None = None) -> Evidence:
    """The margin is the distance from the nearer end of the interval that is asked about, negative outside of it.

    Beyond `Z_SCORE` standard errors the quantile of Student's law of the same tail counts, by way of ``error``.
    """
    found = outcome.estimate(contrast)
    low, high = contrast.within
    margin = min(found.value - low, high - found.value)
    again = None
    if margin < 0:
        again = Counterexample({"experiment": e.id, "contrast": contrast.name}, margin, code(outcome, contrast, file))
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


def code(outcome: Outcome, contrast: Contrast, file: Path | None) -> str:
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
        "margin = min(value - contrast.within[0], contrast.within[1] - value)",
        "assert margin < 0, margin\n",
    ]
    return "\n".join(lines)
