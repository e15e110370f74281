"""Final losses of the standard and of the unified design against compute, and the law through the standard one's.

Means over seeds with 95% intervals.  The compute multiplier is the compute at which the law has the unified design's
losses, over that of the unified design.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from figures import bands, style
from simulations.lm.contrast import Contrast
from simulations.lm.experiment import Experiment, Outcome
from simulations.lm.scaling import compute_multiplier

SHOWN = ("scaling",)


def scaling(ax: Axes, e: Experiment, outcome: Outcome) -> None:
    """The law over the span of the compute, and both designs."""
    assert e.scaling is not None
    found = compute_multiplier(e, outcome)
    x = np.geomspace(found.compute[0] / 1.3, found.compute[-1] * 1.3, 100)
    ax.plot(x, found.law(x), color=style.GREY, linestyle=(0, (4, 2)), label=f"law, exponent {found.exponent:.2f}")
    for arms, label, look in (
        (e.scaling.base, "standard", {"color": style.BLUE, "marker": "o"}),
        (e.scaling.improved, "unified", {"color": style.VERMILLION, "marker": "s"}),
    ):
        contrasts = [Contrast("", {arm: 1.0}) for arm in arms]
        bands.bar(
            ax,
            found.compute.tolist(),
            np.array([bands.values(c, outcome.estimate(c)) for c in contrasts]).T,
            label=label,
            **look,
        )
    ax.set(xscale="log", yscale="log", xlabel="compute, floating-point operations", ylabel="held-out loss, nats/token")
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    paper = "" if e.scaling.paper is None else f"\nthe paper's, at its scale: {e.scaling.paper:g}"
    ax.set_title(f"compute multiplier {found.value:.2f} ({found.low:.2f} to {found.high:.2f}){paper}")
    ax.legend()


def draw(out: Path, seed: int = 0) -> list[Path]:
    shown = bands.outcomes(SHOWN)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.8, style.COLUMN)
        if shown:
            scaling(ax, *shown[0])
        else:
            bands.nothing(ax, SHOWN)
        return style.save(figure, out, "scaling-law")


if __name__ == "__main__":
    style.main(draw)
