"""Noise-driven AdamW side by side with its peers: ``python benchmarks/abm.py [--n 1000000] [--rounds 3]``.

The reference: n = 1e6 coordinates with normal gradients in float32 through 2,000 steps of AdamW.  Every contender
draws its own random numbers, gets the same number of threads (OMP_NUM_THREADS), takes its turn in every round and is
warmed up first.  Rates are coordinate-steps over the median wall time of the rounds, "range" the slowest over the
fastest; "by CPU" compares median processor time, which other processes on the machine disturb less.  Peers run fewer
steps, since their rate does not depend on it.  "E[w²]" is the mean square over the predicted one at the last step.
Peers that are not installed are named.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np
import torch
from numba import njit

from scalevec_theory import abm
from scalevec_theory.equilibrium import predict
from scalevec_theory.generator import STATE, STREAM_LANES, fill_normals, seed_stream
from scalevec_theory.optimizers import AdamW

STEPS, PEER_STEPS = 2000, 40
OPTIMIZER = AdamW(3e-3, 0.1)

Run = Callable[[], float]
"""A run from w = 0 that returns the mean square of the weights."""


def ours(n: int) -> tuple[Run, int]:
    return lambda: float(abm.run(OPTIMIZER, n, STEPS, seed=1).mean_square[0]), STEPS


@njit(nogil=True)
def _draw(seed, first, last, steps):  # type: ignore[no-untyped-def]
    state, buffer = np.empty(STATE, np.uint64), np.empty(32 * STREAM_LANES, np.float32)
    total = 0.0
    for block in range(first, last):
        seed_stream(state, seed, block)
        for _ in range(0, steps, 32):
            fill_normals(state, buffer)
            total += buffer[0]
    return total


def generator_alone(n: int) -> tuple[Run, int]:
    """The random numbers of `ours`, drawn and dropped."""
    threads, blocks = torch.get_num_threads(), n // STREAM_LANES
    edges = np.linspace(0, blocks, 4 * threads + 1).astype(int)

    def run() -> float:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda a, b: _draw(np.uint64(1), a, b, STEPS), edges[:-1], edges[1:]))
        return float("nan")

    return run, STEPS


def torch_optimizer(**options: bool) -> Callable[[int], tuple[Run, int]]:
    def prepare(n: int) -> tuple[Run, int]:
        def run() -> float:
            w = torch.nn.Parameter(torch.zeros(n))
            optimizer = torch.optim.AdamW([w], lr=OPTIMIZER.lr, weight_decay=OPTIMIZER.weight_decay, **options)
            w.grad = torch.empty(n)
            generator = torch.Generator().manual_seed(1)
            for _ in range(PEER_STEPS):
                w.grad.normal_(generator=generator)
                optimizer.step()
            return float(w.detach().double().square().mean())

        return run, PEER_STEPS

    return prepare


def numpy_loop(n: int) -> tuple[Run, int]:
    def run() -> float:
        rng = np.random.Generator(np.random.SFC64(1))
        w, m, v, g, d = (np.zeros(n, np.float32) for _ in range(5))
        (beta1, beta2), lr = OPTIMIZER.betas, OPTIMIZER.lr
        for t in range(1, PEER_STEPS + 1):
            rng.standard_normal(dtype=np.float32, out=g)
            w *= np.float32(1 - lr * OPTIMIZER.weight_decay)
            m += np.float32(1 - beta1) * (g - m)
            np.square(g, out=g)
            v += np.float32(1 - beta2) * (g - v)
            np.sqrt(v, out=d)
            d *= np.float32((1 - beta2**t) ** -0.5)
            d += np.float32(OPTIMIZER.eps)
            w -= np.float32(lr / (1 - beta1**t)) * (m / d)
        return float(np.square(w, dtype=np.float64).mean())

    return run, PEER_STEPS


def optax_loop(n: int) -> tuple[Run, int]:
    import jax
    import jax.numpy as jnp
    import optax

    transform = optax.adamw(OPTIMIZER.lr, *OPTIMIZER.betas, eps=OPTIMIZER.eps, weight_decay=OPTIMIZER.weight_decay)

    def step(carry, key):  # type: ignore[no-untyped-def]
        w, state = carry
        updates, state = transform.update(jax.random.normal(key, w.shape), state, w)
        return (optax.apply_updates(w, updates), state), None

    @jax.jit
    def walk(key):  # type: ignore[no-untyped-def]
        w = jnp.zeros(n)
        (w, _), _ = jax.lax.scan(step, (w, transform.init(w)), jax.random.split(key, PEER_STEPS))
        return (w**2).mean()

    return lambda: float(walk(jax.random.key(1))), PEER_STEPS


CONTENDERS: dict[str, Callable[[int], tuple[Run, int]]] = {
    "scalevec": ours,
    "its generator alone": generator_alone,
    "torch.optim, fused": torch_optimizer(fused=True),
    "torch.optim, foreach": torch_optimizer(foreach=True),
    "torch.optim, a loop": torch_optimizer(foreach=False),
    "optax, scan": optax_loop,
    "numpy, SFC64": numpy_loop,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000, help="coordinates, a multiple of 64")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every contender that is timed")
    arguments = parser.parse_args()
    n, runs, missing, squares = arguments.n, {}, [], {}
    for name, prepare in CONTENDERS.items():
        try:
            runs[name] = prepare(n)
            squares[name] = runs[name][0]()
        except ImportError:
            missing.append(name)
    wall: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, (run, steps) in runs.items():
            begun, used = time.perf_counter(), time.process_time()
            run()
            wall[name].append((time.perf_counter() - begun) / (n * steps))
            cpu[name].append((time.process_time() - used) / (n * steps))
    expected = predict(OPTIMIZER, STEPS).mean_square
    print(f"n = {n}, {torch.get_num_threads()} threads, {arguments.rounds} rounds")
    print(f"{'':24}{'M steps/s':>11}{'ours / it':>11}{'by CPU':>8}{'range':>7}{'E[w²]':>9}")
    mine, mine_cpu = median(wall["scalevec"]), median(cpu["scalevec"])
    for name, (_, steps) in runs.items():
        print(
            f"{name:24}{1e-6 / median(wall[name]):11,.0f}{median(wall[name]) / mine:11.2f}"
            f"{median(cpu[name]) / mine_cpu:8.2f}{max(wall[name]) / min(wall[name]):7.1f}"
            f"{squares[name] / expected[steps]:9.4f}"
        )
    for name in missing:
        print(f"{name:24} not installed")
    share = median(cpu["its generator alone"]) / mine_cpu
    print(f"share of our processor time that drawing the random numbers takes: {share:.0%}")


if __name__ == "__main__":
    main()
