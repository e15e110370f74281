"""What it costs to force the size √(η/λ) of some matrices over three decades, with and without learned multipliers.

Final held-out losses, means over seeds with 95% intervals; one panel for each experiment.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from figures import bands, style
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome
from simulations.lm.mechanisms import FAR, MLP

SHOWN = {"projector": "Head, AdamW", "mlp": "Feed-forward, AdamW", "mlp-muon": "Feed-forward, Muon"}
LOOKS: Mapping[str, Mapping[str, Any]] = {
    "none": {**style.PLAIN, "marker": "o", "label": "no multiplier"},
    "scalar": {**style.SINGLE, "marker": "s", "label": "scalar"},
    "vector": {**style.DUAL, "marker": "^", "label": "vector"},
}


def compute(seed: int = 0) -> list[tuple[Experiment, Outcome]]:
    """The outcomes that come with the code."""
    return bands.outcomes(list(SHOWN))


def sweep(ax: Axes, outcome: Outcome) -> None:
    """The final loss of every variant against the factor on its equilibrium size."""
    for shift, variant in zip((0.85, 1.0, 1.18), MLP, strict=True):
        contrasts = [Contrast("", {f"{variant}-{place}": 1.0}) for place in FAR]
        numbers = np.array([bands.values(c, outcome.estimate(c)) for c in contrasts]).T
        bands.bar(ax, [shift * factor for factor in FAR.values()], numbers, **LOOKS[variant])
    name, _, rest = bands.run_of(outcome).partition(", ")
    ax.set(xscale="log", xlabel="factor on √(η/λ)", title=f"{SHOWN[name]}\n{name}, {rest}")


def draw(out: Path, seed: int = 0) -> list[Path]:
    shown = compute(seed)
    with style.context():
        figure, axes = style.panels(1, max(len(shown), 1), 2.7)
        if not shown:
            bands.nothing(axes[0], list(SHOWN))
            return style.save(figure, out, "size-sweeps")
        for ax, (_, outcome) in zip(axes, shown, strict=True):
            sweep(ax, outcome)
        axes[0].set_ylabel("held-out loss, nats/token")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        style.letter(axes)
        return style.save(figure, out, "size-sweeps")


if __name__ == "__main__":
    style.main(draw)
