"""What the sub-modules of a small model add to its stream over depth, with and without learned multipliers.

Rms of a sub-module's output on held-out text at the end of training, geometric means over seeds with 95% intervals.
Right: how unlike these are (standard deviation of their logarithm), along training.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import bands, style
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome

EXPERIMENT = "diversity"
ARMS = {"none": "no multiplier", "scalar": "scalar", "vector": "rows and columns"}
MARKERS = ("o", "s", "^")
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5)
SUBMODULES = {"attention": "Attention", "feed_forward": "Feed-forward"}


def fill(figure: Figure, axes: list[Axes], e: Experiment, outcome: Outcome) -> None:
    layers = range(e.run("none", e.first_seed, "full").architecture.layers)
    for k, (arm, label) in enumerate(ARMS.items()):
        for ax, (name, title) in zip(axes, SUBMODULES.items(), strict=False):
            asked = [Contrast("", {arm: 1.0}, f"diversity.{name}_{n}", logarithm=True) for n in layers]
            numbers = np.array([bands.values(c, outcome.estimate(c)) for c in asked]).T
            places = [n + 1 + 0.08 * (k - 1) for n in layers]
            bands.bar(ax, places, numbers, label=label, marker=MARKERS[k], **bands.look(k))
            ax.set(xlabel="layer", title=title, yscale="log", ylim=(0.02, 0.6))
            ax.set_xticks([n + 1 for n in layers])
            ax.set_yticks(TICKS, [f"{x:g}" for x in TICKS])
            ax.set_yticks([], minor=True)
        steps, numbers = bands.course(outcome, Contrast("", {arm: 1.0}, "diversity.blocks", logarithm=True))
        bands.band(axes[-1], steps, numbers, marker=MARKERS[k], **bands.look(k))
    axes[0].set_ylabel("rms of what is added")
    axes[-1].set(xlabel="step", ylabel="sd of the logarithm", title="Over all sub-modules")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def draw(out: Path, seed: int = 0) -> list[Path]:
    return bands.picture(out, "block-outputs", EXPERIMENT, (1, 3, 2.5), fill)


if __name__ == "__main__":
    style.main(draw)
