import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import workers
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import BrokenProcessPool
from threadpoolctl import threadpool_limits
from workers import die, draw, fail, pool_threads

from simulations.memory import SAID
from simulations.parallel import Call, Raised, WorkerLost, run_parallel


def calls(n: int) -> list[Call]:
    return [Call(draw, (i,), workers.__file__) for i in range(n)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_value_once_in_one_thread_and_nothing_left_changed(jobs: int) -> None:
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    torch.set_num_threads(2)
    try:
        values = sorted(run_parallel(calls(5), jobs))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert values == [(i, (float(np.random.default_rng(i).standard_normal()), 1)) for i in range(5)]
    assert signal.getsignal(signal.SIGINT) is handler


def test_libraries_take_one_thread() -> None:
    with threadpool_limits(2):
        assert pool_threads() == 2
        assert dict(run_parallel([Call(pool_threads, (), workers.__file__)], 1)) == {0: 1}
        assert pool_threads() == 2


def test_nothing_to_do() -> None:
    assert list(run_parallel([], 4)) == []


@pytest.mark.parametrize("jobs", [0, -1])
def test_jobs_must_be_positive(jobs: int) -> None:
    with pytest.raises(ValueError, match=f"jobs={jobs}: expected >= 1"):
        run_parallel(calls(1), jobs)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("jobs", "how"), [(1, ZeroDivisionError), (1, SystemExit), (2, ZeroDivisionError)])
def test_what_a_call_raises_is_told_in_one_line(jobs: int, how: type[BaseException]) -> None:
    line = next(
        i for i, text in enumerate(Path(workers.__file__).read_text().splitlines(), 1) if 'raise how("on' in text
    )
    outcomes = dict(run_parallel([Call(fail, (how,), workers.__file__), *calls(3)], jobs))
    assert isinstance(outcomes[0], Raised)
    assert str(outcomes[0]) == f"{workers.__file__}:{line}: {how.__name__}: on purpose in two lines"
    assert sorted(outcomes) == [0, 1, 2, 3]


def test_a_dead_worker_is_reported() -> None:
    with pytest.raises(WorkerLost, match="a worker process died"):
        list(run_parallel([Call(die, (), workers.__file__), *calls(3)], 2))


def test_a_worker_lost_while_calls_are_handed_out_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise BrokenProcessPool("gone")

    monkeypatch.setattr("joblib.externals.loky.reusable_executor._ReusablePoolExecutor.submit", refuse)
    with pytest.raises(WorkerLost, match="a worker process died"):
        list(run_parallel(calls(3), 2))


def test_no_thread_to_serve_workers_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(queue: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("joblib.externals.loky.backend.queues.Queue._start_thread", refuse)
    get_reusable_executor().shutdown(kill_workers=True)  # the next one starts its threads anew
    with pytest.raises(MemoryError, match="cannot be served: can't start new thread"):
        list(run_parallel(calls(3), 2))


def test_a_call_without_memory_is_told_from_one_that_raises() -> None:
    assert [str(x).startswith(SAID) for _, x in run_parallel([Call(fail, (MemoryError,), workers.__file__)], 1)] == [
        True
    ]


def test_a_process_that_ends_while_freeing_semaphores_says_nothing() -> None:
    code = (
        "import os; from simulations import parallel; parallel._quiet_executor();"
        "parallel.resource_tracker.register('/scalevec-gone', 'semlock'); os._exit(0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
