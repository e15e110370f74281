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

from scalevec_theory import abm_kernels
from scalevec_theory.counts import check_count
from scalevec_theory.equilibrium import checked_schedule
from scalevec_theory.flow import check_device
from scalevec_theory.generator import STREAM_LANES, check_seed
from scalevec_theory.optimizers import Muon, Optimizer, check_optimizer
from scalevec_theory.update_rules import initial_state, update

FloatArray = np.ndarray


@dataclass(frozen=True)
class Gradients:
    """Entries of mean 0 and standard deviation ``std``, independent of each other and, by default, in time.

    Parameters
    ----------
    correlation : φ of g_t = φ g_{t−1} + √(1 − φ²) std ξ_t; the first gradient has the variance of all others.
    student_df : ξ follows Student's t of so many degrees of freedom, scaled to variance 1, instead of the normal law.

    Raises
    ------
    ValueError : std not positive, |φ| ≥ 1, fewer than 3 degrees of freedom.
    """

    std: float = 1.0
    correlation: float = 0.0
    student_df: int | None = None

    def __post_init__(self) -> None:
        if not (self.std > 0 and math.isfinite(self.std)):
            raise ValueError(f"std={self.std}: expected a finite number > 0")
        if not -1 < self.correlation < 1:
            raise ValueError(f"correlation={self.correlation}: expected a number in (-1, 1)")
        if self.student_df is not None and self.student_df < 3:
            raise ValueError(f"student_df={self.student_df}: expected >= 3, or the variance is infinite")


@dataclass(frozen=True, eq=False)
class Walk:
    """What moved by noise, at S recorded steps.

    Attributes
    ----------
    steps : ``(S,)``; step 0 is the start.
    squares : mean square of the entries of each of G independent groups, ``(S, G)``: a tensor each, or 64 coordinates.
    weights : after the last step, ``(n, *shape)``.
    """

    steps: FloatArray
    squares: FloatArray
    weights: Tensor

    @property
    def mean_square(self) -> FloatArray:
        """The mean of w² over all entries, ``(S,)``."""
        return self.squares.mean(1)

    @property
    def stderr(self) -> FloatArray:
        """The standard error of `mean_square`, ``(S,)``; NaN for a single group."""
        G = self.squares.shape[1]
        return self.squares.std(1, ddof=1) / math.sqrt(G) if G > 1 else np.full(len(self.steps), np.nan)


def run(
    optimizer: Optimizer,
    n: int,
    steps: int,
    *,
    shape: tuple[int, ...] = (),
    gradients: Gradients | None = None,
    seed: int = 0,
    init: float = 0.0,
    scale_invariant: bool = False,
    lr_schedule: FloatArray | None = None,
    weight_decay_schedule: FloatArray | None = None,
    record: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Walk:
    """Move ``n`` independent tensors of a shape (default: single coordinates) by ``steps`` steps of an optimizer.

    On the CPU, every optimizer but Muon is compiled where the number of coordinates (of a tensor's entries) is a
    multiple of 64 and weights are not scale-invariant; everything else goes through batched torch, with other random
    numbers of the same law.

    Parameters
    ----------
    gradients : their law; standard normal by default.
    seed : of all random numbers; the same for any number of threads.
    init : standard deviation of the Gaussian w(0).
    scale_invariant : the gradient is made orthogonal to its tensor and divided by the tensor's norm.
    lr_schedule, weight_decay_schedule : factors ``(steps,)``.
    record : steps, ascending from 0 to ``steps``, at which squares are kept; default: the last.

    Raises
    ------
    ValueError : n or steps below 1, a bad schedule, record or seed, init negative, Muon on tensors that are not
        matrices, scale-invariant tensors of one entry or that start at 0, a dtype that is neither float32 nor float64,
        or a device that is not there.
    """
    check_optimizer(optimizer)
    check_count("n", n)
    check_count("steps", steps)
    if not (init >= 0 and math.isfinite(init)):
        raise ValueError(f"init={init}: expected a finite number >= 0")
    if isinstance(optimizer, Muon) and len(shape) != 2:
        raise ValueError(f"shape={shape}: Muon moves matrices; expected two sizes, such as (64, 256)")
    if scale_invariant and (init == 0 or math.prod(shape) < 2):
        raise ValueError(f"scale_invariant=True with shape={shape}, init={init}: expected 2 entries or more, init > 0")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype={dtype}: expected torch.float32 or torch.float64")
    kept = np.array([check_count("record", n, 0) for n in ([steps] if record is None else record)], dtype=np.int64)
    if len(kept) == 0 or kept.max() > steps or (np.diff(kept) <= 0).any():
        raise ValueError(f"record={record}: expected ascending steps from 0 to {steps}")
    key = int(check_seed(seed))
    where = check_device(device)
    gradients = gradients or Gradients()
    lr = optimizer.lr * checked_schedule("lr_schedule", lr_schedule, steps)
    decay = optimizer.weight_decay * checked_schedule("weight_decay_schedule", weight_decay_schedule, steps)
    whole_blocks = (math.prod(shape) if shape else n) % STREAM_LANES == 0
    if where.type == "cpu" and whole_blocks and not scale_invariant and not isinstance(optimizer, Muon):
        blocks = n * math.prod(shape) // STREAM_LANES
        w, sums = abm_kernels.walk(
            optimizer,
            blocks,
            lr,
            decay,
            noise=gradients.std,
            correlation=gradients.correlation,
            student_df=gradients.student_df,
            seed=key,
            init=init,
            record=kept,
            dtype=np.float32 if dtype == torch.float32 else np.float64,
            threads=torch.get_num_threads(),
        )
        groups = sums.reshape(len(kept), n if shape else blocks, -1)
        return Walk(kept, groups.mean(2) / STREAM_LANES, torch.from_numpy(w).reshape(n, *shape))

    source = _Source((n, *shape), gradients, key, dtype, where)
    weights = init * source.normal()
    state = initial_state(optimizer, weights)
    squares, saved = [], set(kept.tolist())
    for t in range(steps + 1):
        if t > 0:
            g = source.draw()
            if scale_invariant:
                g = _tangential(g.flatten(1), weights.flatten(1)).reshape(weights.shape)
            update(optimizer, state, weights, g, t, float(lr[t - 1]), float(decay[t - 1]))
        if t in saved:
            squares.append(weights.reshape(n, -1).double().square().mean(1).cpu().numpy())
    return Walk(kept, np.stack(squares), weights)


def _tangential(g: Tensor, w: Tensor) -> Tensor:
    """The part of each row of ``g`` that is orthogonal to that of ``w``, over the norm of the latter."""
    norm = w.norm(dim=1, keepdim=True)
    return (g - (g * w).sum(1, keepdim=True) / norm**2 * w) / norm


class _Source:
    """Successive gradients from one generator."""

    def __init__(
        self, shape: tuple[int, ...], gradients: Gradients, seed: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._empty = torch.empty(shape, dtype=dtype, device=device)
        self._law = gradients
        self._last: Tensor | None = None

    def normal(self) -> Tensor:
        return torch.empty_like(self._empty).normal_(generator=self._generator)

    def draw(self) -> Tensor:
        g, phi = self.normal(), self._law.correlation
        if self._law.student_df is not None:
            chi2 = sum((self.normal().square() for _ in range(self._law.student_df)), torch.zeros_like(g))
            g *= torch.sqrt((self._law.student_df - 2) / chi2)
        if phi and self._last is not None:
            g = phi * self._last + math.sqrt(1 - phi**2) * g
        self._last = g
        return self._law.std * g
