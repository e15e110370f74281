"""What training does to sizes, gradients, symmetries and conserved quantities, in pairs of runs, with 95% intervals.

Shading and colours as in the figure ``training-effects``: blue is all inside of what was asked, vermillion all outside.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from figures import style
from figures.training_effects import LOSSES, Row, compute, forest, stacked


def quantities(seed: int = 0) -> dict[str, list[Row]]:
    """Every contrast that is not one of losses, by its quantity, those with most rows first."""
    found: dict[str, list[Row]] = {}
    for (_, quantity), rows in compute(seed).items():
        if quantity not in LOSSES:
            found.setdefault(quantity, []).extend(rows)
    return dict(sorted(found.items(), key=lambda one: -len(one[1])))


def draw(out: Path, seed: int = 0) -> list[Path]:
    panels = list(quantities(seed).items())
    columns = [panels[side::2] for side in (0, 1)]
    heights = [[len(rows) + 2.0 for _, rows in column] for column in columns]
    with style.context():
        figure = Figure(figsize=(style.DOUBLE, 0.2 + 0.22 * max(map(sum, heights))), layout="constrained")
        grid = figure.add_gridspec(1, 2)
        for k, (column, height) in enumerate(zip(columns, heights, strict=True)):
            for ax, (quantity, rows) in zip(stacked(figure, grid[0, k], height), column, strict=True):
                forest(ax, quantity, rows)
        return style.save(figure, out, "training-mechanisms")


if __name__ == "__main__":
    style.main(draw)
