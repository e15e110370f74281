"""What the tests of the runner call in worker processes, which import it by name."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_info

from simulations.sweep import Sweep


def draw(seed: int) -> tuple[float, int]:
    return float(np.random.default_rng(seed).standard_normal()), torch.get_num_threads()


def fail(how: type[BaseException]) -> None:
    raise how("on purpose\nin two lines")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


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
