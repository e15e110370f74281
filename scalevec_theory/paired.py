"""Measurements as evidence: paired descents compared by a mean difference, and simulations compared with a formula."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from scalevec_theory.claim import Z_SCORE, Counterexample, Evidence, Setting, measured
from scalevec_theory.descent import descend
from scalevec_theory.flow import Trajectory
from scalevec_theory.losses import Loss
from scalevec_theory.parametrizations import Parametrization


def loss_area(run: Trajectory) -> Tensor:
    """The mean of L/L(0) over the saved times, ``(B,)``: the smaller, the faster; not finite where a run failed."""
    return (run.loss / run.loss[:, :1]).mean(1)


def best_area(
    parametrization: Parametrization, loss: Loss, start: Mapping[str, Tensor], steps: Tensor, **options: Any
) -> Tensor:
    """The least `loss_area` over the step sizes ``steps`` ``(K,)``, each problem at its own best; ``(B,)``.

    NaN where the first or last step is the best: then the best of all lies outside.  ``options`` are those of
    `descent.descend`, except ``step``.

    Raises
    ------
    ValueError : fewer than three step sizes.
    """
    if steps.ndim != 1 or len(steps) < 3:
        raise ValueError(f"steps has shape {tuple(steps.shape)}: expected (K,) with K >= 3")
    B = len(next(iter(start.values())))
    index = torch.arange(B, device=steps.device).repeat(len(steps))
    blocks = {name: block[index] for name, block in start.items()}
    run = descend(parametrization, loss.select(index), blocks, step=steps.repeat_interleave(B), **options)
    area, best = loss_area(run).nan_to_num(torch.inf).reshape(len(steps), B).min(0)
    return area.masked_fill((best == 0) | (best == len(steps) - 1), torch.nan)


def simulated(setting: Setting, scope: str, margin: float, detail: str, *, stderr: float, instances: int) -> Evidence:
    """Evidence from a simulation; a negative margin comes with code that repeats the scope's measurements.

    ``scope`` is the address ``claim:scope`` under which they can be repeated.  A margin or standard error that is not
    finite decides nothing.
    """
    code = (
        "from scalevec_theory.check import check_scope\nfrom scalevec_theory.registry import find_scopes\n\n"
        f"((claim, scope),) = find_scopes({scope!r})\n"
        f"found = check_scope(claim, scope, effort={setting.effort!r}, seed={setting.seed}).evidence\n"
        "margin = min(e.margin + 3 * e.stderr for e in found if e.stderr is not None)\nassert margin < 0, margin\n"
    )
    again = Counterexample({"setting": detail}, margin, code) if margin < 0 else None
    return measured(
        "simulation", margin, detail, stderr=stderr, instances=instances, seed=setting.seed, counterexample=again
    )


def paired(difference: Tensor, setting: Setting, scope: str, detail: str) -> Evidence:
    """Evidence that the mean of ``difference`` ``(B,)``, one value per problem, is positive; ``scope`` as above."""
    mean, stderr = difference.mean().item(), (difference.std() / len(difference) ** 0.5).item()
    return simulated(setting, scope, mean, detail, stderr=stderr, instances=len(difference))


def agreement(ratio: Tensor, tolerance: float, setting: Setting, scope: str, detail: str) -> Evidence:
    """Evidence that the mean over replicas of measured over expected, ``ratio`` ``(B, K)``, is 1 within ``tolerance``.

    Of the K numbers compared the one that is worst beyond its standard error counts.  ``scope`` as in `simulated`.
    """
    mean, stderr = ratio.mean(0), ratio.std(0) / len(ratio) ** 0.5
    slack = tolerance - (mean - 1).abs()
    worst = int((slack - Z_SCORE * stderr).nan_to_num(-torch.inf).argmin())
    found = f"measured over expected {mean[worst]:.4g} ± {stderr[worst]:.2g} where worst, within {tolerance:g}"
    return simulated(
        setting,
        scope,
        slack[worst].item(),
        f"{detail}: {found}",
        stderr=stderr[worst].item(),
        instances=ratio.numel(),
    )
