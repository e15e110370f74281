"""Curvature under noise: which cells of the phase diagram grow, by theory and by simulation, and sample paths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from figures import style
from scalevec_theory import phase
from scalevec_theory.curvature import trace
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import ensemble
from scalevec_theory.parametrizations import INPUT_SCALE

SHOWN = {"isotropic": "independent noise", "minibatch": "minibatch noise"}
PATHS, SAMPLES, END = 16, 4, 64.0
NAMES = {"none": "nothing", "v": "v", "W": "W", "both": "both"}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Slope and standard error of every cell ``(len(OUTPUTS), len(DECAYS))``, and sample paths without decay, c = 2."""
    data = {}
    for noise in SHOWN:
        cells = [
            [phase.simulate(noise, c, d, paths=PATHS, seed=seed, end=END).growth for d in phase.DECAYS]
            for c in phase.OUTPUTS
        ]
        data[f"{noise} slope"] = np.array([[g.slope for g in row] for row in cells])
        data[f"{noise} undecided"] = np.array([[g.answer == "undecided" for g in row] for row in cells])
        times = np.linspace(0, END, 400)
        T = torch.full((SAMPLES, 2, 1), 0.5**0.5, dtype=torch.float64)
        H = torch.ones(SAMPLES, 1, 1, dtype=torch.float64)
        run = ensemble(
            INPUT_SCALE,
            LeastSquares(H, T),
            INPUT_SCALE.init(torch.zeros_like(T)),
            phase.NOISES[noise](phase.SIGMA),
            times.tolist(),
            dt=phase.DT[noise],
            paths=1,
            seed=seed,
            observe={"trace": lambda v, W, H=H: trace(v, W, H[:, None])},
        )
        data[f"{noise} paths"] = run.mean["trace"].numpy()
        data["times"] = times
    return data


def heat_map(ax: Axes, slope: np.ndarray, undecided: np.ndarray, noise: str) -> AxesImage:
    """Measured slopes as colours, theory as text, and a dot where the test did not decide."""
    image = ax.imshow(slope, cmap="cividis_r", vmin=0, vmax=1, aspect="auto")
    for i, c in enumerate(phase.OUTPUTS):
        for j, decays in enumerate(phase.DECAYS):
            text = phase.expected(noise, c, decays).replace("bounded", "–")
            ax.text(j, i, text, ha="center", va="center", color="white" if slope[i, j] > 0.5 else "black")
            if undecided[i, j]:
                ax.plot(j + 0.38, i - 0.3, "o", color=style.VERMILLION, markersize=3)
    ax.set(xticks=range(len(NAMES)), yticks=range(len(phase.OUTPUTS)), xlabel="what decays", ylabel="outputs $c$")
    ax.set_xticklabels(NAMES.values())
    ax.set_yticklabels([str(c) for c in phase.OUTPUTS])
    ax.set_title(SHOWN[noise])
    ax.grid(False)
    return image


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, axes = style.panels(1, 3, 2.9, gridspec_kw={"width_ratios": [1, 1, 1.05]})
        for ax, noise in zip(axes, SHOWN, strict=False):
            image = heat_map(ax, data[f"{noise} slope"], data[f"{noise} undecided"], noise)
        bar = figure.colorbar(image, ax=axes[:2], location="bottom", shrink=0.7, pad=0.03, aspect=30)
        bar.set_label(
            "measured slope of ln E[tr Hessian] against ln t\n"
            "(text: growth by theory, – is bounded; dot: the test did not decide)"
        )
        right = axes[2]
        for noise, look in (("isotropic", style.DUAL), ("minibatch", style.SINGLE)):
            right.plot(data["times"], data[f"{noise} paths"].T, **{**look, "linewidth": 0.7, "linestyle": "-"})
        right.set(
            yscale="log",
            xlabel="time $t$",
            ylabel="tr Hessian $= c\\,v^2 + \\Vert w\\Vert^2$",
            title="paths, $c = 2$, no decay",
        )
        right.text(
            0.97, 0.95, "independent noise", color=style.VERMILLION, ha="right", va="top", transform=right.transAxes
        )
        right.text(0.97, 0.04, "minibatch noise", color=style.BLUE, ha="right", transform=right.transAxes)
        style.letter(axes)
        return style.save(figure, out, "curvature")


if __name__ == "__main__":
    style.main(draw)
