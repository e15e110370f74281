"""Worker processes that end when their parent is gone.

Alone in its file: a worker imports it first, and must not be busy with larger imports while its parent is killed.
"""

from __future__ import annotations

import os
import threading
import time

INTERVAL = 0.5
"""Seconds between two looks at the parent."""


def end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed before it can see to that."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(INTERVAL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
