"""The store of runs: one run is one labelled dataset, in one netCDF file named after its key.

A file is written whole or not at all, by any number of processes on any number of hosts, and holds the SHA-256 of its
own bytes: what was truncated, damaged or put there by something else is noticed before it is parsed, named, set aside
and computed again.  A folder of runs is plain files, and can be copied and archived as such.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulations.provenance import provenance
from simulations.store import set_aside, write_bytes

if TYPE_CHECKING:
    import xarray

FORMAT = "scalevec-run"
VERSION = 1

_UNSEALED = b"0" * 64
_SEAL = b"\x00\x00\x00\x06sha256\x00\x00" + b"\x00\x00\x00\x02" + b"\x00\x00\x00\x40"
"""How the attribute ``sha256``, 64 characters, stands in a netCDF-3 file: length and name, type, length."""

_VERSION_0 = {
    "variables": {"loss", "gradient_norm", "held_out_loss", "rms", "evaluated", "parameter"},
    "attributes": {
        *("run", "key", "data_fingerprint", "entropy", "parameters", "trained_parameters", "seconds", "provenance")
    },
}
"""What a training run held before files said their format."""

logger = logging.getLogger("scalevec")


def key_of(settings: object) -> str:
    """A hash of settings in JSON's terms: runs of one key do the same."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def label(
    dataset: xarray.Dataset, *, key: str, task: str, settings: Mapping[str, Any], seconds: float, result: str = ""
) -> xarray.Dataset:
    """The dataset with the attributes of a run: what it is a run of, and where, when and how long it was made.

    Parameters
    ----------
    task : what was run, such as ``train``.
    settings : what it was run with, in JSON's terms.
    seconds : wall time.
    result : the variable whose last value stands for the run in tables; the first one if not given.
    """
    return dataset.assign_attrs(
        key=key,
        task=task,
        settings=json.dumps(settings, sort_keys=True),
        seconds=float(seconds),
        result=result or next(map(str, dataset.data_vars), ""),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        provenance=json.dumps(provenance()),
    )


@dataclass(frozen=True)
class RunStore:
    """The runs in a folder, by key."""

    folder: Path

    def path(self, key: str) -> Path:
        """The file of a run, finished or not."""
        return self.folder / f"{key}.nc"

    def keys(self) -> list[str]:
        """The keys of all files of runs, in alphabetical order; whether they are whole shows when they are read."""
        return sorted(p.stem for p in self.folder.glob("*.nc") if not p.name.startswith("."))

    def put(self, run: xarray.Dataset) -> xarray.Dataset:
        """Write a run that `label` has labelled, and return it as it will be read.

        Raises
        ------
        ValueError : a value that a netCDF-3 file cannot hold, such as an integer beyond 32 bits or a complex number.
        OSError : the folder cannot be made or written; an earlier file of this key is untouched.
        """
        key = run.attrs["key"]
        sealed = run.assign_attrs(format=FORMAT, version=VERSION, sha256=_UNSEALED.decode())
        try:
            content = bytes(sealed.to_netcdf(engine="scipy"))
        except (ValueError, TypeError) as error:
            raise ValueError(f"run {key}: a value that cannot be stored: {error}") from error
        before, after = content.split(_SEAL + _UNSEALED, 1)
        digest = hashlib.sha256(content).hexdigest().encode()
        self.folder.mkdir(parents=True, exist_ok=True)
        content = before + _SEAL + digest + after
        write_bytes(self.path(key), content)
        return _parsed(content)

    def get(self, key: str) -> xarray.Dataset | None:
        """The run of this key; None if there is none, or if its file was damaged and has been set aside.

        Raises
        ------
        OSError : the file is there and cannot be read.
        ValueError : it was written by a later version of this program.
        """
        path = self.path(key)
        content = None
        try:
            content = path.read_bytes()
            run = _read(content, path)
        except FileNotFoundError:
            return None
        except (IsADirectoryError, Damaged) as error:
            reason = error if isinstance(error, Damaged) else "a folder"
            moved = set_aside(path, content)
            logger.warning(f"{path}: not a whole run ({reason}); {moved}")
            return None
        return run

    def find(self, beginning: str) -> str:
        """The one key that begins so.

        Raises
        ------
        ValueError : there is none, or there are several.
        """
        found = [key for key in self.keys() if key.startswith(beginning)]
        if len(found) != 1:
            shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
            raise ValueError(f"key={beginning!r}: {len(found)} runs in {self.folder} begin so{shown and ': '}{shown}")
        return found[0]

    def remove(self, key: str) -> None:
        """Remove a run, and what a process that died left of it.

        Raises
        ------
        FileNotFoundError : there is no such run.
        """
        self.path(key).unlink()
        for left in [*self.folder.glob(f".{key}.*.tmp"), self.folder / f"{key}.checkpoint"]:
            left.unlink(missing_ok=True)


class Damaged(ValueError):
    """The bytes are not those of a run that was written whole."""


def _read(content: bytes, path: Path) -> xarray.Dataset:
    place = content.find(_SEAL)
    if place < 0:
        return _from_version_0(content, path)
    start = place + len(_SEAL)
    stored, unsealed = content[start : start + 64], content[:start] + _UNSEALED + content[start + 64 :]
    if hashlib.sha256(unsealed).hexdigest().encode() != stored:
        raise Damaged("its bytes are not those its checksum was taken of")
    run = _parsed(content)
    if run.attrs.get("format") != FORMAT:
        raise Damaged("another program's")
    if run.attrs["version"] > VERSION:
        raise ValueError(
            f"{path}: format version {run.attrs['version']}, this program reads up to {VERSION}; update it"
        )
    if run.attrs["key"] != path.stem:
        raise Damaged(f"it is run {run.attrs['key']}")
    return run


def _parsed(content: bytes) -> xarray.Dataset:
    import xarray  # with pandas, slow to import, and the keys of runs are needed where none is read

    with xarray.open_dataset(io.BytesIO(content), engine="scipy") as stored:
        return stored.load()


def _from_version_0(content: bytes, path: Path) -> xarray.Dataset:
    """A training run from before files held their checksum, brought to today's form; the file, too, where it can be."""
    try:
        run = _parsed(content)
        attributes = run.attrs
        whole = (
            set(map(str, run.variables)) == _VERSION_0["variables"]
            and set(attributes) == _VERSION_0["attributes"]
            and hashlib.sha256(attributes["run"].encode()).hexdigest()[:16] == attributes["key"] == path.stem
            and all(bool(run[name].notnull().all()) for name in run.data_vars)
            and run.sizes["step"] == json.loads(attributes["run"])["steps"] == run["evaluated"].values[-1]
        )
    except Exception as error:  # whatever bytes that are no netCDF file make its reader raise
        raise Damaged("no netCDF file, or a truncated one") from error
    if not whole:
        raise Damaged("no run, or a damaged one")
    upgraded = run.assign_attrs(
        task="train",
        settings=attributes["run"],
        result="held_out_loss",
        created=datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds"),
    )
    del upgraded.attrs["run"]
    try:
        return RunStore(path.parent).put(upgraded)
    except OSError:
        return upgraded


def settings_of(run: xarray.Dataset) -> dict[str, Any]:
    """The settings of a run, those of a nested mapping under names like ``architecture.width``."""
    return _flat(json.loads(run.attrs["settings"]))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def results_of(run: xarray.Dataset) -> dict[str, float]:
    """The numbers of a run: scalars as they are, and the last value of what has one dimension."""
    found = {}
    for name, variable in run.data_vars.items():
        if variable.ndim <= 1 and variable.size and variable.dtype.kind in "biuf":
            found[str(name)] = float(variable.values.reshape(-1)[-1])
    return found
