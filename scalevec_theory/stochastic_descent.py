"""Optimisers step by step on real minibatches of linear regression, over ensembles of paths.

The exact discrete process beside the stochastic differential equation of `noise`: inputs x ~ N(0, H), labels
y = T x + σ ε, gradients of ½ ‖θx − y‖² averaged over a batch drawn afresh at every step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from scalevec_theory.ensemble import Ensemble, Observables, Recorder, spread
from scalevec_theory.flow import Blocks, nearest_names, pull_back
from scalevec_theory.generator import check_seed
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import covariance_factor
from scalevec_theory.parametrizations import Parametrization

OPTIMIZERS = ("sgd", "momentum", "adamw", "muon")

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of Muon's iteration X ← aX + b(XXᵀ)X + c(XXᵀ)²X (Jordan et al. 2024, and torch's default)."""


def newton_schulz(matrix: Tensor, iterations: int = 5, eps: float = 1e-7) -> Tensor:
    """Muon's approximate polar factor of ``matrix`` ``(..., c, d)``: singular values moved to about 1."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[-2] > matrix.shape[-1]
    X = matrix.mT if tall else matrix
    X = X / torch.linalg.matrix_norm(X, keepdim=True).clamp_min(eps)
    for _ in range(iterations):
        gram = X @ X.mT
        X = a * X + (b * gram + c * gram @ gram) @ X
    return X.mT if tall else X


@dataclass
class Optimizer:
    """An update rule of torch's optimisers for blocks ``(B, paths, *block)``, with decoupled weight decay everywhere.

    With gradient g, step η and decay λ of the block, φ ← (1 − ηλ)φ − η u, and for

    - ``sgd``: u = g; ``momentum``: u = m, m ← μm + g.
    - ``adamw``: u = m̂ / (√v̂ + ε), moments by β1, β2, bias-corrected.
    - ``muon``: for blocks of two axes or more, √max(1, c/d) times the Newton–Schulz iterate of g + μ/(1 − μ) m, where
      m ← μm + (1 − μ)g; adamw for the others.
    """

    name: Literal["sgd", "momentum", "adamw", "muon"]
    step: Mapping[str, float]
    weight_decay: Mapping[str, float]
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    _m: Blocks = field(default_factory=dict)
    _v: Blocks = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise ValueError(f"optimizer={self.name!r}: {nearest_names(self.name, list(OPTIMIZERS))}")
        for block, eta in self.step.items():
            if not (eta > 0 and math.isfinite(eta)):
                raise ValueError(f"step={eta} for block {block!r}: expected a finite number > 0")
        for label, value in (("momentum", self.momentum), ("betas[0]", self.betas[0]), ("betas[1]", self.betas[1])):
            if not 0 <= value < 1:
                raise ValueError(f"{label}={value}: expected a number in [0, 1)")
        if not (self.eps >= 0 and math.isfinite(self.eps)):
            raise ValueError(f"eps={self.eps}: expected a finite number >= 0")

    def update(self, blocks: Blocks, gradient: Blocks) -> Blocks:
        """The blocks after the next step."""
        self._count += 1
        return {
            name: (1 - self.step[name] * self.weight_decay[name]) * x
            - self.step[name] * self._move(name, gradient[name])
            for name, x in blocks.items()
        }

    def _move(self, name: str, g: Tensor) -> Tensor:
        if self.name == "sgd":
            return g
        m = self._m.get(name, torch.zeros_like(g))
        if self.name == "momentum":
            self._m[name] = self.momentum * m + g
            return self._m[name]
        if self.name == "muon" and g.ndim >= 4:
            self._m[name] = torch.lerp(g, m, self.momentum)
            aspect = math.sqrt(max(1.0, g.shape[-2] / g.shape[-1]))
            return aspect * newton_schulz(torch.lerp(g, self._m[name], self.momentum))
        beta1, beta2 = self.betas
        self._m[name] = torch.lerp(g, m, beta1)
        self._v[name] = torch.lerp(g * g, self._v.get(name, torch.zeros_like(g)), beta2)
        m_hat, v_hat = self._m[name] / (1 - beta1**self._count), self._v[name] / (1 - beta2**self._count)
        return m_hat / (v_hat.sqrt() + self.eps)


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
    weight_decay: Mapping[str, float] | None = None,
    momentum: float = 0.9,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    device: torch.device | str | None = None,
) -> Ensemble:
    """Moments and quantiles of observables over ``paths`` independent runs, after the given numbers of steps.

    Parameters
    ----------
    parametrization, start, paths, seed, observe, quantiles, weight_decay, device : as in `noise.ensemble`.
    loss : H, the covariance of the inputs, and T of the labels.
    steps : increasing numbers of steps >= 0 after which the ensemble is looked at: the times of the result.
    label_noise : σ.  ``batch`` : samples in a batch.
    optimizer, momentum, betas, eps : the rule and its constants, see `Optimizer`.
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
    if batch < 1:
        raise ValueError(f"batch={batch}: expected an integer >= 1")
    counts = list(steps)
    if not counts or counts[0] < 0 or any(a >= b for a, b in pairwise(counts)):
        raise ValueError(f"steps={steps}: expected increasing integers >= 0")
    names = list(parametrization.axes)
    each = dict(step) if isinstance(step, Mapping) else dict.fromkeys(names, step)
    if set(each) != set(names):
        raise ValueError(f"step has the blocks {', '.join(each)}: expected {', '.join(names)}")
    recorder = Recorder(observe, quantiles)
    checked, blocks, decay = spread(parametrization, loss, start, paths, weight_decay, device)
    assert isinstance(checked, LeastSquares)
    rule = Optimizer(optimizer, each, decay, momentum, betas, eps)
    T, root = checked.T[:, None], covariance_factor(checked.H, "H")[:, None]
    generator = torch.Generator(T.device)
    generator.manual_seed(key if key < 2**63 else key - 2**64)

    def normal(size: int) -> Tensor:
        shape = (len(T), paths, batch, size)
        return torch.randn(shape, generator=generator, dtype=T.dtype, device=T.device)

    def gradient(theta: Tensor) -> Tensor:
        x = normal(T.shape[-1]) @ root.mT
        residual = x @ (theta - T).mT - label_noise * normal(T.shape[-2])
        return residual.mT @ x / batch

    taken = 0
    for count in counts:
        for _ in range(count - taken):
            blocks = rule.update(blocks, pull_back(parametrization, blocks, gradient))
        taken = count
        recorder.record(blocks)
    return recorder.result(torch.tensor(counts, dtype=torch.float64), blocks)
