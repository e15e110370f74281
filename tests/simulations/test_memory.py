import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from simulations.memory import NEEDED, out_of_memory

UNMAPPED = "libtorch_cpu.so: failed to map segment from shared object"


def raised_from(error: BaseException, cause: BaseException | None) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),
        (ImportError(UNMAPPED), True),
        (OSError(f"libllvmlite.so: cannot create shared object descriptor: {os.strerror(errno.ENOMEM)}"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("can't start new thread"), True),
        (
            raised_from(ValueError("claim.py: ImportError"), raised_from(OSError("not found"), ImportError(UNMAPPED))),
            True,
        ),
        (ModuleNotFoundError("No module named 'mwparser'"), False),
        (ImportError(f"{UNMAPPED}: Operation not permitted"), False),
        (ImportError("libgomp.so.1: cannot allocate memory in static TLS block"), False),
        (ImportError("cannot import name 'allocate'"), False),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), False),
        (ValueError("alloc=3: expected >= 4"), False),
        (RuntimeError("shapes do not match"), False),
    ],
)
def test_what_means_out_of_memory(error: BaseException, expected: bool) -> None:
    assert out_of_memory(error) is expected


def test_an_error_that_is_its_own_context_ends() -> None:
    error, other = ValueError("a"), ValueError("b")
    error.__context__, other.__context__ = other, error
    assert not out_of_memory(error)


def test_a_command_says_what_it_needs_before_libraries_are_loaded(tmp_path: Path) -> None:
    size = int(NEEDED / 2 * 2**30)

    def run(*words: str) -> tuple[int, str]:
        found = subprocess.run(
            [sys.executable, "-m", "simulations.cli", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
        )
        return found.returncode, found.stderr

    line = "scalevec: error: out of memory: 0.75 GiB of address space are allowed (ulimit -v): expected at least 1.5\n"
    assert run("claims") == (2, line)
    assert run("new-claim", "mine") == (0, "")
    assert run("check", "--help") == (0, "")
