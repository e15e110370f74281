"""Measured effects on the final loss of small language models, with 95% intervals, beside the values of the papers.

Right of zero the arm that the paper prefers is better; a filled point has its whole interval on one side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from figures import style
from simulations.lm.experiment import Contrast, Estimate, committed
from simulations.lm.experiments import EXPERIMENTS

PAPER: dict[str, Any] = {"marker": "D", "color": style.ORANGE, "markersize": 4.5, "linestyle": "none"}

Row = tuple[str, Contrast, Estimate]
"""An experiment's name, one of its contrasts, and what was measured."""


def compute(seed: int = 0) -> list[Row]:
    """Every contrast of every outcome that comes with the code, in the order of the experiments."""
    found = ((e, committed(e)) for e in EXPERIMENTS.values())
    return [(e.id, c, outcome.estimate(c)) for e, outcome in found if outcome is not None for c in e.contrasts]


def forest(ax: Axes, rows: list[Row]) -> None:
    """One row for each contrast: the interval, and the paper's value where it gives one."""
    for y, (_, contrast, found) in enumerate(rows):
        off = found.low > 0 or found.high < 0
        color = style.GREY if not off else style.BLUE if found.difference > 0 else style.VERMILLION
        shape = "o" if found.difference > 0 else "s"
        ax.plot([found.low, found.high], [y, y], color=color, linewidth=1.4)
        ax.plot(found.difference, y, shape, color=color, markerfacecolor=color if off else "white")
        if contrast.paper is not None:
            ax.plot(contrast.paper, y, **PAPER)
    ax.plot([], [], label="the paper, at its scale", **PAPER)
    ax.axvline(0, color=style.BLACK, linewidth=0.8)
    ax.set_yticks(range(len(rows)), [f"{experiment}: {c.worse} − {c.better}" for experiment, c, _ in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel("difference of final losses, nats per token")
    ax.grid(visible=False, axis="y")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))


def draw(out: Path, seed: int = 0) -> list[Path]:
    rows = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 0.9 + 0.2 * len(rows), width=5.0)
        forest(ax, rows)
        return style.save(figure, out, "training-effects")


if __name__ == "__main__":
    style.main(draw)
