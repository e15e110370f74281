"""The store of runs: what is written is read, and nothing else is read as data."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import xarray

from simulations import runs
from simulations.runs import RunStore, key_of, label, results_of, settings_of

SETTINGS = {"lr": 1e-3, "architecture": {"width": 16}, "name": "é"}
KEY = key_of(SETTINGS)


def make(value: float = 0.5, steps: int = 3) -> xarray.Dataset:
    data = {"loss": ("step", np.linspace(1, value, steps)), "count": 7, "rms": (("k", "parameter"), np.ones((2, 2)))}
    found = xarray.Dataset(data, {"parameter": ["w", "vé"]}, {"entropy": float("nan"), "note": ""})
    return label(found, key=KEY, task="made", settings=SETTINGS, seconds=1.5)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path / "runs")
    store.put(make())
    return store


def names(store: RunStore) -> list[str]:
    """The names of all files, those set aside without what makes their names their own."""
    return sorted(name.partition("damaged-")[0] for name in os.listdir(store.folder))


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "new" / "runs")
    assert store.keys() == [] and store.get(KEY) is None
    written, read = store.put(make()), store.get(KEY)
    assert read is not None and read.identical(written)
    assert store.keys() == [KEY] and names(store) == [f"{KEY}.nc"]
    assert np.array_equal(read["loss"], make()["loss"]) and list(read["parameter"].values) == ["w", "vé"]
    assert settings_of(read) == {"lr": 1e-3, "architecture.width": 16, "name": "é"}
    assert results_of(read) == {"loss": 0.5, "count": 7}
    assert (read.attrs["task"], read.attrs["seconds"], read.attrs["result"]) == ("made", 1.5, "loss")
    assert {"commit", "numpy", "processor"} <= set(json.loads(read.attrs["provenance"]))


def test_any_program_can_read_a_file(store: RunStore) -> None:
    with xarray.open_dataset(store.path(KEY), engine="scipy") as found:
        assert found.attrs["format"] == "scalevec-run" and found.attrs["version"] == 1
        assert np.array_equal(found["loss"], make()["loss"])


def test_a_file_cut_at_any_length_is_set_aside(store: RunStore, caplog: pytest.LogCaptureFixture) -> None:
    content = store.path(KEY).read_bytes()
    for length in [*range(0, 64), *range(64, len(content), 37), len(content) - 1]:
        store.path(KEY).write_bytes(content[:length])
        assert store.get(KEY) is None, length
        assert not store.path(KEY).exists()
    message = caplog.messages[-1]
    assert message.startswith(f"{store.path(KEY)}: not a whole run (its bytes are not those its checksum was taken of")
    assert f"set aside as {KEY}.nc.damaged-" in message and "\n" not in message


def test_one_bit_flipped_anywhere_is_noticed(store: RunStore) -> None:
    content = store.path(KEY).read_bytes()
    rng = np.random.default_rng(0)
    for place in [*range(0, 400), *range(400, len(content), 5)]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(rng.integers(8))
        store.path(KEY).write_bytes(flipped)
        assert store.get(KEY) is None, place


def foreign(store: RunStore) -> bytes:
    return bytes(xarray.Dataset({"loss": ("step", [1.0])}, attrs={"key": KEY}).to_netcdf(engine="scipy"))


def renamed(store: RunStore) -> bytes:
    other = RunStore(store.folder / "other")
    return other.path(other.put(make().assign_attrs(key="other")).attrs["key"]).read_bytes()


@pytest.mark.parametrize(
    ("make_content", "reason"),
    [
        (foreign, "no run, or a damaged one"),
        (renamed, "it is run other"),
        (lambda store: b"", "no netCDF file"),
        (lambda store: b"PK\x03\x04 a torch file", "no netCDF file"),
        (lambda store: None, "a folder"),
    ],
)
def test_what_is_no_run_is_named_and_set_aside(store: RunStore, make_content, reason, caplog) -> None:
    content = make_content(store)
    store.path(KEY).unlink()
    store.path(KEY).mkdir() if content is None else store.path(KEY).write_bytes(content)
    assert store.get(KEY) is None
    assert reason in caplog.text and caplog.text.count("\n") == 1
    assert store.keys() == [] and f"{KEY}.nc." in names(store)
    store.put(make())
    assert store.get(KEY) is not None


def test_a_later_format_is_neither_read_nor_set_aside(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "VERSION", 2)
    store.put(make())
    monkeypatch.setattr(runs, "VERSION", 1)
    with pytest.raises(ValueError, match="format version 2, this program reads up to 1; update it"):
        store.get(KEY)
    assert store.path(KEY).exists()


def test_a_file_that_another_process_replaced_stays(store: RunStore, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    whole = store.path(KEY).read_bytes()
    store.path(KEY).write_bytes(whole[:-1])
    read = Path.read_bytes

    def replaced_after(path: Path) -> bytes:
        content = read(path)
        if content == whole[:-1]:
            path.write_bytes(whole)
        return content

    monkeypatch.setattr(Path, "read_bytes", replaced_after)
    assert store.get(KEY) is None and "it has been replaced since" in caplog.text
    assert store.get(KEY) is not None and names(store) == [f"{KEY}.nc"]


def version_0(settings: dict, key: str | None = None, **more: str) -> bytes:
    """A file as training runs were written before files said their format."""
    data = {"loss": ("step", [2.0, 1.0]), "gradient_norm": ("step", [1.0, 1.0])}
    data |= {"held_out_loss": ("evaluation", [2.0, 1.5]), "rms": (("evaluation", "parameter"), np.ones((2, 1)))}
    attributes = {"run": json.dumps(settings, sort_keys=True), "key": key or key_of(settings), "seconds": 2.0}
    attributes |= {"data_fingerprint": "f", "entropy": 1.0, "parameters": 1, "trained_parameters": 1}
    attributes |= {"provenance": json.dumps({"commit": "before"}), **more}
    coordinates = {"evaluated": ("evaluation", [0, 2]), "parameter": ["w"]}
    return bytes(xarray.Dataset(data, coordinates, attributes).to_netcdf(engine="scipy"))


def test_a_file_of_version_0_is_upgraded_and_keeps_its_key(tmp_path: Path, caplog) -> None:
    store, settings = RunStore(tmp_path), {"steps": 2, "lr": 0.1}
    key = key_of(settings)
    store.path(key).write_bytes(version_0(settings))
    first = store.get(key)
    assert first is not None and not caplog.text
    assert first.attrs["version"] == 1 and first.attrs["task"] == "train" and settings_of(first) == settings
    assert first.attrs["provenance"] == '{"commit": "before"}' and first.attrs["result"] == "held_out_loss"
    assert results_of(first) == {"loss": 1.0, "gradient_norm": 1.0, "held_out_loss": 1.5}
    again = store.get(key)
    assert again is not None and again.identical(first) and b"sha256" in store.path(key).read_bytes()


@pytest.mark.parametrize("damage", ["cut", "key", "steps", "attribute"])
def test_a_damaged_file_of_version_0_is_set_aside(tmp_path: Path, damage: str) -> None:
    store, settings = RunStore(tmp_path), {"steps": 3 if damage == "steps" else 2}
    more = {"SHA256": "0" * 64} if damage == "attribute" else {}
    content = version_0(settings, "0" * 16 if damage == "key" else None, **more)
    store.path(key_of(settings)).write_bytes(content[:-9] if damage == "cut" else content)
    assert store.get(key_of(settings)) is None and store.keys() == []


@pytest.mark.parametrize("value", [2**40, 1j])
def test_what_a_file_cannot_hold_is_refused(store: RunStore, value) -> None:
    with pytest.raises(ValueError, match=f"run {KEY}: a value that cannot be stored"):
        store.put(make().assign(big=value))
    assert store.get(KEY) is not None


def test_a_full_disk_leaves_what_was_there(store: RunStore) -> None:
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            store.put(make(0.25, steps=2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.filename == str(store.path(KEY))
    found = store.get(KEY)
    assert found is not None and results_of(found)["loss"] == 0.5 and names(store) == [f"{KEY}.nc"]


@contextmanager
def nobody() -> Iterator[None]:
    """Root, whom no permission stops, as somebody else."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_read_only_folder_is_read_and_named_when_written(caplog: pytest.LogCaptureFixture) -> None:
    with TemporaryDirectory() as folder:  # tmp_path lies in a folder that nobody else may enter
        store, settings = RunStore(Path(folder)), {"steps": 2}
        store.put(make())
        store.path(key_of(settings)).write_bytes(version_0(settings))
        store.path("broken").write_bytes(b"no netCDF")
        store.folder.chmod(0o555)
        try:
            with nobody():
                assert store.get(KEY) is not None
                old = store.get(key_of(settings))
                assert old is not None and old.attrs["task"] == "train"
                assert store.get("broken") is None and "it cannot be moved: Permission denied" in caplog.text
                with pytest.raises(PermissionError) as caught:
                    store.put(make())
        finally:
            store.folder.chmod(0o755)
        assert caught.value.filename == str(store.path(KEY))
        assert store.path(key_of(settings)).read_bytes() == version_0(settings)


def write_often(store: RunStore, value: float) -> None:
    for _ in range(40):
        store.put(make(value, steps=500))
        found = store.get(KEY)
        assert found is not None and found["loss"].values[-1] in (0.25, 0.75)


def test_two_processes_write_one_key(store: RunStore, capfd: pytest.CaptureFixture) -> None:
    store.put(make(0.25, steps=500))
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_often, args=(store, value)) for value in (0.25, 0.75)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [w.exitcode for w in writers] == [0, 0] and "whole" not in capfd.readouterr().err
    assert names(store) == [f"{KEY}.nc"]


def test_temporary_names_of_processes_with_one_number_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of two hosts may have the same number."""
    taken: list[str] = []
    monkeypatch.setattr(Path, "write_bytes", lambda path, content: taken.append(path.name))
    monkeypatch.setattr(os, "replace", lambda *paths: None)
    for _ in range(2):
        RunStore(tmp_path).put(make())
    assert len(set(taken)) == 2 and all(name.startswith(f".{KEY}.nc.") for name in taken)


def test_removing_takes_what_was_left_over(store: RunStore) -> None:
    for name in (f".{KEY}.nc.0123.tmp", f"{KEY}.checkpoint"):
        (store.folder / name).write_bytes(b"")
    store.remove(KEY)
    assert names(store) == []
    with pytest.raises(FileNotFoundError):
        store.remove(KEY)
