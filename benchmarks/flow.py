"""Gradient flow side by side with its peers: ``python benchmarks/flow.py [--sizes 64,1024,8192]``.

The reference problem: an input-side scale with c = 4, d = 8 from W = 0, H of condition number 1e3 and largest
eigenvalue 1, T standard normal, to t = 20 with 64 saved times, rtol = atol = 1e-8, float64.  Every contender gets the
same problems and the same number of threads (OMP_NUM_THREADS), takes its turn in every round, and is warmed up first.
Rates are problems over the median wall time of the rounds, "range" the slowest over the fastest; "by CPU" compares
median processor time, which other processes on the machine disturb less.  Errors are the largest error of θ over all
problems and saved times against our own run at 1e-12.  Peers that are not installed are named.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE

OUTPUTS, INPUTS, SAVED, END, TOLERANCE = 4, 8, 64, 20.0, 1e-8
SERIAL_PROBLEMS = 32
"""Problems given to a peer that takes one at a time; its rate does not depend on their number."""

Solver = Callable[[], tuple[np.ndarray, np.ndarray]]
"""A run on prepared problems: v ``(B, S, d)`` and W ``(B, S, c, d)``."""


def problems(B: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """H ``(B, d, d)`` with log-spaced eigenvalues from 1 to 1e-3 in random directions, and T ``(B, c, d)``."""
    generator = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(generator.normal(size=(B, INPUTS, INPUTS)))
    H = np.einsum("bij,j,bkj->bik", Q, np.logspace(0, -3, INPUTS), Q)
    return H, generator.normal(size=(B, OUTPUTS, INPUTS))


def split(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """v and W of flat states ``(B, S, d + cd)``."""
    return y[..., :INPUTS], y[..., INPUTS:].reshape(*y.shape[:-1], OUTPUTS, INPUTS)


def ours(H: np.ndarray, T: np.ndarray, tolerance: float = TOLERANCE) -> Solver:
    loss = LeastSquares(torch.from_numpy(H), torch.from_numpy(T))
    start = INPUT_SCALE.init(torch.zeros_like(loss.T))
    times = torch.linspace(0, END, SAVED, dtype=torch.float64)

    def run() -> tuple[np.ndarray, np.ndarray]:
        flow = gradient_flow(INPUT_SCALE, loss, start, times, rtol=tolerance, atol=tolerance)
        return flow.blocks["v"].numpy(), flow.blocks["W"].numpy()

    return run


def diffrax_tsit5(H: np.ndarray, T: np.ndarray) -> Solver:
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    times = jnp.linspace(0, END, SAVED)

    def field(t, y, problem):  # type: ignore[no-untyped-def]
        (v, W), (H, T) = y, problem
        G = (W * v - T) @ H
        return -(W * G).sum(0), -G * v

    def solve(problem):  # type: ignore[no-untyped-def]
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            0.0,
            END,
            None,
            (jnp.ones(INPUTS), jnp.zeros((OUTPUTS, INPUTS))),
            problem,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE),
            max_steps=4096,
        ).ys

    devices = len(jax.devices())
    share = len(H) // devices
    chunked = jax.pmap(lambda problem: jax.lax.map(solve, problem, batch_size=min(64, share)))
    data = tuple(jnp.asarray(x).reshape(devices, share, *x.shape[1:]) for x in (H, T))

    def run() -> tuple[np.ndarray, np.ndarray]:
        v, W = (np.asarray(x) for x in chunked(data))
        return v.reshape(-1, *v.shape[2:]), W.reshape(-1, *W.shape[2:])

    return run


def _torch_field(H: np.ndarray, T: np.ndarray) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    H_, T_ = torch.from_numpy(H), torch.from_numpy(T)

    def field(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        v, W = y[:, :INPUTS], y[:, INPUTS:].reshape(-1, OUTPUTS, INPUTS)
        G = (W * v[:, None] - T_) @ H_
        return torch.cat([-(W * G).sum(1), -(G * v[:, None]).flatten(1)], 1)

    return field


def _torch_start(B: int) -> torch.Tensor:
    return torch.cat([torch.ones(B, INPUTS), torch.zeros(B, OUTPUTS * INPUTS)], 1).double()


def torchode_tsit5(H: np.ndarray, T: np.ndarray) -> Solver:
    import torchode

    term = torchode.ODETerm(_torch_field(H, T))
    controller = torchode.IntegralController(atol=TOLERANCE, rtol=TOLERANCE, term=term)
    solver = torchode.AutoDiffAdjoint(torchode.Tsit5(term=term), controller)
    times = torch.linspace(0, END, SAVED, dtype=torch.float64).expand(len(H), -1)
    problem = torchode.InitialValueProblem(y0=_torch_start(len(H)), t_eval=times)

    def run() -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            return split(solver.solve(problem).ys.numpy())

    return run


def torchdiffeq_dopri5(H: np.ndarray, T: np.ndarray) -> Solver:
    import torchdiffeq

    field, start = _torch_field(H, T), _torch_start(len(H))
    times = torch.linspace(0, END, SAVED, dtype=torch.float64)

    def run() -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            y = torchdiffeq.odeint(field, start, times, rtol=TOLERANCE, atol=TOLERANCE, method="dopri5")
        return split(y.transpose(0, 1).numpy())

    return run


def scipy_method(method: str) -> Callable[[np.ndarray, np.ndarray], Solver]:
    def prepare(H: np.ndarray, T: np.ndarray) -> Solver:
        import numba
        import scipy.integrate

        @numba.njit  # type: ignore[untyped-decorator]
        def field(t, y, H, T):  # type: ignore[no-untyped-def]
            v, W = y[:INPUTS], y[INPUTS:].reshape(OUTPUTS, INPUTS)
            G = (W * v - T) @ H
            dy = np.empty_like(y)
            dy[:INPUTS] = -(W * G).sum(0)
            dy[INPUTS:] = -(G * v).ravel()
            return dy

        start = _torch_start(1)[0].numpy()
        times = np.linspace(0, END, SAVED)
        options = {"method": method, "rtol": TOLERANCE, "atol": TOLERANCE, "t_eval": times}

        def run() -> tuple[np.ndarray, np.ndarray]:
            solve = scipy.integrate.solve_ivp
            return split(
                np.stack([solve(field, (0, END), start, args=p, **options).y.T for p in zip(H, T, strict=True)])
            )

        return run

    return prepare


PEERS: dict[str, tuple[Callable[[np.ndarray, np.ndarray], Solver], bool]] = {
    "diffrax Tsit5, lax.map": (diffrax_tsit5, False),
    "torchode Tsit5": (torchode_tsit5, False),
    "torchdiffeq dopri5": (torchdiffeq_dopri5, False),
    "scipy LSODA": (scipy_method("LSODA"), True),
    "scipy RK45": (scipy_method("RK45"), True),
    "scipy DOP853": (scipy_method("DOP853"), True),
}
"""Name to how to prepare a run, and whether the peer takes one problem at a time."""


def compare(B: int, rounds: int) -> None:
    """Print the table of rates, ratios and errors for B problems."""
    H, T = problems(B)
    v, W = ours(H, T, 1e-12)()
    exact = W * v[..., None, :]
    runs: dict[str, tuple[Solver, int]] = {"scalevec": (ours(H, T), B)}
    missing = []
    for name, (prepare, serial) in PEERS.items():
        count = min(B, SERIAL_PROBLEMS) if serial else B
        try:
            runs[name] = prepare(H[:count], T[:count]), count
        except ImportError:
            missing.append(name)
    errors, drifts = {}, {}
    wall: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    for name, (run, count) in runs.items():
        v, W = run()
        errors[name] = np.abs(W * v[..., None, :] - exact[:count]).max()
        drifts[name] = np.abs((v * v - (W * W).sum(-2)) - 1).max()
    for _ in range(rounds):
        for name, (run, count) in runs.items():
            begun, used = time.perf_counter(), time.process_time()
            run()
            wall[name].append((time.perf_counter() - begun) / count)
            cpu[name].append((time.process_time() - used) / count)
    print(f"\nB = {B}, {torch.get_num_threads()} threads, {rounds} rounds")
    print(f"{'':24}{'problems/s':>11}{'ours / it':>11}{'by CPU':>8}{'range':>7}{'error':>9}{'drift of Q':>12}")
    ratios = {name: median(wall[name]) / median(wall["scalevec"]) for name in runs}
    for name, ratio in ratios.items():
        by_cpu = median(cpu[name]) / median(cpu["scalevec"])
        print(
            f"{name:24}{1 / median(wall[name]):11,.0f}{ratio:11.1f}{by_cpu:8.1f}"
            f"{max(wall[name]) / min(wall[name]):7.1f}{errors[name]:9.0e}{drifts[name]:12.0e}"
        )
    for name in missing:
        print(f"{name:24} not installed")
    best = min((name for name in runs if name != "scalevec"), key=ratios.__getitem__, default=None)
    if best is not None:
        print(f"best peer: {best}; ours is {ratios[best]:.1f} times as fast")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="64,1024,8192", help="numbers of problems, multiples of the thread count")
    parser.add_argument("--rounds", type=int, default=5, help="runs of every contender that is timed")
    arguments = parser.parse_args()
    try:
        import jax

        jax.config.update("jax_num_cpu_devices", torch.get_num_threads())  # before jax starts, or it uses one
    except ImportError:
        pass
    for size in arguments.sizes.split(","):
        compare(int(size), arguments.rounds)


if __name__ == "__main__":
    main()
