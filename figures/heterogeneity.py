"""One scale vector per branch against one shared by all branches, under gradient flow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.losses import LeastSquares
from scalevec_theory.problems import Diagonal, Field, PositiveDefinite
from scalevec_theory.theorems.heterogeneity import flows

PROBLEMS = 150
DIMS = {"b": 2, "c": 1, "d": 2}
INPUTS: dict[str, Field] = {"uncorrelated": Diagonal("dd", 0.3, 3.0), "correlated": PositiveDefinite("dd", high=10.0)}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Losses over L(0) ``(PROBLEMS, S)`` by kind of inputs, shared and separate, at ``tau`` (S,) in 1/λ_max(H)."""
    rng = np.random.default_rng(seed)
    tau = torch.linspace(0, 8, 161, dtype=torch.float64)
    data = {"tau": tau.numpy()}
    for name, field in INPUTS.items():
        H = torch.from_numpy(field.decode(rng.standard_normal((PROBLEMS, *field.latent_shape(DIMS))), DIMS))
        T = torch.from_numpy(1.5 * rng.standard_normal((PROBLEMS, *DIMS.values())))
        times = tau / torch.linalg.eigvalsh(H)[:, -1:]
        start = LeastSquares(H, T.flatten(1, 2)).value(torch.zeros_like(T.flatten(1, 2)))[:, None]
        shared, separate = (losses.sum(1) / start for losses in flows(H, T, times, 1e-9))
        data |= {f"{name} shared": shared.numpy(), f"{name} separate": separate.numpy()}
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    tau = data["tau"]
    with style.context():
        figure, axes = style.panels(1, 3, 2.7)
        curves, *gaps = axes
        separate, shared = (np.median(data[f"uncorrelated {name}"], 0) for name in ("separate", "shared"))
        curves.plot(tau, separate, **style.SINGLE)
        curves.plot(tau, shared, **style.DUAL)
        style.label(curves, "per branch", 2.5, np.interp(2.5, tau, separate), 5, 6, color=style.BLUE)
        style.label(curves, "shared", 2.2, np.interp(2.2, tau, shared), -6, -6, ha="right", color=style.VERMILLION)
        curves.set(yscale="log", xlim=(0, 5), ylim=(1e-4, 1.5), ylabel="loss $L/L(0)$", title="uncorrelated, median")
        for ax, name in zip(gaps, INPUTS, strict=True):
            gap = 100 * (data[f"{name} separate"] - data[f"{name} shared"])
            ahead = gap.min(1) < -1e-4
            ax.plot(tau, gap[~ahead].T, color=style.GREY, linewidth=0.4, alpha=0.6)
            ax.plot(tau, gap[ahead].T, color=style.BLUE, linewidth=0.7)
            ax.axhline(0, color=style.BLACK, linewidth=0.8)
            text = f"per branch ever\nahead: {ahead.sum()} of {PROBLEMS}"
            ax.text(0.97, 0.95, text, ha="right", va="top", transform=ax.transAxes, color=style.BLUE)
            ax.set(title=name)
        gaps[0].set(ylabel="$(L_{\\rm branch}-L_{\\rm shared})/L(0)$, %")
        for ax in axes:
            ax.set(xlabel="time $t\\,\\lambda_{\\max}(H)$")
        style.letter(axes)
        return style.save(figure, out, "heterogeneity")


if __name__ == "__main__":
    style.main(draw)
