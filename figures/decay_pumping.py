"""Weight decay on W only pumps scale into v: without end in the flow, to a point of rest under AdamW.

Under Muon the scale of W and v is shown for every choice of what decays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.pumping import Column
from scalevec_theory.theorems.decay_pumping import (
    DECAY_MUON,
    DECAY_V_MUON,
    DECAY_W_MUON,
    NO_DECAY_MUON,
    measured_over_law,
)

DECAYS = (0.003, 0.01, 0.03)
LAMBDA_T = np.geomspace(0.03, 30, 60)
STEPS = 2000
SAVED = np.unique(np.linspace(0, STEPS, 31).astype(int))[1:]
ADAMW = {f"$c = {c}$": Column(1.0, c, 0.02, 0.0, 0.1, sigma=1.0) for c in (1, 4, 16)}
MUON = {"none": NO_DECAY_MUON, "$v$": DECAY_V_MUON, "$W$": DECAY_W_MUON, "both": DECAY_MUON}
GROUP = 2
"""Paths of each of the groups that a mean is taken over."""


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """v² in the flow for each decay, over λt; E[v²] under AdamW for each c, and under Muon for each decay, by the law
    and measured."""
    lam = torch.tensor(DECAYS, dtype=torch.float64)
    T = torch.ones(len(lam), 1, 1, dtype=torch.float64)
    loss = LeastSquares(T / lam[:, None, None], T)
    start = INPUT_SCALE.init(torch.zeros_like(T))
    run = gradient_flow(INPUT_SCALE, loss, start, LAMBDA_T.tolist(), rtol=1e-7, atol=1e-7, weight_decay={"W": 1.0})
    data = {"flow": run.blocks["v"][..., 0].square().numpy()}
    for optimizer, columns in (("adamw", ADAMW), ("muon", MUON)):
        for name, column in columns.items():
            law = column.after(SAVED, 1.0)[0] ** 2
            ratio = measured_over_law(column, tuple(SAVED.tolist()), 1.0, GROUP, seed, optimizer)[:, 0].mean(0).numpy()
            data |= {f"{optimizer} law {name}": law, f"{optimizer} {name}": ratio * law}
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
        for axes, optimizer, columns in ((middle, "adamw", ADAMW), (right, "muon", MUON)):
            for name, colour in zip(columns, colours, strict=False):
                law, measured = data[f"{optimizer} law {name}"], data[f"{optimizer} {name}"]
                axes.plot(SAVED, law, color=colour, linewidth=0.9)
                axes.plot(SAVED[::2], measured[::2], "o", color=colour, markersize=3, markerfacecolor="white")
                style.label(axes, name, STEPS, law[-1], color=colour)
        one, both = next(iter(ADAMW.values())), DECAY_MUON
        middle.set(title=f"AdamW, $\\eta = {one.lr:g}$, $\\lambda_W = {one.decay_W:g}$")
        middle.set(xlim=(0, 1.2 * STEPS), xlabel="steps (lines: law)", ylabel="E$[v^2]$")
        right.set(title=f"Muon, $c = {both.c}$, decay {both.decay_W:g} on")
        right.set(xlim=(0, 1.2 * STEPS), xlabel=f"steps, $\\eta = {both.lr:g}$ (lines: law)", ylabel="E$[v^2]$")
        style.letter([left, middle, right])
        return style.save(figure, out, "decay-pumping")


if __name__ == "__main__":
    style.main(draw)
