"""Relative errors of identities, drawn as strips on a log axis: rounding on the left, failure on the right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from figures import style
from scalevec_theory.claim import Claim, Scope

EXACT = 1e-12
"""Errors below are float64 rounding of some tens of operations."""


def relative_errors(scope: Scope, rng: np.random.Generator, count: int = 120) -> np.ndarray:
    """|left − right| / scale of random problems of an identity's space ``(N,)``; its margin is accuracy less that."""
    assert scope.space is not None and scope.margin is not None
    sizes = scope.space.sizes()
    errors = []
    for dims in sizes:
        problems = scope.space.draw(max(1, count // len(sizes)), dims, rng)
        problems = problems.select(scope.space.contains(problems))
        errors.append(scope.accuracy - scope.margin(problems, scope.accuracy).value.numpy())
    return np.concatenate(errors)


def errors_of_claim(claim: Claim, scopes: Mapping[str, str], seed: int) -> dict[str, np.ndarray]:
    """`relative_errors` of some scopes of a claim, by the label each is given."""
    rng = np.random.default_rng(seed)
    named = {s.name: s for s in claim.scopes}
    return {label: relative_errors(named[name], rng) for name, label in scopes.items()}


def strips(ax: Axes, errors: Mapping[str, np.ndarray], floor: float = 1e-18) -> None:
    """One row of points per label, first on top: circles if all are rounding, else crosses; zeros at the left edge."""
    rng = np.random.default_rng(0)
    for row, values in enumerate(errors.values()):
        exact = values.max() < EXACT
        look: dict[str, Any] = (
            {"marker": "o", "color": style.BLUE} if exact else {"marker": "x", "color": style.VERMILLION}
        )
        height = row + rng.uniform(-0.25, 0.25, len(values))
        ax.plot(np.maximum(values, floor), height, linestyle="none", markersize=2.5, alpha=0.6, **look)
    ax.set(xscale="log", xlim=(floor / 2, 30), ylim=(len(errors) - 0.4, -0.6))
    ax.set_yticks(range(len(errors)), list(errors))
    ax.grid(visible=False, axis="y")
