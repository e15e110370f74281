"""Number of conservation laws found against the number there can be, parametrisation by parametrisation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from figures import style
from scalevec_theory.laws import find_laws
from scalevec_theory.parametrizations import BUILT_IN, Parametrization

DIMS = {"b": 2, "c": 2, "d": 3}


def _product(x: Any = (5,)) -> Any:
    return x[..., 0] * x[..., 1] * x[..., 2] * x[..., 3] * x[..., 4]


def _two_layers(U: Any = (2, 2), V: Any = (2, 2)) -> Any:
    return U @ V


ROWS: dict[str, Parametrization | Callable[..., Any]] = {
    **{name: p for name, p in BUILT_IN.items() if name != "plain"},
    "$UV$, 2 × 2 by 2 × 2": _two_layers,
    "$x_1x_2x_3x_4x_5$": _product,
}


def compute(seed: int = 0) -> dict[str, np.ndarray]:
    """For each row of `ROWS`: ``rank`` of the Lie algebra, independent polynomial ``laws`` found, ``parameters``."""
    found = [find_laws(p, dims=DIMS if isinstance(p, Parametrization) else None, seed=seed) for p in ROWS.values()]
    return {
        "rank": np.array([laws.rank for laws in found]),
        "laws": np.array([laws.independent for laws in found]),
        "parameters": np.array([laws.dimension for laws in found]),
    }


def draw(out: Path, seed: int = 0) -> list[Path]:
    data = compute(seed)
    rows = np.arange(len(ROWS))
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.9, width=5.0)
        ax.barh(rows, data["rank"], height=0.6, color="#D0D0D0")
        ax.barh(rows, data["laws"], left=data["rank"], height=0.6, color=style.BLUE)
        ax.plot(data["parameters"], rows, "|", color=style.BLACK, markersize=14, markeredgewidth=1.5)
        for row, (rank, laws) in enumerate(zip(data["rank"], data["laws"], strict=True)):
            ax.text(rank / 2, row, f"{rank}", ha="center", va="center")
            ax.text(rank + laws / 2, row, f"{laws}", ha="center", va="center", color="white")
        ax.text(0, -0.9, "rank of the Lie algebra", color="#606060", va="center")
        style.label(ax, "laws found", data["parameters"][0], 0, 8, color=style.BLUE)
        ax.set(xticks=range(0, 19, 3), xlabel="number (black ticks: parameters)", ylim=(len(ROWS) - 0.4, -1.4))
        ax.set_yticks(rows, list(ROWS))
        ax.grid(visible=False)
        return style.save(figure, out, "completeness")


if __name__ == "__main__":
    style.main(draw)
