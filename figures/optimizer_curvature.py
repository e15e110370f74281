"""E of the Hessian's trace over training for three optimizers and three choices of what decays, c = 16."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures import style
from scalevec_theory.theorems.optimizer_curvature import RATES, rest, trace_growth

OUTPUTS = 16
SHOWN = ("sgd", "adamw", "muon")
LOOKS = {"none": (style.BLACK, "-"), "W": (style.BLUE, "--"), "both": (style.GREEN, ":")}
TITLES = {
    "sgd": f"SGD, η = {RATES['sgd']:g}",
    "adamw": f"AdamW, η = {RATES['adamw']:g} (right: law at rest)",
    "muon": f"Muon, η = {RATES['muon']:g}",
}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Steps, and mean traces by optimizer and decay."""
    data = {}
    for optimizer in SHOWN:
        data["steps"], means = trace_growth(optimizer, OUTPUTS, dict.fromkeys(LOOKS, 1.0), paths=1, seed=seed)
        for decays in LOOKS:
            v = rest(optimizer, OUTPUTS, decays)
            data[f"{optimizer} {decays}"] = means[decays].mean(0)
            data[f"{optimizer} {decays} rest"] = np.array(OUTPUTS * v**2 + 1 / v**2)
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, axes = style.panels(1, 3, 2.5, sharey=True)
        for ax, optimizer in zip(axes, SHOWN, strict=True):
            for decays, (colour, dashes) in LOOKS.items():
                name = {"none": "nothing decays", "both": "both decay"}.get(decays, f"{decays} decays")
                ax.plot(
                    data["steps"],
                    data[f"{optimizer} {decays}"],
                    color=colour,
                    linestyle=dashes,
                    label=name,
                )
                if optimizer == "adamw":
                    ax.axhline(data[f"{optimizer} {decays} rest"].item(), xmin=0.93, color=colour, linewidth=0.8)
            ax.set(xscale="log", yscale="log", xlabel="steps", title=TITLES[optimizer])
            ax.set(xticks=(250, 500, 1000, 2000), yticks=(5, 10, 20, 50))
            ax.set_xticklabels(("250", "", "1,000", ""))
            ax.set_yticklabels(("5", "10", "20", "50"))
            ax.minorticks_off()
        axes[0].set_ylabel("E[tr Hessian]")
        axes[0].legend(loc="upper left")
        return style.save(figure, out, "optimizer-curvature")


if __name__ == "__main__":
    style.main(draw)
