"""How far the norm of a scale-invariant weight strays at rest, by optimizer and ηλ: the law and walks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from figures import style
from scalevec_theory import abm
from scalevec_theory.equilibrium import equilibrium, predict
from scalevec_theory.optimizers import SGD, AdamW, Lion, Optimizer, SignSGD

ENTRIES, WALKS, LR = 128, 150, 0.1
RATES = (0.002, 0.01, 0.05)
"""ηλ of the walks, (1 − μ) times as much under SGD with momentum μ, where it acts 1/(1 − μ) times as strongly."""

RULES: dict[str, tuple[Optimizer, str]] = {
    "SignSGD": (SignSGD(LR), style.PURPLE),
    "Lion, β₂ = 0.99": (Lion(LR, betas=(0.9, 0.99)), style.VERMILLION),
    "SGD, μ = 0.9": (SGD(LR, momentum=0.9), style.GREEN),
    "AdamW, β₁ = 0.5": (AdamW(LR, betas=(0.5, 0.95)), style.BLUE),
    "SGD": (SGD(LR), style.SKY),
}


def _rule(optimizer: Optimizer, rate: float) -> Optimizer:
    return replace(optimizer, weight_decay=rate / LR * (1 - optimizer.momentum if isinstance(optimizer, SGD) else 1))


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """By optimizer, the standard deviation of ‖w‖² over that of independent Gaussians, ``(3, RATES)``: of the law, of
    walks, and the latter's standard error."""
    data = {}
    for k, (name, (optimizer, _)) in enumerate(RULES.items()):
        rows = []
        for rate in RATES:
            rule, steps = _rule(optimizer, rate), round(6 / rate)
            rest = equilibrium(rule, shape=(ENTRIES,), scale_invariant=True).rms
            course = predict(rule, steps, init=rest, shape=(ENTRIES,), scale_invariant=True)
            walk = abm.run(
                rule,
                WALKS,
                steps,
                shape=(ENTRIES,),
                seed=100 * seed + k,
                init=rest,
                scale_invariant=True,
                record=np.unique(np.linspace(steps / 2, steps, 20).astype(int)).tolist(),
            )
            relative = walk.squares / walk.squares.mean(1, keepdims=True) - 1
            square = np.square(relative).mean(0) * ENTRIES / 2
            found = float(square.mean()) ** 0.5
            rows.append((float(course.spread[-1]) ** 0.5, found, float(square.std(ddof=1)) / WALKS**0.5 / (2 * found)))
        data[name] = np.array(rows).T
    return data


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, width=style.COLUMN)
        for name, (stated, found, stderr) in data.items():
            color = RULES[name][1]
            ax.plot(RATES, stated, color=color)
            ax.errorbar(RATES, found, 2 * stderr, fmt="o", color=color, markersize=2.5, linewidth=0.7)
            style.label(
                ax, name, RATES[-1], stated[-1], dy=3 * (name == "SignSGD") - 3 * (name == "SGD, μ = 0.9"), color=color
            )
        ax.axhline(1, **style.PLAIN)
        ax.annotate("independent Gaussians", (RATES[0], 1), (0, 3), textcoords="offset points", color=style.GREY)
        ax.set(
            xscale="log", yscale="log", xlabel="ηλ, of SGD ηλ/(1 − μ)", ylim=(0.02, 1.5), xticks=RATES,
            ylabel="deviation of ‖w‖², in √(2/n)", title="Law (lines), walks (dots, ± 2 s.e.)",
        )  # fmt: skip
        ax.set_xticklabels([f"{rate:g}" for rate in RATES])
        ax.minorticks_off()
        return style.save(figure, out, "norm-spread")


if __name__ == "__main__":
    style.main(draw)
