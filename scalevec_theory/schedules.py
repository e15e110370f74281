"""Learning-rate schedules as arrays of factors in [0, 1], one for each step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scalevec_theory.counts import check_count

FloatArray = np.ndarray


def _warmed(steps: int, warmup: int) -> FloatArray:
    """The linear warm-up k/warmup for k = 1 … warmup, then 1."""
    check_count("steps", steps)
    if check_count("warmup", warmup, 0) > steps:
        raise ValueError(f"warmup={warmup}: expected from 0 to steps={steps}")
    return np.minimum(np.arange(1, steps + 1) / max(warmup, 1), 1.0)


def constant(steps: int, warmup: int = 0) -> FloatArray:
    """Linear warm-up, then 1; ``(steps,)``."""
    return _warmed(steps, warmup)


def cosine(steps: int, warmup: int = 0) -> FloatArray:
    """Linear warm-up, then half a cosine from 1 to 0; ``(steps,)``."""
    share = (np.arange(1, steps + 1) - warmup) / max(steps - warmup, 1)
    return np.where(share > 0, 0.5 * (1 + np.cos(np.pi * np.maximum(share, 0))), _warmed(steps, warmup))


def wsd(steps: int, warmup: int = 0, decay: float = 0.2) -> FloatArray:
    """Linear warm-up, stable at 1, then a linear decay to 0 over a last share ``decay``; ``(steps,)``."""
    if not 0 <= decay <= 1:
        raise ValueError(f"decay={decay}: expected a share from 0 to 1")
    left = (steps - np.arange(1, steps + 1)) / (decay * steps) if decay else np.ones(steps)
    return np.minimum(_warmed(steps, warmup), left)


SCHEDULES: dict[str, Callable[[int, int], FloatArray]] = {"constant": constant, "cosine": cosine, "wsd": wsd}
"""Every schedule by its name."""
