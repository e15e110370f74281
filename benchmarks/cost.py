"""How cost grows with problems, dimensions, paths and workers: ``python benchmarks/cost.py [--json FILE]``.

Median seconds of three runs after a warm-up, in one thread (workers: one thread each).  Problems and dimensions:
gradient flow of an input-side scale with 4 outputs and correlated inputs from W = 0 to time 20 at tolerance 1e-8, 64
times kept.  Paths: 1,000 Euler steps of its stochastic counterpart with label noise, 8 inputs.  Workers: a sweep of
eight such runs of 4,096 paths each.  The figures show the numbers of ``--json simulations/evidence/cost.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import LabelNoise, ensemble
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.problems import PositiveDefinite
from simulations.parallel import cores
from simulations.provenance import provenance
from simulations.store import write_text
from simulations.sweep import Sweep

OUTPUTS, INPUTS = 4, 8
ROUNDS = 3


def flow(problems: int, inputs: int) -> Callable[[], object]:
    rng, correlated, dims = np.random.default_rng(0), PositiveDefinite("dd"), {"d": inputs}
    H = torch.from_numpy(correlated.decode(rng.standard_normal((problems, *correlated.latent_shape(dims))), dims))
    T = torch.from_numpy(rng.standard_normal((problems, OUTPUTS, inputs)))
    start, times = INPUT_SCALE.init(torch.zeros_like(T)), torch.arange(1, 65) * (20 / 64)
    return lambda: gradient_flow(INPUT_SCALE, LeastSquares(H, T), start, times.double(), rtol=1e-8, atol=1e-8)


def noise(paths: int) -> Callable[[], object]:
    T = torch.randn(1, OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss, start = LeastSquares(torch.eye(INPUTS, dtype=torch.float64)[None], T), INPUT_SCALE.init(torch.zeros_like(T))
    return lambda: ensemble(INPUT_SCALE, loss, start, LabelNoise(0.3), [10.0], dt=0.01, paths=paths, seed=0, observe={})


def sweep(workers: int) -> Callable[[], object]:
    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            points = Sweep.grid("noise", {"seed": range(8)}, {"c": 4, "d": 8, "time": 10, "paths": 4096})
            points.run(Path(folder), jobs=workers)

    return run


SERIES: dict[str, tuple[tuple[int, ...], Callable[[int], Callable[[], object]]]] = {
    "problems": ((1, 8, 64, 512, 4096, 32768), lambda n: flow(n, INPUTS)),
    "dimensions": ((2, 4, 8, 16, 32, 64), lambda n: flow(64, n)),
    "paths": ((64, 256, 1024, 4096, 16384, 65536), noise),
    "workers": (tuple(range(1, cores() + 1)), sweep),
}


def seconds(run: Callable[[], object]) -> list[float]:
    """Of every round, after one more that is not counted."""
    run()
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run()
        found.append(round(time.perf_counter() - began, 5))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the numbers with their provenance")
    parser.add_argument("--only", nargs="*", default=list(SERIES), choices=list(SERIES))
    a = parser.parse_args()
    torch.set_num_threads(1)
    print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
    series = {}
    for name in a.only:
        sizes, prepare = SERIES[name]
        rounds = {size: seconds(prepare(size)) for size in sizes}
        series[name] = {"sizes": list(rounds), "seconds": list(rounds.values())}
        for size, found in rounds.items():
            print(f"{size:8,} {name:12} {statistics.median(found):9.4f} s", flush=True)
    if a.json is not None:
        write_text(a.json, json.dumps({"provenance": provenance(), "series": series}, indent=1) + "\n")


if __name__ == "__main__":
    main()
