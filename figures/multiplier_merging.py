"""Formulas for multipliers' gradients and for merging: exact to rounding, or wrong, case by case."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures import style
from figures.strips import errors_of_claim, strips
from scalevec_theory.theorems import multiplier_gradient, multiplier_merging

GRADIENT = {"formulas": "gradient formulas", "conserved": "conserved by flow", "sum-of-theta": "gradient as Σ θG"}
MERGING = {
    "function": "merged function",
    "decay-on-matrix": "merged decay, on W only",
    "gd-held": "merged GD, step s²η",
    "adam-held": "merged Adam, step sη",
    "decay-on-all": "merged decay, on all",
    "adam-held-same-step": "merged Adam, step η",
}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Relative errors on random problems ``(N,)``, by case."""
    gradient = errors_of_claim(multiplier_gradient.claim, GRADIENT, seed)
    return gradient | errors_of_claim(multiplier_merging.claim, MERGING, seed)


def draw(out: Path, seed: int = 0) -> list[Path]:
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, width=5.0)
        strips(ax, compute(seed), floor=1e-19)
        ax.set(xlabel="error / size of the terms; 0 at the left edge")
        return style.save(figure, out, "multiplier-merging")


if __name__ == "__main__":
    style.main(draw)
