import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from simulations.store import check_writable, plain, read_json, write_json, write_text


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.md"
    write_text(path, "before")

    def full(self: Path, content: bytes) -> int:
        with open(self, "wb") as file:
            file.write(content[:3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(path, "after")
    assert caught.value.filename == str(path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["page.md"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    read, write = os.pipe()
    write_text(Path(f"/dev/fd/{write}"), "text")
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read() == "text"


@pytest.mark.parametrize("path", ["no/such/folder/file", "file/below", "."])
def test_check_writable_names_the_path(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as caught:
        check_writable(tmp_path / path)
    assert caught.value.filename == str(tmp_path / path)
    assert os.listdir(tmp_path) == ["file"]


def test_check_writable_leaves_nothing_and_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    check_writable(tmp_path / "file")
    check_writable(tmp_path / "new")
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "text"


def test_what_is_written_is_valid_json(tmp_path: Path) -> None:
    value = {"a": [float("nan"), float("inf"), -1.5, np.float64("nan"), np.int64(3), torch.tensor(2.0)], "b": None}
    write_json(tmp_path / "x.json", value)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    read = json.loads((tmp_path / "x.json").read_text(), parse_constant=refuse)
    assert read == {"a": [None, None, -1.5, None, 3, 2.0], "b": None} == read_json(tmp_path / "x.json")


def test_plain_refuses_what_json_cannot_say() -> None:
    with pytest.raises(TypeError, match="object"):
        plain(object())


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe"])
def test_a_damaged_file_reads_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    assert read_json(tmp_path / "x.json") is None
    assert read_json(tmp_path / "missing.json") is None
