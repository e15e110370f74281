"""``scalevec sweep``: one run at every point of a grid or of a random design."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simulations.lm.commands import on_device, on_jobs, on_scheduler, runs_folder
from simulations.memory import SAID

if TYPE_CHECKING:
    from rich.table import Table

    from simulations.sweep import Point, Sweep

RESULTS_SHOWN = 4
ROWS_SHOWN = 50


@click.command(
    epilog="\b\nExample:\n"
    "  scalevec sweep train:llama --grid lr=1e-3,3e-3 --grid seed=0:4 --set steps=100\n"
    "  scalevec sweep noise --random 20 --range sigma=log:1e-2:1 --grid seed=0:3 --export noise.csv\n"
    "  scalevec sweep my_study.py:measure --grid width=8,16,32"
)
@click.argument("target")
@click.option(
    "--grid", "axes", multiple=True, metavar="KEY=V1,V2 | KEY=0:4", help="An axis of the grid; 0:4 is 0 to 3."
)
@click.option("--random", "number", type=int, metavar="N", help="Draws from the ranges, each with the whole grid.")
@click.option("--range", "ranges", multiple=True, metavar="KEY=KIND:LOW:HIGH", help="KIND: uniform, log or int.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of all runs.")
@on_jobs
@on_scheduler
@on_device
@runs_folder
@click.option(
    "--export", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write FILE.csv or .parquet."
)
def sweep(
    target: str,
    axes: tuple[str, ...],
    number: int | None,
    ranges: tuple[str, ...],
    seed: int,
    settings: tuple[str, ...],
    jobs: int | None,
    scheduler: str | None,
    device: str,
    runs: Path,
    export: Path | None,
) -> int:
    """Run TARGET with many settings, each once, and store every run.

    TARGET is train:FAMILY (see scalevec train); flow, noise or equilibrium, simulations of the theory; or
    FILE.py:FUNCTION, a function of keyword arguments of your own, which returns a number, a mapping of numbers or an
    xarray dataset.  The same command again runs only what is missing, so that it can be stopped, or end with a failed
    point, at any time.  Exit status 1 if a point failed, 2 if for lack of memory.
    """
    from scalevec_theory.flow import check_device
    from simulations.export import check_export
    from simulations.export import export as write_table
    from simulations.parallel import cores
    from simulations.runs import RunStore
    from simulations.tables import console, progress

    if export is not None:
        check_export(export)
    if scheduler is None:
        check_device(device)
    design = _design(target, axes, number, ranges, seed, settings)
    with progress("runs") as tell:
        points = design.run(
            runs, jobs=cores() if jobs is None else jobs, scheduler=scheduler, device=device, report=tell
        )
    out = console()
    out.print(points_table(points[:ROWS_SHOWN]))
    if len(points) > ROWS_SHOWN:
        out.print(f"... and {len(points) - ROWS_SHOWN:,} more; scalevec runs list has them all")
    failed = [point for point in points if point.error]
    out.print(f"\n{len(points) - len(failed):,} of {len(points):,} runs are in {runs}")
    if export is not None:
        store = RunStore(runs)
        write_table([run for p in points if not p.error and (run := store.get(p.key)) is not None], export)
        out.print(str(export))
    for point in failed:
        shown = ", ".join(f"{k}={v}" for k, v in point.settings.items())
        click.echo(f"scalevec: failed: {shown}: {point.error}", err=True)
    for point in failed:
        if point.error.startswith(SAID):
            raise MemoryError(point.error.removeprefix(SAID))
    return 1 if failed else 0


def _design(
    target: str,
    axes: tuple[str, ...],
    number: int | None,
    ranges: tuple[str, ...],
    seed: int,
    settings: tuple[str, ...],
) -> Sweep:
    from simulations.settings import parse_axes, parse_ranges, parse_settings
    from simulations.sweep import Range, Sweep

    grid, fixed, intervals = parse_axes(axes), parse_settings(settings), parse_ranges(ranges)
    if (number is None) != (not intervals):
        raise ValueError(f"random={number}, range={', '.join(ranges) or None}: expected both or neither")
    if number is None:
        return Sweep.grid(target, grid, fixed)
    return Sweep.random(target, number, {k: Range(*r) for k, r in intervals.items()}, grid, fixed, seed)


def points_table(points: Sequence[Point]) -> Table:
    """Settings that differ, some results and the seconds of every run, in the order of the design."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for p in points for name in p.settings))
    varied = [n for n in names if len({repr(p.settings.get(n)) for p in points}) > 1]
    results = list(dict.fromkeys(name for p in points for name in p.results))[:RESULTS_SHOWN]
    table.add_column("key")
    for column in (*varied, *results, "seconds"):
        table.add_column(column, justify="right", overflow="fold")
    for p in points:
        shown = [_number(p.settings.get(n)) for n in varied] + [_number(p.results.get(n)) for n in results]
        table.add_row(p.key, *shown, "failed" if p.error else f"{p.seconds:.1f}")
    return table


def _number(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
