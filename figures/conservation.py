"""Gradient flow keeps Q_j = v_j² − ‖w_j‖²; gradient descent drifts in proportion to its step size, Adam at any step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.descent import descend
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import INPUT_SCALE

END = 2.0
STEPS = tuple(0.2 / 2**k for k in range(7))
SHOWN = 3


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Q of the first column, for correlated inputs, c = 3, d = 2 and standard initialisation.

    ``flow`` and ``NAME``: Q over time ``(S,)`` and over the steps of every step size ``(len(STEPS), n + 1)``;
    ``increments``: η²(⟨w,g⟩² − v²‖g‖²) for every step of gradient descent.
    """
    rng = np.random.default_rng(seed)
    T = torch.from_numpy(rng.standard_normal((1, 3, 2)))
    H = torch.tensor([[[1.5, 0.4], [0.4, 0.6]]], dtype=torch.float64)
    loss, start = LeastSquares(H, T), INPUT_SCALE.init(torch.zeros_like(T))
    times = torch.linspace(0, END, 81, dtype=torch.float64)
    (Q,) = gradient_flow(INPUT_SCALE, loss, start, times, rtol=1e-11, atol=1e-11).invariants.values()
    data = {"t": times.numpy(), "flow": Q[0, :, 0].numpy()}

    eta = torch.tensor(STEPS, dtype=torch.float64)
    copies = torch.zeros(len(STEPS), dtype=torch.long)
    loss, start = loss.select(copies), {name: x[copies] for name, x in start.items()}
    n_steps = round(END / STEPS[-1])
    # Momentum 0.9 makes heavy-ball's effective step ten times its nominal one; compare at equal effective step.
    for name, factor in (("gd", 1.0), ("heavy-ball", 0.1), ("adam", 1.0)):
        run = descend(INPUT_SCALE, loss, start, optimizer=name, step=factor * eta, n_steps=n_steps)  # type: ignore[arg-type]
        (Q,) = run.invariants.values()
        data[name] = Q[:, :, 0].numpy()
        if name == "gd":
            v, w, g = run.blocks["v"][:, :-1, 0], run.blocks["W"][:, :-1, :, 0], loss.gradient(run.theta)[:, :-1, :, 0]
            data["increments"] = (eta[:, None] ** 2 * ((w * g).sum(-1) ** 2 - v**2 * (g * g).sum(-1))).numpy()
    return data


def largest_drift(changes: np.ndarray) -> np.ndarray:
    """Largest |change of Q| up to time `END`, for each step size."""
    return np.array([np.abs(q[: round(END / eta) + 1]).max() for q, eta in zip(changes, STEPS, strict=True)])


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.7)

        left.plot(data["t"], data["flow"], **style.SINGLE)
        style.label(left, "gradient flow", END, 1, color=style.BLUE)
        for i, width in zip(range(SHOWN), (2.0, 1.4, 0.8), strict=True):
            n = round(END / STEPS[i]) + 1
            left.plot(
                STEPS[i] * np.arange(n), data["gd"][i, :n], color=style.VERMILLION, linewidth=width, dashes=(5, 1.5)
            )
            style.label(left, f"GD, η = {STEPS[i]:g}", END, data["gd"][i, n - 1], color=style.VERMILLION)
        left.plot(
            STEPS[-1] * np.arange(data["adam"].shape[1]), data["adam"][-1], color=style.GREEN, dashes=(6, 1.5, 1, 1.5)
        )
        left.text(
            0.13, 1.105, f"Adam, η = {STEPS[-1]:.3f}: $Q_1({END:g})$ = {data['adam'][-1, -1]:.1f}", color=style.GREEN
        )
        left.set(xlim=(0, 1.5 * END), ylim=(0.88, 1.12), xticks=(0, 1, 2))
        left.set(xlabel="time $t$ (step size × steps)", ylabel="$Q_1 = v_1^2 - \\Vert w_1\\Vert^2$", title="one run")

        eta = np.array(STEPS)
        drift = {name: largest_drift(data[name] - data[name][:, :1]) for name in ("gd", "heavy-ball", "adam")}
        exact = largest_drift(data["increments"].cumsum(1))
        right.plot(eta, drift["adam"], "s-", color=style.GREEN)
        right.plot(eta, drift["heavy-ball"], "^-", color=style.ORANGE)
        right.plot(eta, exact, **style.PREDICTED)
        right.plot(eta, drift["gd"], "o", color=style.VERMILLION, markerfacecolor="white")
        right.plot(eta, exact[-1] * eta / eta[-1] / 2, color=style.GREY, linewidth=0.8, dashes=(1, 2))
        style.label(right, "Adam", eta[-1], drift["adam"][-1], 0, 10, color=style.GREEN)
        style.label(right, "heavy-ball", eta[-2], drift["heavy-ball"][-2], -4, 14, ha="center", color=style.ORANGE)
        exact_sum = "GD: measured (circles)\nand the exact sum\nof its increments"
        right.text(eta[0], 5e-4, exact_sum, ha="right")
        style.label(right, "slope 1", eta[-1], exact[-1] / 2, 10, -4, color=style.GREY)
        right.set(xscale="log", yscale="log", ylim=(3e-4, 4), title="drift")
        right.set(xlabel="step size η", ylabel=f"largest $|Q_1(t) - Q_1(0)|$, $t \\leq {END:g}$")
        style.letter([left, right])
        return style.save(figure, out, "conservation")


if __name__ == "__main__":
    style.main(draw)
