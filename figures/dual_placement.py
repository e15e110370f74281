"""A second scale vector, on the output side: ahead early on, not always later, nor at equal θ on its own manifold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory import operators
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE

PROBLEMS, C, D = 100, 3, 1


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """``t`` (S,) and ``lead`` (PROBLEMS, S) = (L_single − L_dual)/L(0) on whitened problems from W(0) = 0.

    ``a`` (K,), ``single`` and ``dual`` (K,): rate of decrease of the loss per unit of squared gradient at θ = (a, 0)ᵀ,
    gradient along row 2, each model on the manifold it reaches from standard initialisation.
    """
    rng = np.random.default_rng(seed)
    T = torch.from_numpy(1.5 * rng.standard_normal((PROBLEMS, C, D)))
    loss = LeastSquares(torch.eye(D, dtype=torch.float64).expand(PROBLEMS, D, D), T)
    times = torch.linspace(0, 5, 101, dtype=torch.float64)
    single, dual = (
        gradient_flow(p, loss, p.init(torch.zeros_like(T)), times, rtol=1e-9, atol=1e-9).loss
        for p in (INPUT_SCALE, DUAL_SCALE)
    )
    a = torch.linspace(0, 4, 81, dtype=torch.float64)
    theta, G = torch.zeros(81, 2, 1, dtype=torch.float64), torch.zeros(81, 2, 1, dtype=torch.float64)
    theta[:, 0, 0], G[:, 1, 0] = a, 1.0
    rates = [(G * operators.apply(p, p.balanced_init(theta), G)).sum((1, 2)).numpy() for p in (INPUT_SCALE, DUAL_SCALE)]
    lead = ((single - dual) / single[:, :1]).numpy()
    return {"t": times.numpy(), "lead": lead, "a": a.numpy(), "single": rates[0], "dual": rates[1]}


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    t, lead = data["t"], 100 * data["lead"]
    behind = lead.min(1) < -1e-4
    with style.context():
        figure, axes = style.panels(1, 3, 2.7)
        whole, close, rates = axes
        for ax, unit in ((whole, 1), (close, 100)):
            ax.plot(t, unit * lead[~behind].T, color=style.GREY, linewidth=0.4, alpha=0.6)
            ax.plot(t, unit * lead[behind].T, color=style.VERMILLION, linewidth=0.6)
            ax.axhline(0, color=style.BLACK, linewidth=0.8)
        whole.set(
            xlabel="time $t$", ylabel="$(L_{\\rm single}-L_{\\rm dual})/L(0)$, %", title=f"whitened, $c={C}$, $d={D}$"
        )
        close.set(xlabel="time $t$", ylabel="the same, in units of $10^{-4}$", title="near zero", ylim=(-1, 1))
        close.text(
            4.9,
            -0.95,
            f"{behind.sum()} of {PROBLEMS} fall behind\nby more than $10^{{-6}}$",
            color=style.VERMILLION,
            ha="right",
        )
        rates.plot(data["a"], data["single"], **style.SINGLE)
        rates.plot(data["a"], data["dual"], **style.DUAL)
        style.label(
            rates, "single", 2.6, np.interp(2.6, data["a"], data["single"]), -4, 6, ha="right", color=style.BLUE
        )
        style.label(rates, "dual", 3, np.interp(3, data["a"], data["dual"]), 4, -8, color=style.VERMILLION)
        rates.set(
            xlabel="$a$ in $\\theta=(a,0)^\\top$",
            ylabel="rate of loss decrease, $g=(0,1)^\\top$",
            title="same θ, each its own scales",
            ylim=(0, 5),
        )
        style.letter(axes)
        return style.save(figure, out, "dual-placement")


if __name__ == "__main__":
    style.main(draw)
