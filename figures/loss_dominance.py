"""A scale vector speeds the loss up where inputs are uncorrelated and W(0) = 0; it can lose where either is dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes

from figures import style
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN

MODELS = {"no scale": PLAIN, "input scale": INPUT_SCALE, "dual scale": DUAL_SCALE}
STYLES = {"no scale": style.PLAIN, "input scale": style.SINGLE, "dual scale": style.DUAL}


def _losses(H: np.ndarray, T: np.ndarray, W0: np.ndarray, times: np.ndarray) -> dict[str, np.ndarray]:
    """L(t)/L(0) of every model for one problem."""
    loss = LeastSquares(torch.from_numpy(H)[None], torch.from_numpy(T)[None])
    t, start = torch.from_numpy(times), torch.from_numpy(W0)[None]
    runs = {name: gradient_flow(p, loss, p.init(start), t, rtol=1e-8, atol=1e-10) for name, p in MODELS.items()}
    return {"t": times} | {name: (run.loss[0] / run.loss[0, 0]).numpy() for name, run in runs.items()}


def compute(seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """Times and L/L(0) of each model, for one problem of each kind; the last two are the published counterexamples."""
    rng = np.random.default_rng(seed)
    T = rng.standard_normal((3, 4))
    H = np.diag(rng.uniform(0.3, 1.5, 4))
    return {
        "uncorrelated": _losses(H, T, np.zeros_like(T), np.linspace(0, 6, 121)),
        "correlated": _losses(
            np.array([[4.0, 1.0], [1.0, 0.3]]), np.array([[0.2, 2.0]]), np.zeros((1, 2)), np.linspace(0, 3, 151)
        ),
        "large W(0)": _losses(np.eye(1), np.zeros((1, 1)), np.ones((1, 1)), np.linspace(0, 8, 121)),
    }


def _curves(ax: Axes, data: dict[str, np.ndarray]) -> None:
    for name, look in STYLES.items():
        ax.plot(data["t"], data[name], **look)
    ax.set(xlabel="time $t$", yscale="log")


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, axes = style.panels(1, 3, 2.7)
        first, second, third = axes
        for ax, curves in zip(axes, data.values(), strict=True):
            _curves(ax, curves)
        first_t = data["uncorrelated"]["t"]
        first.set(title="uncorrelated: ahead", ylabel="loss $L(t)/L(0)$", ylim=(1e-5, 1.5))
        style.label(first, "no scale", 6, 9e-3, 0, 8, ha="right", color=style.GREY)
        style.label(
            first, "input", 4.2, np.interp(4.2, first_t, data["uncorrelated"]["input scale"]), 4, 4, color=style.BLUE
        )
        style.label(
            first,
            "dual",
            2.6,
            np.interp(2.6, first_t, data["uncorrelated"]["dual scale"]),
            -6,
            -4,
            ha="right",
            color=style.VERMILLION,
        )
        second.set(title="correlated: behind for a while", ylim=(2e-4, 1.5))
        third.set(title="large $W(0)$: behind", ylim=(1e-5, 1.5))

        gap = second.inset_axes((0.2, 0.13, 0.5, 0.33))
        curves = data["correlated"]
        lead = 1e3 * (curves["no scale"] - curves["input scale"])
        gap.plot(curves["t"], lead, **style.SINGLE)
        gap.axhline(0, color=style.BLACK, linewidth=0.6)
        gap.fill_between(curves["t"], lead, 0, where=lead < 0, color=style.BLUE, alpha=0.25, linewidth=0)
        gap.set(ylim=(-3, 3), xlim=(0.6, 2.2), xticks=(1, 2))
        gap.set_title("$(L_{\\rm no}-L_{\\rm input})/L(0)$, ‰", fontsize=7)
        gap.tick_params(labelsize=7)
        style.letter(axes)
        return style.save(figure, out, "loss-dominance")


if __name__ == "__main__":
    style.main(draw)
