"""What the tests of the runner call in worker processes, which import it by name."""

from __future__ import annotations

import os
import signal

import numpy as np
import torch


def draw(seed: int) -> tuple[float, int]:
    return float(np.random.default_rng(seed).standard_normal()), torch.get_num_threads()


def fail(how: type[BaseException]) -> None:
    raise how("on purpose\nin two lines")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
