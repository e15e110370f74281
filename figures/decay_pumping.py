"""Weight decay on W only pumps scale into v: without end in the flow, up to a point of rest under AdamW."""

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

DECAYS = (0.003, 0.01, 0.03)
LAMBDA_T = np.geomspace(0.03, 30, 60)
OUTPUTS = (1, 4, 16)
RATE, DECAY, STEPS = 0.02, 0.1, 2000
SAVED = np.unique(np.linspace(0, STEPS, 31).astype(int))[1:]


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """v² in the flow for each decay, over λt; and E[v²] under AdamW for each c, beside the law."""
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
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.6)
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
        for c, colour in zip(OUTPUTS, (style.BLACK, style.BLUE, style.VERMILLION), strict=True):
            right.plot(SAVED, data[f"law {c}"], color=colour, linewidth=0.9)
            right.plot(SAVED[::2], data[f"adamw {c}"][::2], "o", color=colour, markersize=3, markerfacecolor="white")
            style.label(right, f"$c = {c}$", STEPS, data[f"law {c}"][-1], color=colour)
        right.set(xlim=(0, 1.15 * STEPS), xlabel="steps", ylabel="E$[v^2]$")
        right.set_title(f"AdamW, $\\eta = {RATE:g}$, $\\lambda_W = {DECAY:g}$ (lines: law)")
        style.letter([left, right])
        return style.save(figure, out, "decay-pumping")


if __name__ == "__main__":
    style.main(draw)
