"""Gradient descent and its relatives on batches of independent problems, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from scalevec_theory.counts import check_count
from scalevec_theory.flow import (
    NON_FINITE,
    OK,
    Trajectory,
    check_start,
    nearest_names,
    parameter_gradient,
)
from scalevec_theory.losses import Loss
from scalevec_theory.optimizers import SGD, AdamW
from scalevec_theory.parametrizations import Parametrization
from scalevec_theory.update_rules import initial_state, update

OPTIMIZERS = ("gd", "heavy-ball", "adam")


def descend(
    parametrization: Parametrization,
    loss: Loss,
    start: Mapping[str, Tensor],
    *,
    optimizer: Literal["gd", "heavy-ball", "adam"] = "gd",
    step: float | Tensor,
    n_steps: int,
    weight_decay: Mapping[str, float] | None = None,
    momentum: float = 0.9,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    save_every: int = 1,
    device: torch.device | str | None = None,
) -> Trajectory:
    """``n_steps`` steps of an optimiser from ``start``; times are step size × index, the clock of gradient flow.

    With g = ∂L/∂φ, step size η and weight decay λ:

    - ``gd``: φ ← φ − η (g + λφ).
    - ``heavy-ball``: m ← μm + g + λφ, φ ← φ − ηm (no dampening, as in torch's SGD).
    - ``adam``: φ ← (1 − ηλ)φ − η m̂ / (√v̂ + ε), decay decoupled and moments bias-corrected (Loshchilov and Hutter 2019).

    Parameters
    ----------
    parametrization, loss, start, weight_decay, device : as in `flow.gradient_flow`.
    step : η, one for all problems or ``(B,)``.
    momentum, betas, eps : μ of heavy-ball; β1, β2 and ε of adam.
    save_every : steps between saved points; index 0 is saved, and index ``n_steps`` if it is a multiple.

    Returns
    -------
    Trajectory with S = n_steps // save_every + 1 saved times, ``(S,)``, or ``(B, S)`` if ``step`` is ``(B,)``.  A
    problem that reaches NaN or infinity after some step has status NON_FINITE, holds NaN from there on, and ``steps``
    is that step.

    Raises
    ------
    ValueError : an argument is out of range or does not fit the others.
    """
    loss, blocks, decay = check_start(parametrization, loss, start, weight_decay, device)
    first = next(iter(blocks.values()))
    B = first.shape[0]
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r}: {nearest_names(optimizer, list(OPTIMIZERS))}")
    eta = torch.as_tensor(step, dtype=first.dtype, device=first.device)
    if eta.shape not in ((), (B,)) or not (eta.isfinite() & (eta > 0)).all():
        raise ValueError(f"step={step}: expected finite numbers > 0, one or of shape ({B},)")
    for name, count, least in (("n_steps", n_steps, 0), ("save_every", save_every, 1)):
        check_count(name, count, least)
    rules = {"gd": SGD(1.0), "heavy-ball": SGD(1.0, momentum=momentum), "adam": AdamW(1.0, betas=betas, eps=eps)}
    rule = rules[optimizer]

    indices = torch.arange(0, n_steps + 1, save_every, device=first.device)
    saved = {name: x.new_empty((B, len(indices), *x.shape[1:])) for name, x in blocks.items()}
    states = {name: initial_state(rule, x) for name, x in blocks.items()}
    eta_of = {name: eta.reshape(-1, *[1] * (x.ndim - 1)) for name, x in blocks.items()}
    steps = torch.zeros(B, dtype=torch.long, device=first.device)

    def finite() -> Tensor:
        return torch.stack([x.unsqueeze(-1).flatten(1).isfinite().all(1) for x in blocks.values()]).all(0)

    alive = finite()
    for index in range(n_steps + 1):
        if index % save_every == 0:
            for name, x in blocks.items():
                saved[name][:, index // save_every] = x
        if index == n_steps:
            break
        gradient = parameter_gradient(parametrization, loss, blocks)
        for name, x in blocks.items():
            g, kept = gradient[name], x
            if rule.coupled:
                g = g + decay[name] * x
            else:
                kept = (1 - eta_of[name] * decay[name]) * x
            # the rules take one step size: a step of 1 from zero, scaled here by each problem's own
            move = torch.zeros_like(x)
            update(rule, states[name], move, g, index + 1, lr=1.0, weight_decay=0.0)
            blocks[name] = kept + eta_of[name] * move
        steps += alive
        alive &= finite()
        for x in blocks.values():
            x[~alive] = math.nan
    status = torch.where(alive, OK, NON_FINITE)
    return Trajectory(parametrization, loss, eta[..., None] * indices, saved, status, steps)
