"""What scale vectors cost: their share of the parameters in published models, and what each design adds to one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures import style
from scalevec_theory.decoder_shapes import LLAMA_1B, PUBLISHED


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Names, scale parameters and all parameters of models; names and added parameters of designs on the paper's."""
    models = {"Llama-1B of the paper": LLAMA_1B} | {name: decoder for name, (decoder, *_) in PUBLISHED.items()}
    designs = {
        "norm scales": LLAMA_1B.scales,
        "HG adds": LLAMA_1B.heterogeneous(),
        "HG, DP add": LLAMA_1B.dual(),
        "HG, DP, OR add": LLAMA_1B.unified(),
    }
    return {
        "model": np.array(list(models)),
        "scales": np.array([m.scales for m in models.values()]),
        "total": np.array([m.total for m in models.values()]),
        "design": np.array(list(designs)),
        "added": np.array(list(designs.values())),
    }


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.3, width_ratios=(1, 0.8))
        share = 100 * data["scales"] / data["total"]
        left.plot(share, range(len(share)), "o", color=style.BLUE)
        for row, (scales, total) in enumerate(zip(data["scales"], data["total"], strict=True)):
            style.label(left, f"{scales:,} of {total:,}", share[row], row, 5, 0, fontsize=7)
        left.set_yticks(range(len(share)), list(data["model"]))
        left.set(
            xlim=(0, 0.03), ylim=(len(share) - 0.5, -0.5), xlabel="scale parameters, % of all", title="published models"
        )
        cost = 1e4 * data["added"] / data["total"][0]
        right.barh(range(len(cost)), cost, height=0.55, color=[style.GREY, style.SKY, style.BLUE, style.VERMILLION])
        for row, value in enumerate(cost):
            style.label(right, f"{value:.2f}", value, row)
        right.set_yticks(range(len(cost)), list(data["design"]))
        right.set(
            xlim=(0, 8.5),
            ylim=(len(cost) - 0.5, -0.5),
            xlabel="parameters, in 10,000",
            title="designs on the paper's Llama-1B",
        )
        for ax in (left, right):
            ax.grid(visible=False, axis="y")
        style.letter([left, right])
        return style.save(figure, out, "product-form")


if __name__ == "__main__":
    style.main(draw)
