"""Curvature of the loss in parameter space: closed forms for a scale vector, exact Hessians, and networks matrix-free.

Source: arXiv 2605.26895 (top eigenvalue, trace and Frobenius norm of the Hessian with and without weight decay).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from scalevec_theory.counts import check_count
from scalevec_theory.losses import Loss
from scalevec_theory.parametrizations import Parametrization


def trace(v: Tensor, W: Tensor, H: Tensor) -> Tensor:
    """Σ_j h_jj (c v_j² + ‖w_j‖²), the trace for squared loss at every θ; v ``(..., d)``, W ``(..., c, d)``."""
    return (H.diagonal(dim1=-2, dim2=-1) * (W.shape[-2] * v**2 + W.square().sum(-2))).sum(-1)


def top(v: Tensor, W: Tensor, h: Tensor) -> Tensor:
    """max_j h_j (v_j² + ‖w_j‖²), the top eigenvalue at the minimum of squared loss with uncorrelated inputs."""
    return (h * (v**2 + W.square().sum(-2))).amax(-1)


def frobenius(v: Tensor, W: Tensor, h: Tensor) -> Tensor:
    """√Σ_j h_j² ((c−1)v_j⁴ + (v_j² + ‖w_j‖²)²), the Frobenius norm at that minimum."""
    squares = (W.shape[-2] - 1) * v**4 + (v**2 + W.square().sum(-2)) ** 2
    return (h**2 * squares).sum(-1).sqrt()


def hessian(parametrization: Parametrization, loss: Loss, blocks: Mapping[str, Tensor]) -> Tensor:
    """The Hessian ``(B, n, n)`` of L(F(φ)) in the parameters, blocks in order, each in row-major order."""
    sizes = [math.prod(block.shape[1:]) for block in blocks.values()]
    B, flat = len(next(iter(blocks.values()))), torch.cat([x.reshape(len(x), -1) for x in blocks.values()], 1)

    def total(flat: Tensor) -> Tensor:
        parts = flat.split(sizes, 1)
        phi = {name: p.reshape(B, *x.shape[1:]) for (name, x), p in zip(blocks.items(), parts, strict=True)}
        return loss.value(parametrization.forward(**phi)).sum()

    gradient = torch.func.grad(total)
    basis = torch.eye(sum(sizes), dtype=flat.dtype, device=flat.device)[:, None].expand(-1, B, -1)
    rows = torch.vmap(lambda direction: torch.func.jvp(gradient, (flat,), (direction,))[1])(basis)
    return rows.transpose(0, 1)


@dataclass(frozen=True)
class Curvature:
    """Top eigenvalue (of largest modulus), trace and Frobenius norm of a Hessian, with standard errors of estimates."""

    top: float
    trace: float
    trace_stderr: float
    frobenius: float
    frobenius_stderr: float


def network_curvature(
    loss: Callable[[dict[str, Tensor]], Tensor],
    parameters: Mapping[str, Tensor],
    rng: np.random.Generator,
    *,
    probes: int = 100,
    tolerance: float = 1e-8,
) -> Curvature:
    """Curvature of a scalar loss of named parameters, from Hessian–vector products alone.

    Products come from one linearisation of the gradient (``torch.func.linearize``), the top eigenvalue from Lanczos
    iterations (scipy's eigsh), trace and squared Frobenius norm from means of zᵀHz and ‖Hz‖² over random signs z.

    Raises
    ------
    ValueError : fewer than two probes, no parameters, or a loss that is not finite.
    """
    check_count("probes", probes, 2)
    if not parameters:
        raise ValueError("parameters is empty: expected at least one")
    parameters = {name: x.detach() for name, x in parameters.items()}
    value = float(loss(parameters))
    if not math.isfinite(value):
        raise ValueError(f"the loss is {value} at these parameters: expected a finite number")
    sizes = [x.numel() for x in parameters.values()]
    like = next(iter(parameters.values()))
    with warnings.catch_warnings():  # linearize warns about its own use of torch.fx and torch.jit
        warnings.simplefilter("ignore")
        _, product = torch.func.linearize(torch.func.grad(loss), parameters)

    def apply(z: np.ndarray) -> np.ndarray:
        parts = torch.from_numpy(np.ascontiguousarray(z.reshape(-1))).to(like).split(sizes)
        image = product({n: p.reshape(x.shape) for (n, x), p in zip(parameters.items(), parts, strict=True)})
        return torch.cat([x.reshape(-1) for x in image.values()]).cpu().double().numpy()

    n = sum(sizes)
    signs = rng.choice([-1.0, 1.0], size=(probes, n))
    images = np.stack([apply(z) for z in signs])
    if not images.any():
        eigenvalue = 0.0  # Lanczos iterations do not start from a vector that is sent to 0
    elif n > 2:
        operator = LinearOperator((n, n), matvec=apply, dtype=np.float64)
        eigenvalue = eigsh(operator, k=1, which="LM", tol=tolerance, v0=signs[0], return_eigenvectors=False)[0]
    else:
        eigenvalues = np.linalg.eigvalsh(np.stack([apply(e) for e in np.eye(n)]))
        eigenvalue = eigenvalues[np.abs(eigenvalues).argmax()]
    traces, squares = (signs * images).sum(1), (images**2).sum(1)
    size = math.sqrt(squares.mean())
    return Curvature(
        float(eigenvalue),
        float(traces.mean()),
        float(traces.std(ddof=1) / math.sqrt(probes)),
        size,
        float(squares.std(ddof=1) / math.sqrt(probes) / (2 * size)) if size else 0.0,
    )
