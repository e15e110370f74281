"""``scalevec runs``: what the store holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulations.lm.commands import runs_folder

if TYPE_CHECKING:
    import xarray
    from rich.table import Table

    from simulations.runs import RunStore

KEY_SHOWN = 16


@click.group(epilog="\b\nExample:\n  scalevec runs list\n  scalevec runs export runs.csv")
def runs() -> None:
    """List, show, compare, cite, remove and export the runs that are stored."""


@runs.command("list", epilog="\b\nExample:\n  scalevec runs list --runs results/runs")
@runs_folder
def list_command(runs: Path) -> None:
    """Every run: key, what, when, size, seconds and its main result."""
    from simulations.runs import RunStore
    from simulations.tables import console

    store = RunStore(runs)
    console().print(runs_table(store, read_all(store)))


@runs.command(epilog="\b\nExample:\n  scalevec runs show 3f9a")
@click.argument("key")
@runs_folder
def show(key: str, runs: Path) -> None:
    """One run's settings, provenance and results; KEY may be the beginning of a key."""
    from simulations.runs import RunStore
    from simulations.tables import console

    found = read(RunStore(runs), key)
    for title, entries in described(found).items():
        console().print(f"{title}:")
        console().print(two_columns(entries))
        console().print()


@runs.command(epilog="\b\nExample:\n  scalevec runs compare 3f9a 77c0")
@click.argument("first")
@click.argument("second")
@runs_folder
def compare(first: str, second: str, runs: Path) -> None:
    """Which settings of two runs differ, and their results."""
    from simulations.runs import RunStore
    from simulations.tables import console

    store = RunStore(runs)
    console().print(comparison_table(read(store, first), read(store, second)))


@runs.command(epilog="\b\nExample:\n  scalevec runs remove 3f9a 77c0")
@click.argument("keys", nargs=-1, required=True)
@runs_folder
def remove(keys: tuple[str, ...], runs: Path) -> None:
    """Remove runs, whole or damaged, for good."""
    from simulations.runs import RunStore

    store = RunStore(runs)
    for key in [store.find(key) for key in dict.fromkeys(keys)]:
        store.remove(key)
        click.echo(f"removed {store.path(key)}")


@runs.command(epilog="\b\nExample:\n  scalevec runs cite 3f9a 77c0 > software.bib")
@click.argument("keys", nargs=-1)
@runs_folder
def cite(keys: tuple[str, ...], runs: Path) -> None:
    """BibTeX entries of what made the runs, all or those named: version, commit, libraries, data and keys."""
    from simulations.runs import RunStore

    store = RunStore(runs)
    found = [read(store, key) for key in dict.fromkeys(keys)] if keys else list(read_all(store))
    if not found:
        raise ValueError(f"{runs}: no runs to cite")
    click.echo("\n\n".join(citations(found)))


@runs.command(epilog="\b\nExample:\n  scalevec runs export runs.csv\n  scalevec runs export runs.parquet")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@runs_folder
def export(file: Path, runs: Path) -> None:
    """Write one row for each run, with its settings and results, as CSV or Parquet."""
    from simulations.export import check_export, export
    from simulations.runs import RunStore

    check_export(file)
    found = list(read_all(RunStore(runs)))
    export(found, file)
    click.echo(f"{file}: {len(found)} runs")


def read(store: RunStore, beginning: str) -> xarray.Dataset:
    """The run whose key begins so.

    Raises
    ------
    ValueError : there is not exactly one, or its file is damaged.
    """
    key = store.find(beginning)
    run = store.get(key)
    if run is None:
        raise ValueError(f"{store.path(key)}: not a whole run")
    return run


def read_all(store: RunStore) -> Iterator[xarray.Dataset]:
    """Every whole run; what is damaged is set aside, with a warning."""
    from simulations.tables import progress

    keys = store.keys()
    with progress("runs") as tell:
        for done, key in enumerate(keys, start=1):
            run = store.get(key)
            tell(done, len(keys))
            if run is not None:
                yield run


def runs_table(store: RunStore, runs: Iterator[xarray.Dataset]) -> Table:
    from rich.table import Table

    from simulations.runs import results_of

    table = Table(box=None, pad_edge=False)
    for column in ("key", "what", "when (UTC)"):
        table.add_column(column, overflow="fold")
    for column in ("size", "seconds", "result"):
        table.add_column(column, justify="right", overflow="fold")
    for run in sorted(runs, key=lambda run: str(run.attrs["created"])):
        name, size = run.attrs["result"], store.path(run.attrs["key"]).stat().st_size
        value = results_of(run).get(name)
        table.add_row(
            run.attrs["key"],
            run.attrs["task"],
            run.attrs["created"].removesuffix("+00:00").replace("T", " "),
            f"{size / 1000:.1f} kB",
            f"{float(run.attrs['seconds']):.1f}",
            "" if value is None else f"{name} {value:.6g}",
        )
    return table


def described(run: xarray.Dataset) -> dict[str, dict[str, Any]]:
    """Everything that is known of a run but its curves, under headings."""
    import json

    from simulations.runs import results_of, settings_of

    elsewhere = {"settings", "provenance", "sha256", "format", "version", "result"}
    return {
        "run": {name: value for name, value in run.attrs.items() if name not in elsewhere},
        "settings": settings_of(run),
        "provenance": json.loads(run.attrs["provenance"]),
        "final values": results_of(run),
        "variables": {str(name): shape(x) for name, x in run.variables.items()},
    }


def citations(runs: Sequence[xarray.Dataset]) -> list[str]:
    """One BibTeX entry for each code, set of versions and data; machines are left out."""
    import json

    made: dict[str, list[xarray.Dataset]] = {}
    for run in runs:
        origin = {k: x for k, x in json.loads(run.attrs["provenance"]).items() if k not in ("processor", "cores")}
        data = run.attrs.get("data_fingerprint")
        made.setdefault(json.dumps(origin | ({"data": data} if data else {})), []).append(run)
    entries = []
    for text, group in made.items():
        origin = json.loads(text)
        version, commit = (origin.pop(name, "unknown") for name in ("scalevec", "commit"))
        rest = ", ".join(f"{name} {value}" for name, value in origin.items())
        keys = sorted(run.attrs["key"] for run in group)
        entries.append(
            f"@software{{scalevec-{keys[0]},\n"
            "  title = {scalevec: proving, attacking and simulating theorems about scale vectors},\n"
            "  author = {{The scalevec authors}},\n"
            f"  version = {{{version}, commit {commit}}},\n"
            f"  note = {{{rest}; runs {', '.join(keys)}}},\n"
            "}"
        )
    return entries


def shape(variable: xarray.Variable) -> str:
    return ", ".join(f"{dim} {size:,}" for dim, size in variable.sizes.items()) or "one number"


def two_columns(entries: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in entries.items():
        table.add_row(f"  {name}", f"{value:.6g}" if isinstance(value, float) else str(value))
    return table


def comparison_table(first: xarray.Dataset, second: xarray.Dataset) -> Table:
    """Settings that differ, then all results, with the difference of numbers."""
    from rich.table import Table

    from simulations.runs import results_of, settings_of

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for run in (first, second):
        table.add_column(run.attrs["key"][:KEY_SHOWN], justify="right", overflow="fold")
    table.add_column("difference", justify="right")
    a, b = ({"task": run.attrs["task"], **settings_of(run)} for run in (first, second))
    for name in [*a, *(n for n in b if n not in a)]:
        if a.get(name) != b.get(name) or (name in a) != (name in b):
            table.add_row(name, *(str(x[name]) if name in x else "" for x in (a, b)), "")
    table.add_section()
    u, v = results_of(first), results_of(second)
    for name in [*u, *(n for n in v if n not in u)]:
        numbers = [f"{x[name]:.6g}" if name in x else "" for x in (u, v)]
        table.add_row(name, *numbers, f"{v[name] - u[name]:+.3g}" if name in u and name in v else "")
    return table
