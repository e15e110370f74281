"""Does the signal in a parameter's gradient tell whether it leaves its noise–decay equilibrium in training?

Each point is one kind of parameter at the end of training: mean over layers and seeds of its gradient's squared
signal-to-noise ρ² over that of its crossover, ρ*², and how far it has moved over what noise alone would do, with its
95% interval.  Line: a constant signal.  Dotted: the crossover, and what a parameter has moved by there.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import bands, style
from scalevec_theory.crossover import departure, threshold_after
from scalevec_theory.schedules import SCHEDULES
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome

EXPERIMENT = "norms"
ARMS = {"adamw": "AdamW, λ = 1", "vector": "with row and column multipliers"}
NAMED = {"norm": "final norm", "head": "head"}
ABOVE, MOVED = "signal.above_", "signal.moved_"
KINDS = {
    "matrices": ("o", style.BLUE),
    "norm scales": ("s", style.VERMILLION),
    "multipliers": ("^", style.GREEN),
    "embedding, head": ("D", style.ORANGE),
}


def kind(role: str) -> str:
    if role.endswith(("_row", "_column", "_scalar")):
        return "multipliers"
    if role.endswith("norm"):
        return "norm scales"
    return "embedding, head" if role in ("embedding", "head") else "matrices"


def crossover(e: Experiment, arm: str) -> float:
    """ρ* at the end of a run."""
    run = e.run(arm, e.first_seed, "full")
    lr = run.lr * torch.from_numpy(SCHEDULES[run.schedule](run.steps, run.warmup))
    return float(threshold_after(lr, 1 - run.weight_decay * lr)[-1])


def scatter(ax: Axes, e: Experiment, outcome: Outcome, arm: str) -> None:
    """One arm's parameters, and where a constant signal would put them."""
    roles = [m.removeprefix(ABOVE) for m, arms in outcome.metrics.items() if m.startswith(ABOVE) and arms[arm]]
    above = {role: outcome.estimate(Contrast("", {arm: 1.0}, ABOVE + role)).value for role in roles}
    for name, (marker, color) in KINDS.items():
        if members := [role for role in roles if kind(role) == name]:
            asked = [Contrast("", {arm: 1.0}, MOVED + role, logarithm=True) for role in members]
            moved = np.array([bands.values(c, outcome.estimate(c)) for c in asked]).T
            x = [above[role] for role in members]
            bands.bar(ax, x, moved, linestyle="none", marker=marker, color=color, label=name)
            for role, place, height in zip(members, x, moved[0], strict=True):
                if role in NAMED:
                    style.label(ax, NAMED[role], place, height, 0, -9, ha="center", color=color)
    star = crossover(e, arm)
    line = torch.cat([torch.linspace(0, 1, 30), torch.logspace(0, math.log10(2 * max(10, *above.values())), 100)])
    ax.set_xscale("symlog", linthresh=1.0)
    ax.plot(line, departure(line.sqrt() * star, star).sqrt(), label="a constant signal", **style.PREDICTED)
    ax.axvline(1, **style.PLAIN)
    ax.axhline(float(departure(torch.tensor(star), star).sqrt()), **style.PLAIN)
    ax.set(yscale="log", xlabel="(ρ/ρ*)² of the gradient", title=f"{ARMS[arm]}: ρ* = {star:.2f}")


def fill(figure: Figure, axes: list[Axes], e: Experiment, outcome: Outcome) -> None:
    for ax, arm in zip(axes, ARMS, strict=True):
        scatter(ax, e, outcome, arm)
    axes[0].set_ylabel("moved, over noise alone")
    axes[0].set_yticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    axes[0].set_yticks([], minor=True)
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=5)


def draw(out: Path, seed: int = 0) -> list[Path]:
    return bands.picture(out, "measured-crossover", EXPERIMENT, (1, 2, 2.9), fill, sharey=True)


if __name__ == "__main__":
    style.main(draw)
