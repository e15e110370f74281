"""One scale vector per branch against one shared by all branches, under gradient flow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import PLAIN, SEPARATE_INPUT_SCALE, SHARED_INPUT_SCALE

PROBLEMS, BRANCHES, C, D = 200, 2, 2, 3


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """L/L(0) ``(PROBLEMS, S)`` of each model at times ``t`` (S,): whitened least squares, W(0) = 0."""
    rng = np.random.default_rng(seed)
    T = torch.from_numpy(rng.standard_normal((PROBLEMS, BRANCHES, C, D)))
    stacked = T.flatten(1, 2)
    loss = LeastSquares(torch.eye(D, dtype=torch.float64).expand(PROBLEMS, D, D), stacked)
    times = torch.linspace(0, 4, 81, dtype=torch.float64)
    models = {
        "plain": (PLAIN, torch.zeros_like(stacked)),
        "separate": (SEPARATE_INPUT_SCALE, torch.zeros_like(T)),
        "shared": (SHARED_INPUT_SCALE, torch.zeros_like(T)),
    }
    runs = {n: gradient_flow(p, loss, p.init(W0), times, rtol=1e-9, atol=1e-9) for n, (p, W0) in models.items()}
    return {"t": times.numpy()} | {name: (run.loss / run.loss[:, :1]).numpy() for name, run in runs.items()}


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    t = data["t"]
    with style.context():
        figure, (curves, gaps) = style.panels(1, 2, 2.7)
        for name, look in (("plain", style.PLAIN), ("separate", style.SINGLE), ("shared", style.DUAL)):
            curves.plot(t, np.median(data[name], 0), **look)
        curves.set(
            yscale="log",
            ylim=(1e-6, 1.5),
            xlabel="time $t$",
            ylabel="loss $L(t)/L(0)$",
            title=f"median of {PROBLEMS} problems",
        )
        style.label(curves, "no scale", 3, np.median(data["plain"], 0)[60], 2, 8, color=style.GREY)
        style.label(curves, "one per branch", 2, np.median(data["separate"], 0)[40], 4, 6, color=style.BLUE)
        style.label(curves, "shared", 1.5, np.median(data["shared"], 0)[30], -8, -6, ha="right", color=style.VERMILLION)
        gap = 100 * (data["separate"] - data["shared"])
        gaps.plot(t, gap.T, color=style.BLUE, linewidth=0.4, alpha=0.6)
        gaps.axhline(0, color=style.BLACK, linewidth=0.8)
        gaps.set(
            xlabel="time $t$",
            ylabel="$(L_{\\rm separate}-L_{\\rm shared})/L(0)$, %",
            title=f"separate ever ahead: {(gap.min(1) < -1e-6).sum()} of {PROBLEMS}",
        )
        style.letter([curves, gaps])
        return style.save(figure, out, "heterogeneity")


if __name__ == "__main__":
    style.main(draw)
