"""The radius of a column in closed form against integration, for targets of several norms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.radial import remaining_distance

NORMS = (0.5, 1.0, 2.0, 5.0)
COLORS = (style.GREEN, style.ORANGE, style.VERMILLION, style.PURPLE)
TOLERANCE = 1e-12


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """(R − r)/R over time ``t`` (S,) for each R, closed form and integrated, ``(len(NORMS), S)``."""
    rng = np.random.default_rng(seed)
    R = torch.tensor(NORMS, dtype=torch.float64)
    direction = rng.standard_normal((len(NORMS), 3, 1))
    T = torch.from_numpy(direction / np.linalg.norm(direction, axis=1, keepdims=True)) * R[:, None, None]
    loss = LeastSquares(torch.ones(len(NORMS), 1, 1, dtype=torch.float64), T)
    times = torch.linspace(0, 3, 61, dtype=torch.float64)
    run = gradient_flow(INPUT_SCALE, loss, INPUT_SCALE.init(torch.zeros_like(T)), times, rtol=TOLERANCE, atol=TOLERANCE)
    one = torch.ones((), dtype=torch.float64)
    return {
        "t": times.numpy(),
        "closed": (remaining_distance(times, one, R[:, None]) / R[:, None]).numpy(),
        "integrated": ((T[:, None] - run.theta).flatten(2).norm(dim=-1) / R[:, None]).numpy(),
    }


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    t = data["t"]
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.7)
        left.plot(t, np.exp(-t), **style.PLAIN)
        style.label(left, "no scale", 3, np.exp(-3), color=style.GREY)
        for i, (R, color) in enumerate(zip(NORMS, COLORS, strict=True)):
            closed, integrated = data["closed"][i], data["integrated"][i]
            left.plot(t, closed, color=color)
            seen = np.flatnonzero(integrated > 3e-6)[::4]
            left.plot(t[seen], integrated[seen], "o", color=color, markerfacecolor="white")
            right.plot(t[1:], np.abs(closed - integrated)[1:] + 1e-17, color=color, linewidth=1)
            y = max(closed[-1], 1e-5)
            style.label(
                left, f"$R={R:g}$", np.interp(-np.log(y), -np.log(closed), t), y, 4, 0 if y > 1e-5 else 6, color=color
            )
        left.set(
            yscale="log", ylim=(1e-5, 1.5), xlim=(0, 3.6), xlabel="time $h_j t$", ylabel="remaining distance $(R-r)/R$"
        )
        left.set_title("closed form (lines), integrated (circles)")
        right.axhline(TOLERANCE, **style.PREDICTED)
        style.label(right, "integrator's tolerance", 3, TOLERANCE, 0, 6, ha="right")
        right.set(
            yscale="log",
            ylim=(1e-16, 1e-10),
            xlabel="time $h_j t$",
            ylabel="|closed form − integrated| $/R$",
            title="difference, same colours",
        )
        style.letter([left, right])
        return style.save(figure, out, "radial-solution")


if __name__ == "__main__":
    style.main(draw)
