"""The induced preconditioner of an input-side scale: its spectrum along a run, and how it grows with the weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from figures import style
from scalevec_theory import operators
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE

C = 3


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Eigenvalues of J Jᵀ (by automatic differentiation) along a run of a single column, and on 60 runs.

    ``t`` (S,), ``along`` (S, c) with closed form ``closed`` (S, c); ``norm`` (N,) = ‖θ‖ and
    ``spectrum`` (N, c) on the runs; ``curve`` (K,) with ``standard`` (K, c), the closed form in θ.
    """
    rng = np.random.default_rng(seed)
    T = rng.standard_normal((61, C, 1))
    T *= (np.concatenate([[4.0], rng.uniform(0.5, 4.0, 60)]) / np.linalg.norm(T, axis=(1, 2)))[:, None, None]
    loss = LeastSquares(torch.ones(61, 1, 1, dtype=torch.float64), torch.from_numpy(T))
    times = torch.linspace(0, 1.2, 49, dtype=torch.float64)
    run = gradient_flow(INPUT_SCALE, loss, INPUT_SCALE.init(torch.zeros_like(loss.T)), times)
    flat = {name: x.flatten(0, 1) for name, x in run.blocks.items()}
    eigenvalues = torch.linalg.eigvalsh(operators.matrix(INPUT_SCALE, flat)).unflatten(0, (61, 49))
    closed = torch.linalg.eigvalsh(operators.input_scale(run.blocks["v"][0], run.blocks["W"][0]))[:, 0]
    pick = torch.from_numpy(rng.integers(4, 49, 60))
    radii = torch.linspace(0, 4, 81, dtype=torch.float64)
    ray = torch.cat([radii[:, None, None], torch.zeros(81, C - 1, 1, dtype=torch.float64)], 1)
    rows = torch.arange(1, 61)
    return {
        "t": times.numpy(),
        "along": eigenvalues[0].numpy(),
        "closed": closed.numpy(),
        "norm": run.theta[rows, pick].flatten(1).norm(dim=1).numpy(),
        "spectrum": eigenvalues[rows, pick].numpy(),
        "curve": radii.numpy(),
        "standard": torch.linalg.eigvalsh(operators.standard_input_scale(ray))[:, 0].numpy(),
    }


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    large: dict[str, Any] = {"color": style.VERMILLION, "marker": "o", "linestyle": "none", "markerfacecolor": "white"}
    small: dict[str, Any] = {"color": style.BLUE, "marker": "s", "linestyle": "none", "markerfacecolor": "white"}
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.7, sharey=True)
        every = slice(0, None, 4)
        left.plot(data["t"], data["closed"], **style.PREDICTED)
        left.plot(data["t"][every], data["along"][every, -1], **large)
        left.plot(data["t"][every], data["along"][every, 0], **small)
        end = data["t"][-1]
        style.label(
            left,
            "$v^2+\\Vert w\\Vert^2$, once",
            end,
            data["closed"][-1, -1],
            -4,
            -9,
            ha="right",
            color=style.VERMILLION,
        )
        style.label(left, f"$v^2$, {C - 1} times", end, data["closed"][-1, 0], -4, 9, ha="right", color=style.BLUE)
        left.set(
            xlabel="time $t$",
            ylabel="eigenvalues of $JJ^\\top$",
            title="along a run ($c=3$, target of norm 4)",
            ylim=(0, 9),
        )
        right.plot(data["curve"], data["standard"], **style.PREDICTED)
        right.plot(data["norm"], data["spectrum"][:, -1], **large)
        right.plot(data["norm"], data["spectrum"][:, 0], **small)
        right.axhline(1, **style.PLAIN)
        style.label(
            right,
            "$\\lambda_{\\max}=\\sqrt{1+4\\Vert\\theta\\Vert^2}$",
            2.6,
            5.3,
            -6,
            6,
            ha="right",
            color=style.VERMILLION,
        )
        style.label(right, "$(1+\\lambda_{\\max})/2$", 2.6, 3.2, 0, -14, color=style.BLUE)
        style.label(right, "no scale: 1", 4, 1, -2, -7, ha="right", color=style.GREY)
        right.set(xlabel="norm of the column, $\\Vert\\theta\\Vert$", title="60 runs, one moment each")
        style.letter([left, right])
        return style.save(figure, out, "preconditioner")


if __name__ == "__main__":
    style.main(draw)
