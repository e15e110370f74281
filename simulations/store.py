"""Files are written whole or not at all, small data as JSON, and what is damaged is set aside."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of a text in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name in its folder, then rename it.

    Raises
    ------
    OSError : the folder is missing, read-only or full; what was at ``path`` before is untouched.
    """
    if path.exists() and not path.is_file():  # a pipe or a terminal: nothing can be renamed onto it
        path.write_bytes(content)
        return
    target = Path(os.path.realpath(path))
    temporary = _unused_name(target, "tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, target)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise
    finally:
        with contextlib.suppress(OSError):  # it could not be created either, and that error is the one to report
            temporary.unlink(missing_ok=True)


def _unused_name(path: Path, ending: str) -> Path:
    """A hidden name beside ``path`` that no other process takes, on this host or on another."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.{ending}")


def set_aside(path: Path, content: bytes | None = None) -> str:
    """Rename a damaged file or folder to a name beside it, and say in words what became of it.

    Given the ``content`` that was found to be damaged, a file that another process has put there since stays.
    """
    aside = path.with_name(f"{path.name}.damaged-{secrets.token_hex(4)}")
    try:
        path.rename(aside)
        if content is not None and aside.read_bytes() != content:
            aside.replace(path)
            return "it has been replaced since"
    except FileNotFoundError:
        return "it has been moved since"
    except OSError as error:
        return f"it cannot be moved: {error.strerror}"
    return f"set aside as {aside.name}"


SEAL = b"sealed with SHA-256 "


def seal(content: bytes) -> bytes:
    """The content after a line with its SHA-256."""
    return SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def unseal(content: bytes) -> bytes:
    """What `seal` was given.

    Raises
    ------
    ValueError : it is not sealed, or is not what was sealed.
    """
    line, _, inner = content.partition(b"\n")
    if line != SEAL + hashlib.sha256(inner).hexdigest().encode():
        raise ValueError("its bytes are not those its checksum was taken of")
    return inner


def check_writable(path: Path) -> None:
    """Fail now rather than after a long run if ``path`` could not be written.

    Raises
    ------
    OSError : as `write_text`, or ``path`` is a folder.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.exists() or path.is_file():
        target = Path(os.path.realpath(path))
        probe = _unused_name(target, "probe")
        try:
            write_text(probe, "")
            probe.unlink()
        except OSError as error:
            error.filename = str(path)
            raise


def plain(value: object) -> object:
    """The same value in JSON's terms: numbers that are not finite become null, numpy and torch scalars plain numbers.

    Raises
    ------
    TypeError : something that is neither a number, a string, a list, a mapping nor None.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        return plain(value.item())
    raise TypeError(f"{type(value).__name__} {value!r}: expected a number, string, list, mapping or None")


def write_json(path: Path, value: object) -> None:
    """Write ``plain(value)``; raises as `write_text`."""
    write_text(path, json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def read_json(path: Path) -> object | None:
    """What the file holds, or None if it is missing or is not JSON."""
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
        return value
    except (OSError, ValueError):
        return None
