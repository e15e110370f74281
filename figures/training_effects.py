"""Effects measured by training small language models in pairs, with 95% intervals, one panel for each quantity.

Shaded is where the value was asked to lie before the runs.  A point is filled where its interval is all inside (blue)
or all outside (vermillion) of that; grey and open, nothing is decided.  Where a few effects are far larger than the
others, the axis is logarithmic beyond the middle one's size.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from figures import style
from simulations.lm.contrast import Contrast, Estimate
from simulations.lm.experiment import committed
from simulations.lm.experiments import EXPERIMENTS

PAPER: dict[str, Any] = {"marker": "D", "color": style.ORANGE, "markersize": 4.5, "linestyle": "none"}
ASKED = "#E9EFF3"
OUTLYING = 20
"""Times the median size from which on an effect outlies the others."""

WORDS = {
    "clipping": "multipliers' share of the squared norm of the gradient",
    "log abm": "ln (measured / due to noise alone)",
    "log alignment": "power of the width that the alignment grows with",
    "log branches": "ln of the ratio of norms",
    "log conserved": "ln of the drift of Q, or its power of the step",
    "log diversity": "ln of the ratio of spreads",
    "log orbits": "ln of the distance along a symmetry, or its difference",
    "log sharpness": "ln of the ratio of eigenvalues, or of largest stable steps",
    "log signal": "ln of the ratio of signal-to-noise to that of matrices",
    "log sizes": "power of the width that the size goes with",
    "orbits": "rms distance along a symmetry, in ln",
    "signal": "rank correlation of signal-to-noise and displacement",
}
"""What is on the axis where it is no loss."""

Row = tuple[str, Contrast, Estimate]
"""An experiment's name, one of its contrasts, and what was measured."""


def compute(seed: int = 0) -> dict[str, list[Row]]:
    """By quantity, every contrast of every outcome that comes with the code."""
    outcomes = ((e, committed(e)) for e in EXPERIMENTS.values())
    rows = [(e.id, c, o.estimate(c)) for e, o in outcomes if o is not None for c in e.contrasts]
    rows.sort(key=lambda row: row[1].quantity)
    return {quantity: list(found) for quantity, found in groupby(rows, lambda row: row[1].quantity)}


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
        powers = [10.0**k for k in range(-9, 9) if 2 * np.median(sizes) < 10.0**k < 1.5 * sizes[-1]]
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
    ax.set_xlabel(WORDS.get(quantity) or f"{quantity},{rows[0][1].units}")
    if ax.get_xscale() == "linear":
        ax.locator_params(axis="x", nbins=5)
    ax.grid(visible=False, axis="y")


def draw(out: Path, seed: int = 0) -> list[Path]:
    panels = compute(seed)
    heights = [len(rows) + 1.5 for rows in panels.values()]
    with style.context():
        figure, axes = style.panels(
            len(panels), 1, 0.4 + 0.25 * sum(heights), width=5.0, gridspec_kw={"height_ratios": heights}
        )
        for ax, (quantity, rows) in zip(axes, panels.items(), strict=True):
            forest(ax, quantity, rows)
        axes[0].plot([], [], label="the paper, at its scale", **PAPER)
        axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
        return style.save(figure, out, "training-effects")


if __name__ == "__main__":
    style.main(draw)
