"""The curvature of a small model along training, with and without weight decay on its norm scales.

Top eigenvalue of the Hessian on one batch, and the largest stable step of gradient descent from there; geometric means
over seeds with 95% intervals.  Right: the paired ratios, with decay over without.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import bands, style
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome

EXPERIMENT = "curvature"
ARMS = {"without": "scales do not decay", "with": "all scales decay"}
PANELS = {"sharpness.eigenvalue": "top eigenvalue", "sharpness.step": "largest stable step"}
TICKS = ((5, 10, 20, 40), (0.6, 0.7, 0.8, 0.9, 1), (0.25, 0.5, 1, 2))


def fill(figure: Figure, axes: list[Axes], e: Experiment, outcome: Outcome) -> None:
    for ax, (metric, label) in zip(axes, PANELS.items(), strict=False):
        for k, (arm, name) in enumerate(ARMS.items()):
            steps, numbers = bands.course(outcome, Contrast("", {arm: 1.0}, metric, logarithm=True))
            bands.band(ax, steps, numbers, label=name, marker="os"[k], **bands.look(k))
        ax.set(xlabel="step", ylabel=label, yscale="log", title=label.capitalize())
    for k, (metric, label) in enumerate(PANELS.items(), start=2):
        paired = Contrast("", {"with": 1.0, "without": -1.0}, metric, logarithm=True)
        bands.band(axes[-1], *bands.course(outcome, paired), label=label, marker="^D"[k - 2], **bands.look(k))
    axes[-1].axhline(1, color=style.BLACK, linewidth=0.8)
    axes[-1].set(xlabel="step", ylabel="with over without decay", yscale="log", title="Ratios")
    for ax, ticks in zip(axes, TICKS, strict=True):
        ax.set_yticks(ticks, [f"{x:g}" for x in ticks])
        ax.set_yticks([], minor=True)
    handles, labels = axes[0].get_legend_handles_labels()
    more = axes[-1].get_legend_handles_labels()
    figure.legend(handles + more[0], labels + more[1], loc="outside lower center", ncols=4)


def draw(out: Path, seed: int = 0) -> list[Path]:
    return bands.picture(out, "curvature-training", EXPERIMENT, (1, 3, 2.5), fill)


if __name__ == "__main__":
    style.main(draw)
