"""Weight decay on W only pumps scale into v: without end in the flow, to a point of rest under AdamW and Muon."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.pumping import Column
from scalevec_theory.stochastic_descent import stochastic_descent
from scalevec_theory.theorems.decay_pumping import (
    DECAY_MUON,
    DECAY_V_MUON,
    DECAY_W_MUON,
    NO_DECAY_MUON,
    measured_over_law,
)

DECAYS = (0.003, 0.01, 0.03)
LAMBDA_T = np.geomspace(0.03, 30, 60)
OUTPUTS = (1, 4, 16)
RATE, DECAY, STEPS = 0.02, 0.1, 2000
SAVED = np.unique(np.linspace(0, STEPS, 31).astype(int))[1:]
MUON = {"none": NO_DECAY_MUON, "$v$": DECAY_V_MUON, "$W$": DECAY_W_MUON, "both": DECAY_MUON}
GROUP = 2
"""Paths of each of the groups that Muon's mean is taken over."""


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """v² in the flow for each decay, over λt; E[v²] under AdamW for each c, and under Muon for each decay, by the law
    and measured."""
    lam = torch.tensor(DECAYS, dtype=torch.float64)
    T = torch.ones(len(lam), 1, 1, dtype=torch.float64)
    loss = LeastSquares(T / lam[:, None, None], T)
    start = INPUT_SCALE.init(torch.zeros_like(T))
    run = gradient_flow(INPUT_SCALE, loss, start, LAMBDA_T.tolist(), rtol=1e-7, atol=1e-7, weight_decay={"W": 1.0})
    data = {"flow": run.blocks["v"][..., 0].square().numpy()}
    for c in OUTPUTS:
        target = torch.full((1, c, 1), c**-0.5, dtype=torch.float64)
        measured = stochastic_descent(
            INPUT_SCALE,
            LeastSquares(torch.ones(1, 1, 1, dtype=torch.float64), target),
            {"v": target.new_ones(1, 1), "W": target.clone()},
            SAVED.tolist(),
            label_noise=2.0,
            batch=4,
            optimizer="adamw",
            step=RATE,
            paths=32,
            seed=seed,
            observe={"p": lambda v, W: v.square()[..., 0]},
            weight_decay={"W": DECAY},
        )
        data[f"adamw {c}"] = measured.mean["p"][0].numpy()
        data[f"law {c}"] = Column(1.0, c, RATE, 0.0, DECAY, sigma=1.0).after(SAVED, v0=1.0)[0] ** 2
    for name, column in MUON.items():
        data[f"law {name}"] = column.after(SAVED, 1.0)[0] ** 2
        ratio = measured_over_law(column, tuple(SAVED.tolist()), 1.0, GROUP, seed, "muon")[:, 0]
        data[f"muon {name}"] = ratio.mean(0).numpy() * data[f"law {name}"]
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (left, middle, right) = style.panels(1, 3, 2.6)
        for lam, v2, colour in zip(DECAYS, data["flow"], (style.BLUE, style.GREEN, style.ORANGE), strict=True):
            left.plot(LAMBDA_T, v2, color=colour, label=f"$\\lambda = {lam:g}$")
        left.plot(
            LAMBDA_T,
            2 * np.sqrt(LAMBDA_T),
            **{**style.PREDICTED, "linestyle": (0, (2, 2))},
            label="$2R\\sqrt{\\lambda t}$",
        )
        left.set(xscale="log", yscale="log", xlabel="$\\lambda t$", ylabel="$v^2$", title="gradient flow, $R = 1$")
        left.legend(loc="upper left")
        colours = (style.BLACK, style.BLUE, style.VERMILLION, style.GREEN)
        adamw = {f"adamw {c}": (f"law {c}", f"$c = {c}$") for c in OUTPUTS}
        muon = {f"muon {name}": (f"law {name}", name) for name in MUON}
        for axes, lines in ((middle, adamw), (right, muon)):
            for (name, (law, label)), colour in zip(lines.items(), colours, strict=False):
                axes.plot(SAVED, data[law], color=colour, linewidth=0.9)
                axes.plot(SAVED[::2], data[name][::2], "o", color=colour, markersize=3, markerfacecolor="white")
                style.label(axes, label, STEPS, data[law][-1], color=colour)
        middle.set(xlim=(0, 1.2 * STEPS), xlabel="steps", ylabel="E$[v^2]$")
        middle.set(title=f"AdamW, $\\eta = {RATE:g}$, $\\lambda_W = {DECAY:g}$")
        right.set(xlim=(0, 1.2 * STEPS), xlabel="steps, $\\eta = 0.002$", ylabel="E$[v^2]$")
        right.set(title="Muon, $c = 16$, decay 0.1 on")
        style.letter([left, middle, right])
        return style.save(figure, out, "decay-pumping")


if __name__ == "__main__":
    style.main(draw)
