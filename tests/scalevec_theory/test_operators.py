"""Closed forms of the induced preconditioner against automatic differentiation and against a Jacobian built by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.parametrizations import (
    BUILT_IN,
    DUAL_SCALE,
    EXPONENTIAL,
    INPUT_SCALE,
    MAGNITUDE_DIRECTION,
    Parametrization,
    exponential_scale,
    magnitude_direction_scale,
)

B, SIZES = 3, [(1, 1), (1, 4), (3, 1), (3, 4)]


def draw(parametrization: Parametrization, seed: int = 0, **dims: int) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    shapes = parametrization.shapes(**dims)
    return {name: torch.from_numpy(np.asarray(rng.standard_normal((B, *shape)))) for name, shape in shapes.items()}


def gradient(c: int, d: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(99).standard_normal((B, c, d)))


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", BUILT_IN)
def test_matrix_and_action_agree_with_finite_differences(name: str) -> None:
    """P G from central differences of F along the coordinates of the blocks, one at a time."""
    F = BUILT_IN[name]
    dims = dict(b=2, c=2, d=3)
    blocks = draw(F, **dims)
    theta = F.forward(**blocks)
    G = gradient(*theta.shape[1:])
    expected, step = torch.zeros_like(theta), 1e-5
    for block, x in blocks.items():
        for index in np.ndindex(*x.shape[1:]):
            at = (slice(None), *index)
            shifted = []
            for sign in (1, -1):
                y = x.clone()
                y[at] += sign * step
                shifted.append(F.forward(**{**blocks, block: y}))
            slope = (shifted[0] - shifted[1]) / (2 * step)
            expected += slope * (slope * G).sum((-2, -1), keepdim=True)
    torch.testing.assert_close(operators.apply(F, blocks, G), expected, rtol=1e-7, atol=1e-7)
    P = operators.matrix(F, blocks)
    close((P @ G.flatten(1)[..., None])[..., 0], operators.apply(F, blocks, G).flatten(1))


@pytest.mark.parametrize(("c", "d"), SIZES)
def test_input_scale(c: int, d: int) -> None:
    blocks, G = draw(INPUT_SCALE, c=c, d=d), gradient(c, d)
    expected = torch.zeros(B, c, d, c, d, dtype=torch.float64)
    for j, P in enumerate(operators.input_scale(**blocks).unbind(1)):
        expected[:, :, j, :, j] = P
    close(operators.matrix(INPUT_SCALE, blocks), expected.reshape(B, c * d, c * d))
    plain = torch.eye(d, dtype=torch.float64)
    close(operators.scaled_columns(G=G, scale_operator=plain, **blocks), operators.apply(INPUT_SCALE, blocks, G))


@pytest.mark.parametrize(("c", "d"), SIZES)
def test_dual_scale(c: int, d: int) -> None:
    blocks, G = draw(DUAL_SCALE, c=c, d=d), gradient(c, d)
    close(operators.dual_scale(G=G, **blocks), operators.apply(DUAL_SCALE, blocks, G))


@pytest.mark.parametrize(("c", "d"), SIZES)
def test_magnitude_direction(c: int, d: int) -> None:
    blocks, G = draw(MAGNITUDE_DIRECTION, c=c, d=d), gradient(c, d)
    W = blocks.pop("W")
    S = operators.magnitude_direction(**blocks)
    close(S, operators.matrix(magnitude_direction_scale, blocks))
    v = magnitude_direction_scale(**blocks)
    close(operators.scaled_columns(v, W, S, G), operators.apply(MAGNITUDE_DIRECTION, {**blocks, "W": W}, G))


@pytest.mark.parametrize(("c", "d"), SIZES)
def test_exponential(c: int, d: int) -> None:
    blocks, G = draw(EXPONENTIAL, c=c, d=d), gradient(c, d)
    W = blocks.pop("W")
    S = operators.exponential(d, W)
    log_v = operators.matrix(lambda beta, alpha: exponential_scale(beta, alpha).log(), blocks)
    close(S.expand(B, d, d), log_v)
    v = exponential_scale(**blocks)
    on_v = v[..., :, None] * S * v[..., None, :]
    close(operators.scaled_columns(v, W, on_v, G), operators.apply(EXPONENTIAL, {**blocks, "W": W}, G))


@pytest.mark.parametrize(("c", "d"), SIZES)
def test_standard_scale_lies_on_the_manifold(c: int, d: int) -> None:
    theta = 3 * gradient(c, d)
    v = operators.standard_scale(theta)
    close(INPUT_SCALE.invariants(v=v, W=theta / v[:, None])["v^2-|w_j|^2"], torch.ones(B, d, dtype=torch.float64))
    balanced = INPUT_SCALE.balanced_init(theta)
    torch.testing.assert_close(v, balanced["v"], rtol=1e-9, atol=0)
    close(operators.standard_input_scale(theta), operators.input_scale(v, theta / v[:, None]))


def test_scalar_blocks_and_an_empty_batch() -> None:
    blocks = {name: x[:0] for name, x in draw(MAGNITUDE_DIRECTION, c=2, d=3).items()}
    assert operators.matrix(MAGNITUDE_DIRECTION, blocks).shape == (0, 6, 6)


def test_bad_input_is_refused_at_the_door() -> None:
    blocks = draw(INPUT_SCALE, c=2, d=3)
    with pytest.raises(ValueError, match=r"input-scale has the blocks \['W', 'v'\]"):
        operators.apply(INPUT_SCALE, {"W": blocks["W"]}, gradient(2, 3))
    with pytest.raises(ValueError, match=r"G has shape \(3, 3, 2\): expected that of theta, \(3, 2, 3\)"):
        operators.apply(INPUT_SCALE, blocks, gradient(3, 2))
