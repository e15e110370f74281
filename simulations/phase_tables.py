"""The phase diagrams of curvature as tables: what theory says of a cell, and what the checks measured there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalevec_theory import phase
from scalevec_theory.claim import Result
from scalevec_theory.growth import Growth

DECAYS = {"none": "nothing decays", "v": "v decays", "W": "W decays", "both": "both decay"}
NOISES = {"isotropic": "Independent noise", "minibatch": "Minibatch noise", "label": "Label noise, correlated inputs"}
OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adamw": "AdamW", "muon": "Muon on W, AdamW on v"}

MEASURED = re.compile(r"(\w+)(?: noise)?, c = (\d+), decay on (\w+), .* has slope (-?[\d.]+) ± ([\d.]+)")
"""How the evidence of the claims ``curvature`` and ``optimizer-curvature`` words the growth of one cell."""


@dataclass(frozen=True)
class Cell:
    """Growth by theory, "" where it has no word, and as measured, None where it was not."""

    theory: str
    measured: Growth | None

    @property
    def answer(self) -> str:
        """Theory's answer, "bounded" or "growing", and where it has none the measured one."""
        if self.theory:
            return "bounded" if self.theory == "bounded" else "growing"
        return self.measured.answer if self.measured is not None else ""


@dataclass(frozen=True)
class Diagram:
    """A table of cells: rows by name, one column for each of `DECAYS`."""

    title: str
    rows_are: str
    rows: Mapping[str, list[Cell]]
    columns: Sequence[str] = tuple(DECAYS.values())


def diagrams(results: Sequence[Result]) -> list[Diagram]:
    """One table for each kind of noise, and one for the optimizers if any of them was measured."""
    noise = _measured(results, "curvature")
    found = [
        Diagram(
            title,
            "outputs",
            {
                f"c = {c}": [Cell(phase.expected(kind, c, d), noise.get((kind, c, d))) for d in DECAYS]
                for c in phase.OUTPUTS
            },
        )
        for kind, title in NOISES.items()
    ]
    optimizers = _measured(results, "optimizer-curvature")
    rows = sorted({(name, c) for name, c, _ in optimizers}, key=lambda row: (list(OPTIMIZERS).index(row[0]), row[1]))
    if rows:
        table = {f"{OPTIMIZERS[n]}, c = {c}": [Cell("", optimizers.get((n, c, d))) for d in DECAYS] for n, c in rows}
        found.append(Diagram("Optimizers on minibatches, from their expected point of rest", "optimizer", table))
    return found


def _measured(results: Sequence[Result], claim: str) -> dict[tuple[str, int, str], Growth]:
    """Growth by (noise or optimizer, c, what decays), from the scopes that follow every cell."""
    cells = {}
    for result in results:
        if result.claim == claim and result.scope.removesuffix("-measured") in (*NOISES, *OPTIMIZERS):
            for found in filter(None, (MEASURED.match(e.detail) for e in result.evidence)):
                kind, c, decays, slope, stderr = found.groups()
                cells[kind, int(c), decays] = Growth(float(slope), float(stderr))
    return cells
