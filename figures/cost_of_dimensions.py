"""Time of gradient flow against the number of inputs."""

from __future__ import annotations

from pathlib import Path

from figures import costs, style


def draw(out: Path, seed: int = 0) -> list[Path]:
    with style.context():
        figure, (ax,) = style.panels(1, 1, 2.6, style.COLUMN)
        costs.growth(ax, "dimensions", "inputs d (64 problems, c = 4, one thread)", power=2.0)
        return style.save(figure, out, "cost-of-dimensions")


if __name__ == "__main__":
    style.main(draw)
