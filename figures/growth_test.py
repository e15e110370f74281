"""What the test of bounded against growing says of processes whose answer is known."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from figures import style
from scalevec_theory.growth import LEAST_SLOPE, growth
from scalevec_theory.theorems.growth_test import TIMES, Drift, squares, student, towards_zero

TRIALS = 24
PROCESSES: dict[str, tuple[Drift, int, str]] = {
    "Ornstein–Uhlenbeck": (towards_zero, 1, "bounded"),
    "Student, a = 8": (partial(student, a=8.0), 1, "bounded"),
    "Student, a = 4": (partial(student, a=4.0), 1, "bounded"),
    "Student, a = 3": (partial(student, a=3.0), 1, "growing"),
    "Student, a = 2": (partial(student, a=2.0), 1, "growing"),
    "Brownian motion": (None, 1, "growing"),
    "Bessel, δ = 3": (None, 3, "growing"),
}
LOOKS = {"bounded": (style.BLUE, "o"), "growing": (style.VERMILLION, "^"), "undecided": (style.GREY, "s")}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """Slopes, standard errors and answers of `TRIALS` trials of every process."""
    rng = np.random.default_rng(seed)
    data = {}
    for name, (drift, dimension, _) in PROCESSES.items():
        found = [growth(TIMES, trial) for trial in squares(drift, dimension, TRIALS, rng)]
        data[f"{name} slope"] = np.array([g.slope for g in found])
        data[f"{name} answer"] = np.array([g.answer for g in found])
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, width=style.DOUBLE)
        ax.axvline(LEAST_SLOPE, color=style.BLACK, linewidth=0.8)
        for i, (name, (_, _, truth)) in enumerate(PROCESSES.items()):
            rows = i + np.linspace(-0.3, 0.3, TRIALS)
            for answer, (colour, marker) in LOOKS.items():
                chosen = data[f"{name} answer"] == answer
                label = f"test says {answer}" if i == 0 else None
                ax.plot(data[f"{name} slope"][chosen], rows[chosen], marker, color=colour, markersize=3, label=label)
            ax.text(1.02, i, f"truly {truth}", va="center", transform=ax.get_yaxis_transform())
        ax.set(yticks=range(len(PROCESSES)), ylim=(len(PROCESSES) - 0.5, -0.5))
        ax.set_yticklabels(PROCESSES)
        ax.set(xlabel="measured slope of ln E[X²] against ln t; the line separates bounded from growing")
        handles = [ax.plot([], [], m, color=c, markersize=4, label=f"test says {a}")[0] for a, (c, m) in LOOKS.items()]
        ax.legend(handles=handles, loc="upper right")
        return style.save(figure, out, "growth-test")


if __name__ == "__main__":
    style.main(draw)
