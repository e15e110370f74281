"""Calls spread over processes, here or on a cluster: one thread each, results in order of completion."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.backend import resource_tracker
from joblib.externals.loky.process_executor import BrokenProcessPool, _ExecutorManagerThread
from threadpoolctl import ThreadpoolController

from scalevec_theory.registry import blame
from simulations.memory import SAID, out_of_memory
from simulations.orphans import end_with


class WorkerLost(ValueError):
    """A worker process died; what it had finished before was handed over."""


class Raised(ValueError):
    """The code of a claim or a figure raised; the message names file, line and exception.

    `run_parallel` yields it in place of the value, so that the other calls go on.
    """


@dataclass(frozen=True)
class Call:
    """A call of ``function`` in a worker; if it raises, that is put down to the file ``source``."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    source: str


def run_parallel(
    calls: Sequence[Call], jobs: int, scheduler: str | None = None, gpu: bool = False
) -> Generator[tuple[int, Any], None, None]:
    """The index and value of every call, in order of completion; the same values for any number of ``jobs``.

    The value of a call that raised is a `Raised`.  An interrupt ends all processes at once.

    Parameters
    ----------
    jobs : processes on this machine.
    scheduler, gpu : in their place, as in `simulations.cluster.run_on_cluster`.

    Raises
    ------
    ValueError : ``jobs`` below 1, or no scheduler answers.
    WorkerLost : a worker process died on this machine.
    MemoryError : worker processes cannot be served for lack of memory.
    """
    if scheduler is not None:
        from simulations.cluster import run_on_cluster

        return run_on_cluster(calls, scheduler, gpu)
    if jobs < 1:
        raise ValueError(f"jobs={jobs}: expected >= 1")
    return _outcomes(calls, min(jobs, len(calls)))


def _outcomes(calls: Sequence[Call], jobs: int) -> Generator[tuple[int, Any], None, None]:
    outcomes: Generator[tuple[int, Any, str], None, None] | None = None
    try:  # workers may be lost while calls are still being handed out
        outcomes = _handed_out(calls, jobs) if jobs > 1 else (_perform(i, call) for i, call in enumerate(calls))
        for index, value, raised in outcomes:
            yield index, Raised(raised) if raised else value
    except BrokenProcessPool as error:
        if out_of_memory(error):
            raise MemoryError(str(error)) from error
        raise WorkerLost("a worker process died, most likely for lack of memory; try fewer --jobs") from error
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib remarks that closing gives up what still runs; that is the point
            if outcomes is not None:
                outcomes.close()


def _handed_out(calls: Sequence[Call], jobs: int) -> Generator[tuple[int, Any, str], None, None]:
    """The outcomes of calls that worker processes have been given."""
    _quiet_executor()
    with parallel_config("loky", inner_max_num_threads=1), _deaf_to_interrupts():
        parallel = Parallel(
            n_jobs=jobs,
            batch_size=1,
            pre_dispatch="all",
            return_as="generator_unordered",
            initializer=end_with,
            initargs=(os.getpid(),),
        )
        outcomes: Generator[tuple[int, Any, str], None, None] = parallel(
            delayed(perform_in)(os.getcwd(), i, call) for i, call in enumerate(calls)
        )
        return outcomes


@cache
def _quiet_executor() -> None:
    """Loky's own thread may look for a call that was given up, and would print a traceback at any time after.

    If it ends for lack of memory, nobody waits for the workers any more: the results that are missing would not come.
    It replaces workers that have grown, and warns of that, too.  Its process that frees semaphores warns of those
    that an interrupted process was just freeing, after the last line of the command.
    """
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given to the executor")
    with patch.dict(os.environ, PYTHONWARNINGS="ignore:resource_tracker"):
        resource_tracker.ensure_running()
    before = threading.excepthook

    def hook(error: threading.ExceptHookArgs) -> None:
        if not isinstance(error.thread, _ExecutorManagerThread):
            before(error)
        elif error.exc_value is not None and out_of_memory(error.exc_value):
            broken = BrokenProcessPool(f"worker processes cannot be served: {error.exc_value}")
            broken.__cause__ = error.exc_value
            error.thread.terminate_broken(broken)

    threading.excepthook = hook


def perform_in(folder: str, index: int, call: Call) -> tuple[int, Any, str]:
    """`_perform` in a worker, which may have been kept from a time when another folder was the current one."""
    os.chdir(folder)
    return _perform(index, call)


def _perform(index: int, call: Call) -> tuple[int, Any, str]:
    try:
        with _one_thread():
            return index, call.function(*call.arguments), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the code of a claim may raise anything, SystemExit included
        return index, None, SAID * out_of_memory(error) + blame(call.source, error)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch and BLAS split sums by threads, so that their number would show in the last digits."""
    before = torch.get_num_threads()
    with _thread_pools().limit(limits=1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()  # finding the libraries takes longer than a small call


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
