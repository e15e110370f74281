"""Q = v² − ‖w‖² on single paths: without randomness under minibatch noise, a random walk under independent noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import Isotropic, Minibatch, ensemble
from scalevec_theory.parametrizations import INPUT_SCALE

SIGMA, END, PATHS = 0.5, 20.0, 8
TIMES = np.linspace(0, END, 200)
OUTPUTS = (1, 2, 4, 8)


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Q of `PATHS` paths for c = 1 under both noises, and E‖w‖²/E[v²] over time for several c."""
    data = {}

    def follow(c: int, noise: Isotropic | Minibatch, problems: int, paths: int) -> dict[str, np.ndarray]:
        T = torch.full((problems, c, 1), c**-0.5, dtype=torch.float64)
        run = ensemble(
            INPUT_SCALE,
            LeastSquares(torch.ones(problems, 1, 1, dtype=torch.float64), T),
            {"v": torch.full((problems, 1), 1.5, dtype=torch.float64), "W": 0.5 * T},
            noise,
            TIMES.tolist(),
            dt=2e-3,
            paths=paths,
            seed=seed,
            observe={"p": lambda v, W: v.square()[..., 0], "q": lambda v, W: W.square().sum((-2, -1))},
        )
        return {name: x.numpy() for name, x in run.mean.items()}

    for name, noise in (("minibatch", Minibatch(SIGMA)), ("isotropic", Isotropic(SIGMA))):
        run = follow(1, noise, PATHS, 1)
        data[name] = run["p"] - run["q"]
    for c in OUTPUTS:
        run = follow(c, Minibatch(SIGMA), 1, 512)
        data[f"ratio {c}"] = run["q"][0] / run["p"][0]
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.6)
        left.plot(TIMES, data["isotropic"].T, color=style.VERMILLION, linewidth=0.6)
        left.plot(TIMES, data["minibatch"].T, color=style.BLUE, linewidth=1.2)
        left.plot(TIMES, 2 * np.exp(-(SIGMA**2) * TIMES), **{**style.PREDICTED, "linestyle": (0, (2, 2))})
        left.set(
            xticks=(0, 5, 10, 15, 20),
            xlabel="time $t$",
            ylabel="$Q = v^2 - \\Vert w\\Vert^2$",
            title=f"{PATHS} paths each, $c = 1$",
            ylim=(-9, 19),
        )
        left.text(
            0.97, 0.95, "independent noise", color=style.VERMILLION, ha="right", va="top", transform=left.transAxes
        )
        left.text(
            0.97, 0.05, "minibatch noise (all paths), and $Q(0)\\,e^{-\\sigma^2 t}$ (dashed)", color=style.BLUE,
            ha="right", transform=left.transAxes,
        )  # fmt: skip
        for c, colour in zip(OUTPUTS, (style.BLACK, style.BLUE, style.GREEN, style.ORANGE), strict=True):
            right.plot(TIMES, data[f"ratio {c}"], color=colour)
            right.plot([0, END], [c, c], color=colour, linewidth=0.6, linestyle=(0, (2, 2)))
            style.label(right, f"$c = {c}$", END, c, color=colour)
        right.set(yscale="log", xlim=(0, 1.18 * END), xlabel="time $t$", title="minibatch noise: balance")
        right.set(ylabel="E$\\Vert w\\Vert^2\\,/\\,$E$[v^2]$", yticks=OUTPUTS)
        right.set_yticklabels([str(c) for c in OUTPUTS])
        right.minorticks_off()
        style.letter([left, right])
        return style.save(figure, out, "law-of-balance")


if __name__ == "__main__":
    style.main(draw)
