"""A worker whose parent is killed ends by itself, and one whose parent lives does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time

WORKER = "import os, time; from simulations.orphans import end_with; end_with(os.getppid()); print(1, flush=True)\n"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER + 'time.sleep(60)'!r}])"


def test_a_worker_ends_with_its_parent_and_not_before() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdout is not None and parent.stdout.readline() == b"1\n"
    time.sleep(1.2)
    assert parent.poll() is None
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _alive(parent.pid):
        time.sleep(0.1)
    assert not _alive(parent.pid)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
