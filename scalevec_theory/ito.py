"""Itô's formula for functions of parameters that diffuse, by automatic differentiation.

For dφ = b dt + B dβ, a quantity Q(φ) has the drift ⟨∇Q, b⟩ + ½ tr(Bᵀ∇²Q B) and the quadratic variation ‖Bᵀ∇Q‖² per
unit of time; where the latter vanishes, Q has no martingale part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from scalevec_theory.parametrizations import Parametrization

Directions = Mapping[str, Tensor]
"""The m columns of B, block by block: ``(m, B, *block)``."""


def effective_noise(parametrization: Parametrization, blocks: Mapping[str, Tensor], root: Tensor) -> Directions:
    """The columns of B = Jᵀ R: noise R dβ on the gradient in θ, pulled back to the parameters; m = cd.

    Parameters
    ----------
    blocks : each ``(B, *block)``.
    root : R ``(B, n, n)`` on the n = cd entries of θ in row-major order; R Rᵀ is the covariance of the gradient.
    """
    theta, pull_back = torch.func.vjp(lambda phi: parametrization.forward(**phi), dict(blocks))[:2]
    n = math.prod(theta.shape[1:])
    columns = root.movedim(-1, 0).reshape(n, *theta.shape)
    (directions,) = torch.vmap(pull_back)(columns)
    result: Directions = directions
    return result


def independent_noise(blocks: Mapping[str, Tensor]) -> Directions:
    """The columns of B = I: independent noise on every parameter."""
    sizes = [math.prod(block.shape[1:]) for block in blocks.values()]
    like = next(iter(blocks.values()))
    parts = torch.eye(sum(sizes), dtype=like.dtype, device=like.device).split(sizes, 1)
    return {
        name: part.reshape(-1, 1, *block.shape[1:]).expand(-1, *block.shape)
        for (name, block), part in zip(blocks.items(), parts, strict=True)
    }


def rates(
    quantity: Callable[[dict[str, Tensor]], Tensor], blocks: Mapping[str, Tensor], noise: Directions
) -> tuple[Tensor, Tensor]:
    """½ tr(Bᵀ∇²Q B), the drift that noise adds, and ‖Bᵀ∇Q‖², the quadratic variation; each the shape of Q.

    ``quantity`` maps blocks ``(B, *block)`` to Q ``(B, ...)``.
    """
    phi = dict(blocks)

    def slope(phi: dict[str, Tensor], direction: dict[str, Tensor]) -> Tensor:
        result: Tensor = torch.func.jvp(quantity, (phi,), (direction,))[1]
        return result

    def both(direction: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        result = torch.func.jvp(lambda phi: slope(phi, direction), (phi,), (direction,))
        return result[0], result[1]

    first, second = torch.vmap(both)(dict(noise))
    return 0.5 * second.sum(0), first.square().sum(0)
