"""The induced preconditioner P = J Jᵀ of a parametrisation θ = F(φ), by automatic differentiation and in closed form.

Gradient flow in φ moves θ by θ̇ = −P ∇L(θ) with J = ∂F/∂φ (arXiv 2605.26895, preconditioner of a scale vector).
`apply` and `matrix` serve any F; the other functions are the closed forms they are tested against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from scalevec_theory.parametrizations import Parametrization

Map = Parametrization | Callable[..., Tensor]
"""A parametrisation, or any differentiable function of keyword blocks ``(B, ...)`` with values ``(B, ...)``."""


def _function(F: Map, blocks: Mapping[str, Tensor]) -> Callable[[dict[str, Tensor]], Tensor]:
    if isinstance(F, Parametrization):
        if set(blocks) != set(F.axes):
            raise ValueError(f"blocks={sorted(blocks)}: {F.name} has the blocks {sorted(F.axes)}")
        forward: Callable[..., Tensor] = F.forward
    else:
        forward = F
    return lambda b: forward(**b)


def apply(F: Map, blocks: Mapping[str, Tensor], G: Tensor) -> Tensor:
    """P G: minus the velocity of θ under gradient flow in the blocks, when ∂L/∂θ is ``G``; shape of θ, ``(B, c, d)``.

    Raises
    ------
    ValueError : the blocks are not those of F, or ``G`` has not the shape of θ.
    """
    f, phi = _function(F, blocks), dict(blocks)
    theta, pull_back = torch.func.vjp(f, phi)[:2]
    if G.shape != theta.shape:
        raise ValueError(f"G has shape {tuple(G.shape)}: expected that of theta, {tuple(theta.shape)}")
    velocity: Tensor = torch.func.jvp(f, (phi,), pull_back(G))[1]
    return velocity


def matrix(F: Map, blocks: Mapping[str, Tensor]) -> Tensor:
    """P ``(B, n, n)`` on the n entries of θ in row-major order: entry (i, j) of ``(c, d)`` is number i·d + j.

    Raises
    ------
    ValueError : the blocks are not those of F.
    """
    theta, pull_back = torch.func.vjp(_function(F, blocks), dict(blocks))[:2]
    n = math.prod(theta.shape[1:])
    basis = torch.eye(n, dtype=theta.dtype, device=theta.device).reshape(n, 1, *theta.shape[1:])
    (rows,) = torch.vmap(pull_back)(basis.expand(n, *theta.shape))
    J = torch.cat([x.reshape(n, len(theta), math.prod(x.shape[2:])) for x in rows.values()], -1)
    return torch.einsum("kbp,lbp->bkl", J, J)


def input_scale(v: Tensor, W: Tensor) -> Tensor:
    """P_j = v_j² I + w_j w_jᵀ of θ = W diag(v), a block per column: ``(..., d, c, c)``."""
    w = W.transpose(-1, -2)
    eye = torch.eye(W.shape[-2], dtype=W.dtype, device=W.device)
    return v[..., None, None] ** 2 * eye + w[..., :, None] * w[..., None, :]


def standard_scale(theta: Tensor) -> Tensor:
    """v_j ``(..., d)`` of the input-side scale at θ ``(..., c, d)`` where v_j² − ‖w_j‖² = 1, v_j > 0.

    v_j² = (1 + √(1 + 4‖θ_j‖²)) / 2, because ‖θ_j‖² = v_j² (v_j² − 1).
    """
    return ((1 + (1 + 4 * theta.square().sum(-2)).sqrt()) / 2).sqrt()


def standard_input_scale(theta: Tensor) -> Tensor:
    """P_j ``(..., d, c, c)`` of the input-side scale as a function of θ ``(..., c, d)`` where v_j² − ‖w_j‖² = 1."""
    v = standard_scale(theta)
    return input_scale(v, theta / v[..., None, :])


def scaled_columns(v: Tensor, W: Tensor, scale_operator: Tensor, G: Tensor) -> Tensor:
    """P G of θ = W diag(v) when the parameters of v induce ``scale_operator`` S ``(..., d, d)`` on v.

    Column j is v_j² g_j + w_j Σ_k S_jk ⟨w_k, g_k⟩; S = I is the plain input-side scale.
    """
    scale_gradient = (W * G).sum(-2)
    return v[..., None, :] ** 2 * G + W * (scale_operator @ scale_gradient[..., None])[..., None, :, 0]


def dual_scale(u: Tensor, v: Tensor, W: Tensor, G: Tensor) -> Tensor:
    """P G of θ = diag(u) W diag(v): u_i²v_j²G_ij + W_ij v_j Σ_k W_ik v_k G_ik + u_i W_ij Σ_k u_k W_kj G_kj."""
    row, column = u[..., :, None], v[..., None, :]
    by_row, by_column = (W * column * G).sum(-1), (row * W * G).sum(-2)
    return (row * column) ** 2 * G + W * column * by_row[..., :, None] + row * W * by_column[..., None, :]


def magnitude_direction(beta: Tensor, alpha: Tensor) -> Tensor:
    """Operator on v = β α / rms(α): d·nnᵀ + (β² d / ‖α‖²)(I − nnᵀ), n = α/‖α‖; ``(..., d, d)``."""
    d = alpha.shape[-1]
    square = alpha.square().sum(-1)[..., None, None]
    along = alpha[..., :, None] * alpha[..., None, :] / square
    eye = torch.eye(d, dtype=alpha.dtype, device=alpha.device)
    return d * along + beta[..., None, None] ** 2 * d / square * (eye - along)


def exponential(d: int, like: Tensor) -> Tensor:
    """Operator on log v = β1 + (α − mean α), the same everywhere: d·eeᵀ + (I − eeᵀ), e = 1/√d; ``(d, d)``."""
    along = torch.full((d, d), 1 / d, dtype=like.dtype, device=like.device)
    return d * along + torch.eye(d, dtype=like.dtype, device=like.device) - along
