"""Optimizers as data: the hyperparameters of an update rule, checked at the door.

The rules are those of torch.optim (AdamW, Adam with its coupled L2 term, SGD, RMSprop, Muon) and, where torch has none,
the published ones: Lion (Chen et al. 2023), and sign descent (Bernstein et al. 2018) with decoupled weight decay.
Options of torch that are no field here (amsgrad, dampening, centered, RMSprop's momentum) are not predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar


@dataclass(frozen=True)
class Optimizer:
    """``lr`` is the step η, ``weight_decay`` λ; λ is decoupled, w ← (1 − ηλ)w − ηu, unless ``coupled``: g ← g + λw.

    Raises
    ------
    ValueError : lr not positive, weight_decay negative, a momentum outside [0, 1), eps negative.
    """

    lr: float
    weight_decay: float = 0.0
    coupled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"lr={self.lr}: expected a finite number > 0")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay={self.weight_decay}: expected a finite number >= 0")
        names = {f.name for f in fields(self)}
        for name in names & {"momentum", "alpha"}:
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected a number in [0, 1)")
        if "betas" in names:
            betas = self.betas  # type: ignore[attr-defined]
            if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
                raise ValueError(f"betas={betas}: expected two numbers in [0, 1)")
        if "eps" in names and not 0 <= self.eps < math.inf:  # type: ignore[attr-defined]
            raise ValueError(f"eps={self.eps}: expected a finite number >= 0")  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Adam(Optimizer):
    """u = m̂/(√v̂ + ε) with bias correction; the decay λw is part of the gradient (L2)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    coupled: ClassVar[bool] = True


@dataclass(frozen=True)
class AdamW(Adam):
    """u = m̂/(√v̂ + ε) with bias correction and decoupled decay."""

    coupled: ClassVar[bool] = False


@dataclass(frozen=True)
class RMSProp(Optimizer):
    """u = (g + λw)/(√v + ε) without bias correction, v an average of squares with weight ``alpha`` on the past."""

    alpha: float = 0.99
    eps: float = 1e-8
    coupled: ClassVar[bool] = True


@dataclass(frozen=True)
class SGD(Optimizer):
    """u = b, b ← momentum·b + g + λw; Nesterov: u = g + λw + momentum·b."""

    momentum: float = 0.0
    nesterov: bool = False
    coupled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov=True with momentum=0: expected a momentum > 0")


@dataclass(frozen=True)
class SignSGD(Optimizer):
    """u = sign(m), m ← momentum·m + (1 − momentum)·g."""

    momentum: float = 0.0


@dataclass(frozen=True)
class Lion(Optimizer):
    """u = sign(β₁m + (1 − β₁)g), then m ← β₂m + (1 − β₂)g."""

    betas: tuple[float, float] = (0.9, 0.99)


@dataclass(frozen=True)
class Muon(Optimizer):
    """u = the orthogonal factor of b ← momentum·b + (1 − momentum)·g or, Nesterov, of momentum·b + (1 − momentum)·g.

    ``ns_steps`` steps of the quintic Newton–Schulz iteration approximate the factor, all singular values 1; 0 takes it
    exactly.  ``adjust_lr`` scales η (not ηλ) by the matrix's shape c × d: ``original`` by √max(1, c/d),
    ``match_rms_adamw`` by 0.2 √max(c, d), ``none`` by 1.
    """

    momentum: float = 0.95
    nesterov: bool = True
    ns_steps: int = 5
    adjust_lr: str = "original"

    NS: ClassVar[tuple[float, float, float]] = (3.4445, -4.775, 2.0315)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.ns_steps < 100:
            raise ValueError(f"ns_steps={self.ns_steps}: expected a number of steps from 0 to 99")
        if self.adjust_lr not in ("original", "match_rms_adamw", "none"):
            raise ValueError(f"adjust_lr={self.adjust_lr!r}: expected 'original', 'match_rms_adamw' or 'none'")

    def lr_factor(self, c: int, d: int) -> float:
        """What multiplies η for a matrix of c rows and d columns."""
        if self.adjust_lr == "original":
            return math.sqrt(max(1.0, c / d))
        return 0.2 * math.sqrt(max(c, d)) if self.adjust_lr == "match_rms_adamw" else 1.0


OPTIMIZERS: dict[str, type[Optimizer]] = {
    kind.__name__.lower(): kind for kind in (AdamW, Adam, SGD, RMSProp, Lion, Muon, SignSGD)
}
"""Every optimizer by its name in lower case."""


def check_optimizer(optimizer: object) -> None:
    """Refuse what is no rule of this module, such as an optimizer of torch, whose options may have no law.

    Raises
    ------
    ValueError : it is not an `Optimizer`.
    """
    if not isinstance(optimizer, Optimizer):
        kind = f"{type(optimizer).__module__}.{type(optimizer).__name__}"
        names = ", ".join(rule.__name__ for rule in OPTIMIZERS.values())
        raise ValueError(f"optimizer is a {kind}: expected {names} of scalevec_theory.optimizers")
