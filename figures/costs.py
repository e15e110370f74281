"""How measured cost grows, from the numbers of ``benchmarks/cost.py`` that come with the code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator, StrMethodFormatter

from figures import style


def measured(name: str) -> tuple[np.ndarray, np.ndarray, Mapping[str, Any]]:
    """Sizes ``(n,)``, seconds ``(n, rounds)`` and where they were measured."""
    found = json.loads((files("simulations") / "evidence" / "cost.json").read_text(encoding="utf-8"))
    series = found["series"][name]
    return np.array(series["sizes"], dtype=float), np.array(series["seconds"]), found["provenance"]


def growth(ax: Axes, name: str, xlabel: str, power: float) -> None:
    """Median seconds on logarithmic axes, all rounds as bars, and a line that grows as the given power of the size."""
    x, seconds, where = measured(name)
    y = np.median(seconds, axis=1)
    bars = [y - seconds.min(1), seconds.max(1) - y]
    ax.errorbar(x, y, bars, color=style.BLUE, marker="o", capsize=2, label="measured, median of three")
    line = y[-1] * (x / x[-1]) ** power
    ax.plot(x, line, color=style.GREY, linestyle=(0, (4, 2)), label=f"proportional to size{_exponent(power)}")
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="seconds", title=where["processor"])
    ax.set_xticks(x, [f"{size:,.0f}" for size in x], fontsize=7)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}") if y.max() < 10 * y.min() else NullFormatter())
    ax.legend(loc="upper left" if power > 0 else "lower left")


def _exponent(power: float) -> str:
    return {1.0: "", -1.0: "⁻¹", 2.0: "²"}[power]


def draw(name: str, xlabel: str, power: float, out: Path, seed: int = 0) -> list[Path]:
    """`growth` alone, as the figure ``cost-of-NAME``."""
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, style.COLUMN)
        growth(ax, name, xlabel, power)
        return style.save(figure, out, f"cost-of-{name}")
