"""Folding a scale vector into its consumers: exact to rounding for linear consumers, wrong elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures import style
from figures.strips import errors_of_claim, strips
from scalevec_theory.theorems.absorption import claim

ROWS = {
    "linear-consumers": "linear consumers",
    "layernorm-bias": "LayerNorm with bias",
    "one-plus-w": "1 + w norm",
    "relu-positive-scales": "ReLU, scales > 0",
    "rotary-equal-pairs": "rotary, equal on pairs",
    "rotary-any-scales": "rotary, any scales",
    "one-plus-w-divided": "1 + w norm, w divided",
    "residual-reuse": "also added to residual",
    "nonlinear-consumer": "SiLU before the matrix",
}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Relative change of the consumers' output on folding, of random problems ``(N,)``, by case."""
    return errors_of_claim(claim, ROWS, seed)


def draw(out: Path, seed: int = 0) -> list[Path]:
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, width=5.0)
        strips(ax, compute(seed))
        ax.set(xlabel="change of output / size of its terms; 0 at the left edge")
        return style.save(figure, out, "absorption")


if __name__ == "__main__":
    style.main(draw)
