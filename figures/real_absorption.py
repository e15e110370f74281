"""Absorbing every norm scale of unmodified models: the logits stay the same; with planted mistakes they do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures import style
from scalevec_theory.claim import NotRun
from simulations.claims.real_models import absorption_error

ROWS = {
    "gpt2": ("gpt2", "as-traced"),
    "llama": ("llama", "as-traced"),
    "qwen3": ("qwen3", "as-traced"),
    "gemma2": ("gemma2", "as-traced"),
    "olmo2": ("olmo2", "as-traced"),
    "mixtral": ("mixtral", "as-traced"),
    "falcon-h1-rms": ("falcon-h1-rms", "as-traced"),
    "llama, tied head": ("llama-tied", "tied-head"),
    "mixtral, router left out": ("mixtral", "router-left-out"),
    "gemma2, w for 1 + w": ("gemma2", "offset-ignored"),
}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Relative change of the logits by row: ``absorbed``, and ``dropped`` where the scales are just set to 1.

    Empty if `transformers` is not installed.
    """
    try:
        changes = np.array([absorption_error(*row, seed) for row in ROWS.values()])
    except NotRun:
        return {}
    return {"absorbed": changes[:, 0], "dropped": changes[:, 1]}


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.9, width=5.0)
        if not data:
            ax.text(0.5, 0.5, "transformers is not installed", ha="center", transform=ax.transAxes)
            return style.save(figure, out, "real-absorption")
        rows = np.arange(len(ROWS))
        ax.plot(data["dropped"], rows, "|", color=style.GREY, markersize=9, markeredgewidth=2)
        ax.plot(np.maximum(data["absorbed"], 1e-18), rows, "o", color=style.BLUE, markersize=4)
        ax.set_yticks(rows, list(ROWS))
        ax.set(xscale="log", xlim=(1e-18, 10), ylim=(len(rows) - 0.4, -1.4), xlabel="relative change of the logits")
        ax.text(data["absorbed"][0], -0.9, "scales absorbed", color=style.BLUE, va="center", ha="center")
        ax.text(data["dropped"][0], -0.9, "scales dropped", color="#606060", va="center", ha="center")
        ax.grid(visible=False, axis="y")
        return style.save(figure, out, "real-absorption")


if __name__ == "__main__":
    style.main(draw)
