"""The rms of every matrix of a small Llama over a run: predicted for gradients that are noise, and measured on such."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from figures import style

if TYPE_CHECKING:
    from simulations.models.prediction import NormPrediction

STEPS, WARMUP = 400, 20
LR, WEIGHT_DECAY = 0.02, 0.5
LINES = ("-", "--", ":", "-.")
COLORS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE, style.SKY, style.PURPLE, style.BLACK)


@dataclass(frozen=True)
class Run:
    """A prediction, and the rms of each parameter measured at some steps."""

    prediction: NormPrediction
    steps: np.ndarray
    measured: dict[str, np.ndarray]


def compute(seed: int = 0) -> Run | None:
    """AdamW on a Llama at toy size, WSD; None if `transformers` is not installed."""
    if find_spec("transformers") is None:
        return None
    import torch

    from scalevec_theory.optimizers import AdamW
    from scalevec_theory.schedules import wsd
    from simulations.models.groups import iwd_param_groups
    from simulations.models.prediction import move_by_noise, predict_norms
    from simulations.models.toys import build

    model, rule = build("llama", seed), AdamW(LR, WEIGHT_DECAY, betas=(0.9, 0.95))
    groups, schedule = iwd_param_groups(model, weight_decay=WEIGHT_DECAY), wsd(STEPS, WARMUP)
    prediction = predict_norms(model, replace(rule, weight_decay=0.0), STEPS, schedule=schedule, groups=groups)
    steps = np.unique(np.linspace(0, STEPS, 21).astype(int))
    optimizer = torch.optim.AdamW(groups, lr=rule.lr, betas=rule.betas, eps=rule.eps)
    generator = torch.Generator().manual_seed(seed + 1_000_003)  # the model was drawn from ``seed``
    return Run(prediction, steps, move_by_noise(model, [optimizer], schedule, generator, steps.tolist()))


def draw(out: Path, seed: int = 0) -> list[Path]:
    run = compute(seed)
    with style.context():
        figure, axes = style.panels(1, 2, 2.7)
        if run is None:
            axes[0].text(0.5, 0.5, "transformers is not installed", ha="center", transform=axes[0].transAxes)
            return style.save(figure, out, "predicted-norms")
        rms, residual = axes
        for k, (name, matrix) in enumerate(run.prediction.matrices.items()):
            ratio = run.measured[name] / matrix.rms[run.steps] - 1
            error = matrix.norm[1][run.steps] / matrix.norm[0][run.steps]
            rms.plot(matrix.rms, color=style.BLUE, linewidth=0.7)
            rms.plot(run.steps, run.measured[name], "o", color=style.VERMILLION, markersize=1.5)
            residual.plot(run.steps + 6 * (k / len(run.prediction.matrices) - 0.5), ratio / error, **_DOT)
        for bound in (-2, 2):
            residual.axhline(bound, **style.PLAIN)
        rms.set(
            xlabel="step", ylabel="rms of a matrix", xlim=(0, STEPS), ylim=(0, None),
            title="Predicted (lines), measured on noise (dots)",
        )  # fmt: skip
        residual.set(
            xlabel="step", ylabel="(measured − predicted)/std", xlim=(-4, STEPS + 4), ylim=(-5, 5),
            title="Residuals in standard deviations",
        )  # fmt: skip
        style.letter(axes)
        return style.save(figure, out, "predicted-norms")


_DOT: dict[str, Any] = {"marker": "o", "linestyle": "", "color": style.VERMILLION, "markersize": 1.5}


def draw_prediction(file: Path, prediction: NormPrediction) -> list[Path]:
    """The rms of every matrix over the run, one colour for each kind of place; writes ``file`` in SVG and PNG."""
    from simulations.models.roles import template
    from simulations.models.scales import plain_name

    curves: dict[str, list[np.ndarray]] = {}
    for name, matrix in prediction.matrices.items():
        curves.setdefault(template(plain_name(name)), []).append(matrix.rms)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6 + 0.14 * math.ceil(len(curves) / 2))
        for k, (kind, members) in enumerate(curves.items()):
            look: dict[str, Any] = {"color": COLORS[k % len(COLORS)], "linestyle": LINES[k // len(COLORS) % len(LINES)]}
            for i, curve in enumerate(members):
                ax.plot(curve, linewidth=0.9, label=None if i else kind, **look)
        ax.set(xlabel="step", ylabel="expected rms of a matrix", xlim=(0, prediction.steps), ylim=(0, None))
        if curves:
            figure.legend(loc="outside lower center", ncols=2)
        return style.save(figure, file.parent, file.stem)


if __name__ == "__main__":
    style.main(draw)
