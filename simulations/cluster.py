"""The same calls on a Dask cluster, whose workers and scheduler may go away in between."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simulations.parallel import Call, Raised, perform_in

if TYPE_CHECKING:
    from dask.distributed import Client, Future

FIRST, AGAIN = 10.0, 120.0
"""Seconds to wait for a scheduler that is asked for the first time, and for one that went away."""

logger = logging.getLogger("scalevec")
_alone = threading.Lock()


def run_on_cluster(calls: Sequence[Call], address: str, gpu: bool = False) -> Generator[tuple[int, Any], None, None]:
    """The index and value of every call, in order of completion, as `simulations.parallel.run_parallel` has them.

    A call whose worker dies is given to another one.  If the scheduler goes away, it is waited for, and calls that had
    no value yet are made again.

    Parameters
    ----------
    address : of the scheduler, such as ``tcp://login1:8786``.  Its workers must see the current folder.
    gpu : whether each call needs one unit of the workers' resource ``GPU``.

    Raises
    ------
    ValueError : dask is not installed, or there is no scheduler at the address.
    """
    try:
        from dask.distributed import as_completed
    except ImportError as error:
        raise ValueError(f"scheduler={address!r}: needs dask; pip install 'scalevec[cluster]'") from error
    waiting, patience = dict(enumerate(calls)), FIRST
    while waiting:
        with _connected(address, patience) as client:
            _warn_without_workers(client, address, gpu)
            futures = client.map(
                _perform_alone,
                list(waiting),
                list(waiting.values()),
                folder=os.getcwd(),
                pure=False,
                resources={"GPU": 1} if gpu else {},
            )
            index = {future.key: i for future, i in zip(futures, waiting, strict=True)}
            done = as_completed(futures, loop=client.loop)
            del futures  # the scheduler then forgets a value once it is here
            for future in done:
                i = index[future.key]
                try:
                    outcome = _outcome(future)
                except (CancelledError, OSError):
                    logger.warning(f"scheduler={address!r}: it went away; waiting for it up to {AGAIN:.0f} s")
                    break
                del waiting[i]
                yield i, outcome
        patience = AGAIN


@contextmanager
def _connected(address: str, patience: float) -> Iterator[Client]:
    """A client of the scheduler; what it still waits for when it is left is given up."""
    from dask.distributed import Client

    for name in ("distributed", "distributed.client"):  # which tell in many lines what is told here in one
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"scheduler={address!r}: no Dask scheduler answered within {patience:.0f} s; finished runs are stored"
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=5)


def _warn_without_workers(client: Client, address: str, gpu: bool) -> None:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not any(not gpu or worker["resources"].get("GPU") for worker in workers):
        logger.warning(f"scheduler={address!r}: no worker{' with a GPU' if gpu else ''} yet; waiting for one")


def _outcome(future: Future) -> Any:
    """What a call returned, or a `Raised`: also if its workers died, or cannot see the folder.

    Raises
    ------
    CancelledError, OSError : the scheduler went away.
    """
    from dask.distributed import KilledWorker

    if future.status == "error":
        error = future.exception()
        if isinstance(error, KilledWorker):
            died = error.allowed_failures + 1
            return Raised(f"{died} worker{'s' * (died > 1)} died while running it, most likely for lack of memory")
        return Raised(f"{type(error).__name__}: {' '.join(str(error).split())}")
    _, value, raised = future.result()
    return Raised(raised) if raised else value


def _perform_alone(index: int, call: Call, folder: str) -> tuple[int, Any, str]:
    """A worker's task; folder and number of threads belong to the process, so that its threads take turns."""
    with _alone:
        return perform_in(folder, index, call)
