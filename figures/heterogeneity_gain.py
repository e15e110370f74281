"""Lead of one scale vector per branch over a shared one, by optimiser and kind of problem."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures import style
from figures.forest import effects, forest
from scalevec_theory.theorems.heterogeneity_gain import claim

ROWS = {
    "gd": "GD",
    "gd-decay": "GD, weight decay",
    "gd-gradient-size": "GD, one gradient small",
    "gd-conflict": "GD, conflict",
    "adam": "Adam",
    "adam-decay": "Adam, weight decay",
    "adam-gradient-size": "Adam, one gradient small",
    "adam-conflict": "Adam, conflict",
    "adam-moved": "Adam, moved targets",
}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Mean and standard error of the difference of mean L/L(0), shared less separate, by case."""
    return effects(claim, ROWS, seed)


def draw(out: Path, seed: int = 0) -> list[Path]:
    rows = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 0.22 * len(rows) + 0.6, width=5.0)
        forest(ax, {name: 100 * values for name, values in rows.items()})
        ax.set(xlabel="lead of one vector per branch in mean $L/L(0)$, %")
        return style.save(figure, out, "heterogeneity-gain")


if __name__ == "__main__":
    style.main(draw)
