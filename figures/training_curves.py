"""Held-out losses along training, and their paired differences: means over seeds with 95% intervals.

The arms of an experiment share initial weights and data seed by seed, so that a difference is known far better than the
losses are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from figures import bands, style
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome

SHOWN = (
    "removal",
    "removal-own-lr",
    "iwd",
    "iwd-input",
    "long-horizon",
    "ladder",
    "short-ladder",
    "placement",
    "unified",
    "unified-moe",
    "multipliers",
    "multipliers-muon",
    "large",
)
HEIGHT = 2.1
"""Inches of one experiment's row."""


def compute(seed: int = 0) -> list[tuple[Experiment, Outcome]]:
    """The outcomes that come with the code, of experiments that ask about losses along training."""
    return bands.outcomes(SHOWN)


def losses(ax: Axes, e: Experiment, outcome: Outcome) -> None:
    """The loss of every arm that is part of a difference."""
    pairs = [c.pair for c in e.contrasts if c.pair is not None]
    shown = [arm for arm in e.arms if any(arm in pair for pair in pairs)]
    for k, arm in enumerate(shown):
        bands.band(ax, *bands.course(outcome, Contrast(arm, {arm: 1.0})), label=arm, **bands.look(k))
    ax.set(xlabel="step", ylabel="held-out loss, nats/token", title=bands.run_of(outcome))
    beside(ax)


def differences(ax: Axes, e: Experiment, outcome: Outcome) -> None:
    """Every difference of losses that is asked for, and the paper's at the end of its own training."""
    title = "differences"
    for k, contrast in enumerate(c for c in e.contrasts if c.pair is not None):
        steps, numbers = bands.course(outcome, contrast)
        label = textwrap.fill(contrast.formula, 24, break_on_hyphens=False)
        bands.band(ax, steps, numbers, label=label, **bands.look(k))
        if contrast.paper is not None:
            title = "differences (◆ the paper's)"
            ax.plot(
                steps[-1], contrast.paper, "D", color=bands.look(k)["color"], markeredgecolor="black", clip_on=False
            )
    ax.axhline(0, color=style.BLACK, linewidth=0.8)
    ax.set(xlabel="step", ylabel="difference, nats/token", title=title)
    beside(ax)


def beside(ax: Axes) -> None:
    """A legend to the right of a panel."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=6.5, handlelength=2.0, labelspacing=0.2)


def picture(out: Path, name: str, shown: Sequence[tuple[Experiment, Outcome]]) -> list[Path]:
    """One row for each experiment."""
    with style.context():
        figure, axes = style.panels(max(len(shown), 1), 2, HEIGHT * max(len(shown), 1))
        if not shown:
            for ax in axes:
                bands.nothing(ax, SHOWN)
            return style.save(figure, out, name)
        for row, (e, outcome) in enumerate(shown):
            losses(axes[2 * row], e, outcome)
            differences(axes[2 * row + 1], e, outcome)
        style.letter(axes)
        return style.save(figure, out, name)


def draw(out: Path, seed: int = 0) -> list[Path]:
    return picture(out, "training-curves", compute(seed))


def draw_outcome(file: Path, e: Experiment, outcome: Outcome) -> list[Path]:
    """One experiment's row alone; writes ``file`` in SVG and PNG."""
    return picture(file.parent, file.stem, [(e, outcome)])


if __name__ == "__main__":
    style.main(draw)
