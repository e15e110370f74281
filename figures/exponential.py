"""A scale in exponential space moves by one operator everywhere on log v, and log v follows the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from figures import style
from scalevec_theory import operators
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import EXPONENTIAL, exponential_scale, magnitude_direction_scale

D = 8


def _log(scale: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda beta, alpha: scale(beta, alpha).log()


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """``size`` (K,): v = size·1; extreme eigenvalues ``(K, 2)`` of J Jᵀ on log v for both reparameterisations there.

    ``t`` (S,), along a run from standard initialisation: ``log_v`` and ``weights`` = ½‖w_j‖² + ½(1 − 1/d)‖W‖², (S, d).
    """
    rng = np.random.default_rng(seed)
    size = torch.logspace(-1, 1, 33, dtype=torch.float64)
    zero, one = torch.zeros(33, D, dtype=torch.float64), torch.ones(33, D, dtype=torch.float64)
    found = {
        "exponential": operators.matrix(_log(exponential_scale), {"beta": size.log(), "alpha": zero}),
        "original": operators.matrix(_log(magnitude_direction_scale), {"beta": size, "alpha": one}),
    }
    T = torch.from_numpy(rng.standard_normal((1, 2, 4)))
    X = rng.standard_normal((12, 4))
    times = torch.linspace(0, 3, 31, dtype=torch.float64)
    loss = LeastSquares(torch.from_numpy(X.T @ X / 12)[None], T)
    run = gradient_flow(EXPONENTIAL, loss, EXPONENTIAL.init(torch.zeros_like(T)), times)
    columns = run.blocks["W"][0].square().sum(-2)
    log_v = exponential_scale(run.blocks["beta"][0], run.blocks["alpha"][0]).log()
    return {
        "size": size.numpy(),
        **{name: torch.linalg.eigvalsh(P)[:, [0, -1]].numpy() for name, P in found.items()},
        "t": times.numpy(),
        "log_v": log_v.numpy(),
        "weights": (columns / 2 + (1 - 1 / 4) * columns.sum(-1, keepdim=True) / 2).numpy(),
    }


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    size = data["size"]
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.7)
        left.plot(size, data["exponential"], color=style.BLUE)
        left.plot(size, data["original"], color=style.VERMILLION, dashes=(5, 1.5))
        style.label(left, "exponential space", size[-1], D, 0, 7, ha="right", color=style.BLUE)
        style.label(left, "original\nspace", size[3], data["original"][3, 1], 6, 6, color=style.VERMILLION)
        left.set(xscale="log", yscale="log", xlabel="$v_j$, all equal", ylabel="eigenvalues of $JJ^\\top$ on $\\log v$")
        left.set(title=f"operator on $\\log v$, $d={D}$", ylim=(0.05, 1500))
        colors = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE)
        for j, color in enumerate(colors):
            right.plot(data["t"], data["log_v"][:, j], color=color, label=f"$j={j + 1}$")
            right.plot(data["t"][::3], data["weights"][::3, j], "o", color=color, markerfacecolor="white")
        right.legend(loc="lower right", ncols=2)
        right.set(
            xlabel="time $t$",
            ylabel="$\\log v_j$",
            title="$\\log v_j$ (lines) from the weights (circles)",
            ylim=(0, None),
        )
        style.letter([left, right])
        return style.save(figure, out, "exponential")


if __name__ == "__main__":
    style.main(draw)
