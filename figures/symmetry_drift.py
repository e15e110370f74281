"""Drift along symmetry orbits: isotropic against minibatch noise, the spread that light decay leaves, growth of ‖c‖."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes

from figures import style
from scalevec_theory.symmetries import LIGHT_DECAY, norm_square, product_spread, simulate_direction, simulate_pair
from scalevec_theory.theorems.multiplicative_symmetry import DT, SIGMA, STIFFNESS
from scalevec_theory.theorems.normalisation_symmetry import DECAY, STEP, STRENGTH, N

TIME, SAVED = 8.0, 80
STEPS = 1500


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """½ ln(a/b) of four paths ``(SAVED, 4)`` by noise; E[x²]^½ by step size; ‖c‖² ``(STEPS + 1,)`` by decay."""
    generator = torch.Generator().manual_seed(seed)
    data = {}
    start = torch.tensor([[1.6, 1 / 1.6]], dtype=torch.float64).repeat(4, 1)
    n_steps = round(TIME / DT)
    for name, shared, decay in (("isotropic", False, 0.0), ("decay", False, 0.5), ("minibatch", True, 0.0)):
        paths = simulate_pair(
            start, 1.0, SIGMA, decay, shared=shared, stiffness=STIFFNESS, dt=DT, n_steps=n_steps,
            save_every=n_steps // SAVED, generator=generator,
        )  # fmt: skip
        data[name] = 0.5 * (paths[..., 0] / paths[..., 1]).abs().log().numpy()
    steps = np.logspace(-5, -1, 60)
    data["steps"] = steps
    data["spread"] = np.array([product_spread(1.0, eta**0.5, LIGHT_DECAY)[0] ** 0.5 for eta in steps])
    c = torch.randn(50, N, generator=generator, dtype=torch.float64)
    c = c / c.norm(dim=1, keepdim=True)
    for name, decay in (("norm", 0.0), ("norm-decay", DECAY)):
        data[name] = simulate_direction(c, 1.0, STEP, decay, STEPS, generator).mean(1).numpy()
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, axes = style.panels(1, 3, 2.4)
        _paths(axes[0], data)
        _spread(axes[1], data)
        _norm(axes[2], data)
        style.letter(axes)
        return style.save(figure, out, "symmetry-drift")


def _paths(ax: Axes, data: dict[str, np.ndarray]) -> None:
    t = np.linspace(0, TIME, SAVED + 1)
    for name, color, line in (
        ("isotropic", style.VERMILLION, (0, (5, 1.5))),
        ("decay", style.GREEN, (0, (1.2, 1.2))),
        ("minibatch", style.BLUE, "-"),
    ):
        x = np.vstack([np.full((1, 4), np.log(1.6)), data[name]])
        lines = ax.plot(t, x, color=color, linestyle=line, linewidth=1.0)
        lines[0].set_label({"isotropic": "isotropic", "decay": "isotropic, decay", "minibatch": "minibatch"}[name])
    ax.axhline(0, color=style.BLACK, linewidth=0.6)
    ax.legend(loc="lower left", borderaxespad=0)
    low = min(data[n].min() for n in ("isotropic", "decay", "minibatch"))
    ax.set(xlabel="time $t$", ylabel="$x = ½ \\ln(a/b)$", ylim=(low - 0.9, None))
    ax.set_title("four paths on $ab = 1$")


def _spread(ax: Axes, data: dict[str, np.ndarray]) -> None:
    ax.plot(data["steps"], data["spread"], **style.SINGLE)
    ax.plot(data["steps"], (data["steps"] / (8 * LIGHT_DECAY)) ** 0.5, **style.PREDICTED)
    style.label(ax, "$√(η/8λ)$", data["steps"][-12], (data["steps"][-12] / (8 * LIGHT_DECAY)) ** 0.5, -4, 4, ha="right")
    ax.set(xscale="log", yscale="log", xlabel="update size $η$", ylabel="rms of $x$")
    ax.set_title(f"spread left by decay {LIGHT_DECAY:g}")


def _norm(ax: Axes, data: dict[str, np.ndarray]) -> None:
    t = torch.arange(STEPS + 1)
    for name, decay, color, line in (
        ("norm", 0.0, style.VERMILLION, (0, (5, 1.5))),
        ("norm-decay", DECAY, style.GREEN, (0, (1.2, 1.2))),
    ):
        ax.plot(t, data[name], color=color, linestyle=line, linewidth=1.8)
        ax.plot(t, norm_square(t, 1.0, STRENGTH, STEP, decay), **style.PREDICTED)
        style.label(ax, "no decay" if decay == 0 else "decay", 900, data[name][900], 0, 9, color=color, ha="right")
    ax.set(xlabel="steps", ylabel="$‖c‖^2$", ylim=(0, None))
    ax.set_title("norm under $c → σc$")


if __name__ == "__main__":
    style.main(draw)
