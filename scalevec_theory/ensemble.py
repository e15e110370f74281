"""What is kept of an ensemble of random paths: moments and quantiles of observables at the times asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scalevec_theory.counts import check_count
from scalevec_theory.flow import Blocks, check_start
from scalevec_theory.losses import Loss
from scalevec_theory.parametrizations import Parametrization

Observables = Mapping[str, Callable[..., Tensor]]
"""Name to a function of keyword blocks, each ``(B, paths, *block)``, with values ``(B, paths, ...)``."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """B problems at S times, over the paths that are finite at that time; a path is finite if all its parameters are.

    Attributes
    ----------
    times : ``(S,)``.
    mean, variance, stderr : observable to ``(B, S, ...)``: mean over paths, unbiased variance of one path, and standard
        error of the mean.
    quantiles : observable to ``(Q, B, S, ...)``, Q the levels asked for.
    finite : ``(B, S)`` number of finite paths, the ones that count.
    paths : number of paths of each problem.
    final : the blocks at the last time, each ``(B, paths, *block)``: what to start from to go on (with another seed).
    """

    times: Tensor
    mean: dict[str, Tensor]
    variance: dict[str, Tensor]
    stderr: dict[str, Tensor]
    quantiles: dict[str, Tensor]
    finite: Tensor
    paths: int
    final: Blocks

    @property
    def non_finite(self) -> Tensor:
        """Number of paths lost to infinity or NaN, ``(B, S)``."""
        return self.paths - self.finite

    def mean_of_all(self, name: str) -> Tensor:
        """The mean of an observable over all paths, ``(B, S, ...)``: NaN where one was lost, and so decides nothing."""
        mean = self.mean[name]
        lost = (self.non_finite > 0).reshape(*self.finite.shape, *[1] * (mean.ndim - 2))
        return mean.masked_fill(lost, torch.nan)


class Recorder:
    """Reduces an ensemble at one time after another and never keeps its paths."""

    def __init__(self, observe: Observables, quantiles: Sequence[float]) -> None:
        for level in quantiles:
            if not 0 < level < 1:
                raise ValueError(f"quantiles holds {level}: expected numbers between 0 and 1")
        self._observe, self._levels = observe, tuple(quantiles)
        self._records: list[dict[str, tuple[Tensor, ...]]] = []
        self._finite: list[Tensor] = []

    def record(self, blocks: Blocks) -> None:
        """Add the ensemble's blocks, each ``(B, paths, *block)``, at the next time.

        Raises
        ------
        ValueError : an observable's value has not the shape ``(B, paths, ...)``.
        """
        finite = torch.stack([x.unsqueeze(-1).flatten(2).isfinite().all(-1) for x in blocks.values()]).all(0)
        count = finite.sum(1)
        record: dict[str, tuple[Tensor, ...]] = {}
        for name, observable in self._observe.items():
            value = observable(**blocks)
            if value.shape[:2] != finite.shape:
                expected = f"({finite.shape[0]}, {finite.shape[1]}, ...)"
                raise ValueError(f"observe[{name!r}] has shape {tuple(value.shape)}: expected {expected}")
            value = value.double()
            keep, n = (x.reshape(*x.shape, *[1] * (value.ndim - 2)) for x in (finite, count))
            kept = torch.where(keep, value, 0)
            mean = kept.sum(1) / n
            square = torch.where(keep, value - mean[:, None], 0).square().sum(1)
            variance = torch.where(n > 1, square / (n - 1), torch.nan)
            known = torch.where(keep, value, torch.nan)
            quantiles = torch.stack([known.nanquantile(level, dim=1) for level in self._levels] or [mean[None][:0]])
            record[name] = mean, variance, (variance / n).sqrt(), quantiles
        self._records.append(record)
        self._finite.append(count)

    def result(self, times: Tensor, final: Blocks) -> Ensemble:
        mean, variance, stderr = (
            {name: torch.stack([record[name][k] for record in self._records], 1) for name in self._observe}
            for k in range(3)
        )
        quantiles = {name: torch.stack([record[name][3] for record in self._records], 2) for name in self._observe}
        paths = next(iter(final.values())).shape[1]
        return Ensemble(times, mean, variance, stderr, quantiles, torch.stack(self._finite, 1), paths, final)


def spread(
    parametrization: Parametrization,
    loss: Loss,
    start: Mapping[str, Tensor],
    paths: int,
    weight_decay: Mapping[str, float] | None,
    device: torch.device | str | None,
) -> tuple[Loss, Blocks, dict[str, float]]:
    """Loss, blocks ``(B, paths, *block)`` and complete weight decays on the device.

    ``start`` holds one point per problem, ``(B, *block)``, or one per path, ``(B, paths, *block)``.

    Raises
    ------
    ValueError : as in `flow.check_start`; ``paths`` is no integer >= 1 or not the number of starting points; or the one
        point that all paths start from, or the loss there, is not finite.
    """
    check_count("paths", paths)
    each = all(name in start and start[name].ndim == len(axes) + 2 for name, axes in parametrization.axes.items())
    if each:
        for name, block in start.items():
            if block.shape[1] != paths:
                raise ValueError(f"start[{name!r}] has {block.shape[1]} paths: expected paths={paths}")
    first = {name: block[:, 0] for name, block in start.items()} if each else start
    loss, blocks, decay = check_start(parametrization, loss, first, weight_decay, device)
    if not each:  # among starts of their own some may be paths that an earlier run has lost
        for name, block in blocks.items():
            if lost := int((~block.isfinite()).sum()):
                raise ValueError(f"start[{name!r}] has {lost} numbers that are not finite: expected finite numbers")
        if not loss.gradient(parametrization.forward(**blocks)).isfinite().all():
            raise ValueError("loss has a gradient at the start that is not finite: expected finite numbers")
    many = {
        name: (start[name].detach().to(x.device) if each else x[:, None].expand(-1, paths, *x.shape[1:])).clone()
        for name, x in blocks.items()
    }
    return loss, many, decay
