"""Runs as a table, one row each: CSV or Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas
import xarray

from simulations.runs import results_of, settings_of
from simulations.store import check_writable, write_bytes, write_text

ENDINGS = (".csv", ".parquet")


def check_export(path: Path) -> None:
    """Fail now rather than after a long run.

    Raises
    ------
    ValueError : another ending than those of `ENDINGS`, or what Parquet needs is not installed.
    OSError : the file cannot be written.
    """
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path}: expected a name that ends with {' or '.join(ENDINGS)}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ValueError(f"{path}: Parquet needs pyarrow; pip install 'scalevec[report]', or write CSV")
    check_writable(path)


def rows(runs: Sequence[xarray.Dataset]) -> list[dict[str, Any]]:
    """What each run was, its settings under ``settings.NAME`` and its final values under ``results.NAME``."""
    found = []
    for run in runs:
        row = {name: run.attrs[name] for name in ("key", "task", "created")}
        row["seconds"], row["commit"] = float(run.attrs["seconds"]), json.loads(run.attrs["provenance"]).get("commit")
        row |= {f"settings.{name}": value for name, value in settings_of(run).items()}
        row |= {f"results.{name}": value for name, value in results_of(run).items()}
        found.append(row)
    return found


def export(runs: Sequence[xarray.Dataset], path: Path) -> None:
    """Write `rows` as the file's ending says; columns whose values are of several kinds hold them as JSON.

    Raises
    ------
    ValueError, OSError : as `check_export`.
    """
    check_export(path)
    found = rows(runs)
    table = pandas.DataFrame(found)
    for name in table.columns:
        values = table[name].dropna()
        if len({type(v) for v in values}) > 1 or any(isinstance(v, list) for v in values):
            numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
            table[name] = table[name].astype(float) if numeric else [json.dumps(v) for v in table[name]]
        elif (
            len(values)
            and isinstance(values.iloc[0], float)
            and all(isinstance(r.get(name), int | None) for r in found)
        ):
            table[name] = pandas.array([r.get(name) for r in found], dtype="Int64")  # gaps had made them floats
    if path.suffix == ".csv":
        write_text(path, table.to_csv(index=False))
    else:
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        write_bytes(path, buffer.getvalue())
