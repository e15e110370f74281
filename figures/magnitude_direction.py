"""v = β α/rms(α) learns its overall scale d times faster than its direction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory import operators
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import Parametrization, magnitude_direction_scale

SCALE_ALONE = Parametrization(
    "magnitude-direction alone",
    {"beta": "", "alpha": "d"},
    lambda beta, alpha: magnitude_direction_scale(beta, alpha)[..., None, :],
    lambda beta, alpha: {"|alpha|^2": (alpha * alpha).sum(-1)},
    theta_rows="",
)
FITTED = (4, 16, 64)
SIZES = (2, 4, 8, 16, 32, 64)


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """``eigenvalues`` (len(SIZES), 2): the smallest and largest of J Jᵀ on v at α = 1, β = 1, by differentiation.

    ``t`` (S,), and for each d = D in `FITTED` along gradient flow of ½‖v − v*‖²: ``scale D`` and ``direction D`` (S,),
    the parts of v − v* along v and across it, relative to the start.
    """
    rng = np.random.default_rng(seed)
    data = {}
    extremes = []
    for d in SIZES:
        one = {"beta": torch.ones(1, dtype=torch.float64), "alpha": torch.ones(1, d, dtype=torch.float64)}
        spectrum = torch.linalg.eigvalsh(operators.matrix(SCALE_ALONE, one))[0]
        extremes.append([float(spectrum[0]), float(spectrum[-1])])
    data["eigenvalues"] = np.array(extremes)
    for d in FITTED:
        target = 1.0 + 0.3 * rng.standard_normal(d)
        target *= 1.3 * np.sqrt(d) / np.linalg.norm(target)
        loss = LeastSquares(torch.eye(d, dtype=torch.float64)[None], torch.from_numpy(target)[None, None])
        start = {"beta": torch.ones(1, dtype=torch.float64), "alpha": torch.ones(1, d, dtype=torch.float64)}
        times = torch.cat([torch.zeros(1, dtype=torch.float64), torch.logspace(-3, 1, 81, dtype=torch.float64)])
        v = gradient_flow(SCALE_ALONE, loss, start, times, rtol=1e-9, atol=1e-9).theta[0, :, 0].numpy()
        n = v / np.linalg.norm(v, axis=1, keepdims=True)
        along = ((v - target) * n).sum(1)
        across = np.linalg.norm(v - target - along[:, None] * n, axis=1)
        data |= {"t": times.numpy(), f"scale {d}": np.abs(along / along[0]), f"direction {d}": across / across[0]}
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    d = np.array(SIZES)
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.7)
        left.plot(d, d, **style.PREDICTED)
        left.plot(d, np.ones(len(d)), **style.PREDICTED)
        left.plot(d, data["eigenvalues"][:, 1], "o", color=style.VERMILLION, markerfacecolor="white")
        left.plot(d, data["eigenvalues"][:, 0], "s", color=style.BLUE, markerfacecolor="white")
        left.set(xscale="log", yscale="log", xlabel="width $d$", ylabel="eigenvalues of $JJ^\\top$ on $v$")
        left.set(title="operator at α = 1, β = 1", ylim=(0.5, 100), xticks=d, xticklabels=[str(k) for k in d])
        left.minorticks_off()
        style.label(left, "overall scale: $d$", 16, 16, -6, 6, ha="right", color=style.VERMILLION)
        style.label(left, "direction: 1", 16, 1, 0, 8, color=style.BLUE)
        t = data["t"][1:]
        for size, width, height in zip(FITTED, (0.8, 1.4, 2.0), (0.6, 0.4, 0.2), strict=True):
            right.plot(t, data[f"scale {size}"][1:], color=style.VERMILLION, linewidth=width)
            right.plot(t, data[f"direction {size}"][1:], color=style.BLUE, linewidth=width, dashes=(5, 1.5))
            at = np.interp(-height, -data[f"scale {size}"][1:], t)
            style.label(right, f"$d={size}$", at, height, -5, ha="right", color=style.VERMILLION)
        style.label(right, "direction,\neach $d$", 0.7, 0.55, 4, 0, color=style.BLUE)
        right.set(
            xscale="log",
            xlabel="time $t$",
            ylabel="remaining error / initial",
            title="overall scale and direction of $v$",
            ylim=(0, 1.05),
        )
        style.letter([left, right])
        return style.save(figure, out, "magnitude-direction")


if __name__ == "__main__":
    style.main(draw)
