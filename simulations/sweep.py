"""Sweeps: one simulation or training run at every point of a grid or of a random design, each stored once.

sweep = Sweep.grid("train:llama", {"lr": [1e-3, 3e-3], "seed": range(4)}, {"steps": 100})
points = sweep.run(Path("results/runs"), jobs=2)
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Number
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
import xarray

from scalevec_theory.registry import UnknownName, module_in_file
from simulations.parallel import Call, run_parallel
from simulations.runs import RunStore, key_of, label, results_of
from simulations.store import plain

TASKS = ("equilibrium", "flow", "noise")
"""Functions of `simulations.tasks`, which is not imported before one is needed."""


class Target(Protocol):
    """What a sweep runs; it travels to worker processes."""

    @property
    def source(self) -> str:
        """The file to which exceptions are put down."""

    def key(self, settings: Mapping[str, Any]) -> str:
        """The key of the run with these settings.

        Raises
        ------
        ValueError : settings that the target does not take.
        """

    def run(self, settings: Mapping[str, Any], store: RunStore, device: str) -> xarray.Dataset:
        """Make the run with these settings and put it into the store."""


@dataclass(frozen=True)
class Training:
    """``train:FAMILY``: the runs of ``scalevec train``, under the same keys."""

    family: str
    source: str = str(Path(__file__).parent / "lm" / "training.py")

    def key(self, settings: Mapping[str, Any]) -> str:
        return self._run(settings).key

    def run(self, settings: Mapping[str, Any], store: RunStore, device: str) -> xarray.Dataset:
        from simulations.lm.training import train

        found = train(self._run(settings), store.folder, device=device)
        assert found is not None
        return found

    def _run(self, settings: Mapping[str, Any]) -> Any:
        from simulations.lm.commands import split_settings
        from simulations.lm.run import make_run

        sizes, others = split_settings(settings)
        return make_run(self.family, sizes, **others)


@dataclass(frozen=True)
class Function:
    """A function of keyword arguments: one of `simulations.tasks`, or ``FILE.py:FUNCTION`` of a user's.

    Attributes
    ----------
    name : of the function.
    file : the user's file, absolute, and ``digest``, a hash of its text: a run counts as done for this text only.
    """

    name: str
    file: str = ""
    digest: str = ""

    @property
    def source(self) -> str:
        return self.file or inspect.getfile(self._function())

    @property
    def task(self) -> str:
        return f"{Path(self.file).name}:{self.name}" if self.file else self.name

    def key(self, settings: Mapping[str, Any]) -> str:
        return key_of([self.name, self.digest, self._complete(settings)])

    def run(self, settings: Mapping[str, Any], store: RunStore, device: str) -> xarray.Dataset:
        complete, began = self._complete(settings), time.monotonic()
        found = as_dataset(self._function()(**complete), self.task)
        seconds = time.monotonic() - began
        return store.put(label(found, key=self.key(settings), task=self.task, settings=complete, seconds=seconds))

    def _function(self) -> Callable[..., Any]:
        if not self.file:
            built_in: Callable[..., Any] = getattr(importlib.import_module("simulations.tasks"), self.name)
            return built_in
        module = _module(self.file, self.digest)
        if not callable(getattr(module, self.name, None)):
            known = [n for n, x in vars(module).items() if inspect.isfunction(x) and not n.startswith("_")]
            raise UnknownName(f"function in {self.file}", self.name, known)
        function: Callable[..., Any] = getattr(module, self.name)
        return function

    def _complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with the function's defaults for those not given."""
        signature = inspect.signature(self._function())
        try:
            bound = signature.bind(**settings)
        except TypeError as error:
            takes = ", ".join(signature.parameters) or "nothing"
            raise ValueError(f"{self.task}: {error}; it takes {takes}") from None
        bound.apply_defaults()
        complete: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_KEYWORD:
                complete |= value
            elif kind != inspect.Parameter.VAR_POSITIONAL:
                complete[name] = value
        return _plain(complete)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ValueError for a value that JSON cannot say."""
    try:
        return cast(dict[str, Any], plain(settings))
    except TypeError as error:
        raise ValueError(f"settings {', '.join(settings)}: {error}") from None


@cache
def _module(file: str, digest: str) -> ModuleType:
    if _digest(file) != digest:
        raise ValueError(f"{file} has changed since the sweep began; give the command again")
    return module_in_file(file)


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def find_target(name: str) -> Target:
    """``train:FAMILY``, the name of one of `TASKS`, or ``FILE.py:FUNCTION``.

    Raises
    ------
    ValueError : neither, or a file that raises or has no such function.
    """
    if name in TASKS:
        return Function(name)
    what, _, last = name.rpartition(":")
    if what == "train":
        return Training(last)
    if not what.endswith(".py"):
        raise ValueError(f"target={name!r}: expected train:FAMILY, {', '.join(TASKS)}, or FILE.py:FUNCTION")
    if not Path(what).is_file():
        raise ValueError(f"{what}: no such file")
    function = Function(last, str(Path(what).resolve()), _digest(what))
    function._function()
    return function


def as_dataset(value: Any, task: str) -> xarray.Dataset:
    """A number, a mapping of numbers or a dataset, as a dataset.

    Raises
    ------
    ValueError : something else.
    """
    if isinstance(value, xarray.Dataset):
        return value
    numbers = value if isinstance(value, Mapping) else {"result": value}
    for name, number in numbers.items():
        if not isinstance(name, str) or not isinstance(number, Number | np.bool_):
            shown = type(number).__name__ if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(f"{task} returned {shown}: expected a number, a mapping of numbers or an xarray dataset")
    return xarray.Dataset(dict(numbers))


@dataclass(frozen=True)
class Range:
    """An interval to draw from: ``kind`` is ``uniform``, ``log`` (uniform in the logarithm) or ``int`` (both ends)."""

    kind: str
    low: float
    high: float

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown kind, an empty interval, or a logarithm of what is not positive."""
        if self.kind not in ("uniform", "log", "int"):
            raise ValueError(f"range={self.kind!r}: expected uniform, log or int")
        if not (self.low < self.high and (self.kind != "log" or self.low > 0)):
            raise ValueError(
                f"range={self.kind}:{self.low}:{self.high}: expected {'0 < ' * (self.kind == 'log')}low < high"
            )

    def at(self, share: float) -> float | int:
        """The value below which a share in [0, 1) of the interval lies."""
        if self.kind == "int":
            return int(self.low) + int(share * (int(self.high) - int(self.low) + 1))
        if self.kind == "log":
            return float(self.low * (self.high / self.low) ** share)
        return float(self.low + share * (self.high - self.low))


@dataclass(frozen=True)
class Point:
    """One run of a sweep: its results, or the one line that says why it has none."""

    key: str
    settings: Mapping[str, Any]
    results: Mapping[str, float]
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class Sweep:
    """A target and the settings of every run."""

    target: Target
    points: tuple[Mapping[str, Any], ...]

    @classmethod
    def grid(cls, target: str, axes: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any] | None = None) -> Sweep:
        """Every combination of the axes' values, the last axis fastest, with ``fixed`` for all.

        Raises
        ------
        ValueError : as `find_target`, or an axis that is also fixed.
        """
        if both := sorted(set(axes) & set(fixed or {})):
            raise ValueError(f"{both[0]} is an axis and has a fixed value, too: expected one of both")
        combinations = itertools.product(*axes.values())
        points = ({**(fixed or {}), **dict(zip(axes, values, strict=True))} for values in combinations)
        return cls(find_target(target), tuple(map(_plain, points)))

    @classmethod
    def random(
        cls,
        target: str,
        number: int,
        ranges: Mapping[str, Range],
        axes: Mapping[str, Sequence[Any]] | None = None,
        fixed: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> Sweep:
        """``number`` independent draws from the ranges, each with every combination of the axes.

        A larger ``number`` of the same seed begins with the same draws.

        Raises
        ------
        ValueError : as `grid`, ``number`` below 1, a negative seed, or a range that is also an axis or fixed.
        """
        if number < 1 or seed < 0:
            raise ValueError(f"random={number}, seed={seed}: expected random >= 1 and seed >= 0")
        if both := sorted(set(ranges) & (set(axes or {}) | set(fixed or {}))):
            raise ValueError(f"{both[0]} has a range and is an axis or fixed, too: expected one of both")
        shares = np.random.default_rng(seed).random((number, len(ranges)))
        drawn = [{name: r.at(x) for (name, r), x in zip(ranges.items(), row, strict=True)} for row in shares]
        grid = cls.grid(target, axes or {}, fixed)
        return cls(grid.target, tuple({**point, **draw} for draw in drawn for point in grid.points))

    def run(
        self,
        folder: Path,
        *,
        jobs: int = 1,
        scheduler: str | None = None,
        device: str = "cpu",
        report: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Point]:
        """Run every point that ``folder`` does not hold yet; the results are the same wherever and however often.

        Parameters
        ----------
        jobs, scheduler : as in `run_parallel`; on a cluster, ``device="cuda"`` asks for workers with a GPU.
        report : is told how many points are done, and of how many that were not stored.

        Raises
        ------
        ValueError : settings that the target does not take, ``jobs`` below 1, or no scheduler answers.
        WorkerLost : a worker process died on this machine.
        OSError : ``folder`` cannot be made or read.
        """
        store = RunStore(folder.resolve())
        store.folder.mkdir(parents=True, exist_ok=True)
        keys = [self.target.key(settings) for settings in self.points]
        settings_of = dict(zip(keys, self.points, strict=True))
        found = {key: _point(key, settings_of[key], run) for key in settings_of if (run := store.get(key)) is not None}
        waiting = [key for key in settings_of if key not in found]
        calls = [Call(perform, (self.target, settings_of[k], store, device), self.target.source) for k in waiting]
        outcomes = run_parallel(calls, jobs, scheduler, gpu=device == "cuda")
        report(0, len(waiting))
        try:
            for done, (position, value) in enumerate(outcomes, start=1):
                key = waiting[position]
                failed = isinstance(value, Exception)
                results, seconds = ({}, 0.0) if failed else value
                found[key] = Point(key, settings_of[key], results, seconds, str(value) if failed else "")
                report(done, len(waiting))
        finally:
            outcomes.close()
        return [found[key] for key in settings_of]


def perform(
    target: Target, settings: Mapping[str, Any], store: RunStore, device: str
) -> tuple[dict[str, float], float]:
    """A worker's whole work: results and seconds of one run, which it makes unless it is stored."""
    run = store.get(target.key(settings))
    if run is None:
        run = target.run(settings, store, device)
    return results_of(run), float(run.attrs["seconds"])


def _point(key: str, settings: Mapping[str, Any], run: xarray.Dataset) -> Point:
    return Point(key, settings, results_of(run), float(run.attrs["seconds"]))
