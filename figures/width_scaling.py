"""Learned multipliers, sizes of matrices and alignment against width, with the slopes that theory expects (dashed).

At the end of training; geometric means over seeds with 95% intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from figures import bands, style
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome
from simulations.lm.mechanisms import WIDTHS

EXPERIMENT = "width"
PANELS = {
    "Multipliers": {"head": "head", "query-key": "query × key"},
    "Hidden matrices: rms": {"matrices": "matrices"},
    "Alignment": {"alignment-head": "head", "alignment-hidden": "hidden matrices"},
}
LOOKS: tuple[Mapping[str, Any], ...] = (
    {"color": style.BLUE, "marker": "o"},
    {"color": style.VERMILLION, "marker": "s"},
)
EXPONENTS = {-2.0: "d⁻²", -1.0: "d⁻¹", 0.0: "constant", 0.5: "√d"}


def scaling(ax: Axes, e: Experiment, outcome: Outcome, shown: Mapping[str, str]) -> None:
    """Each quantity against width, and a line of the expected slope through its geometric mean."""
    named = {c.name: c for c in e.contrasts}
    for style_of, (name, label) in zip(LOOKS, shown.items(), strict=False):
        asked = named[name]
        single = [Contrast("", {arm: 1.0}, asked.metric, logarithm=True) for arm in asked.weights]
        numbers = np.array([bands.values(c, outcome.estimate(c)) for c in single]).T
        found, expected = outcome.estimate(asked), sum(asked.within) / 2
        bands.bar(ax, WIDTHS, numbers, label=f"{label}: slope {found.value:.2f}".replace("-", "−"), **style_of)
        x = np.array([WIDTHS[0], WIDTHS[-1]], dtype=float)
        centre = math.exp(np.mean(np.log(numbers[0])) - expected * np.mean(np.log(WIDTHS)))
        line = centre * x**expected
        ax.plot(x, line, color=style_of["color"], linestyle=(0, (4, 2)), linewidth=0.8)
        style.label(ax, EXPONENTS[round(expected, 3)], float(x[-1]), float(line[-1]), color=style_of["color"])
    ax.set(xscale="log", yscale="log", xlabel="width d")
    ax.set_xticks(WIDTHS, [str(w) for w in WIDTHS])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), handlelength=1.4)


def fill(figure: Figure, axes: list[Axes], e: Experiment, outcome: Outcome) -> None:
    for ax, (title, quantities) in zip(axes, PANELS.items(), strict=True):
        scaling(ax, e, outcome, quantities)
        ax.set_title(title)
    _same_span(axes)


def draw(out: Path, seed: int = 0) -> list[Path]:
    return bands.picture(out, "width-scaling", EXPERIMENT, (1, len(PANELS), 2.9), fill)


def _same_span(axes: list[Axes]) -> None:
    """Give every panel's logarithmic axis the same span, so that slopes can be compared by eye."""
    ranges = [np.log10(ax.get_ylim()) for ax in axes]
    half = max(high - low for low, high in ranges) / 2
    for ax, (low, high) in zip(axes, ranges, strict=True):
        ax.set_ylim(10 ** ((low + high) / 2 - half), 10 ** ((low + high) / 2 + half))
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())


if __name__ == "__main__":
    style.main(draw)
