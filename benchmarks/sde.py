"""Stochastic gradient flow side by side with its peers: ``python benchmarks/sde.py [--dtype float32] [--rounds 5]``.

The reference problem: an input-side scale with c = 4, d = 8 from W = 0, one full H, T standard normal, independent
noise of σ = 0.1 on every parameter, Euler–Maruyama with dt = 0.01, 4,096 paths; ours takes 10,000 steps, the others
fewer, which their rate does not depend on.  Every contender gets the same problem and number of threads
(OMP_NUM_THREADS), takes its turn in every round, and is warmed up first by 50 steps, after which its mean of ‖W‖² is
compared with ours, in standard errors of the difference.  Rates are path-steps over the median wall time of the rounds,
"range" the slowest over the fastest; "by CPU" compares median processor time, which other processes on the machine
disturb less.  "normals alone" draws the numbers that our steps need and does nothing with them.  Peers that are not
installed are named.
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

from scalevec_theory.generator import STATE, STREAM_LANES, fill_normals, seed_stream
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import Isotropic, ensemble
from scalevec_theory.parametrizations import INPUT_SCALE

OUTPUTS, INPUTS, PATHS, SIGMA, DT = 4, 8, 4096, 0.1, 0.01
SIZE = INPUTS + OUTPUTS * INPUTS
WARM_UP = 50

Walk = Callable[[int], np.ndarray]
"""The given number of steps from the start; returns the paths of W, ``(PATHS, c, d)``."""

Problem = tuple[np.ndarray, np.ndarray]


def problem(dtype: np.dtype) -> Problem:
    """H ``(d, d)`` and T ``(c, d)``."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(INPUTS, INPUTS))
    return (A @ A.T / INPUTS).astype(dtype), rng.normal(size=(OUTPUTS, INPUTS)).astype(dtype)


def ours(H: np.ndarray, T: np.ndarray) -> Walk:
    loss = LeastSquares(torch.from_numpy(H)[None], torch.from_numpy(T)[None])
    start = INPUT_SCALE.init(torch.zeros_like(loss.T))

    def run(steps: int) -> np.ndarray:
        times = [steps * DT]
        result = ensemble(INPUT_SCALE, loss, start, Isotropic(SIGMA), times, dt=DT, paths=PATHS, seed=steps, observe={})
        return result.final["W"][0].numpy()

    return run


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _draw(stream, buffer, fills):  # type: ignore[no-untyped-def]
    state = np.empty(STATE, np.uint64)
    seed_stream(state, 0, stream)
    for _ in range(fills):
        fill_normals(state, buffer)


def normals_alone(H: np.ndarray, T: np.ndarray) -> Walk:
    threads, groups = torch.get_num_threads(), PATHS // STREAM_LANES

    def run(steps: int) -> np.ndarray:
        buffers = np.zeros((threads, SIZE * STREAM_LANES), H.dtype)
        with ThreadPoolExecutor(threads) as pool:
            share = groups // threads
            list(pool.map(lambda k: [_draw(k * share + g, buffers[k], steps) for g in range(share)], range(threads)))
        return np.full((2, OUTPUTS, INPUTS), np.nan)

    return run


def torch_loop(H: np.ndarray, T: np.ndarray) -> Walk:
    H_, T_ = torch.from_numpy(H), torch.from_numpy(T)

    def run(steps: int) -> np.ndarray:
        v, W = T_.new_ones(PATHS, 1, INPUTS), T_.new_zeros(PATHS, OUTPUTS, INPUTS)
        dv, dW = torch.empty_like(v), torch.empty_like(W)
        for _ in range(steps):
            G = (W * v - T_) @ H_
            pull = (W * G).sum(1, keepdim=True)
            W.addcmul_(G, v, value=-DT).add_(dW.normal_(), alpha=SIGMA * DT**0.5)
            v.add_(pull, alpha=-DT).add_(dv.normal_(), alpha=SIGMA * DT**0.5)
        return W.numpy()

    return run


def torch_compiled(H: np.ndarray, T: np.ndarray) -> Walk:
    import torch._inductor.config as config

    config.fallback_random = True  # torch's own normals: inductor's are several times slower on a CPU
    H_, T_ = torch.from_numpy(H), torch.from_numpy(T)

    @torch.compile
    def step(v: torch.Tensor, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        G = (W * v - T_) @ H_
        dv, dW = torch.randn_like(v), torch.randn_like(W)
        size = SIGMA * DT**0.5
        return v - DT * (W * G).sum(1, keepdim=True) + size * dv, W - DT * G * v + size * dW

    def run(steps: int) -> np.ndarray:
        v, W = T_.new_ones(PATHS, 1, INPUTS), T_.new_zeros(PATHS, OUTPUTS, INPUTS)
        for _ in range(steps):
            v, W = step(v, W)
        return W.numpy()

    return run


def torchsde_euler(H: np.ndarray, T: np.ndarray) -> Walk:
    import torchsde

    H_, T_ = torch.from_numpy(H), torch.from_numpy(T)

    class Equation(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            v, W = y[:, None, :INPUTS], y[:, INPUTS:].reshape(-1, OUTPUTS, INPUTS)
            G = (W * v - T_) @ H_
            return torch.cat([-(W * G).sum(1), -(G * v).flatten(1)], 1)

        def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.full_like(y, SIGMA)

    start = torch.cat([T_.new_ones(PATHS, INPUTS), T_.new_zeros(PATHS, OUTPUTS * INPUTS)], 1)

    def run(steps: int) -> np.ndarray:
        times = T_.new_tensor([0.0, steps * DT])
        # told the step it is several times as fast as by default
        path = torchsde.BrownianInterval(times[0], times[1], tuple(start.shape), T_.dtype, dt=DT)
        with torch.no_grad():
            y = torchsde.sdeint(Equation(), start, times, bm=path, dt=DT, method="euler")[-1]
        return y[:, INPUTS:].reshape(PATHS, OUTPUTS, INPUTS).numpy()

    return run


def diffrax_euler(H: np.ndarray, T: np.ndarray) -> Walk:
    import diffrax
    import jax
    import jax.numpy as jnp
    import lineax

    jax.config.update("jax_enable_x64", True)
    H_, T_ = jnp.asarray(H), jnp.asarray(T)

    def drift(t, y, args):  # type: ignore[no-untyped-def]
        v, W = y[:, None, :INPUTS], y[:, INPUTS:].reshape(-1, OUTPUTS, INPUTS)
        G = (W * v - T_) @ H_
        return jnp.concatenate([-(W * G).sum(1), -(G * v).reshape(PATHS, -1)], 1)

    def diffusion(t, y, args):  # type: ignore[no-untyped-def]
        return lineax.DiagonalLinearOperator(jnp.full(y.shape, SIGMA, y.dtype))

    start = jnp.concatenate([jnp.ones((PATHS, INPUTS), H.dtype), jnp.zeros((PATHS, OUTPUTS * INPUTS), H.dtype)], 1)

    @jax.jit
    def solve(steps, key):  # type: ignore[no-untyped-def]
        path = diffrax.UnsafeBrownianPath(jax.ShapeDtypeStruct(start.shape, start.dtype), key)
        terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, path))
        end = steps * DT
        return diffrax.diffeqsolve(
            *(terms, diffrax.Euler(), 0.0, end, DT, start),
            adjoint=diffrax.ForwardMode(),
            max_steps=None,
        ).ys[-1]

    def run(steps: int) -> np.ndarray:
        y = np.asarray(solve(steps, jax.random.key(steps)))
        return y[:, INPUTS:].reshape(PATHS, OUTPUTS, INPUTS)

    return run


def jax_scan(implementation: str) -> Callable[[np.ndarray, np.ndarray], Walk]:
    def prepare(H: np.ndarray, T: np.ndarray) -> Walk:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        H_, T_, size = jnp.asarray(H), jnp.asarray(T), np.asarray(SIGMA * DT**0.5, H.dtype)

        def step(k, carry):  # type: ignore[no-untyped-def]
            v, W, key = carry
            key, of_v, of_W = jax.random.split(key, 3)
            G = (W * v - T_) @ H_
            dv, dW = jax.random.normal(of_v, v.shape, v.dtype), jax.random.normal(of_W, W.shape, W.dtype)
            step = np.asarray(DT, H.dtype)
            return v - step * (W * G).sum(1, keepdims=True) + size * dv, W - step * G * v + size * dW, key

        @jax.jit
        def solve(steps, key):  # type: ignore[no-untyped-def]
            start = jnp.ones((PATHS, 1, INPUTS), H.dtype), jnp.zeros((PATHS, OUTPUTS, INPUTS), H.dtype), key
            return jax.lax.fori_loop(0, steps, step, start)[1]

        return lambda steps: np.asarray(solve(steps, jax.random.key(steps, impl=implementation)))

    return prepare


def numpy_loop(H: np.ndarray, T: np.ndarray) -> Walk:
    rng = np.random.Generator(np.random.SFC64(0))

    def run(steps: int) -> np.ndarray:
        v, W = np.ones((PATHS, 1, INPUTS), H.dtype), np.zeros((PATHS, OUTPUTS, INPUTS), H.dtype)
        size = H.dtype.type(SIGMA * DT**0.5)
        step = H.dtype.type(DT)
        for _ in range(steps):
            G = ((W * v - T).reshape(-1, INPUTS) @ H).reshape(W.shape)
            pull = (W * G).sum(1, keepdims=True)
            W -= step * G * v - size * rng.standard_normal(W.shape, H.dtype)
            v -= step * pull - size * rng.standard_normal(v.shape, H.dtype)
        return W

    return run


def numba_loop(H: np.ndarray, T: np.ndarray) -> Walk:
    """One path after another, numbers by numba's own generator."""

    @njit(nogil=True, fastmath=True)  # type: ignore[untyped-decorator]
    def walk(H, T, W, steps, dt, size):  # type: ignore[no-untyped-def]
        c, d = T.shape
        E = np.empty((c, d), H.dtype)
        for p in range(len(W)):
            w, v = W[p], np.ones(d, H.dtype)
            for _ in range(steps):
                for i in range(c):
                    for j in range(d):
                        E[i, j] = w[i, j] * v[j] - T[i, j]
                for j in range(d):
                    pull = H.dtype.type(0)
                    for i in range(c):
                        G = H.dtype.type(0)
                        for k in range(d):
                            G += E[i, k] * H[k, j]
                        pull += w[i, j] * G
                        w[i, j] += size * H.dtype.type(np.random.standard_normal()) - dt * v[j] * G  # noqa: NPY002
                    v[j] += size * H.dtype.type(np.random.standard_normal()) - dt * pull  # noqa: NPY002

    threads = torch.get_num_threads()

    def run(steps: int) -> np.ndarray:
        W = np.zeros((PATHS, OUTPUTS, INPUTS), H.dtype)
        step, size = H.dtype.type(DT), H.dtype.type(SIGMA * DT**0.5)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda part: walk(H, T, part, steps, step, size), np.array_split(W, threads)))
        return W

    return run


LIBRARIES = ("torchsde euler", "diffrax Euler")
CONTENDERS: dict[str, tuple[Callable[[np.ndarray, np.ndarray], Walk], int]] = {
    "scalevec": (ours, 10_000),
    "normals alone": (normals_alone, 10_000),
    "torchsde euler": (torchsde_euler, 100),
    "diffrax Euler": (diffrax_euler, 150),
    "jax scan": (jax_scan("threefry2x32"), 150),
    "jax scan rbg": (jax_scan("rbg"), 150),
    "numpy": (numpy_loop, 150),
    "numba loop": (numba_loop, 300),
    "torch loop": (torch_loop, 300),
    "torch.compile": (torch_compiled, 300),
}
"""Name to how to prepare a run, and how many steps it takes in a round."""


def compare(dtype: np.dtype, rounds: int, names: list[str]) -> None:
    """Print the table of rates, ratios and agreement."""
    H, T = problem(dtype)
    runs: dict[str, tuple[Walk, int]] = {}
    missing = []
    for name in names:
        prepare, steps = CONTENDERS[name]
        try:
            runs[name] = prepare(H, T), steps
        except ImportError:
            missing.append(name)
    square = {name: (run(WARM_UP).astype(float) ** 2).sum((1, 2)) for name, (run, _) in runs.items()}
    wall: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (run, steps) in runs.items():
            begun, used = time.perf_counter(), time.process_time()
            run(steps)
            wall[name].append((time.perf_counter() - begun) / steps / PATHS)
            cpu[name].append((time.process_time() - used) / steps / PATHS)
    print(f"\n{dtype}, {torch.get_num_threads()} threads, {rounds} rounds")
    print(f"{'':18}{'path-steps/s':>14}{'ours / it':>11}{'by CPU':>8}{'range':>7}{'agreement':>11}")
    ratios = {name: median(wall[name]) / median(wall["scalevec"]) for name in runs}
    reference = square["scalevec"]
    for name, ratio in ratios.items():
        difference = square[name].mean() - reference.mean()
        score = difference / np.sqrt((square[name].var() + reference.var()) / PATHS)
        by_cpu = median(cpu[name]) / median(cpu["scalevec"])
        print(
            f"{name:18}{1 / median(wall[name]):14,.0f}{ratio:11.2f}{by_cpu:8.2f}"
            f"{max(wall[name]) / min(wall[name]):7.1f}{score:11.1f}"
        )
    for name in missing:
        print(f"{name:18} not installed")
    if "normals alone" in ratios:
        print(f"share of our time that the random numbers take: {ratios['normals alone']:.0%}")
    for label, group in (("best SDE library", LIBRARIES), ("plain torch loop", ("torch loop",))):
        present = [name for name in group if name in ratios]
        if present:
            best = min(present, key=ratios.__getitem__)
            print(f"{label}: {best}; ours is {ratios[best]:.1f} times as fast")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--rounds", type=int, default=5, help="runs of every contender that is timed")
    parser.add_argument("--only", default=",".join(CONTENDERS), help="contenders, by name, separated by commas")
    arguments = parser.parse_args()
    compare(np.dtype(arguments.dtype), arguments.rounds, arguments.only.split(","))


if __name__ == "__main__":
    main()
