"""Parameters of small models along training, over what gradient noise and weight decay alone would make of them.

Matrices: their rms; norm scales and multipliers: the rms of their displacement, as both start at 1.  Geometric means
over parameters and seeds with 95% intervals; 1 is noise alone.  Last, how unlike the matrices are that read one norm's
scale, which is why each may want its own.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures import bands, style
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome

EXPERIMENT = "norms"
ARMS = {
    "adamw": "AdamW, λ = 1",
    "light-decay": "AdamW, λ = 0.1",
    "heavy-decay": "AdamW, λ = 5",
    "muon": "Muon, λ = 1",
    "vector": "AdamW, λ = 1, multipliers",
}
PANELS = {
    "abm.size": "Matrices: rms",
    "abm.scales": "Norm scales: displacement",
    "abm.multipliers": "Multipliers: displacement",
}
BRANCHES = {
    "branches.query_value": "query over value",
    "branches.key_value": "key over value",
    "branches.gate_up": "gate over up",
}


def fill(figure: Figure, axes: list[Axes], e: Experiment, outcome: Outcome) -> None:
    for ax, (metric, title) in zip(axes, PANELS.items(), strict=False):
        for k, (arm, label) in enumerate(ARMS.items()):
            if outcome.metrics[metric][arm]:
                steps, numbers = bands.course(outcome, Contrast("", {arm: 1.0}, metric, logarithm=True))
                bands.band(ax, steps, numbers, label=label, **bands.look(k))
        ax.axhline(1, **style.PREDICTED)
        ax.set(xlabel="step", ylabel="measured over noise alone", title=title, yscale="log", ylim=(0.5, 3.2))
    for k, (metric, label) in enumerate(BRANCHES.items()):
        steps, numbers = bands.course(outcome, Contrast("", {"adamw": 1.0}, metric, logarithm=True))
        bands.band(axes[-1], steps, numbers, label=label, **bands.look(k))
    axes[-1].axhline(1, color=style.BLACK, linewidth=0.8)
    title = f"{ARMS['adamw']}: matrices of one norm"
    axes[-1].set(xlabel="step", ylabel="ratio of rms", title=title, yscale="log", ylim=(0.5, 3.2))
    axes[-1].legend(loc="lower right")
    for ax in axes:
        ax.set_yticks([0.5, 1, 2, 3], ["0.5", "1", "2", "3"])
        ax.set_yticks([], minor=True)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


def draw(out: Path, seed: int = 0) -> list[Path]:
    return bands.picture(out, "measured-norms", EXPERIMENT, (2, 2, 5.2), fill)


if __name__ == "__main__":
    style.main(draw)
