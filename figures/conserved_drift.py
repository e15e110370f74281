"""The quantity that gradient flow conserves, in real training without decay: its drift, and the drift's share.

Left: the rms over channels of Q(t) − Q(0), against learning rate times step.  Right: that over the rms of the change of
the scale's own part; below the dotted line the quantity counts as conserved.  Means over seeds with 95% intervals.
"""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import bands, style
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome

EXPERIMENT = "conserved"
STEPS = ("sgd-half-lr", "sgd", "sgd-double-lr")
RULES = {"sgd-half-lr": "SGD", "momentum": "momentum", "adamw": "AdamW"}


def fill(figure: Figure, axes: list[Axes], e: Experiment, outcome: Outcome) -> None:
    drift, share = axes
    for k, arm in enumerate(STEPS):
        lr = e.arms[arm].get("lr", e.settings["lr"])
        steps, numbers = bands.course(outcome, Contrast("", {arm: 1.0}, "conserved.drift", logarithm=True))
        bands.band(drift, lr * steps, numbers, label=f"η = {lr:g}", marker="o", **bands.look(k))
    for k, (arm, label) in enumerate(RULES.items()):
        lr = e.arms[arm].get("lr", e.settings["lr"])
        steps, numbers = bands.course(outcome, Contrast("", {arm: 1.0}, "conserved.share", logarithm=True))
        label = f"{label}, η = {lr:g}"
        bands.band(share, steps / steps[-1], numbers, label=label, marker="o", **bands.look(k + 3))
    asked = next(c for c in e.contrasts if c.name == "sgd-share").within[1]
    share.axhline(math.exp(asked), **style.PLAIN)
    drift.set(xlabel="learning rate × step", ylabel="rms of Q(t) − Q(0)", yscale="log", title="SGD: drift")
    share.set(
        xlabel="share of training", ylabel="drift over the scale's change", yscale="log", title="Against what moved"
    )
    for ax in axes:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw(out: Path, seed: int = 0) -> list[Path]:
    return bands.picture(out, "conserved-drift", EXPERIMENT, (1, 2, 2.6), fill)


if __name__ == "__main__":
    style.main(draw)
