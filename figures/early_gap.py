"""Early in training the lead grows as t³, with the predicted constant, whatever the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from figures import style
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import CrossEntropy, LeastSquares, Loss
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN

C, D, N = 3, 4, 12
PAIRS = {"input scale over no scale": (PLAIN, INPUT_SCALE, -2), "dual over input scale": (INPUT_SCALE, DUAL_SCALE, -1)}
LOOKS: dict[str, dict[str, Any]] = {
    "least squares": {"color": style.BLUE, "marker": "o"},
    "cross-entropy": {"color": style.VERMILLION, "marker": "s"},
}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Times ``t`` (S,); by pair and loss, the gap of the losses (S,) and ``predicted``, the constant of t³."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1, N, D))
    labels = np.eye(C)[rng.integers(0, C, (1, N))]
    H = torch.from_numpy(np.swapaxes(X, 1, 2) @ X / N)
    losses: dict[str, Loss] = {
        "least squares": LeastSquares(H, torch.from_numpy(rng.standard_normal((1, C, D)))),
        "cross-entropy": CrossEntropy(torch.from_numpy(X), torch.from_numpy(labels)),
    }
    zero = torch.zeros(1, C, D, dtype=torch.float64)
    times = torch.logspace(-2.5, 0.3, 29, dtype=torch.float64)
    data = {"t": times.numpy()}
    for loss_name, loss in losses.items():
        values = {
            p.name: gradient_flow(p, loss, p.init(zero), times, rtol=1e-13, atol=1e-13).loss[0].numpy()
            for p in (PLAIN, INPUT_SCALE, DUAL_SCALE)
        }
        G = loss.gradient(zero)[0]
        for pair, (slower, faster, summed) in PAIRS.items():
            data[f"{pair}, {loss_name}"] = values[slower.name] - values[faster.name]
            data[f"{pair}, {loss_name}, predicted"] = (2 / 3 * G.square().sum(summed).square().sum()).numpy()
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    t = data["t"]
    with style.context():
        figure, axes = style.panels(2, 2, 4.0, sharex=True, sharey="row", height_ratios=(2, 1))
        for column, pair in enumerate(PAIRS):
            gap_axes, ratio_axes = axes[column], axes[column + 2]
            for name, look in LOOKS.items():
                gap, constant = data[f"{pair}, {name}"], float(data[f"{pair}, {name}, predicted"])
                gap_axes.plot(t, constant * t**3, **style.PREDICTED)
                gap_axes.plot(t, gap, linestyle="none", markerfacecolor="white", **look)
                ratio_axes.plot(t, gap / (constant * t**3), linestyle="none", markerfacecolor="white", **look)
            gap_axes.set(xscale="log", yscale="log", title=f"{pair}")
            ratio_axes.axhline(1, **style.PREDICTED)
            ratio_axes.set(xlabel="time $t$", ylim=(0, 1.2))
        first = data["input scale over no scale, least squares"]
        second = data["input scale over no scale, cross-entropy"]
        style.label(axes[0], "least squares", t[12], first[12], -8, 4, ha="right", color=style.BLUE)
        style.label(axes[0], "cross-entropy", t[12], second[12], 8, -4, color=style.VERMILLION)
        style.label(axes[0], "lines: $\\frac{2}{3}t^3\\,\\Sigma_j\\Vert g_j(0)\\Vert^4$, columns", t[0], 1e-1, 0)
        style.label(axes[1], "lines: $\\frac{2}{3}t^3\\,\\Sigma_i\\Vert \\hat g_i(0)\\Vert^4$, rows", t[0], 1e-1, 0)
        axes[0].set(ylabel="difference of losses")
        axes[2].set(ylabel="measured / $t^3$ law")
        style.letter(axes[:2])
        return style.save(figure, out, "early-gap")


if __name__ == "__main__":
    style.main(draw)
