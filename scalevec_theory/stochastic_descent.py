"""Optimisers step by step on real minibatches of linear regression, over ensembles of paths.

The exact discrete process beside the stochastic differential equation of `noise`: inputs x ~ N(0, H), labels
y = T x + σ ε, gradients of ½ ‖θx − y‖² averaged over a batch drawn afresh at every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from scalevec_theory.counts import check_count
from scalevec_theory.ensemble import Ensemble, Observables, Recorder, spread
from scalevec_theory.flow import nearest_names, pull_back
from scalevec_theory.generator import check_seed
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import covariance_factor
from scalevec_theory.optimizers import SGD, AdamW, Muon, Optimizer
from scalevec_theory.parametrizations import Parametrization
from scalevec_theory.update_rules import initial_state, update

OPTIMIZERS = ("sgd", "momentum", "adamw", "muon")


def block_rule(name: str, lr: float, axes: int, momentum: float, betas: tuple[float, float], eps: float) -> Optimizer:
    """The rule of ``name`` for a block of ``axes`` axes; all four are made, so that every constant is checked."""
    rules = {
        "sgd": SGD(lr),
        "momentum": SGD(lr, momentum=momentum),
        "adamw": AdamW(lr, betas=betas, eps=eps),
        "muon": Muon(lr, momentum=momentum),
    }
    return rules["adamw" if name == "muon" and axes < 2 else name]


def stochastic_descent(
    parametrization: Parametrization,
    loss: LeastSquares,
    start: Mapping[str, Tensor],
    steps: Sequence[int],
    *,
    label_noise: float,
    batch: int,
    optimizer: Literal["sgd", "momentum", "adamw", "muon"],
    step: float | Mapping[str, float],
    paths: int,
    seed: int,
    observe: Observables,
    quantiles: Sequence[float] = (),
    weight_decay: Mapping[str, float | Tensor] | None = None,
    momentum: float = 0.9,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    device: torch.device | str | None = None,
) -> Ensemble:
    """Moments and quantiles of observables over ``paths`` independent runs, after the given numbers of steps.

    Parameters
    ----------
    parametrization, start, paths, seed, observe, quantiles, device : as in `noise.ensemble`.
    weight_decay : λ by block name, one for all problems or one for each ``(B,)``; 0 for blocks not named.
    loss : H, the covariance of the inputs, and T of the labels.
    steps : increasing numbers of steps >= 0 after which the ensemble is looked at: the times of the result.
    label_noise : σ.  ``batch`` : samples in a batch.
    optimizer : `optimizers.SGD` without or with momentum, `optimizers.AdamW`, or `optimizers.Muon` on blocks of two
        axes or more and AdamW on the others.  Weight decay is decoupled from every one, φ ← (1 − ηλ)φ before the step.
    momentum, betas, eps : the rule's constants.
    step : η, one for all blocks or one by block name.

    Raises
    ------
    ValueError : an argument is out of range or does not fit the others.
    """
    key = int(check_seed(seed))
    if not isinstance(loss, LeastSquares):
        raise ValueError(f"loss={type(loss).__name__}: expected LeastSquares")
    if not (label_noise >= 0 and math.isfinite(label_noise)):
        raise ValueError(f"label_noise={label_noise}: expected a finite number >= 0")
    check_count("batch", batch)
    counts = [check_count("steps", n, 0) for n in steps]
    if not counts or any(a >= b for a, b in pairwise(counts)):
        raise ValueError(f"steps={steps}: expected increasing integers >= 0")
    names = list(parametrization.axes)
    each = dict(step) if isinstance(step, Mapping) else dict.fromkeys(names, step)
    if set(each) != set(names):
        raise ValueError(f"step has the blocks {', '.join(each)}: expected {', '.join(names)}")
    for name, eta in each.items():
        if not (eta > 0 and math.isfinite(eta)):
            raise ValueError(f"step={eta} for block {name!r}: expected a finite number > 0")
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r}: {nearest_names(optimizer, list(OPTIMIZERS))}")
    rules = {
        name: block_rule(optimizer, each[name], len(axes), momentum, betas, eps)
        for name, axes in parametrization.axes.items()
    }
    recorder = Recorder(observe, quantiles)
    checked, blocks, _ = spread(parametrization, loss, start, paths, None, device)
    assert isinstance(checked, LeastSquares)
    keep = {name: 1 - rules[name].lr * rate for name, rate in _decays(weight_decay or {}, blocks).items()}
    states = {name: initial_state(rule, blocks[name]) for name, rule in rules.items()}
    T, root = checked.T[:, None], covariance_factor(checked.H, "H")[:, None]
    generator = torch.Generator(T.device)
    generator.manual_seed(key if key < 2**63 else key - 2**64)

    def normal(size: int) -> Tensor:
        shape = (len(T), paths, batch, size)
        # Drawn in single precision, which takes a sixth of the time; the numbers then end at 5.8 (8e-9 lie beyond).
        return torch.randn(shape, generator=generator, dtype=torch.float32, device=T.device).to(T.dtype)

    def gradient(theta: Tensor) -> Tensor:
        x = _product(normal(T.shape[-1]), root.mT)
        residual = _product(x, (theta - T).mT) - label_noise * normal(T.shape[-2])
        return _product(residual.mT, x) / batch

    taken = 0
    for count in counts:
        for t in range(taken + 1, count + 1):
            gradients = pull_back(parametrization, blocks, gradient)
            for name, rule in rules.items():
                blocks[name].mul_(keep[name])
                update(rule, states[name], blocks[name], gradients[name], t, rule.lr, weight_decay=0.0)
        taken = count
        recorder.record(blocks)
    return recorder.result(torch.tensor(counts, dtype=torch.float64), blocks)


def _product(A: Tensor, B: Tensor) -> Tensor:
    """A B; of many small matrices, one with a single column, entry by entry, which takes a quarter of the time."""
    if A.shape[-1] == 1:
        return A * B
    return (A * B.mT).sum(-1, keepdim=True) if B.shape[-1] == 1 else A @ B


def _decays(weight_decay: Mapping[str, float | Tensor], blocks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """λ of every block, to be multiplied with it.

    Raises
    ------
    ValueError : a name that is no block, a rate below 0 or not finite, or not one rate for each problem.
    """
    for name in weight_decay:
        if name not in blocks:
            raise ValueError(f"weight_decay names {name!r}, no block: {nearest_names(name, list(blocks))}")
    found = {}
    for name, block in blocks.items():
        rate = torch.as_tensor(weight_decay.get(name, 0.0), dtype=block.dtype, device=block.device)
        if rate.shape not in ((), block.shape[:1]):
            raise ValueError(f"weight_decay[{name!r}] has shape {tuple(rate.shape)}: expected () or {block.shape[:1]}")
        if not bool(((rate >= 0) & rate.isfinite()).all()):
            raise ValueError(f"weight_decay[{name!r}]={rate.tolist()}: expected finite numbers >= 0")
        found[name] = rate.expand(len(block)).reshape(-1, *[1] * (block.ndim - 1))
    return found
