"""An experiment: a question, arms that differ from a base run, and a paired comparison decided by its interval.

The arms share initial weights and the order of the data seed by seed, so that what is compared is the mean over seeds
of a difference of final held-out losses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from scipy import stats

from simulations.lm.run import Run, make_run, widened
from simulations.lm.training import train
from simulations.parallel import Call, run_parallel
from simulations.provenance import provenance
from simulations.store import write_json

OUTCOMES = Path(__file__).parent / "outcomes"
"""Results of full effort, which come with the code."""

CONFIDENCE = 0.95
EFFORTS = ("quick", "standard", "full")


@dataclass(frozen=True)
class Contrast:
    """The mean over seeds of loss(``worse``) − loss(``better``), and what the paper says of it.

    Attributes
    ----------
    name : short, with hyphens.
    worse, better : names of arms, as the paper orders them.
    paper : its difference in nats per token; None where it gives no number.
    """

    name: str
    worse: str
    better: str
    paper: float | None = None


@dataclass(frozen=True)
class Experiment:
    """Everything that is settled before an experiment is run.

    Attributes
    ----------
    id, question, source : what is asked, and of which paper.
    family, sizes, settings : of the base run; ``settings`` are fields of `Run`.
    arms : by name, the fields that differ from the base run; ``widened`` = name of an arm makes its wider baseline.
    contrasts : what is compared.
    threshold : the smallest difference that would matter, in nats per token; the number of seeds is chosen for it.
    steps, seeds : by effort, (quick, standard, full).  No run is added after a look at the result.
    """

    id: str
    question: str
    source: str
    family: str
    arms: Mapping[str, Mapping[str, Any]]
    contrasts: tuple[Contrast, ...]
    threshold: float
    steps: tuple[int, int, int]
    seeds: tuple[int, int, int]
    sizes: Mapping[str, Any]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Raises ValueError for a contrast of an arm that is not there."""
        for contrast in self.contrasts:
            for arm in (contrast.worse, contrast.better):
                if arm not in self.arms:
                    raise ValueError(
                        f"contrast {contrast.name!r}: no arm {arm!r}; expected one of {', '.join(self.arms)}"
                    )

    def run(self, arm: str, seed: int, effort: str) -> Run:
        """The run of one arm and seed."""
        steps = self.steps[EFFORTS.index(effort)]
        small: dict[str, Any] = {}
        if effort == "quick":
            small = {"sizes": {"layers": 2}, "batch": 4, "length": 32, "held_out": 2, "compile": False}
        settings = {**self.settings, **small, "steps": steps, "warmup": min(steps // 10, 100), "seed": seed}
        changes = dict(self.arms[arm])
        sizes = {**self.sizes, **settings.pop("sizes", {}), **changes.pop("sizes", {})}
        family, wide = changes.pop("family", self.family), changes.pop("widened", None)
        if wide is not None:
            return replace(widened(self.run(wide, seed, effort)), **changes)
        return make_run(family, sizes, **{**settings, **changes})

    def runs(self, effort: str) -> list[tuple[str, int]]:
        """Arms and seeds, seed by seed, so that whatever is finished is paired."""
        return [(arm, seed) for seed in range(self.seeds[EFFORTS.index(effort)]) for arm in self.arms]


@dataclass(frozen=True)
class Estimate:
    """A paired difference with its interval.

    Attributes
    ----------
    difference, stderr, low, high : mean over seeds, its standard error and Student's interval, nats per token.
    seeds : how many pairs.
    efficiency : tokens after which ``better`` has the final loss of ``worse``, as a share of all; NaN if it never has.
    """

    difference: float
    stderr: float
    low: float
    high: float
    seeds: int
    efficiency: float


@dataclass(frozen=True)
class Outcome:
    """Final and intermediate held-out losses of every finished run: ``curves[arm][seed]`` at ``steps[arm]``."""

    experiment: str
    effort: str
    steps: Mapping[str, Sequence[int]]
    curves: Mapping[str, Mapping[int, Sequence[float]]]
    tokens: int
    seconds: float
    provenance: Mapping[str, str]

    def estimate(self, contrast: Contrast) -> Estimate:
        """Raises ValueError for fewer than two seeds that both arms have."""
        worse, better = self.curves[contrast.worse], self.curves[contrast.better]
        seeds = sorted(set(worse) & set(better))
        if len(seeds) < 2:
            raise ValueError(f"{self.experiment}:{contrast.name}: {len(seeds)} pairs of runs; expected two or more")
        differences = np.array([worse[s][-1] - better[s][-1] for s in seeds])
        mean, stderr = float(differences.mean()), float(differences.std(ddof=1) / len(seeds) ** 0.5)
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(seeds) - 1)) * stderr
        means = (np.mean([curves[s] for s in seeds], 0) for curves in (worse, better))
        efficiency = tokens_to_reach(np.array(self.steps[contrast.better]), *means)
        return Estimate(mean, stderr, mean - half, mean + half, len(seeds), efficiency)


def tokens_to_reach(steps: np.ndarray, worse: np.ndarray, better: np.ndarray) -> float:
    """The share of all steps after which the curve ``better`` first has the last value of ``worse``, interpolated."""
    below = np.flatnonzero(better <= worse[-1])
    if len(below) == 0:
        return float("nan")
    k = int(below[0])
    if k == 0:
        return 0.0
    share = (better[k - 1] - worse[-1]) / (better[k - 1] - better[k])
    return float((steps[k - 1] + share * (steps[k] - steps[k - 1])) / steps[-1])


def power(threshold: float, spread: float, seeds: int, z: float = 3.0) -> float:
    """Chance that a true difference ``threshold`` shows beyond ``z`` standard errors, for a standard deviation
    ``spread`` of one pair's difference (normal approximation)."""
    return float(stats.norm.sf(z - threshold / (spread / seeds**0.5)))


def perform(
    experiment: Experiment,
    effort: str,
    folder: Path,
    *,
    jobs: int = 1,
    device: str = "cpu",
    report: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Run every arm and seed that ``folder`` does not hold yet, and gather all; each run uses one thread.

    Raises
    ------
    ValueError : a run raised; the others are finished and stored.
    """
    todo = experiment.runs(effort)
    runs = [experiment.run(arm, seed, effort) for arm, seed in todo]
    calls = [Call(_train, (run, folder, device), experiment.id) for run in runs]
    found: dict[int, xarray.Dataset] = {}
    failures = []
    for index, value in run_parallel(calls, jobs):
        if isinstance(value, Exception):
            failures.append(value)
        else:
            found[index] = value
        if report is not None:
            report(len(found) + len(failures), len(calls))
    if failures:
        raise failures[0]
    steps: dict[str, list[int]] = {}
    curves: dict[str, dict[int, list[float]]] = {arm: {} for arm in experiment.arms}
    for i, (arm, seed) in enumerate(todo):
        steps[arm] = [int(s) for s in found[i]["evaluated"]]
        curves[arm][seed] = [float(x) for x in found[i]["held_out_loss"]]
    seconds = sum(float(d.attrs["seconds"]) for d in found.values())
    return Outcome(experiment.id, effort, steps, curves, sum(r.tokens for r in runs), seconds, provenance())


def _train(run: Run, folder: Path, device: str) -> xarray.Dataset:
    found = train(run, folder, device=device)
    assert found is not None
    return found


def store(outcome: Outcome, path: Path) -> None:
    """Write an outcome as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, asdict(outcome))


def stored(path: Path) -> Outcome:
    """Read what `store` wrote.

    Raises
    ------
    ValueError : no such thing is in the file.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["curves"] = {arm: {int(s): c for s, c in runs.items()} for arm, runs in fields["curves"].items()}
        return Outcome(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: no stored outcome of an experiment ({error})") from error


def committed(experiment: Experiment) -> Outcome | None:
    """The outcome of full effort that comes with the code, if there is one."""
    path = OUTCOMES / f"{experiment.id}.json"
    return stored(path) if path.exists() else None
