"""What a sweep costs: seconds per run of 10,000 that do nothing, and how well two processes share real runs.

    python benchmarks/sweep.py [--tasks 10000] [--steps 150] [--scheduler ADDRESS]

The machine should be idle: the load average is printed with the result.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from simulations.parallel import cores
from simulations.sweep import Sweep

NOTHING = "def nothing(x):\n    return x\n"


def seconds(sweep: Sweep, folder: Path, **where: object) -> tuple[float, float]:
    """Wall time of a sweep, and processor time of this process, which others on the machine disturb less."""
    began, used = time.perf_counter(), time.process_time()
    points = sweep.run(folder, **where)  # type: ignore[arg-type]
    assert not any(p.error for p in points)
    return time.perf_counter() - began, time.process_time() - used


def overhead(tasks: int, folder: Path, scheduler: str | None) -> None:
    (folder / "nothing.py").write_text(NOTHING)
    sweep = Sweep.grid(f"{folder / 'nothing.py'}:nothing", {"x": range(tasks)})
    ways: list[tuple[str, dict[str, object]]] = [("1 process", {"jobs": 1}), ("2 processes", {"jobs": 2})]
    if scheduler is not None:
        ways.append(("Dask", {"scheduler": scheduler}))
    for name, where in ways:
        stored = folder / name
        for what in ("new", "stored"):
            wall, used = (x / tasks * 1e3 for x in seconds(sweep, stored, **where))
            print(f"{tasks:,} {what} runs, {name}: {wall:.2f} ms each; {used:.2f} ms of this process", flush=True)


def efficiency(steps: int, folder: Path) -> None:
    """Time of eight equal training runs in one process over twice that in two, the best of two each."""
    settings = {"steps": steps, "length": 64, "batch": 8, "width": 48, "evaluations": 2, "held_out": 2}
    sweep = Sweep.grid("train:llama", {"seed": range(8)}, {**settings, "data": "markov:32"})
    warm_up = Sweep.grid("train:llama", {"seed": range(100, 104)}, {**settings, "data": "markov:32", "steps": 2})
    best = {}
    for jobs in (1, 2):
        seconds(warm_up, folder / f"warm-{jobs}", jobs=jobs)  # imports, and the start of processes
        best[jobs] = min(seconds(sweep, folder / f"runs-{jobs}-{k}", jobs=jobs)[0] for k in range(2))
    share = best[1] / (2 * best[2])
    print(f"8 training runs: {best[1]:.1f} s in 1 process, {best[2]:.1f} s in 2: efficiency {share:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000, help="runs that do nothing")
    parser.add_argument("--steps", type=int, default=150, help="steps of each training run")
    parser.add_argument("--scheduler", help="of a Dask cluster to measure, too")
    parser.add_argument("--only", choices=("overhead", "efficiency"), help="one of the two")
    arguments = parser.parse_args()
    print(f"{cores()} cores, load average {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "efficiency":
            overhead(arguments.tasks, Path(folder), arguments.scheduler)
        if arguments.only != "overhead":
            efficiency(arguments.steps, Path(folder))


if __name__ == "__main__":
    main()
