"""Walks driven by noise, at rest, compared with a stated second moment."""

from __future__ import annotations

import numpy as np

from scalevec_theory import abm
from scalevec_theory.abm import Gradients
from scalevec_theory.claim import Evidence, Setting
from scalevec_theory.equilibrium import equilibrium
from scalevec_theory.optimizers import SGD, Lion, Optimizer
from scalevec_theory.paired import simulated

BEGIN, END = 3, 6
"""In units of 1/(ηλ): when a walk that starts at the predicted equilibrium is first and last recorded."""


def walk_at_rest(
    optimizer: Optimizer,
    setting: Setting,
    n: int,
    *,
    gradients: Gradients | None = None,
    shape: tuple[int, ...] = (),
    scale_invariant: bool = False,
) -> abm.Walk:
    """A walk from the predicted equilibrium, recorded after it has forgotten its start."""
    gradients = gradients or Gradients()
    rate = optimizer.lr * optimizer.weight_decay
    if isinstance(optimizer, SGD):
        rate /= 1 - optimizer.momentum
    elif optimizer.coupled:
        rate /= gradients.std
    memory = optimizer.betas[1] if isinstance(optimizer, Lion) else getattr(optimizer, "momentum", 0.0)
    begin = round(max(BEGIN / rate, 60) + (8 / (1 - memory) if memory else 0))
    steps = begin + max(round((END - BEGIN) / rate), 20)
    init = equilibrium(optimizer, noise=gradients.std, shape=shape or None, scale_invariant=scale_invariant).rms
    return abm.run(
        optimizer,
        n,
        steps,
        shape=shape,
        gradients=gradients,
        seed=int(setting.rng.integers(2**63)),
        init=init,
        scale_invariant=scale_invariant,
        record=np.unique(np.linspace(begin, steps, 30).astype(int)).tolist(),
        device=setting.device,
    )


def rms_at_rest(
    scope: str, optimizer: Optimizer, expected: float, tolerance: float, setting: Setting, walk: abm.Walk
) -> Evidence:
    """Evidence for ``claim:scope`` that √E[w²] of a walk at rest is √``expected`` to a relative ``tolerance``."""
    group = walk.squares.mean(0) / expected
    ratio = float(group.mean()) ** 0.5
    stderr = float(group.std(ddof=1) / len(group) ** 0.5) / (2 * ratio)
    detail = f"{optimizer}: rms measured {ratio * expected**0.5:.5g}, stated {expected**0.5:.5g}, ratio {ratio:.4f}"
    margin = tolerance - abs(ratio - 1)
    return simulated(setting, scope, margin, detail, stderr=stderr, instances=walk.weights.numel())
