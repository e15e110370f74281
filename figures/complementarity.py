"""What a scale vector adds to gradient descent and to Adam, each arm at its own best step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from figures import style
from figures.forest import forest
from scalevec_theory.theorems.complementarity import adam_gain, gd_gain, joint_gain, problems, scores, synergy

PROBLEMS = 30


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Mean and standard error ``(2,)`` over random problems of each gain in ln of the mean L/L(0)."""
    loss = problems(np.random.default_rng(seed), PROBLEMS)
    momentum, none = scores(loss, 0.9), scores(loss, 0.0)
    gains = {
        "scale, on GD": gd_gain(momentum),
        "scale, on Adam": adam_gain(momentum),
        "synergy with Adam": synergy(momentum),
        "scale and Adam, over GD": joint_gain(momentum),
        "scale, on Adam without momentum": adam_gain(none),
    }
    return {name: np.array([x.mean().item(), x.std().item() / len(x) ** 0.5]) for name, x in gains.items()}


def draw(out: Path, seed: int = 0) -> list[Path]:
    rows = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 1.8, width=5.0)
        forest(ax, rows)
        ax.set(xlabel="gain in ln of the mean $L/L(0)$")
        return style.save(figure, out, "complementarity")


if __name__ == "__main__":
    style.main(draw)
