"""The phase diagram of curvature under noise: what theory says of every cell, and a simulation of it.

A cell is a kind of noise, a number of outputs c and the decays (λ_v, λ_W), for one column of θ = W diag(v) and squared
loss.
Source: arXiv 2605.26895 (curvature with and without weight decay); the cells are derived in the claim ``curvature``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scalevec_theory.curvature import trace
from scalevec_theory.flow import nearest_names
from scalevec_theory.growth import Growth, growth
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import Isotropic, LabelNoise, Minibatch, ensemble
from scalevec_theory.parametrizations import INPUT_SCALE

NOISES = {"isotropic": Isotropic, "minibatch": Minibatch, "label": LabelNoise}
DECAYS = {"none": (0.0, 0.0), "v": (0.1, 0.0), "W": (0.0, 0.1), "both": (0.1, 0.1)}
"""(λ_v, λ_W) by what decays."""

OUTPUTS = (1, 2, 3, 4, 8)
SIGMA = 0.5
CORRELATED = ((1.0, 0.5), (0.5, 1.0))
"""H of the cells with label noise: two correlated inputs, which the proof for uncorrelated inputs does not cover."""

GROUPS = 16
END = 128.0
DT = {"isotropic": 2e-3, "minibatch": 4e-3, "label": 4e-3}
"""Euler steps of length h hold curvature below 2/h: growth that reaches it would look bounded, see `simulate`."""


def _check_names(noise: str, decays: str) -> None:
    for name, value, known in (("noise", noise, list(NOISES)), ("decays", decays, list(DECAYS))):
        if value not in known:
            raise ValueError(f"{name}={value!r}: {nearest_names(value, known)}")


def expected(noise: str, c: int, decays: str) -> str:
    """How E of the Hessian's trace grows: "bounded", "t", "t/ln t", "√t" or "ln t".

    Whether it is bounded or not, and "t", is proved (claim ``curvature``); the slower rates are read off the Bessel
    process of dimension 1 − c, reflected near 0, that v follows far out when W alone decays (and v or ‖w‖ for c = 1).

    Raises
    ------
    ValueError : ``noise`` or ``decays`` is none of `NOISES` or `DECAYS`.
    """
    _check_names(noise, decays)
    if noise != "isotropic" or decays == "both":
        return "bounded"
    if decays == "W":
        return {1: "t/ln t", 2: "√t", 3: "ln t"}.get(c, "bounded")
    return "t" if c >= 2 else "t/ln t"


@dataclass(frozen=True)
class Cell:
    """A simulated cell: group means of the Hessian's trace ``(GROUPS, S)`` at ``times``, and what the test says."""

    times: np.ndarray
    means: np.ndarray
    growth: Growth


def simulate(noise: str, c: int, decays: str, *, paths: int, seed: int, saved: int = 40, end: float = END) -> Cell:
    """Follow ``GROUPS`` groups of ``paths`` paths from v = 1, W = 0 and test the trace for growth.

    T has the norm 1 in every column, with equal entries; σ = `SIGMA`.  From the time on at which a path's curvature is
    beyond 2/h, the stable range of its steps h, the means are NaN and the test is undecided.

    Raises
    ------
    ValueError : ``noise`` or ``decays`` is none of `NOISES` or `DECAYS`, or what `noise.ensemble` raises.
    """
    _check_names(noise, decays)
    H = torch.tensor(CORRELATED if noise == "label" else ((1.0,),), dtype=torch.float64)
    d = len(H)
    T = torch.full((1, c, d), c**-0.5, dtype=torch.float64)
    times = np.geomspace(end / 8, end, saved)
    decay_v, decay_W = DECAYS[decays]
    # One problem and an observable for every group: paths of one problem fill the kernel's lanes.
    member = GROUPS * torch.eye(GROUPS, dtype=torch.float64).repeat_interleave(paths, 0)

    limit = 2 / (DT[noise] * float(torch.linalg.eigvalsh(H)[-1]))

    def curvature(v: Tensor, W: Tensor) -> Tensor:
        return trace(v, W, H)[..., None] * member

    def unstable(v: Tensor, W: Tensor) -> Tensor:
        return ((v.square() + W.square().sum(-2)).amax(-1) > limit).double()

    run = ensemble(
        INPUT_SCALE,
        LeastSquares(H[None], T),
        INPUT_SCALE.init(torch.zeros_like(T)),
        NOISES[noise](SIGMA),
        times.tolist(),
        dt=DT[noise],
        paths=GROUPS * paths,
        seed=seed,
        observe={"trace": curvature, "unstable": unstable},
        weight_decay={"v": decay_v, "W": decay_W},
    )
    stable = run.mean["unstable"][0].cumsum(0) == 0
    means = torch.where(stable[:, None], run.mean_of_all("trace")[0], torch.nan).T.numpy()
    return Cell(times, means, growth(times, means))
