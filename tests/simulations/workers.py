"""What the tests of the runner call in worker processes, which import it by name."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_info

if TYPE_CHECKING:  # a second in every process
    from simulations.sweep import Sweep


def draw(seed: int) -> tuple[float, int]:
    return float(np.random.default_rng(seed).standard_normal()), torch.get_num_threads()


def fail(how: type[BaseException]) -> None:
    raise how("on purpose\nin two lines")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_two_processes(function: Callable[..., None], *arguments: Any) -> None:
    """``function(*arguments)`` in two processes, told of each other as by torchrun; they must end well in 2 minutes.

    They are forked from this one: to import all that they need would take most of the time.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_as_by_torchrun, args=(r, port, function, arguments)) for r in range(2)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
    finally:
        for process in processes:
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0]


def _as_by_torchrun(rank: int, port: int, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)  # those of the process it was forked from are not there
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in told.items()} | {"GLOO_SOCKET_IFNAME": "lo"}
    function(*arguments)


def dask_scheduler(port: int, allowed_failures: int) -> None:
    """A scheduler until it is killed."""
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(
            host="127.0.0.1", port=port, dashboard=False, allowed_failures=allowed_failures
        ) as scheduler:
            await scheduler.finished()

    asyncio.run(serve())


def dask_worker(address: str, gpus: int) -> None:
    """A worker until it is killed or has lost its scheduler."""
    from distributed import Worker

    async def serve() -> None:
        async with Worker(address, nthreads=1, dashboard=False, resources={"GPU": gpus}) as worker:
            await worker.finished()

    asyncio.run(serve())


def dask_client(folder: str, sweep: Sweep, address: str) -> None:
    os.chdir(folder)
    sweep.run(Path("runs"), scheduler=address)


def pool_threads() -> int:
    """The threads that BLAS and OpenMP may use."""
    return max(pool["num_threads"] for pool in threadpool_info())


inside = 0


def how_many_at_once() -> int:
    """How many threads are in here at a time."""
    global inside
    inside += 1
    time.sleep(0.05)
    found = inside
    inside -= 1
    return found
