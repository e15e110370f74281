"""With correlated inputs v = β α/rms(α) can cross zero; learned directly or in exponential space it cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import (
    EXPONENTIAL,
    INPUT_SCALE,
    MAGNITUDE_DIRECTION,
    exponential_scale,
    magnitude_direction_scale,
)
from scalevec_theory.theorems.scale_sign import CROSSING


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """v_1 over times ``t`` (S,) on the problem of the claim, by parametrisation."""
    H, T = (torch.tensor([x], dtype=torch.float64) for x in CROSSING.values())
    times = torch.linspace(0, 4, 81, dtype=torch.float64)
    runs = {
        p.name: gradient_flow(p, LeastSquares(H, T), p.init(torch.zeros_like(T)), times, rtol=1e-8, atol=1e-8).blocks
        for p in (INPUT_SCALE, EXPONENTIAL, MAGNITUDE_DIRECTION)
    }
    original, exponential = runs[MAGNITUDE_DIRECTION.name], runs[EXPONENTIAL.name]
    return {
        "t": times.numpy(),
        "direct": runs[INPUT_SCALE.name]["v"][0, :, 0].numpy(),
        "exponential": exponential_scale(exponential["beta"], exponential["alpha"])[0, :, 0].numpy(),
        "original": magnitude_direction_scale(original["beta"], original["alpha"])[0, :, 0].numpy(),
    }


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    t = data["t"]
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.5, width=style.COLUMN)
        ax.axhline(0, color=style.BLACK, linewidth=0.8)
        looks = {
            "direct": ("learned directly", style.BLUE, "-"),
            "exponential": ("exponential", style.GREEN, (0, (6, 1.5, 1, 1.5))),
            "original": ("β α/rms(α)", style.VERMILLION, (0, (5, 1.5))),
        }
        for name, (label, color, line) in looks.items():
            ax.plot(t, data[name], color=color, linestyle=line)
            style.label(ax, label, t[-1], data[name][-1], color=color)
        ax.set(xlim=(0, 6), xticks=range(5), xlabel="time $t$", ylabel="scale $v_1$")
        return style.save(figure, out, "scale-sign")


if __name__ == "__main__":
    style.main(draw)
