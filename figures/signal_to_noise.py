"""What a multiplier gains by summing entries, and the signal-to-noise at which a parameter follows the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes

from figures import style
from scalevec_theory.check import generator
from scalevec_theory.claim import Setting
from scalevec_theory.crossover import departure, simulate, threshold, well
from scalevec_theory.multipliers import equilibrium_rms, snr_gain
from scalevec_theory.theorems.noise_crossover import DECAY, STEP, adamw, mirrored, pairs

RATIOS = np.logspace(-1, 3, 13)
"""ρ/ρ* of the simulations."""

CURVATURES = np.logspace(-1.5, 2, 11)
"""h/(σλ) of the simulations."""


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Gains ``gain-*`` (N,) at sizes ``n``; E[w²]/(η/2λ) of runs at ρ/ρ* `RATIOS`; means of w in wells."""
    n = torch.logspace(0, 5, 100, dtype=torch.float64)
    setting = Setting("quick", seed, generator(seed, "figure:signal-to-noise"))
    rho = torch.from_numpy(RATIOS)[:, None] * threshold(STEP, DECAY)
    noise = equilibrium_rms(STEP, DECAY) ** 2
    start = (rho / (1 + rho**2).sqrt() / DECAY).expand(-1, 100)
    _, square = simulate(adamw(STEP, DECAY), lambda w: mirrored(setting.rng, 1, 50) - rho, start, 1500, 2000)
    h, one = torch.from_numpy(CURVATURES)[:, None] * DECAY, torch.ones((), dtype=torch.float64)
    expected = well(h, one, one, STEP, DECAY).mean
    mean, _ = simulate(
        adamw(STEP, DECAY), lambda w: h * (w - 1) + mirrored(setting.rng, 1, 50), expected.expand(-1, 100), 300, 1500
    )
    fine = torch.logspace(-1.5, 2, 100, dtype=torch.float64)
    return {
        "n": n.numpy(),
        "gain-aligned": snr_gain(n, 1.0).numpy(),
        "gain-correlated-0.001": snr_gain(n, 1.0, 1e-3).numpy(),
        "gain-correlated-0.1": snr_gain(n, 1.0, 0.1).numpy(),
        "gain-unaligned": snr_gain(n, (2 / (np.pi * n)).sqrt().clamp(max=1.0)).numpy(),
        "departure": pairs(square).mean(0).numpy() / noise,
        "well": pairs(mean).mean(0).numpy(),
        "curvature": fine.numpy(),
        "well-formula": well(fine * DECAY, one, one, STEP, DECAY).mean.numpy(),
    }


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, axes = style.panels(1, 3, 2.4)
        _gain(axes[0], data)
        _departure(axes[1], data)
        _well(axes[2], data)
        style.letter(axes)
        return style.save(figure, out, "signal-to-noise")


def _gain(ax: Axes, data: dict[str, np.ndarray]) -> None:
    looks = {
        "gain-aligned": ("independent, $√n$", style.BLUE, "-"),
        "gain-correlated-0.001": ("0.001", style.GREEN, (0, (6, 1.5, 1, 1.5))),
        "gain-correlated-0.1": ("correlation 0.1", style.ORANGE, (0, (5, 1.5))),
        "gain-unaligned": ("weights unaligned", style.GREY, (0, (1.2, 1.2))),
    }
    places = {"gain-aligned": (1e4, -8, 3), "gain-correlated-0.001": (1e5, 0, -9), "gain-correlated-0.1": (1e5, 0, 7)}
    for name, (label, color, line) in looks.items():
        ax.plot(data["n"], data[name], color=color, linestyle=line)
        x, dx, dy = places.get(name, (1e5, 0, -8))
        style.label(ax, label, x, float(np.interp(x, data["n"], data[name])), dx, dy, color=color, ha="right")
    ax.set(xscale="log", yscale="log", xlabel="entries summed $n$", ylabel="gain in signal-to-noise", ylim=(0.3, 400))
    ax.set_title("a multiplier averages")


def _departure(ax: Axes, data: dict[str, np.ndarray]) -> None:
    ratio = np.logspace(-1, 3, 200)
    rho = torch.from_numpy(ratio) * threshold(STEP, DECAY)
    ax.plot(ratio, departure(rho, threshold(STEP, DECAY)), **style.PREDICTED)
    ax.plot(RATIOS, data["departure"], "o", color=style.BLUE)
    ax.axvline(1, color=style.GREY, linewidth=0.8, linestyle=":")
    style.label(ax, "$ρ = 1$", 1 / threshold(STEP, DECAY), 1.2, 4, 0, color=style.GREY)
    ax.axvline(1 / threshold(STEP, DECAY), color=style.GREY, linewidth=0.8, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel="signal-to-noise $ρ/ρ^*$", ylabel="$E[w^2]\\,/\\,(η/2λ)$")
    ax.set_title("leaving the noise equilibrium")


def _well(ax: Axes, data: dict[str, np.ndarray]) -> None:
    ax.plot(data["curvature"], data["well-formula"], **style.PREDICTED)
    ax.plot(CURVATURES, data["well"], "o", color=style.BLUE)
    ax.axvline(1, color=style.GREY, linewidth=0.8, linestyle=":")
    ax.set(xscale="log", xlabel="pull of data over decay $h/(σλ)$", ylabel="mean of $w/w^*$", ylim=(0, 1.05))
    ax.set_title("following the data")


if __name__ == "__main__":
    style.main(draw)
