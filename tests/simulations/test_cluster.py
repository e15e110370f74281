"""A sweep on a real Dask cluster of separate processes, whose client, workers and scheduler are killed under way."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import workers
from workers import dask_client, dask_scheduler, dask_worker, die, draw, fail, how_many_at_once

import simulations.cluster
from simulations.parallel import Call, Raised, run_parallel
from simulations.runs import RunStore
from simulations.sweep import Sweep

pytest.importorskip("distributed")

STUDY = """
import time
import numpy as np
import xarray

def tell(what, x):
    with open("log", "a") as log:
        log.write(f"{what} {x} {time.time()}\\n")

def measure(x, pause=0.0):
    tell("start", x)
    time.sleep(pause)
    a = np.random.default_rng(x).standard_normal((400, 400)).astype("float32")
    tell("finish", x)
    return xarray.Dataset({"eigenvalue": ("k", np.linalg.eigvalsh(a @ a.T)[-3:]), "trace": float((a @ a).trace())})
"""
POINTS = 10


class Cluster:
    """A scheduler on a port of its own, and workers: processes to kill, forked from one that has imported it all."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address, self.processes = f"tcp://127.0.0.1:{self.port}", []
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["distributed", "simulations.sweep"])

    def start(self, what: Callable[..., None], *arguments: Any) -> ForkServerProcess:
        process = self.context.Process(target=what, args=arguments, daemon=True)
        process.start()
        self.processes.append(process)
        return process

    def scheduler(self, allowed_failures: int = 3) -> ForkServerProcess:
        return self.start(dask_scheduler, self.port, allowed_failures)

    def worker(self, gpus: int = 0) -> ForkServerProcess:
        return self.start(dask_worker, self.address, gpus)


def kill(process: ForkServerProcess) -> None:
    process.kill()
    process.join()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.chdir(tmp_path)
    cluster = Cluster()
    yield cluster
    for process in cluster.processes:
        kill(process)


def told(what: str) -> list[tuple[int, float]]:
    """Which points' function has told what, and when."""
    lines = [line.split() for line in Path("log").read_text().splitlines()]
    return [(int(x), float(when)) for kind, x, when in lines if kind == what]


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def watched(store: RunStore) -> dict[str, float]:
    """When each run was first seen in the store, as time goes on."""
    seen: dict[str, float] = {}

    def watch() -> None:
        while len(seen) < POINTS:
            for path in store.folder.glob("*.nc"):
                seen.setdefault(path.stem, time.time())
            time.sleep(0.01)

    threading.Thread(target=watch, daemon=True).start()
    return seen


def test_nothing_finished_is_lost_or_done_twice_and_every_number_is_that_of_one_process(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    Path("study.py").write_text(STUDY)
    Path("log").touch()
    sweep, store = (
        Sweep.grid("study.py:measure", {"x": range(POINTS)}, {"pause": 0.4}),
        RunStore(Path("runs").resolve()),
    )
    stored = watched(store)
    scheduler, first, _ = cluster.scheduler(), cluster.worker(), cluster.worker()

    client = cluster.start(dask_client, str(Path.cwd()), sweep, cluster.address)
    wait_for(lambda: len(stored) >= 2)
    kill(client)

    points = []
    again = threading.Thread(target=lambda: points.extend(sweep.run(store.folder, scheduler=cluster.address)))
    again.start()
    done = len(stored)
    wait_for(lambda: len(stored) > done and len(told("start")) > len(told("finish")))
    kill(first)
    done = len(stored)
    wait_for(lambda: len(stored) > done)
    kill(scheduler)
    cluster.scheduler()
    cluster.worker()
    again.join(timeout=120)
    assert not again.is_alive() and [p.error for p in points] == [""] * POINTS
    assert "it went away; waiting for it" in caplog.text
    assert all(record.name == "scalevec" for record in caplog.records)
    for x, when in told("start"):
        assert when <= stored[sweep.target.key({"x": x, "pause": 0.4})], x
    for point in sweep.run(Path("alone"), jobs=1):
        one, other = RunStore(Path("alone")).get(point.key), store.get(point.key)
        assert one is not None and other is not None and one.equals(other)


def test_what_goes_wrong_with_a_call_is_its_outcome(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.scheduler(allowed_failures=0)
    cluster.worker()
    calls = [Call(draw, (0,), workers.__file__), Call(fail, (ZeroDivisionError,), workers.__file__)]
    found: dict[int, Any] = {}
    client = threading.Thread(target=lambda: found.update(run_parallel(calls, 1, cluster.address, gpu=True)))
    client.start()
    wait_for(lambda: "no worker with a GPU yet; waiting for one" in caplog.text)
    time.sleep(0.3)
    assert not found
    cluster.worker(gpus=1)
    client.join(timeout=60)
    here = dict(run_parallel(calls, 1))
    assert found[0] == here[0] and isinstance(found[1], Raised) and str(found[1]) == str(here[1])
    ((_, died),) = run_parallel([Call(die, (), workers.__file__)], 1, cluster.address)
    assert isinstance(died, Raised) and str(died) == "1 worker died while running it, most likely for lack of memory"


def test_threads_of_a_worker_take_turns(tmp_path: Path) -> None:
    call = Call(how_many_at_once, (), workers.__file__)
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda i: simulations.cluster._perform_alone(i, call, os.getcwd()), range(3)))
    assert outcomes == [(i, 1, "") for i in range(3)]


def test_an_address_without_a_scheduler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulations.cluster, "FIRST", 0.5)
    with pytest.raises(ValueError, match=r"scheduler='tcp://127.0.0.1:1': no Dask scheduler answered within 0 s; fin"):
        list(run_parallel([Call(draw, (0,), workers.__file__)], 1, "tcp://127.0.0.1:1"))
