"""An experiment: a question, arms that differ from a base run, and contrasts of them decided by their intervals.

The arms share initial weights and the order of the data seed by seed, so that every seed gives one number of each
contrast.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec_theory.counts import check_count
from scalevec_theory.registry import UnknownName
from simulations.lm.architecture import SIZE_NAMES
from simulations.lm.contrast import LOSS, Contrast, Estimate, estimated
from simulations.lm.run import SETTING_NAMES, Run, make_run, widened
from simulations.lm.scaling import Scaling
from simulations.parallel import Call, run_parallel
from simulations.provenance import provenance
from simulations.runs import key_of
from simulations.store import plain, write_text

if TYPE_CHECKING:
    import xarray

OUTCOMES = Path(__file__).parent / "outcomes"
"""Results of full effort, which come with the code."""

EFFORTS = ("quick", "standard", "full")
ARM_ONLY = {"family", "sizes", "stretch", "widened"}
"""What an arm may say beside the fields of a run."""


@dataclass(frozen=True)
class Experiment:
    """Everything that is settled before an experiment is run.

    Attributes
    ----------
    id, question, source : what is asked, and of which paper.
    family, sizes, settings : of the base run; ``settings`` are fields of `Run`.
    arms : by name, the fields that differ from the base run; ``widened`` = name of an arm makes its wider baseline,
        ``stretch`` multiplies the number of steps.
    contrasts : what is compared.
    threshold : the smallest value that would matter; of a loss in nats per token.
    scaling : which arms a scaling law is fitted to, if any.
    shown : beginnings of the names of metrics that are kept for figures, beside those of the contrasts.
    steps, seeds : by effort, (quick, standard, full).  No run is added after a look at the result: a question that is
        asked again is asked of other seeds.
    first_seed : those after it in order are the others.
    on_request : whether it is run only when it is named, being too large for processors.
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
    scaling: Scaling | None = None
    shown: tuple[str, ...] = ()
    first_seed: int = 0
    on_request: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a contrast of an arm that is not there, and for steps, seeds or settings that no run
        could have."""
        for name, counts, least in (("steps", self.steps, 1), ("seeds", self.seeds, 2)):
            if not isinstance(counts, tuple) or len(counts) != len(EFFORTS):
                raise ValueError(
                    f"experiment {self.id!r}: {name}={counts!r}: expected three numbers, for {', '.join(EFFORTS)}"
                )
            for effort, count in zip(EFFORTS, counts, strict=True):
                check_count(f"experiment {self.id!r}: {name} of {effort} effort", count, least)
        self._check_names("", self.sizes, SIZE_NAMES)
        self._check_names("", self.settings, SETTING_NAMES)
        for arm, changes in self.arms.items():
            self._check_names(f", arm {arm}", changes, SETTING_NAMES | ARM_ONLY)
            self._check_names(f", arm {arm}", changes.get("sizes", {}), SIZE_NAMES)
        for contrast in self.contrasts:
            for arm in contrast.weights:
                if arm not in self.arms:
                    raise ValueError(
                        f"contrast {contrast.name!r}: no arm {arm!r}; expected one of {', '.join(self.arms)}"
                    )

    def _check_names(self, place: str, given: Mapping[str, Any], known: Set[str]) -> None:
        for name in given:
            if name not in known:
                raise UnknownName(f"setting of experiment {self.id}{place}", name, known)

    def run(self, arm: str, seed: int, effort: str) -> Run:
        """The run of one arm and seed."""
        changes = dict(self.arms[arm])
        steps = round(self.steps[EFFORTS.index(effort)] * changes.pop("stretch", 1))
        small: dict[str, Any] = {}
        if effort == "quick":
            small = {
                "sizes": {"layers": 2},
                "batch": 4,
                "length": 32,
                "held_out": 2,
                "compile": False,
                "precision": "float32",
            }
        settings = {**self.settings, **small, "steps": steps, "warmup": min(steps // 10, 100), "seed": seed}
        sizes = {**self.sizes, **settings.pop("sizes", {}), **changes.pop("sizes", {})}
        family, wide = changes.pop("family", self.family), changes.pop("widened", None)
        if wide is not None:
            return replace(widened(self.run(wide, seed, effort)), **changes)
        return make_run(family, sizes, **{**settings, **changes})

    def design(self, effort: str) -> str:
        """A hash of every setting of every run: outcomes of one design answer the same question."""
        keys = {arm: self.run(arm, self.first_seed, effort).key for arm in self.arms}
        return key_of({"runs": keys, "seeds": self.seeds[EFFORTS.index(effort)]})

    def runs(self, effort: str) -> list[tuple[str, int]]:
        """Arms and seeds, seed by seed, so that whatever is finished is paired."""
        after = self.first_seed + self.seeds[EFFORTS.index(effort)]
        return [(arm, seed) for seed in range(self.first_seed, after) for arm in self.arms]


@dataclass(frozen=True)
class Outcome:
    """What was measured of every finished run of an experiment's ``design``: its held-out losses ``curves[arm][seed]``
    at ``steps[arm]``, and the other metrics of the contrasts, ``metrics[metric][arm][seed]`` at the same steps without
    the first."""

    experiment: str
    design: str
    effort: str
    steps: Mapping[str, Sequence[int]]
    curves: Mapping[str, Mapping[int, Sequence[float]]]
    tokens: int
    seconds: float
    provenance: Mapping[str, str]
    metrics: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        """Those that every arm has."""
        return sorted(set.intersection(*(set(runs) for runs in self.curves.values())))

    def numbers(self, contrast: Contrast) -> dict[int, float]:
        """The contrast's number of every seed that all its arms have.

        Raises
        ------
        ValueError : a number that is not above 0 where its logarithm is asked for.
        """
        found = self.curves if contrast.metric == LOSS else self.metrics[contrast.metric]
        seeds = sorted(set.intersection(*(set(found[arm]) for arm in contrast.weights)))
        numbers = dict.fromkeys(seeds, 0.0)
        for arm, weight in contrast.weights.items():
            for seed in seeds:
                x = found[arm][seed][contrast.evaluation]
                if contrast.logarithm and not x > 0:
                    raise ValueError(f"{self.experiment}:{contrast.name}: {contrast.metric} = {x} has no logarithm")
                numbers[seed] += weight * (math.log(x) if contrast.logarithm else x)
        return numbers

    def estimate(self, contrast: Contrast) -> Estimate:
        """Raises ValueError for fewer than two seeds that all arms have."""
        numbers = self.numbers(contrast)
        if len(numbers) < 2:
            raise ValueError(f"{self.experiment}:{contrast.name}: {len(numbers)} pairs of runs; expected two or more")
        efficiency = math.nan
        if contrast.pair is not None:
            worse, better = (np.mean([self.curves[arm][s] for s in numbers], 0) for arm in contrast.pair)
            efficiency = tokens_to_reach(np.array(self.steps[contrast.pair[1]]), worse, better)
        return estimated(np.array(list(numbers.values())), efficiency)


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


def perform(
    experiment: Experiment,
    effort: str,
    folder: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    device: str = "cpu",
    minutes: float | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Run every arm and seed that ``folder`` does not hold yet, and gather all; each run uses one thread.

    ``jobs`` and ``scheduler`` are those of `run_parallel`.  After so many ``minutes`` no step is begun: what is in
    progress is left with a checkpoint, and the outcome is that of the seeds that all arms have finished.

    Raises
    ------
    ValueError : a run raised; the others are finished and stored.  Minutes that are not above 0.
    """
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes={minutes}: expected > 0")
    until = None if minutes is None else time.time() + 60 * minutes
    todo = experiment.runs(effort)
    runs = [experiment.run(arm, seed, effort) for arm, seed in todo]
    calls = [Call(_train, (run, folder.resolve(), device, until), experiment.id) for run in runs]
    found: dict[int, xarray.Dataset | None] = {}
    failures = []
    for index, value in run_parallel(calls, jobs, scheduler, gpu=device == "cuda"):
        if isinstance(value, Exception):
            failures.append(value)
        else:
            found[index] = value
        if report is not None:
            report(len(found) + len(failures), len(calls))
    if failures:
        raise failures[0]
    unfinished = {todo[i][1] for i, dataset in found.items() if dataset is None}
    kept = [i for i, (_, seed) in enumerate(todo) if seed not in unfinished]
    datasets = [dataset for i in kept if (dataset := found[i]) is not None]
    return gathered(experiment, effort, [todo[i] for i in kept], datasets, sum(runs[i].tokens for i in kept))


def gathered(
    experiment: Experiment, effort: str, todo: list[tuple[str, int]], found: list[xarray.Dataset], tokens: int
) -> Outcome:
    """The outcome of finished runs, numbers to six digits."""
    steps: dict[str, list[int]] = {}
    curves: dict[str, dict[int, list[float]]] = {arm: {} for arm in experiment.arms}
    asked = [c.metric for c in experiment.contrasts if c.metric != LOSS]
    metrics: dict[str, dict[str, dict[int, list[float]]]] = {m: {arm: {} for arm in experiment.arms} for m in asked}
    for (arm, seed), dataset in zip(todo, found, strict=True):
        steps[arm] = [int(s) for s in dataset["evaluated"]]
        curves[arm][seed] = rounded(dataset["held_out_loss"])
        for metric in dataset["quantity"].values.tolist() if "quantity" in dataset.coords else []:
            if metric in metrics or metric.startswith(experiment.shown):
                of = metrics.setdefault(metric, {arm: {} for arm in experiment.arms})
                of[arm][seed] = rounded(dataset["measured"].sel(quantity=metric))
    texts: dict[str, str] = {}
    for d in found:
        data = f"data={json.loads(d.attrs['settings'])['data']}"
        if texts.setdefault(data, d.attrs["data_fingerprint"]) != d.attrs["data_fingerprint"]:
            raise ValueError(
                f"{experiment.id}: its stored run {d.attrs['key']} has read another text under {data} than those "
                f"before; after scalevec runs remove {d.attrs['key']} it is made anew"
            )
    seconds = round(sum(float(d.attrs["seconds"]) for d in found), 1)
    return Outcome(
        experiment.id, experiment.design(effort), effort, steps, curves, tokens, seconds, provenance() | texts, metrics
    )


def rounded(numbers: xarray.DataArray) -> list[float]:
    """To six digits."""
    return [float(f"{float(x):.6g}") for x in numbers]


def _train(run: Run, folder: Path, device: str, until: float | None) -> xarray.Dataset | None:
    from simulations.lm.training import train  # outcomes that come with the code are read without it

    return train(run, folder, device=device, until=until)


def store(outcome: Outcome, path: Path) -> None:
    """Write an outcome as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(plain(asdict(outcome)), ensure_ascii=False, allow_nan=False) + "\n")


def stored(path: Path) -> Outcome:
    """Read what `store` wrote.

    Raises
    ------
    ValueError : no such thing is in the file.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["curves"] = _by_seed(fields["curves"])
        fields["metrics"] = {metric: _by_seed(arms) for metric, arms in fields.get("metrics", {}).items()}
        return Outcome(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: no stored outcome of an experiment ({reason})") from error


def _by_seed(arms: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[int, Sequence[float]]]:
    """Seeds as numbers: JSON has texts for them."""
    return {arm: {int(seed): curve for seed, curve in runs.items()} for arm, runs in arms.items()}


def committed(experiment: Experiment) -> Outcome | None:
    """The outcome of full effort that comes with the code, if there is one of what is declared now."""
    path = OUTCOMES / f"{experiment.id}.json"
    outcome = stored(path) if path.exists() else None
    return outcome if outcome is not None and outcome.design == experiment.design("full") else None
