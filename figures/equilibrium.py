"""Predicted and simulated rms of weights that noise moves, optimizer by optimizer, with residuals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from figures import style
from scalevec_theory import abm
from scalevec_theory.equilibrium import Equilibrium, Prediction, predict
from scalevec_theory.optimizers import SGD, Adam, AdamW, Lion, Muon, Optimizer, SignSGD
from scalevec_theory.schedules import wsd

STEPS, WARMUP = 500, 40
SHAPE = (32, 64)
RUNS: dict[str, tuple[Optimizer, str]] = {
    "Lion": (Lion(0.1, 0.1), style.VERMILLION),
    "SGD, momentum": (SGD(0.1, 0.1, momentum=0.9), style.GREEN),
    "AdamW": (AdamW(0.1, 0.1, betas=(0.9, 0.95)), style.BLUE),
    "Adam, L2": (Adam(0.1, 0.05, betas=(0.9, 0.95)), style.SKY),
    "SignSGD": (SignSGD(0.1, 0.2), style.PURPLE),
    "Muon": (Muon(0.1, 0.1, momentum=0.9), style.ORANGE),
}


@dataclass(frozen=True)
class Curve:
    """One optimizer: the predicted rms at every step, and the simulated one at some with its standard error."""

    predicted: np.ndarray
    steps: np.ndarray
    simulated: np.ndarray
    stderr: np.ndarray


def compute(seed: int = 0) -> dict[str, Curve]:
    """A WSD schedule after a warm-up from w = 0, for each optimizer of `RUNS`."""
    curves = {}
    record = np.unique(np.linspace(20, STEPS, 27).astype(int)).tolist()
    for k, (name, (optimizer, _)) in enumerate(RUNS.items()):
        n, shape = (6, SHAPE) if isinstance(optimizer, Muon) else (100_032, ())
        factors = wsd(STEPS, WARMUP)
        walk = abm.run(optimizer, n, STEPS, shape=shape, seed=1000 * seed + k, lr_schedule=factors, record=record)
        predicted = predict(optimizer, STEPS, shape=shape or None, lr_schedule=factors).rms
        simulated = np.sqrt(walk.mean_square)
        curves[name] = Curve(predicted, walk.steps, simulated, walk.stderr / (2 * simulated))
    return curves


def draw(out: Path, seed: int = 0) -> list[Path]:
    curves = compute(seed)
    with style.context():
        figure, (rms, residual) = style.panels(1, 2, 2.9)
        for name, curve in curves.items():
            color = RUNS[name][1]
            rms.plot(curve.predicted, color=color)
            rms.plot(curve.steps, curve.simulated, "o", color=color, markersize=2.5)
            style.label(rms, name, STEPS, curve.predicted[-1], dy=5 if name.startswith("SGD") else 0, color=color)
            ratio, error = curve.simulated / curve.predicted[curve.steps] - 1, curve.stderr / curve.simulated
            residual.errorbar(
                curve.steps, 100 * ratio, 200 * error, fmt="o", color=color, markersize=2.5, linewidth=0.7
            )
        residual.axhline(0, **style.PREDICTED)
        rms.set(
            yscale="log", ylim=(6e-3, 9), xlim=(0, STEPS), xlabel="step", ylabel="rms of a weight",
            title="Predicted (lines), simulated (dots)",
        )  # fmt: skip
        residual.set(
            xlim=(0, STEPS), ylim=(-2.5, 2.5), xlabel="step", ylabel="simulated over predicted − 1, %",
            title="Residuals, ± 2 standard errors",
        )  # fmt: skip
        style.letter([rms, residual])
        return style.save(figure, out, "equilibrium")


def draw_prediction(file: Path, prediction: Prediction, rest: Equilibrium) -> list[Path]:
    """The rms over training and, dotted, at rest at the peak learning rate; writes ``file`` in SVG and PNG."""
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.2, width=style.COLUMN)
        top = prediction.rms.max()
        ax.plot(prediction.rms, color=style.BLUE)
        if np.isfinite(rest.rms):
            top = max(top, rest.rms)
            ax.axhline(rest.rms, **style.PLAIN)
            ax.annotate("at rest", (0, rest.rms), (3, 2), textcoords="offset points", color=style.GREY)
        ax.set(xlabel="step", ylabel="expected rms of a weight", xlim=(0, len(prediction.lr)), ylim=(0, 1.15 * top))
        return style.save(figure, file.parent, file.stem)


if __name__ == "__main__":
    style.main(draw)
