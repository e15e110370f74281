"""Decay of an output norm's scale: the sub-module's share of the residual stream, whatever the weights before it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.theorems.output_norm_decay import norm_output

CHANNELS, INPUTS = 64, 32
PRODUCTS = np.linspace(0, 4, 60)
SIZES = (0.1, 1.0, 10.0)


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Share of the residual stream over ηλt, for plain and 1 + w norms and for weights of several sizes."""
    rng = np.random.default_rng(seed)
    W, x, h = (torch.from_numpy(rng.standard_normal(s)) for s in ((1, CHANNELS, INPUTS), (1, INPUTS), (1, CHANNELS)))
    first = torch.from_numpy(1 + 0.3 * rng.standard_normal((1, CHANNELS)))
    kept = torch.from_numpy(np.exp(-PRODUCTS))[:, None]
    data = {}

    def share(gain: torch.Tensor, W: torch.Tensor) -> np.ndarray:
        out = norm_output(gain, W, x).square().sum(-1)
        return (out / (out + h.square().sum(-1))).numpy()

    for size in SIZES:
        data[f"plain {size:g}"] = share(kept * 1.5 * first, size * W)
    data["one plus"] = share(1 + kept * (1.5 * first - 1), W)
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.5, width=style.COLUMN)
        for size, width in zip(SIZES, (3.5, 2.0, 0.8), strict=True):
            colour = {3.5: style.SKY, 2.0: style.ORANGE, 0.8: style.BLACK}[width]
            ax.plot(
                PRODUCTS, data[f"plain {size:g}"], color=colour, linewidth=width, label=f"scale $w$, weights × {size:g}"
            )
        ax.plot(PRODUCTS, data["one plus"], color=style.VERMILLION, linestyle=(0, (5, 1.5)), label="scale $1 + w$")
        ax.set(
            xlabel="$\\eta\\lambda t$, learning rate × decay × steps",
            ylabel="share of the residual stream",
            ylim=(0, 1),
        )
        ax.legend(loc="upper right")
        return style.save(figure, out, "output-norm-decay")


if __name__ == "__main__":
    style.main(draw)
