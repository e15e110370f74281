"""Where refuted scopes fail: the sign of the margin on a plane through a counterexample of each."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from figures import style
from scalevec_theory.check import generator
from scalevec_theory.claim import Scope
from scalevec_theory.problems import Problems
from scalevec_theory.registry import installed_claims
from scalevec_theory.search import violation

DRAWN = 100
GRID = 21
PLANES = 6
COLUMNS = 4

Entry = tuple[str, Sequence[tuple[int, ...]]]
"""A field and the indices in it of one number (two for a symmetric matrix)."""


def _counterexample(scope: Scope, rng: np.random.Generator) -> Problems | None:
    """A typical verified counterexample of the smallest size that has one among random problems.

    None if there is none, and for an identity, which holds on no region: its margins have no error of their own.
    """
    assert scope.space is not None and scope.margin is not None
    for dims in sorted(scope.space.sizes(), key=lambda dims: sum(dims.values())):
        problems = scope.space.draw(max(40, int(DRAWN / scope.cost)), dims, rng)
        problems = problems.select(scope.space.contains(problems))
        m = scope.margin(problems, scope.accuracy)
        bad = torch.nonzero(m.value < -m.error)[:, 0]
        if len(bad) == 0:
            continue
        if not bool((m.error > 0).any()):
            return None
        middle = bad[m.value[bad].argsort()][len(bad) // 2 :][:4]
        verified = torch.nonzero(violation(scope, problems.select(middle)).isfinite())[:1, 0]
        if len(verified):
            return problems.select(middle[verified])
    return None


def _moved(problem: Problems, entries: list[Entry], values: np.ndarray) -> Problems:
    """Copies of one problem with some entries set to ``values`` ``(N, len(entries))``."""
    fields = {name: x.repeat(len(values), *[1] * (x.ndim - 1)) for name, x in problem.fields.items()}
    for k, (name, group) in enumerate(entries):
        for index in group:
            at: Any = (slice(None), *index)
            fields[name][at] = torch.from_numpy(values[:, k])
    return Problems(problem.dims, fields)


def _margins(scope: Scope, problems: Problems) -> np.ndarray:
    """Margins ``(N,)`` plus their error, so that they are negative where the scope fails; NaN outside the space."""
    assert scope.space is not None and scope.margin is not None
    value = np.full(len(problems), np.nan)
    inside = scope.space.contains(problems)
    if bool(inside.any()):
        m = scope.margin(problems.select(inside), scope.accuracy)
        value[inside.numpy()] = (m.value + m.error).numpy()
    return value


def _plane(scope: Scope, problem: Problems) -> dict[str, Any] | None:
    """Margins on the plane of the two entries that shows most of both signs; None if there is one entry."""
    assert scope.space is not None
    entries = [
        (name, group)
        for name, kind in scope.space.fields.items()
        for group in kind.groups(tuple(problem[name].shape[1:]))
    ]
    here = np.array([float(problem[name][(0, *group[0])]) for name, group in entries])
    reach = 1.5 * np.where(here == 0, 1.0, np.abs(here))
    if len(entries) < 2:
        return None
    size = max(15, round(GRID / scope.cost**0.5))
    best: tuple[float, tuple[int, int]] = (-1.0, (0, 1))

    def margins(pair: tuple[int, int], n: int) -> tuple[list[np.ndarray], np.ndarray]:
        axes = [np.linspace(here[k] - reach[k], here[k] + reach[k], n) for k in pair]
        points = np.stack([x.ravel() for x in np.meshgrid(*axes)], 1)
        return axes, _margins(scope, _moved(problem, [entries[k] for k in pair], points)).reshape(n, n)

    pairs = list(itertools.combinations(range(len(entries)), 2))
    for pair in pairs[:: -(-len(pairs) // PLANES)]:
        _, coarse = margins(pair, 5)
        best = max(best, (min((coarse < 0).mean(), (coarse > 0).mean()), pair))
    axes, margin = margins(best[1], size)
    labels = [entries[k][0] + "".join(f"[{i}]" for i in entries[k][1][0]) for k in best[1]]
    return {"x": axes[0], "y": axes[1], "margin": margin, "at": here[list(best[1])], "labels": labels}


def compute(seed: int = 0) -> dict[str, dict[str, Any]]:
    """By ``claim:scope``, for refuted inequalities: margins ``(y, x)`` on a plane and where the counterexample is."""
    planes = {}
    for claim in installed_claims().values():
        for scope in claim.scopes:
            if scope.holds or scope.space is None:
                continue
            name = f"{claim.id}:{scope.name}"
            problem = _counterexample(scope, generator(seed, name))
            if problem is not None and (plane := _plane(scope, problem)) is not None:
                planes[name] = plane
    return planes


def draw(out: Path, seed: int = 0) -> list[Path]:
    planes = compute(seed)
    rows = -(-len(planes) // COLUMNS)
    with style.context():
        figure, axes = style.panels(rows, COLUMNS, 1.75 * rows + 0.3)
        for ax in axes[len(planes) :]:
            ax.set_axis_off()
        for ax, (name, plane) in zip(axes, planes.items(), strict=False):
            margin = plane["margin"]
            ax.contourf(plane["x"], plane["y"], margin, [-np.inf, 0], colors=["#F6C9A8"], hatches=["////"])
            ax.contourf(plane["x"], plane["y"], margin, [0, np.inf], colors=["#DCEBF5"])
            ax.contour(plane["x"], plane["y"], margin, [0], colors=style.BLACK, linewidths=0.8)
            ax.plot(*plane["at"], "X", color=style.BLACK, markeredgecolor="white", markersize=7)
            claim, scope = name.split(":")
            ax.set_title(f"{claim}\n{textwrap.fill(scope, 26)}", fontsize=7)
            ax.set_xlabel(plane["labels"][0], fontsize=7, labelpad=1)
            ax.set_ylabel(plane["labels"][1], fontsize=7, labelpad=1)
            ax.tick_params(labelsize=7)
            ax.grid(visible=False)
            ax.locator_params(nbins=4)
        meaning = "hatched: the inequality fails beyond numerical error; light: it does not; white: outside the space"
        figure.suptitle(meaning, fontsize=8)
        return style.save(figure, out, "counterexamples")


if __name__ == "__main__":
    style.main(draw)
