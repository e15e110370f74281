"""Parametrisations θ = F(φ) of a weight matrix by named parameter blocks.

Each one is data: the axes of its blocks, its forward map, its standard initialisation and its conserved
quantities.  A forward map uses array operations only, so the same function runs on batched torch tensors, on
numpy arrays, and on numpy object arrays of exact symbols or rationals (which is how `laws` reads it).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy
import torch
from torch import Tensor

Array = Any
"""A torch tensor, a numpy array, or a numpy object array of exact numbers or symbols."""


def elementwise(function: str, x: Array) -> Array:
    """Apply ``"sqrt"`` or ``"exp"`` to a torch tensor, a float array or an object array of exact expressions."""
    if isinstance(x, Tensor):
        return getattr(torch, function)(x)
    x = np.asarray(x)
    if x.dtype == object:
        return np.vectorize(getattr(sympy, function), otypes=[object])(x)
    return getattr(np, function)(x)


@dataclass(frozen=True)
class Parametrization:
    """A map from parameter blocks φ to the effective matrix θ ∈ R^{c×d}, batched over leading dimensions.

    Parameters
    ----------
    name : the name it is called by on the command line and in tables.
    axes : block name to its axes, letters of ``dims``: ``{"v": "d", "W": "cd"}``; ``""`` is a scalar.
    forward : keyword blocks, each ``(..., *axes)``, to θ ``(..., c, d)``.
    invariants : keyword blocks to the quantities gradient flow conserves for every differentiable loss, by name.
    start : values at standard initialisation of the blocks other than W (default: ones).
    theta_rows : letters whose product is the number of rows of θ (``"bc"`` for b stacked branches).
    """

    name: str
    axes: Mapping[str, str]
    forward: Callable[..., Array]
    invariants: Callable[..., dict[str, Array]]
    start: Mapping[str, float] = field(default_factory=dict)
    theta_rows: str = "c"

    def __post_init__(self) -> None:
        """Raises ValueError for functions that do not take the blocks by name."""
        for what in ("forward", "invariants"):
            try:
                inspect.signature(getattr(self, what)).bind(**self.axes)
            except TypeError as error:
                raise ValueError(
                    f"{self.name}: {what} does not take the blocks {', '.join(self.axes)} by name: {error}"
                ) from None

    @property
    def letters(self) -> list[str]:
        """Of all axes."""
        return sorted(set("".join(self.axes.values())) | set(self.theta_rows))

    def shapes(self, **dims: int) -> dict[str, tuple[int, ...]]:
        """Block shapes for the given dimensions, e.g. ``shapes(c=4, d=8)``.

        Raises
        ------
        ValueError : a dimension that an axis needs is missing or below 1.
        """
        for letter in self.letters:
            if letter not in dims or dims[letter] < 1:
                given = f"{letter}={dims[letter]}" if letter in dims else f"{letter} is missing"
                raise ValueError(f"{given}: {self.name} needs {letter} to be an integer >= 1")
        return {block: tuple(dims[a] for a in axes) for block, axes in self.axes.items()}

    def init(self, W0: Tensor) -> dict[str, Tensor]:
        """Standard initialisation: scales at 1 (or ``start``), the matrix block at ``W0`` ``(B, *axes of W)``."""
        axes = self.axes["W"]
        if W0.ndim != len(axes) + 1:
            raise ValueError(f"W0 has shape {tuple(W0.shape)}; {self.name} expects (B, {', '.join(axes)})")
        dims = dict(zip(axes, W0.shape[1:], strict=True))
        blocks = {
            b: W0.new_full((W0.shape[0], *(dims[a] for a in ax)), self.start.get(b, 1.0))
            for b, ax in self.axes.items()
            if b != "W"
        }
        return {b: W0.clone() if b == "W" else blocks[b] for b in self.axes}

    def balanced_init(self, theta: Tensor, iterations: int = 200) -> dict[str, Tensor]:
        """The blocks that standard initialisation with W(0) = 0 can reach, at a given ``theta`` ``(B, c, d)``.

        For input, output and dual scales the blocks solve v_j² = 1 + ‖w_j‖² and u_i² = 1 + ‖ŵ_i‖² by fixed-point
        iteration on the scales; raises if the residual has not reached 1e-12.
        """
        u = theta.new_ones(theta.shape[:-1])
        v = theta.new_ones(theta.shape[:-2] + theta.shape[-1:])
        for _ in range(iterations):
            W = theta / (u[..., :, None] * v[..., None, :])
            if "v" in self.axes:
                v = (v * v * (1 + (W * W).sum(-2))) ** 0.25
            W = theta / (u[..., :, None] * v[..., None, :])
            if "u" in self.axes:
                u = (u * u * (1 + (W * W).sum(-1))) ** 0.25
        blocks = {"u": u, "v": v, "W": theta / (u[..., :, None] * v[..., None, :])}
        blocks = {b: blocks[b] for b in self.axes}
        residual = max(((q - 1).abs().max().item() for q in self.invariants(**blocks).values()), default=0.0)
        if not residual < 1e-12:
            raise ValueError(f"{self.name}: no balanced point found for theta, residual {residual:.1e}")
        return blocks


def _columns(W: Array) -> Array:
    return (W * W).sum(-2)


def _rows(W: Array) -> Array:
    return (W * W).sum(-1)


PLAIN = Parametrization("plain", {"W": "cd"}, lambda W: W, lambda W: {})

INPUT_SCALE = Parametrization(
    "input-scale",
    {"v": "d", "W": "cd"},
    lambda v, W: W * v[..., None, :],
    lambda v, W: {"v^2-|w_j|^2": v * v - _columns(W)},
)

OUTPUT_SCALE = Parametrization(
    "output-scale",
    {"u": "c", "W": "cd"},
    lambda u, W: W * u[..., :, None],
    lambda u, W: {"u^2-|w_i|^2": u * u - _rows(W)},
)

DUAL_SCALE = Parametrization(
    "dual-scale",
    {"u": "c", "v": "d", "W": "cd"},
    lambda u, v, W: W * u[..., :, None] * v[..., None, :],
    lambda u, v, W: {"u^2-|w_i|^2": u * u - _rows(W), "v^2-|w_j|^2": v * v - _columns(W)},
)


def _stack(theta: Array) -> Array:
    return theta.reshape(*theta.shape[:-3], theta.shape[-3] * theta.shape[-2], theta.shape[-1])


SHARED_INPUT_SCALE = Parametrization(
    "shared-input-scale",
    {"v": "d", "W": "bcd"},
    lambda v, W: _stack(W * v[..., None, None, :]),
    lambda v, W: {"v^2-sum_b|w_bj|^2": v * v - (W * W).sum(-2).sum(-2)},
    theta_rows="bc",
)

SEPARATE_INPUT_SCALE = Parametrization(
    "separate-input-scale",
    {"v": "bd", "W": "bcd"},
    lambda v, W: _stack(W * v[..., None, :]),
    lambda v, W: {"v_b^2-|w_bj|^2": v * v - (W * W).sum(-2)},
    theta_rows="bc",
)


def magnitude_direction_scale(beta: Array, alpha: Array) -> Array:
    """v = β α / rms(α), shapes ``(...,)`` and ``(..., d)`` (arXiv 2605.26895, reparameterisation in original space)."""
    mean_square = (alpha * alpha).sum(-1) / alpha.shape[-1]
    return alpha * (beta / elementwise("sqrt", mean_square))[..., None]


def exponential_scale(beta: Array, alpha: Array) -> Array:
    """v = exp(β + α − mean α), shapes ``(...,)`` and ``(..., d)`` (arXiv 2605.26895, exponential space)."""
    return elementwise("exp", alpha + (beta - alpha.sum(-1) / alpha.shape[-1])[..., None])


MAGNITUDE_DIRECTION = Parametrization(
    "magnitude-direction",
    {"beta": "", "alpha": "d", "W": "cd"},
    lambda beta, alpha, W: W * magnitude_direction_scale(beta, alpha)[..., None, :],
    lambda beta, alpha, W: {
        "|alpha|^2": (alpha * alpha).sum(-1),
        "beta^2-|W|^2": beta * beta - _columns(W).sum(-1),
    },
)

EXPONENTIAL = Parametrization(
    "exponential",
    {"beta": "", "alpha": "d", "W": "cd"},
    lambda beta, alpha, W: W * exponential_scale(beta, alpha)[..., None, :],
    lambda beta, alpha, W: {
        "sum(alpha)": alpha.sum(-1),
        "|w_j|^2-2alpha_j-2beta/d": _columns(W) - 2 * alpha - (2 * beta / alpha.shape[-1])[..., None],
    },
    start={"beta": 0.0, "alpha": 0.0},
)

SCALAR_MULTIPLIER = Parametrization(
    "scalar-multiplier",
    {"s": "", "W": "cd"},
    lambda s, W: W * s[..., None, None],
    lambda s, W: {"s^2-|W|^2": s * s - _columns(W).sum(-1)},
)

BUILT_IN: dict[str, Parametrization] = {
    p.name: p
    for p in (
        PLAIN,
        INPUT_SCALE,
        OUTPUT_SCALE,
        DUAL_SCALE,
        SHARED_INPUT_SCALE,
        SEPARATE_INPUT_SCALE,
        MAGNITUDE_DIRECTION,
        EXPONENTIAL,
        SCALAR_MULTIPLIER,
    )
}
