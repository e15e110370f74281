"""Dual-norm placement is q/k-norm head by head, and its output does not depend on the size of W."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from figures.strips import errors_of_claim, strips
from scalevec_theory.theorems.dual_norm_placement import claim, dual_norm

ROWS = {
    "equals-qk-norm": "per head = q/k-norm",
    "scale-invariance": "W → sW, ε = 0",
    "orthogonal-gradient": "⟨W, ∂L/∂W⟩ = 0",
    "epsilon": "W → sW, ε = 10⁻⁶",
    "all-heads-at-once": "per head = all heads",
}
EPSILONS = {0.0: (style.BLUE, "-"), 1e-6: (style.VERMILLION, (0, (5, 1.5)))}
C, D, TOKENS = 8, 16, 64


def compute(seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """``errors``: relative errors of each identity; ``size``: rms of the output by ε against the factor ``s`` on W."""
    rng = np.random.default_rng(seed)
    W, x = (
        torch.from_numpy(rng.standard_normal((C, D)) / np.sqrt(D)),
        torch.from_numpy(rng.standard_normal((TOKENS, D))),
    )
    v_out, v_in = (torch.from_numpy(1 + 0.3 * rng.standard_normal(n)) for n in (C, D))
    s = torch.logspace(-5, 3, 65, dtype=torch.float64)
    scaled = s[:, None, None, None] * W
    size = {"s": s.numpy(), "largest": v_out.abs().max()[None].numpy()}
    for epsilon in EPSILONS:
        size[str(epsilon)] = dual_norm(v_out, scaled, v_in, x, epsilon).square().mean((1, 2)).sqrt().numpy()
    size["no norm"] = (v_out * (scaled @ (v_in * x)[..., None])[..., 0]).square().mean((1, 2)).sqrt().numpy()
    return {"errors": errors_of_claim(claim, ROWS, seed), "size": size}


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    size = data["size"]
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.6)
        strips(left, data["errors"])
        left.set(xlabel="relative error", title="identities")
        right.plot(size["s"], size["no norm"], **style.PLAIN)
        for epsilon, (color, line) in EPSILONS.items():
            right.plot(size["s"], size[str(epsilon)], color=color, linestyle=line)
        right.axhline(float(size["largest"][0]), **style.PREDICTED)
        style.label(right, "max $|v_{\\rm out}|$", size["s"][-1], float(size["largest"][0]), -2, 6, ha="right")
        style.label(right, "ε = 0", size["s"][2], size["0.0"][0], 0, -8, color=style.BLUE)
        style.label(right, "ε = 10⁻⁶", size["s"][8], size["1e-06"][8], 6, -4, color=style.VERMILLION)
        style.label(right, "no norm", size["s"][24], size["no norm"][24], 6, -2, color=style.GREY)
        right.set(
            xscale="log",
            yscale="log",
            ylim=(3e-3, 10),
            xlabel="factor on $W$",
            ylabel="rms of the output",
            title="size",
        )
        style.letter([left, right])
        return style.save(figure, out, "dual-norm-placement")


if __name__ == "__main__":
    style.main(draw)
