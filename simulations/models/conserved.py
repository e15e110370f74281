"""What gradient flow conserves at a norm of a real model, and what a step of gradient descent adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from simulations.models.folding import effective_scale
from simulations.models.roles import Norm


def conserved(norm: Norm, state: Mapping[str, Tensor]) -> Tensor:
    """Q_j = (offset + w_j)² + b_j² − Σ ‖consumer columns of channel j‖², one entry per channel of the norm.

    Gradient flow keeps it if the scale and its consumers are free to rescale (`Norm.absorbable`); arXiv 2605.26895
    states it for one consumer.
    """
    scale_part, consumer_part = parts(norm, state)
    return scale_part - consumer_part


def parts(norm: Norm, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The two parts whose difference is `conserved`."""
    scale_part = effective_scale(norm, state).flatten() ** 2
    if norm.bias is not None:
        scale_part = scale_part + state[norm.bias].flatten() ** 2
    consumer_part = torch.zeros_like(scale_part)
    for consumer in norm.consumers:
        squares = state[consumer.parameter].movedim(consumer.axis, 0).flatten(1).pow(2).sum(1)
        met = consumer.channels >= 0
        consumer_part = consumer_part.index_add(0, consumer.channels[met], squares[met])
    return scale_part, consumer_part


def increment(norm: Norm, gradient: Mapping[str, Tensor], step: float) -> Tensor:
    """What one step of gradient descent adds to `conserved`, exactly: step² times its quadratic form on the gradient.

    (With one consumer this is η²(⟨w_j,g_j⟩² − v_j²‖g_j‖²).)  The part linear in the step is −2 step times the
    derivative of Q along the gradient, which the law says is zero.
    """
    return step**2 * conserved(replace(norm, offset=0.0), gradient)
