"""The memory of a long command: ``python benchmarks/soak.py [--minutes 60] -- experiment ladder --jobs 1``.

Starts ``scalevec`` with the words after ``--``, sums the resident memory of it and all its processes every few seconds,
and interrupts it after so many minutes if it has not ended before.  The first fifth, in which libraries are loaded and
caches filled, is left out; of the rest the highest reading of the first and of the last quarter are compared, and the
slope of a straight line through the readings is printed.  Exit status 1 if the last quarter is higher by more than 5%.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import psutil

ALLOWED = 0.05
INTERVAL = 5.0
"""Seconds between readings."""


def resident(process: psutil.Process) -> int:
    """Bytes of a process and its descendants; those that end meanwhile count nothing."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += one.memory_info().rss
    return total


def readings(command: list[str], minutes: float) -> np.ndarray:
    """``(n, 2)``: seconds since the start, and MiB."""
    child = subprocess.Popen([sys.executable, "-m", "simulations.cli", *command])
    began, found = time.monotonic(), []
    try:
        while child.poll() is None and time.monotonic() - began < 60 * minutes:
            time.sleep(INTERVAL)
            if child.poll() is None:
                found.append((time.monotonic() - began, resident(psutil.Process(child.pid)) / 2**20))
    except KeyboardInterrupt:
        pass
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    child.wait()
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("command", nargs="+", help="what scalevec is told, after --")
    a = parser.parse_args()
    found = readings(a.command, a.minutes)
    if len(found) < 20:
        sys.exit(f"{len(found)} readings are too few: expected a command that runs for two minutes or more")
    steady = found[len(found) // 5 :]
    first, last = (q[:, 1].max() for q in (steady[: len(steady) // 4], steady[-len(steady) // 4 :]))
    slope = np.polyfit(steady[:, 0] / 3600, steady[:, 1], 1)[0]
    print(
        f"{found[-1, 0] / 60:.0f} min, {len(found)} readings: at most {found[:, 1].max():.0f} MiB; first quarter "
        f"{first:.0f}, last {last:.0f} MiB ({last / first - 1:+.1%}); slope {slope:+.1f} MiB per hour"
    )
    sys.exit(1 if last > (1 + ALLOWED) * first else 0)


if __name__ == "__main__":
    main()
