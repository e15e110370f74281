"""Means over seeds with their 95% intervals, along training or at its end, from the outcomes of experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import style
from simulations.lm.contrast import LOSS, Contrast, Estimate
from simulations.lm.experiment import Experiment, Outcome, committed
from simulations.lm.experiments import EXPERIMENTS

COLORS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY, style.BLACK, style.GREY)
LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))


def look(k: int) -> dict[str, Any]:
    """How the k-th of some lines looks: told apart by colour and by dashes."""
    return {"color": COLORS[k % len(COLORS)], "linestyle": LINES[k % len(LINES)]}


def outcomes(names: Sequence[str]) -> list[tuple[Experiment, Outcome]]:
    """Those of the named experiments whose outcome comes with the code."""
    found = ((EXPERIMENTS[name], committed(EXPERIMENTS[name])) for name in names)
    return [(e, outcome) for e, outcome in found if outcome is not None]


def course(outcome: Outcome, contrast: Contrast) -> tuple[np.ndarray, np.ndarray]:
    """Steps ``(n,)`` at which a contrast was measured, the start left out; mean and ends of its interval ``(3, n)``."""
    steps = np.array(outcome.steps[next(iter(contrast.weights))][1:])
    first = 1 if contrast.metric == LOSS else 0
    found = [outcome.estimate(replace(contrast, evaluation=first + k)) for k in range(len(steps))]
    return steps, np.array([values(contrast, f) for f in found]).T


def values(contrast: Contrast, found: Estimate) -> tuple[float, float, float]:
    """Mean and ends of the interval; of a logarithm those of the quantity itself."""
    numbers = np.array([found.value, found.low, found.high])
    a, b, c = np.exp(numbers) if contrast.logarithm else numbers
    return float(a), float(b), float(c)


def band(ax: Axes, x: np.ndarray, numbers: np.ndarray, **options: Any) -> None:
    """A line of means within a band; ``numbers (3, n)`` as from `course`."""
    middle, low, high = numbers
    ax.plot(x, middle, **options)
    ax.fill_between(x, low, high, color=options.get("color"), alpha=0.18, linewidth=0)


def bar(ax: Axes, x: Sequence[float], numbers: np.ndarray, **options: Any) -> None:
    """A line of means with bars; ``numbers (3, n)``: mean, low and high."""
    middle, low, high = numbers
    ax.errorbar(x, middle, [middle - low, high - middle], capsize=2, elinewidth=1.0, **options)


def picture(
    out: Path,
    name: str,
    experiment: str,
    grid: tuple[int, int, float],
    fill: Callable[[Figure, list[Axes], Experiment, Outcome], None],
    **options: Any,
) -> list[Path]:
    """A figure of one experiment's outcome, or of its absence; ``grid``: rows, columns and height in inches."""
    shown = outcomes([experiment])
    with style.context():
        figure, axes = style.panels(*grid, **options)
        for e, outcome in shown:
            fill(figure, axes, e, outcome)
            figure.suptitle(run_of(outcome), fontsize=8)
            style.letter(axes)
        if not shown:
            for ax in axes:
                nothing(ax, [experiment])
        return style.save(figure, out, name)


def run_of(outcome: Outcome) -> str:
    """Which experiment is shown, and of which effort."""
    return f"{outcome.experiment}, {outcome.effort} effort, {len(outcome.seeds)} seeds"


def nothing(ax: Axes, names: Sequence[str]) -> None:
    """Say that there is no outcome to draw."""
    ax.text(
        0.5,
        0.5,
        "no outcome of full effort yet:\n" + "\n".join(names),
        ha="center",
        va="center",
        transform=ax.transAxes,
    )
    ax.set_axis_off()
