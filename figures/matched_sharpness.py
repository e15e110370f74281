"""Each model in units of its own curvature: the scale's lead is gone, unless it improves the conditioning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.radial import remaining_distance, sharpness

CASES = {
    "whitened": ((1.0, 1.0), (1.0, 2.0)),
    "better conditioned": ((1.0, 0.2), (0.3, 3.0)),
    "worse conditioned": ((1.0, 0.2), (3.0, 0.3)),
}
"""Curvature h_j and target norm R_j of two columns."""


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """L/L(0) ``(2, S)`` without and with an input scale, at times ``tau`` (S,) in units of 1/λ_max of each model."""
    tau = torch.linspace(0, 20, 201, dtype=torch.float64)
    data = {"tau": tau.numpy()}
    for name, columns in CASES.items():
        h, R = (torch.tensor(x, dtype=torch.float64) for x in columns)
        plain = R * torch.exp(-h * tau[:, None] / h.max())
        scaled = remaining_distance(tau[:, None] / sharpness(h, R).max(), h, R)
        losses = torch.stack([(h * x * x).sum(-1) for x in (plain, scaled)])
        data[name] = (losses / losses[:, :1]).numpy()
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    tau = data["tau"]
    with style.context():
        figure, axes = style.panels(1, len(CASES), 2.6, sharey=True)
        for ax, (name, (h, R)) in zip(axes, CASES.items(), strict=True):
            plain, scaled = data[name]
            ax.plot(tau, plain, **style.PLAIN)
            ax.plot(tau, scaled, **style.SINGLE)
            columns = ", ".join(f"({a:g}, {b:g})" for a, b in zip(h, R, strict=True))
            ax.set(yscale="log", ylim=(1e-6, 1.5), xlabel="time $t\\,\\lambda_{\\max}$, each its own", title=name)
            ax.text(0.97, 0.95, f"$(h_j, R_j)$:\n{columns}", ha="right", va="top", transform=ax.transAxes, fontsize=7)
        axes[0].set_ylabel("loss $L/L(0)$")
        style.label(axes[1], "no scale", 12, np.interp(12, tau, data["better conditioned"][0]), 4, 6, color=style.GREY)
        style.label(axes[0], "input scale", 8, np.interp(8, tau, data["whitened"][1]), 4, 4, color=style.BLUE)
        style.letter(axes)
        return style.save(figure, out, "matched-sharpness")


if __name__ == "__main__":
    style.main(draw)
