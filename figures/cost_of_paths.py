"""Time of stochastic gradient flow against the number of paths."""

from __future__ import annotations

from pathlib import Path

from figures import costs, style


def draw(out: Path, seed: int = 0) -> list[Path]:
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, style.COLUMN)
        costs.growth(ax, "paths", "paths (1,000 steps, c = 4, d = 8, one thread)")
        return style.save(figure, out, "cost-of-paths")


if __name__ == "__main__":
    style.main(draw)
