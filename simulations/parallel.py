"""Calls spread over processes: one thread each, results in order of completion, an interrupt that ends them at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import BrokenProcessPool

Value = TypeVar("Value")


class WorkerLost(ValueError):
    """A worker process died; the work it had finished before was handed over."""


def run_parallel(
    function: Callable[..., Value], arguments: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[tuple[int, Value]]:
    """``function(*arguments[i])`` with its index i, in order of completion, for any number of ``jobs`` the same values.

    ``function`` must be importable, and must return rather than raise what is to be reported.

    Raises
    ------
    ValueError : ``jobs`` below 1.
    WorkerLost : a worker process died.
    """
    if jobs < 1:
        raise ValueError(f"jobs={jobs}: expected >= 1")
    jobs = min(jobs, len(arguments))
    if jobs <= 1:
        with _one_thread():
            for i, a in enumerate(arguments):
                yield i, function(*a)
        return
    with parallel_config("loky", inner_max_num_threads=1), _deaf_to_interrupts():
        outcomes = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch="all", return_as="generator_unordered")(
            delayed(_indexed)(function, i, a) for i, a in enumerate(arguments)
        )
    try:
        yield from outcomes
    except BrokenProcessPool as error:
        raise WorkerLost("a worker process died, most likely for lack of memory; try fewer --jobs") from error
    finally:
        outcomes.close()


def _indexed(function: Callable[..., Value], index: int, arguments: tuple[Any, ...]) -> tuple[int, Value]:
    with _one_thread():
        return index, function(*arguments)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch splits sums by threads, so that their number would show in the last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started within ignore Ctrl-C, which a terminal sends to all: the main process alone ends them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
