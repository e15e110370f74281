"""Adam Brownian motion and its kin: what any optimizer does to weights whose gradients are pure noise.

Source: arXiv 2601.04890 (Adam Brownian motion).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scalevec_theory.equilibrium import checked_schedule
from scalevec_theory.flow import check_device
from scalevec_theory.optimizers import Muon, Optimizer
from scalevec_theory.update_rules import initial_state, update

FloatArray = np.ndarray


@dataclass(frozen=True, eq=False)
class Walk:
    """Tensors (or blocks of coordinates) that moved by noise, at S recorded steps.

    Attributes
    ----------
    steps : ``(S,)``; step 0 is the start.
    squares : sum of the squared entries of each of G groups, ``(S, G)``: a tensor each, or of independent coordinates
        some tens together.
    sizes : entries of each group, ``(G,)``.
    weights : the weights after the last step, ``(n, *shape)``.
    """

    steps: FloatArray
    squares: FloatArray
    sizes: FloatArray
    weights: Tensor

    @property
    def mean_square(self) -> FloatArray:
        """The mean of w² over all entries, ``(S,)``."""
        return self.squares.sum(1) / self.sizes.sum()

    @property
    def stderr(self) -> FloatArray:
        """The standard error of `mean_square`, the groups being independent, ``(S,)``; NaN for a single group."""
        if len(self.sizes) < 2:
            return np.full(len(self.steps), np.nan)
        deviation = self.squares - self.sizes * self.mean_square[:, None]
        return np.sqrt((deviation**2).sum(1) / (1 - 1 / len(self.sizes))) / self.sizes.sum()


def run(
    optimizer: Optimizer,
    n: int,
    steps: int,
    *,
    shape: tuple[int, ...] = (),
    seed: int = 0,
    init: float = 0.0,
    noise: float = 1.0,
    correlation: float = 0.0,
    student_df: int | None = None,
    scale_invariant: bool = False,
    lr_schedule: FloatArray | None = None,
    weight_decay_schedule: FloatArray | None = None,
    record: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Walk:
    """Move ``n`` independent tensors of a shape (default: single coordinates) by ``steps`` steps of an optimizer.

    Parameters
    ----------
    seed : of all random numbers; the same for any number of threads.
    init : standard deviation of the Gaussian w(0).
    noise : standard deviation of every entry of every gradient.
    correlation : φ of gradients g_t = φ g_{t−1} + √(1 − φ²) ξ_t, from their stationary law.
    student_df : degrees of freedom (3 or more) of Student's t for ξ instead of the normal law, at the same variance.
    scale_invariant : the gradient is made orthogonal to its tensor and divided by the tensor's norm.
    lr_schedule, weight_decay_schedule : factors ``(steps,)``.
    record : steps, ascending from 0 to ``steps``, at which sums of squares are kept; default: the last.

    Raises
    ------
    ValueError : n or steps below 1, a bad schedule or record, noise not positive, init negative, |φ| ≥ 1, fewer than 3
        degrees of freedom, Muon on tensors that are not matrices, scale-invariant single coordinates or start at 0, a
        dtype that is neither float32 nor float64, or a device that is not there.
    """
    if n < 1 or steps < 1:
        raise ValueError(f"n={n}, steps={steps}: expected both >= 1")
    if not (noise > 0 and math.isfinite(noise)) or not (init >= 0 and math.isfinite(init)):
        raise ValueError(f"noise={noise}, init={init}: expected noise > 0 and init >= 0, both finite")
    if not -1 < correlation < 1:
        raise ValueError(f"correlation={correlation}: expected a number in (-1, 1)")
    if student_df is not None and student_df < 3:
        raise ValueError(f"student_df={student_df}: expected >= 3, or the variance is infinite")
    if isinstance(optimizer, Muon) and len(shape) != 2:
        raise ValueError(f"shape={shape}: Muon moves matrices; expected two sizes, such as (64, 256)")
    if scale_invariant and (init == 0 or math.prod(shape) < 2):
        raise ValueError(f"scale_invariant=True with shape={shape}, init={init}: expected 2 entries or more, init > 0")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype={dtype}: expected torch.float32 or torch.float64")
    kept = np.array([steps] if record is None else record, dtype=np.int64)
    if len(kept) == 0 or kept.min() < 0 or kept.max() > steps or (np.diff(kept) <= 0).any():
        raise ValueError(f"record={record}: expected ascending steps from 0 to {steps}")
    where = check_device(device)
    lr = optimizer.lr * checked_schedule("lr_schedule", lr_schedule, steps)
    decay = optimizer.weight_decay * checked_schedule("weight_decay_schedule", weight_decay_schedule, steps)
    source = _Gradients((n, *shape), noise, correlation, student_df, seed, dtype, where)
    w = init * source.normal()
    state = initial_state(optimizer, w)
    squares, saved = [], set(kept.tolist())
    for t in range(steps + 1):
        if t > 0:
            g = source.draw()
            if scale_invariant:
                flat, direction = g.flatten(1), torch.nn.functional.normalize(w.flatten(1), dim=1)
                along = (flat * direction).sum(1, keepdim=True) * direction
                g = ((flat - along) / w.flatten(1).norm(dim=1, keepdim=True)).reshape(w.shape)
            update(optimizer, state, w, g, t, float(lr[t - 1]), float(decay[t - 1]))
        if t in saved:
            squares.append(_groups(w).double().square().sum(1).cpu().numpy())
    sizes = np.full(len(squares[0]), w[0].numel()) if shape else _group_sizes(n)
    return Walk(kept, np.stack(squares), sizes, w)


LANES = 64
"""Single coordinates are grouped by so many."""


def _groups(w: Tensor) -> Tensor:
    """Tensors ``(n, *shape)`` as rows; single coordinates ``(n,)`` by `LANES`, the last row filled up with zeros."""
    if w.ndim > 1:
        return w.flatten(1)
    return torch.nn.functional.pad(w, (0, -len(w) % LANES)).reshape(-1, LANES)


def _group_sizes(n: int) -> FloatArray:
    sizes = np.full(-(-n // LANES), LANES)
    sizes[-1] -= -n % LANES
    return sizes


class _Gradients:
    """Successive gradients from one generator."""

    def __init__(
        self,
        shape: tuple[int, ...],
        noise: float,
        correlation: float,
        student_df: int | None,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._options = {"dtype": dtype, "device": device, "generator": torch.Generator(device).manual_seed(seed)}
        self._shape, self._noise, self._correlation, self._df = shape, noise, correlation, student_df
        self._last: Tensor | None = None

    def normal(self) -> Tensor:
        return torch.randn(self._shape, **self._options)  # type: ignore[arg-type]

    def draw(self) -> Tensor:
        g = self.normal()
        if self._df is not None:
            chi2 = torch.zeros_like(g)
            for _ in range(self._df):
                chi2.addcmul_(*[self.normal()] * 2)
            g *= torch.sqrt((self._df - 2) / chi2)
        if self._correlation and self._last is not None:
            g = self._correlation * self._last + math.sqrt(1 - self._correlation**2) * g
        self._last = g
        return self._noise * g
