"""Measured effects with their standard errors, one row per scope: as in the checks at quick effort."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from figures import style
from scalevec_theory.check import generator
from scalevec_theory.claim import Z_SCORE, Claim, Setting


def effects(claim: Claim, rows: Mapping[str, str], seed: int) -> dict[str, np.ndarray]:
    """Mean and standard error ``(2,)`` of the first measurement of some scopes, by the label each is given."""
    scopes = {scope.name: scope for scope in claim.scopes}
    found = {}
    for name, label in rows.items():
        measure = scopes[name].measure
        assert measure is not None
        evidence = measure(Setting("quick", seed, generator(seed, f"{claim.id}:{name}")))[0]
        found[label] = np.array([evidence.margin, evidence.stderr or 0.0], dtype=float)
    return found


def forest(ax: Axes, rows: Mapping[str, np.ndarray]) -> None:
    """A point and a bar of `Z_SCORE` standard errors for each row, first on top; filled where the bar is off zero."""
    for row, (mean, stderr) in enumerate(rows.values()):
        reach = Z_SCORE * stderr
        color = style.GREY if abs(mean) < reach else style.BLUE if mean > 0 else style.VERMILLION
        ax.plot([mean - reach, mean + reach], [row, row], color=color, linewidth=1.4)
        ax.plot(
            mean, row, "o" if mean > 0 else "s", color=color, markerfacecolor="white" if color == style.GREY else color
        )
    ax.axvline(0, color=style.BLACK, linewidth=0.8)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
