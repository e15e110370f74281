"""The redundant multipliers of a decoder block as a graph: sites, and the families that join them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures import style
from scalevec_theory.theorems.redundancy import found

PLACES = {
    "norm_1": (0, 1),
    "q columns": (1, 2),
    "k columns": (1, 1),
    "v columns": (1, 0),
    "q rows": (2, 2),
    "k rows": (2, 1),
    "v rows": (2, 0),
    "o columns": (3, 0),
    "o rows": (4, 0),
    "norm_2": (5, 1),
    "gate columns": (6, 2),
    "up columns": (6, 1),
    "gate rows": (7, 2),
    "up rows": (7, 1),
    "down columns": (8, 1),
    "down rows": (9, 1),
}
"""Sites of the block, from left to right as the data flow."""

COLORS = (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """For each family found, by the names of its sites: (number of symmetries, change of the outputs under them)."""
    result = found("silu", True, seed)
    return {" ~ ".join(map(str, f.sites)): np.array([f.count, f.change]) for f in result.families}


def draw(out: Path, seed: int = 0) -> list[Path]:
    families = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.4)
        for color, (name, (count, _)) in zip(COLORS, families.items(), strict=False):
            sites = sorted((PLACES[s] for s in name.split(" ~ ")), key=lambda p: (p[0], -p[1]))
            hub = sites[0]
            for x, y in sites[1:]:
                ax.plot([hub[0], x], [hub[1], y], color=color, linewidth=2.2, zorder=1)
            middle = np.mean([hub, sites[-1] if len(sites) == 2 else sites[1 + (len(sites) - 1) // 2]], axis=0)
            shift = (8, -4) if len(sites) == 2 and sites[0][0] == sites[1][0] else (0, 5)
            ax.annotate(f"{count:g}", middle, shift, textcoords="offset points", ha="center", color=color)
        for site, (x, y) in PLACES.items():
            joined = any(site in name.split(" ~ ") for name in families)
            text = site.replace(" ", "\n").replace("norm_", "norm ")
            box = {
                "boxstyle": "round,pad=0.25",
                "facecolor": "white",
                "edgecolor": style.BLACK if joined else style.GREY,
            }
            ax.text(
                x, y, text, ha="center", va="center", bbox=box, color=style.BLACK if joined else style.GREY, fontsize=7
            )
        ax.set(xlim=(-0.5, 9.5), ylim=(-0.6, 2.6), xticks=[], yticks=[])
        ax.grid(visible=False)
        for side in ax.spines.values():
            side.set_visible(False)
        return style.save(figure, out, "redundancy")


if __name__ == "__main__":
    style.main(draw)
