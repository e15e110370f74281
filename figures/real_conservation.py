"""What is conserved in unmodified models of `transformers`: flat along gradient flow, and exact steps of descent."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch

from figures import style
from scalevec_theory.claim import NotRun
from simulations.claims.real_models import STEP, descent_error, toy_model
from simulations.models.conserved import conserved, parts
from simulations.models.toys import gradient_flow

FAMILIES = ("gpt2", "llama", "qwen3", "gemma2", "olmo2", "mixtral", "falcon-h1-rms")
END = 0.05


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Along gradient flow of a Llama: changes of Q and its parts for the busiest channel of each norm, ``(norms, S)``.

    ``error`` and ``size`` (families,): error of the predicted increment of Q in a step of descent, and the increment,
    relative to the squares in Q.  Empty if `transformers` is not installed.
    """
    try:
        model, norms, tokens = toy_model("llama", seed)
    except NotRun:
        return {}
    times = np.linspace(0.0, END, 11)
    states = gradient_flow(copy.deepcopy(model), tokens, times, tolerance=1e-7)
    scale, weights, Q = [], [], []
    for norm in norms:
        scales, consumers = (torch.stack(x) for x in zip(*(parts(norm, s) for s in states), strict=True))
        channel = int((scales[-1] - scales[0]).abs().argmax())
        scale.append(scales[:, channel] - scales[0, channel])
        weights.append(consumers[:, channel] - consumers[0, channel])
        Q.append(torch.stack([conserved(norm, s)[channel] for s in states]) - conserved(norm, states[0])[channel])
    errors = np.array([descent_error(family, "as-traced", seed) for family in FAMILIES])
    return {
        "t": times,
        **{name: torch.stack(x).numpy() for name, x in (("scale", scale), ("weights", weights), ("Q", Q))},
        "error": errors[:, 0],
        "size": errors[:, 1],
    }


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (left, right) = style.panels(1, 2, 2.7)
        if not data:
            left.text(0.5, 0.5, "transformers is not installed", ha="center", transform=left.transAxes)
            return style.save(figure, out, "real-conservation")
        t = data["t"]
        left.plot(t, 1e3 * data["scale"].T, color=style.BLUE, linewidth=1)
        left.plot(t, 1e3 * data["weights"].T, "o", color=style.VERMILLION, markerfacecolor="none", markersize=3)
        left.plot(t, 1e3 * data["Q"].T, color=style.BLACK, linewidth=1.6)
        left.set(xlabel="time $t$", ylabel="change, $10^{-3}$", title="Llama, each norm's busiest channel")
        handles = [left.lines[0], left.lines[len(data["scale"])], left.lines[-1]]
        left.legend(handles, ["$v_j^2$", "$\\Sigma_b\\Vert w_{bj}\\Vert^2$", "$Q_j$, their difference"], loc="best")
        rows = np.arange(len(FAMILIES))
        right.plot(data["size"], rows, "s", color=style.VERMILLION, markersize=4)
        right.plot(np.maximum(data["error"], 1e-18), rows, "o", color=style.BLUE, markersize=4)
        right.set_yticks(rows, FAMILIES)
        right.set(
            xscale="log", xlim=(1e-18, 1), ylim=(len(rows) - 0.4, -1.2), title=f"one step of descent, η = {STEP:g}"
        )
        right.set(xlabel="relative to the squares in $Q_j$")
        right.text(data["error"][0], -0.7, "error of prediction", color=style.BLUE, va="center", ha="center")
        right.text(data["size"][0], -0.7, "increment", color=style.VERMILLION, va="center", ha="center")
        right.grid(visible=False, axis="y")
        style.letter([left, right])
        return style.save(figure, out, "real-conservation")


if __name__ == "__main__":
    style.main(draw)
