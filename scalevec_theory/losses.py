"""Losses L(θ) of an effective matrix, batched: one problem per entry of the leading dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor


class Loss(Protocol):
    """A batch of B differentiable losses of θ ``(B, ..., c, d)``; extra dimensions (saved times) broadcast."""

    def value(self, theta: Tensor) -> Tensor:
        """Losses ``(B, ...)``."""

    def gradient(self, theta: Tensor) -> Tensor:
        """∂L/∂θ, the shape of ``theta``."""

    def select(self, index: Tensor) -> Self:
        """The same losses for a subset of the problems (boolean mask or indices ``(K,)``)."""

    def to(self, device: torch.device | str) -> Self:
        """The same losses on another device."""


def _between(data: Tensor, theta: Tensor) -> Tensor:
    """Insert singleton axes after the batch axis of ``data`` so that it broadcasts against ``theta``."""
    return data.reshape(data.shape[0], *([1] * (theta.ndim - 3)), *data.shape[1:])


@dataclass(frozen=True)
class LeastSquares:
    """L(θ) = ½ tr((θ − T) H (θ − T)ᵀ): ``H`` ``(B, d, d)`` = E[x xᵀ], ``T`` ``(B, c, d)`` the target."""

    H: Tensor
    T: Tensor

    def __post_init__(self) -> None:
        B, _, d = self.T.shape if self.T.ndim == 3 else (0, 0, 0)
        if self.T.ndim != 3 or tuple(self.H.shape) != (B, d, d):
            raise ValueError(
                f"H has shape {tuple(self.H.shape)}, T {tuple(self.T.shape)}: expected (B, d, d) and (B, c, d)"
            )

    def value(self, theta: Tensor) -> Tensor:
        error = theta - _between(self.T, theta)
        return 0.5 * ((error @ _between(self.H, theta)) * error).sum((-2, -1))

    def gradient(self, theta: Tensor) -> Tensor:
        return (theta - _between(self.T, theta)) @ _between(self.H, theta)

    def select(self, index: Tensor) -> LeastSquares:
        return LeastSquares(self.H[index], self.T[index])

    def to(self, device: torch.device | str) -> LeastSquares:
        return LeastSquares(self.H.to(device), self.T.to(device))


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross-entropy of logits θx, mean over n samples: ``X`` ``(B, n, d)``, targets ``Y`` ``(B, n, c)``."""

    X: Tensor
    Y: Tensor

    def __post_init__(self) -> None:
        if self.X.ndim != 3 or self.Y.ndim != 3 or self.X.shape[:2] != self.Y.shape[:2]:
            raise ValueError(
                f"X has shape {tuple(self.X.shape)}, Y {tuple(self.Y.shape)}: expected (B, n, d) and (B, n, c)"
            )

    def _logits(self, theta: Tensor) -> Tensor:
        return _between(self.X, theta) @ theta.transpose(-1, -2)

    def value(self, theta: Tensor) -> Tensor:
        log_p = torch.log_softmax(self._logits(theta), -1)
        return -(_between(self.Y, theta) * log_p).sum(-1).mean(-1)

    def gradient(self, theta: Tensor) -> Tensor:
        p = torch.softmax(self._logits(theta), -1)
        Y, X = _between(self.Y, theta), _between(self.X, theta)
        residual = p * Y.sum(-1, keepdim=True) - Y
        return residual.transpose(-1, -2) @ X / X.shape[-2]

    def select(self, index: Tensor) -> CrossEntropy:
        return CrossEntropy(self.X[index], self.Y[index])

    def to(self, device: torch.device | str) -> CrossEntropy:
        return CrossEntropy(self.X.to(device), self.Y.to(device))
