"""How figures look and how they are written: one size system, one palette, one way to disk."""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from torch import Tensor

from simulations.store import write_bytes

COLUMN, DOUBLE = 3.4, 7.0
"""Widths in inches of a figure of one and of two columns."""

BLACK, BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE = (
    "#000000",
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
)
GREY = "#8C8C8C"
"""The palette of Okabe and Ito, told apart by every kind of colour vision, and a grey for what is not the subject."""

PLAIN: dict[str, Any] = {"color": GREY, "linestyle": (0, (1.2, 1.2)), "linewidth": 1.8}
SINGLE: dict[str, Any] = {"color": BLUE, "linestyle": "-", "linewidth": 1.5}
DUAL: dict[str, Any] = {"color": VERMILLION, "linestyle": (0, (5, 1.5)), "linewidth": 1.5}
PREDICTED: dict[str, Any] = {"color": BLACK, "linestyle": "-", "linewidth": 0.8}
"""The same model looks the same in every figure: no scale, a scale on the input, scales on both sides, the formula."""

SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "hatch.color": "#C08060",
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "savefig.dpi": 200,
    "svg.hashsalt": "scalevec",
    "svg.fonttype": "path",
}


@contextmanager
def context() -> Iterator[None]:
    """Matplotlib's own defaults with our settings over them, whatever the user's, for as long as the block lasts."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def panels(rows: int, columns: int, height: float, width: float = DOUBLE, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure ``width`` by ``height`` inches and its axes, row by row; ``options`` as for `Figure.subplots`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(np.ravel(figure.subplots(rows, columns, **options)))


def label(ax: Axes, text: str, x: float, y: float, dx: float = 4, dy: float = 0, **options: Any) -> None:
    """Text next to the data point (x, y), shifted by (dx, dy) printer's points; ``options`` as for text."""
    options = {"va": "center", **options}
    ax.annotate(text, (x, y), (dx, dy), textcoords="offset points", annotation_clip=False, **options)


def letter(axes: list[Axes]) -> None:
    """Put (a), (b), … before each panel's title."""
    for name, ax in zip("abcdefghijklmnopqrstuvwxyz", axes, strict=False):
        ax.set_title(f"({name}) {ax.get_title(loc='left')}", loc="left")


def save(figure: Figure, out: Path, name: str) -> list[Path]:
    """Write ``name.svg`` and ``name.png`` into the folder ``out`` (made if missing), each whole or not at all.

    The bytes depend on the figure only: no date, fixed element names.  Raises OSError if the folder cannot be written.
    """
    # Finding the layout takes longer than drawing, so it is found once, by the canvas that draws next and has then
    # measured every text; and `savefig` would draw everything twice.
    figure.set_dpi(SETTINGS["savefig.dpi"])
    pixels = FigureCanvasAgg(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")
    svg, png = io.BytesIO(), io.BytesIO()
    pixels.print_png(png, metadata={"Software": None})
    FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None, "Creator": None})
    files = {out / f"{name}.svg": svg, out / f"{name}.png": png}
    out.mkdir(parents=True, exist_ok=True)
    for path, image in files.items():
        write_bytes(path, image.getvalue())
    return list(files)


def main(draw: Callable[[Path, int], list[Path]]) -> None:
    """``python -m figures.NAME [--out FOLDER] [--seed N]``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("results/figures"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for path in draw(arguments.out, arguments.seed):
        print(path)


def to_numpy(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy()
