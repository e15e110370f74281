"""Early in training the lead grows as t³ from W(0) = 0, as t from any other W(0), with the predicted constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from figures import style
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import CrossEntropy, LeastSquares, Loss
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN, Parametrization
from scalevec_theory.theorems.early_gap import Constant, alignment, columns, rows

C, D, N = 3, 4, 12
CASES: dict[str, tuple[Parametrization, Parametrization, Constant, int, int]] = {
    "input scale over none": (PLAIN, INPUT_SCALE, columns, 3, 0),
    "dual over input scale": (INPUT_SCALE, DUAL_SCALE, rows, 3, 0),
    "the first, $W(0)\\neq 0$": (PLAIN, INPUT_SCALE, alignment, 1, 1),
}
"""Slower and faster model, constant and power of t, and which of the two starts: W(0) = 0 or not."""

LAWS = (
    "$\\frac{2}{3}t^3\\,\\Sigma_j\\Vert g_j(0)\\Vert^4$",
    "$\\frac{2}{3}t^3\\,\\Sigma_i\\Vert\\hat{g}_i(0)\\Vert^4$",
    "$t\\,\\Sigma_j\\langle w_j(0), g_j(0)\\rangle^2$",
)
LOOKS: dict[str, dict[str, Any]] = {
    "least squares": {"color": style.BLUE, "marker": "o"},
    "cross-entropy": {"color": style.VERMILLION, "marker": "s"},
}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Times ``t`` (S,); by case and loss, the gap of the losses and its predicted leading term, ``(2, S)``."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1, N, D))
    labels = np.eye(C)[rng.integers(0, C, (1, N))]
    H = torch.from_numpy(np.swapaxes(X, 1, 2) @ X / N)
    losses: dict[str, Loss] = {
        "least squares": LeastSquares(H, torch.from_numpy(0.6 * rng.standard_normal((1, C, D)))),
        "cross-entropy": CrossEntropy(torch.from_numpy(X), torch.from_numpy(labels)),
    }
    W0 = torch.from_numpy(0.3 * rng.standard_normal((1, C, D)))
    W0 = torch.cat([torch.zeros_like(W0), W0])
    t = torch.logspace(-2, 0, 15, dtype=torch.float64)
    data = {"t": t.numpy()}
    for name, loss in losses.items():
        both = loss.select(torch.zeros(2, dtype=torch.long))
        L = {
            p.name: gradient_flow(p, both, p.init(W0), t, rtol=1e-12, atol=1e-12).loss
            for p in (PLAIN, INPUT_SCALE, DUAL_SCALE)
        }
        G0 = both.gradient(W0)
        for case, (slower, faster, constant, power, start) in CASES.items():
            predicted = constant(W0, G0)[start] * t**power
            data[f"{case}, {name}"] = torch.stack([(L[slower.name] - L[faster.name])[start], predicted]).numpy()
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    t = data["t"]
    with style.context():
        figure, axes = style.panels(2, 3, 3.8, sharex=True, sharey="row", height_ratios=(2, 1))
        for column, (case, law) in enumerate(zip(CASES, LAWS, strict=True)):
            gap_axes, ratio_axes = axes[column], axes[column + 3]
            for name, look in LOOKS.items():
                gap, predicted = data[f"{case}, {name}"]
                gap_axes.plot(t, predicted, **style.PREDICTED)
                gap_axes.plot(t, gap, linestyle="none", markerfacecolor="white", **look)
                ratio_axes.plot(t, gap / predicted, linestyle="none", markerfacecolor="white", **look)
            gap_axes.set(xscale="log", yscale="log", title=case, ylim=(1e-10, 1e2))
            gap_axes.text(0.04, 0.96, f"lines: {law}", transform=gap_axes.transAxes, va="top")
            ratio_axes.axhline(1, **style.PREDICTED)
            ratio_axes.set(xlabel="time $t$", ylim=(0, 1.2))
        first = {name: data[f"{next(iter(CASES))}, {name}"][0] for name in LOOKS}
        style.label(axes[0], "least squares", t[6], first["least squares"][6], -6, 6, ha="right", color=style.BLUE)
        style.label(axes[0], "cross-entropy", t[6], first["cross-entropy"][6], 6, -6, color=style.VERMILLION)
        axes[0].set(ylabel="difference of losses")
        axes[3].set(ylabel="measured / law")
        style.letter(axes[:3])
        return style.save(figure, out, "early-gap")


if __name__ == "__main__":
    style.main(draw)
