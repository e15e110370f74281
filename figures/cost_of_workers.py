"""Time of a sweep against the number of worker processes."""

from __future__ import annotations

from pathlib import Path

from figures import costs, style


def draw(out: Path, seed: int = 0) -> list[Path]:
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, style.COLUMN)
        costs.growth(ax, "workers", "worker processes (eight runs)", power=-1.0)
        return style.save(figure, out, "cost-of-workers")


if __name__ == "__main__":
    style.main(draw)
