"""Multiplier against width: formula and AdamW runs, for entries that follow the data, barely do, or do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.check import generator
from scalevec_theory.claim import Setting
from scalevec_theory.crossover import threshold
from scalevec_theory.multipliers import equilibrium_rms, projector_multiplier
from scalevec_theory.theorems.multiplier_width import DECAY, STEP, WEAK, WIDTHS, weights

RATIOS = {"2": 2.0, "1/6": WEAK, "0": 0.0}
"""ρ/ρ* by label."""


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """s ``(len(WIDTHS),)`` that gives Wx unit rms, from runs and by formula, for each of `RATIOS`."""
    setting = Setting("quick", seed, generator(seed, "figure:multiplier-width"))
    data = {}
    for label, ratio in RATIOS.items():
        rows = weights(setting, ratio * threshold(STEP, DECAY), 60)
        data[f"run-{label}"] = np.array([1 / w.sum(0).square().mean().sqrt().item() for w in rows])
        noise = equilibrium_rms(STEP, DECAY)
        widths = torch.tensor(WIDTHS, dtype=torch.float64)
        data[f"formula-{label}"] = projector_multiplier(1.0, widths, ratio * noise, noise).numpy()
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, width=style.COLUMN)
        looks = {"2": (style.BLUE, "o"), "1/6": (style.GREEN, "^"), "0": (style.VERMILLION, "s")}
        for label, (color, marker) in looks.items():
            ax.plot(WIDTHS, data[f"formula-{label}"], **style.PREDICTED | {"color": color})
            ax.plot(WIDTHS, data[f"run-{label}"], marker, color=color)
            style.label(ax, f"$ρ = {label}\\,ρ^*$" if label != "0" else "noise only", WIDTHS[-1],
                        data[f"formula-{label}"][-1], 6, color=color)  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="width $d$", ylabel="multiplier $s$", xlim=(7, 420))
        ax.set_xticks(WIDTHS, [str(d) for d in WIDTHS])
        ax.minorticks_off()
        return style.save(figure, out, "multiplier-width")


if __name__ == "__main__":
    style.main(draw)
