"""Effects on the held-out loss, measured by training small language models in pairs, with 95% intervals.

Shaded is where the value was asked to lie before the runs.  A point is filled where its interval is all inside (blue)
or all outside (vermillion) of that; grey and open, nothing is decided.  Where a few effects are far larger than the
others, the axis is logarithmic beyond the middle one's size.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.ticker import StrMethodFormatter

from figures import style
from simulations.lm.contrast import Contrast, Estimate
from simulations.lm.experiment import committed
from simulations.lm.experiments import EXPERIMENTS
from simulations.lm.mechanisms import PAPER_A, PAPER_B

PAPER: dict[str, Any] = {"marker": "D", "color": style.ORANGE, "markersize": 4.5, "linestyle": "none"}
ASKED = "#E9EFF3"
OUTLYING = 8
"""Times the median size from which on an effect outlies the others."""

LOSSES = ("difference of held-out losses", "combination of held-out losses")
WORDS = {
    "difference of held-out losses": "difference of losses, nats/token",
    "combination of held-out losses": "combined losses, nats/token",
    "clipping": "multipliers' share of ‖gradient‖²",
    "log abm": "ln (measured / by noise alone)",
    "log alignment": "alignment's power of the width",
    "log branches": "ln of the ratio of norms",
    "log conserved": "ln of drift of Q, or its power",
    "log diversity": "ln of the ratio of spreads",
    "log orbits": "ln of distance along a symmetry",
    "log sharpness": "ln ratio: eigenvalues, stable steps",
    "log signal": "ln of ratio: signal, displacement",
    "log sizes": "size's power of the width",
    "orbits": "ln along a symmetry",
    "signal": "rank correlation; share that is told",
}
"""What is on the axis."""

Row = tuple[str, Contrast, Estimate]
"""An experiment's name, one of its contrasts, and what was measured."""


def compute(seed: int = 0) -> dict[tuple[str, str], list[Row]]:
    """By source and quantity, every contrast of every outcome that comes with the code."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for e in EXPERIMENTS.values():
        if (outcome := committed(e)) is not None:
            for contrast in e.contrasts:
                found[e.source, contrast.quantity].append((e.id, contrast, outcome.estimate(contrast)))
    return found


def look(contrast: Contrast, found: Estimate) -> tuple[str, str, str]:
    """Marker, colour and filling of a point: is its interval inside of what was asked, outside, or neither?"""
    low, high = contrast.within
    if low < found.low and found.high < high:
        return "o", style.BLUE, style.BLUE
    if found.high < low or found.low > high:
        return "s", style.VERMILLION, style.VERMILLION
    return "o", style.GREY, "white"


def forest(ax: Axes, quantity: str, rows: list[Row]) -> None:
    """One row for each contrast: its interval, and the paper's value where it gives one."""
    for y, (_, contrast, found) in enumerate(rows):
        marker, color, filling = look(contrast, found)
        ax.plot([found.low, found.high], [y, y], color=color, linewidth=1.4)
        ax.plot(found.value, y, marker, color=color, markerfacecolor=filling)
        if contrast.paper is not None:
            ax.plot(contrast.paper, y + 0.3, **PAPER)
    ax.axvline(0, color=style.BLACK, linewidth=0.8)
    sizes = np.sort([max(abs(found.low), abs(found.high)) for _, _, found in rows])
    if sizes[-1] > OUTLYING * np.median(sizes):  # a few large effects would hide the intervals of all others
        ax.set_xscale("symlog", linthresh=float(np.median(sizes)))
        ax.set_xlim(*(1.5 * x for x in ax.get_xlim()))
        powers = [10.0**k for k in range(-9, 9) if 0.5 * np.median(sizes) < 10.0**k < 1.5 * sizes[-1]]
        ticks = [-x for x in powers] + [0, *powers]
        ax.set_xticks([x for x in ticks if ax.get_xlim()[0] < x < ax.get_xlim()[1]])
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    start, end = ax.get_xlim()
    for y, (_, contrast, _) in enumerate(rows):
        low, high = (min(max(x, start), end) for x in contrast.within)
        ax.fill_betweenx([y - 0.4, y + 0.4], low, high, color=ASKED, zorder=0)
    ax.set_xlim(start, end)
    ax.set_yticks(range(len(rows)), [f"{experiment}: {contrast.name}" for experiment, contrast, _ in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(WORDS[quantity])
    if ax.get_xscale() == "linear":
        ax.locator_params(axis="x", nbins=5 if sizes[-1] > 1e-3 else 2)  # smaller numbers are longer
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.grid(visible=False, axis="y")


def stacked(figure: Figure, cell: SubplotSpec, heights: list[float]) -> list[Axes]:
    """Axes one below another in a cell of a grid."""
    grid = cell.subgridspec(len(heights), 1, height_ratios=heights)
    return [figure.add_subplot(grid[k, 0]) for k in range(len(heights))]


def draw(out: Path, seed: int = 0) -> list[Path]:
    rows = compute(seed)
    sides = [[(quantity, rows[source, quantity]) for quantity in LOSSES] for source in (PAPER_A, PAPER_B)]
    heights = [[len(found) + 2.0 for _, found in side] for side in sides]
    with style.context():
        figure = Figure(figsize=(style.DOUBLE, 0.4 + 0.21 * max(map(sum, heights))), layout="constrained")
        columns = figure.add_gridspec(1, 2)
        for k, (source, side, height) in enumerate(zip((PAPER_A, PAPER_B), sides, heights, strict=True)):
            space = [max(map(sum, heights)) - sum(height) + 0.01]
            axes = stacked(figure, columns[0, k], height + space)
            for ax, (quantity, found) in zip(axes, side, strict=False):
                forest(ax, quantity, found)
            axes[0].set_title(source)
            axes[2].set_axis_off()
            if source == PAPER_A:
                axes[2].plot([], [], label="the paper, at its scale", **PAPER)
                axes[2].legend(loc="upper left")
        return style.save(figure, out, "training-effects")


if __name__ == "__main__":
    style.main(draw)
